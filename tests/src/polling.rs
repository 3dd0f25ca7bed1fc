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

/// Asks again and again for this long, and the answer has to be yes each time: what must not happen has had the time to happen.
///
/// # Panics
/// If it is ever no, with what should have lasted.
pub async fn holds_for<F: Future<Output = bool>>(what: &str, time: Duration, mut is_so: impl FnMut() -> F) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        assert!(is_so().await, "{what}: no longer after {:?}", begun.elapsed());
        sleep(Duration::from_millis(20)).await;
    }
    assert!(is_so().await, "{what}: no longer after {time:?}");
}

/// Lets a lease, a retention or a token's life pass. Real servers and processes go by real time: no clock of a test moves it.
pub async fn outlast(lifetime: Duration) {
    sleep(lifetime + Duration::from_millis(50)).await;
}

/// Like [`until`], outside of a runtime; says whether it became true.
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
