//! A cached ping of the store, for readiness checks.

use std::sync::Arc;
use std::time::Duration;

use onceward::Guard;
use onceward::store::StoreError;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Time for which a result is reused.
const REUSE: Duration = Duration::from_millis(200);

/// The result of the last ping. Concurrent and frequent checks share one ping, so that a client that polls `/readyz`
/// does not load the store.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth(Mutex<Option<(Instant, Result<(), StoreFailure>)>>);

/// The reason for a failed ping.
#[derive(Debug, Clone)]
pub(crate) struct StoreFailure {
    /// The error of the store, for the log.
    pub(crate) error: Arc<str>,
    /// True if the store is reachable but has no room for new records.
    pub(crate) is_full: bool,
}

impl From<StoreError> for StoreFailure {
    fn from(error: StoreError) -> Self {
        Self { error: error.to_string().into(), is_full: error.is_full() }
    }
}

impl StoreHealth {
    pub(crate) async fn check(&self, guard: &Guard) -> Result<(), StoreFailure> {
        let mut last = self.0.lock().await;
        if let Some((_, answer)) = last.as_ref().filter(|(when, _)| when.elapsed() < REUSE) {
            return answer.clone();
        }
        let answer = guard.ping().await.map_err(StoreFailure::from);
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}
