//! Waits for a condition instead of sleeping for a fixed time.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Polls until the condition is true.
///
/// # Panics
/// If the condition is not true within `limit`. The message names `what`.
pub async fn until<F: Future<Output = bool>>(what: &str, limit: Duration, mut is_so: impl FnMut() -> F) {
    let deadline = Instant::now() + limit;
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Polls for this time, and the condition has to be true each time, so that an unwanted change has time to happen.
///
/// # Panics
/// If the condition is ever false. The message names `what`.
pub async fn holds_for<F: Future<Output = bool>>(what: &str, time: Duration, mut is_so: impl FnMut() -> F) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        assert!(is_so().await, "{what}: no longer after {:?}", begun.elapsed());
        sleep(Duration::from_millis(20)).await;
    }
    assert!(is_so().await, "{what}: no longer after {time:?}");
}

/// Sleeps until a lease, a retention or a token has expired. Real servers and processes use real time, which no test clock can advance.
pub async fn outlast(lifetime: Duration) {
    sleep(lifetime + Duration::from_millis(50)).await;
}

/// Like [`until`], outside of a runtime. Returns true if the condition became true.
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
