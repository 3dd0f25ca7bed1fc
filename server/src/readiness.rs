//! Whether the store answers, asked for by many and found out once.

use std::time::Duration;

use onceward::Guard;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long an answer of the store counts.
const COUNTS: Duration = Duration::from_millis(200);

/// Whether the store has last answered, and when that was asked. One asks, and whoever comes meanwhile or just after is told the same:
/// anybody may ask whether the service is ready, and must not keep the store busy with it.
#[derive(Debug, Default)]
pub(crate) struct Readiness(Mutex<Option<(Instant, bool)>>);

impl Readiness {
    pub(crate) async fn of(&self, guard: &Guard) -> bool {
        let mut last = self.0.lock().await;
        if let Some((_, is_ready)) = last.filter(|(when, _)| when.elapsed() < COUNTS) {
            return is_ready;
        }
        let asked = guard.ping().await;
        if let Err(error) = &asked {
            tracing::warn!(%error, "not ready");
        }
        *last = Some((Instant::now(), asked.is_ok()));
        asked.is_ok()
    }
}
