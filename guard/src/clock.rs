//! Time, asked for in one place, so that a test can move it by hand.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where a guard and its memory store get the time from.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<ManualClock>);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(None)
    }

    /// Whether it is moved by hand.
    pub(crate) fn is_manual(&self) -> bool {
        self.0.is_some()
    }

    /// Milliseconds since 1970: what tokens are dated by, the same on every machine.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn wall(&self) -> u64 {
        match &self.0 {
            Some(manual) => manual.now(),
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64,
        }
    }

    /// Milliseconds since some moment in the past: only ever goes forward, whatever is done to the machine's date.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub(crate) fn steady(&self) -> u64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        match &self.0 {
            Some(manual) => manual.now(),
            None => START.elapsed().as_millis() as u64,
        }
    }
}

/// A clock that stands still until it is told to move.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that stands at some day in 2027.
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_800_000_000_000)))
    }

    /// Lets this much time pass at once.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl From<&ManualClock> for Clock {
    fn from(manual: &ManualClock) -> Self {
        Self(Some(manual.clone()))
    }
}
