//! The delay before the next attempt.

use std::time::Duration;

use crate::retry_limits::RetryLimits;

/// Bounds of the delay after a refused connection. An attempt costs a server that is down nothing, and finds a restarted one soon.
const REFUSED: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A range of delays: at least `minimum`, plus a random part of `jitter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) minimum: Duration,
    pub(crate) jitter: Duration,
}

impl Backoff {
    /// Exponential backoff with full jitter: the upper bound doubles with each attempt. `Retry-After` is added to it.
    pub(crate) fn after(attempts: u32, retry_after: Option<Duration>, limits: &RetryLimits) -> Self {
        let doubled = limits.first_backoff.saturating_mul(1 << attempts.min(20));
        Self { minimum: retry_after.unwrap_or_default(), jitter: doubled.min(limits.longest_backoff) }
    }

    /// The backoff after this many refused connections. Half of the delay is fixed, since these retries go on until the deadline.
    pub(crate) fn after_refusals(refusals: u32, limits: &RetryLimits) -> Self {
        let half = Self::after(refusals, None, limits).jitter.clamp(REFUSED.0, REFUSED.1) / 2;
        Self { minimum: half, jitter: half }
    }

    /// Limits the delay to `limit`.
    pub(crate) fn within(self, limit: Duration) -> Self {
        let minimum = self.minimum.min(limit);
        Self { minimum, jitter: self.jitter.min(limit - minimum) }
    }

    /// The delay for a random number between 0 and 1.
    pub(crate) fn delay(self, random: f64) -> Duration {
        self.minimum.saturating_add(self.jitter.mul_f64(random))
    }
}
