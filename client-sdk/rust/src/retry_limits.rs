//! How often and how long a submission is tried.

use std::time::Duration;

/// How often and how long a submission is tried, waits included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub(crate) tries: u32,
    pub(crate) deadline: Duration,
    pub(crate) try_timeout: Duration,
    pub(crate) first_wait: Duration,
    pub(crate) longest_wait: Duration,
}

impl Limits {
    /// Five tries of ten seconds each at most, all within half a minute.
    pub const fn new() -> Self {
        Self {
            tries: 5,
            deadline: Duration::from_secs(30),
            try_timeout: Duration::from_secs(10),
            first_wait: Duration::from_millis(100),
            longest_wait: Duration::from_secs(5),
        }
    }

    /// How often it is sent at most, the first time included. Zero is one.
    #[must_use]
    pub const fn tries(mut self, tries: u32) -> Self {
        self.tries = if tries == 0 { 1 } else { tries };
        self
    }

    /// How long it may take in all: fetching a token, every try, every wait.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How long one try may take, until its answer is there.
    #[must_use]
    pub const fn try_timeout(mut self, timeout: Duration) -> Self {
        self.try_timeout = timeout;
        self
    }

    /// What the random waits between tries are drawn from: up to `first`, then up to twice that, and so on, never above
    /// `longest`. A `Retry-After` is waited for in any case.
    #[must_use]
    pub const fn waits(mut self, first: Duration, longest: Duration) -> Self {
        self.first_wait = first;
        self.longest_wait = longest;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}
