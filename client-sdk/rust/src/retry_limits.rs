//! The limits of retries: attempts, timeouts, backoff.

use std::time::Duration;

/// The limits of a submission's retries.
///
/// While the server refuses connections, nothing is sent. Such an attempt does not count: it is repeated until the deadline, with a backoff of
/// at most a second, so that a submission outlasts a server that restarts. With [`attempts`](Self::attempts) of one it is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryLimits {
    pub(crate) attempts: u32,
    pub(crate) deadline: Duration,
    pub(crate) attempt_timeout: Duration,
    pub(crate) first_backoff: Duration,
    pub(crate) longest_backoff: Duration,
}

impl RetryLimits {
    /// At most five attempts of at most ten seconds each, all within 30 seconds.
    pub const fn new() -> Self {
        Self {
            attempts: 5,
            deadline: Duration::from_secs(30),
            attempt_timeout: Duration::from_secs(10),
            first_backoff: Duration::from_millis(100),
            longest_backoff: Duration::from_secs(5),
        }
    }

    /// The most attempts, including the first, apart from those that are refused a connection. Zero counts as one.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = if attempts == 0 { 1 } else { attempts };
        self
    }

    /// The deadline for everything: fetching a token, every attempt, every backoff.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The timeout of one attempt, until its response is read.
    #[must_use]
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = timeout;
        self
    }

    /// The random delay between attempts: up to `first`, then up to twice that, and so on, never more than `longest`.
    /// `Retry-After` is added to it.
    #[must_use]
    pub const fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.first_backoff = first;
        self.longest_backoff = longest;
        self
    }
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self::new()
    }
}
