//! Waiting for something to become true, instead of sleeping and hoping.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Asks again and again until the answer is yes.
///
/// # Panics
/// If it is not yes within `limit`, with what was waited for.
pub async fn until<F: Future<Output = bool>>(what: &str, limit: Duration, mut is_so: impl FnMut() -> F) {
    let deadline = Instant::now() + limit;
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// The same outside of a runtime; says whether it became true.
#[expect(clippy::disallowed_methods, reason = "no request waits for this thread")]
pub fn until_blocking(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
