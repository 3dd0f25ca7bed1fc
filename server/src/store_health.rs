//! Whether the store answers, asked for by many and found out once.

use std::sync::Arc;
use std::time::Duration;

use onceward::Guard;
use onceward::store::StoreError;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long an answer of the store counts.
const COUNTS: Duration = Duration::from_millis(200);

/// What the store has last answered, and when. One asks, and whoever comes meanwhile or just after is told the same: anybody may ask whether
/// the service is ready, and must not keep the store busy with it.
#[derive(Debug, Default)]
pub(crate) struct Readiness(Mutex<Option<(Instant, Answer)>>);

type Answer = Result<(), Unready>;

/// Why the service is not ready.
#[derive(Debug, Clone)]
pub(crate) struct Unready {
    /// What the store said, for the log.
    pub(crate) error: Arc<str>,
    /// Whether the store answers and refuses what is new for want of room.
    pub(crate) is_full: bool,
}

impl From<StoreError> for Unready {
    fn from(error: StoreError) -> Self {
        Self { error: error.to_string().into(), is_full: error.is_full() }
    }
}

impl Readiness {
    pub(crate) async fn of(&self, guard: &Guard) -> Answer {
        let mut last = self.0.lock().await;
        if let Some((_, answer)) = last.as_ref().filter(|(when, _)| when.elapsed() < COUNTS) {
            return answer.clone();
        }
        let answer = guard.ping().await.map_err(Unready::from);
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}
