//! The delay before the next attempt.

use std::time::Duration;

use crate::retry_limits::RetryLimits;

/// A range of delays: at least `minimum`, plus a random part of `jitter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) minimum: Duration,
    pub(crate) jitter: Duration,
}

impl Backoff {
    /// Full jitter: the upper bound doubles with each attempt. `Retry-After` is added to it.
    pub(crate) fn after(attempts: u32, retry_after: Option<Duration>, limits: &RetryLimits) -> Self {
        let doubled = limits.first_backoff.saturating_mul(1 << attempts.min(20));
        Self { minimum: retry_after.unwrap_or_default(), jitter: doubled.min(limits.longest_backoff) }
    }

    /// The delay for a random number from 0 to 1.
    pub(crate) fn delay(self, random: f64) -> Duration {
        self.minimum.saturating_add(self.jitter.mul_f64(random))
    }
}
