//! Retry limits: number of attempts, timeouts, deadline, backoff.

use std::time::Duration;

/// The limits of a submission's retries.
///
/// A refused connection does not count as an attempt, since nothing is sent. It is retried until the deadline, with a backoff of at most
/// one second, so that a submission survives a restart of the server. With [`attempts`](Self::attempts) of one it is not retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryLimits {
    pub(crate) attempts: u32,
    pub(crate) deadline: Duration,
    pub(crate) attempt_timeout: Duration,
    pub(crate) first_backoff: Duration,
    pub(crate) longest_backoff: Duration,
}

impl RetryLimits {
    /// The default limits: 5 attempts, a timeout of 10 seconds for each, a deadline of 30 seconds for all of them.
    pub const fn new() -> Self {
        Self {
            attempts: 5,
            deadline: Duration::from_secs(30),
            attempt_timeout: Duration::from_secs(10),
            first_backoff: Duration::from_millis(100),
            longest_backoff: Duration::from_secs(5),
        }
    }

    /// Maximum number of attempts, including the first and without refused connections. Zero counts as one.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = if attempts == 0 { 1 } else { attempts };
        self
    }

    /// Maximum total time: fetching a token, all attempts and the backoff between them.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Timeout of one attempt, until its response is read.
    #[must_use]
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = timeout;
        self
    }

    /// Exponential backoff with full jitter: a random delay of up to `first`, then up to twice that, and so on, at most `longest`.
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
