//! The deadline of a response.

use std::time::Duration;

use tokio::time::Instant;

use super::error::TransportError;

/// The minimum and maximum extra time for a response after its deadline. A thread that drives its own connection and was blocked may
/// notice the deadline before it has sent its command, or before it has read a response that arrived long ago. It gets as much extra
/// time as it was late.
const BEYOND: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A point in time, and when waiting for it started.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    since: Instant,
    pub(super) at: Instant,
}

impl Deadline {
    /// Creates a deadline `time` from now.
    pub(super) fn after(time: Duration) -> Self {
        let since = Instant::now();
        Self { since, at: since + time }
    }

    /// Returns whether the deadline has passed, so that a command sent now could not be answered in time.
    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.at
    }

    /// Returns whether more than `time` remains.
    pub(super) fn leaves(self, time: Duration) -> bool {
        Instant::now() + time < self.at
    }

    /// Returns whether more than half of the time had passed when the command was sent. A command that waited long for a connection, or
    /// was redirected, has little time left for its response: a timeout is then no evidence against the connection.
    pub(super) fn was_hurried(self, sent: Instant) -> bool {
        sent.saturating_duration_since(self.since) > self.at.saturating_duration_since(sent)
    }

    /// Returns the error of a command without a reply by then.
    pub(super) fn timed_out(self) -> TransportError {
        TransportError::TimedOut(self.at - self.since)
    }

    /// Returns the extra time for a response after the deadline.
    pub(super) fn beyond(self) -> Duration {
        self.at.elapsed().clamp(BEYOND.0, BEYOND.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_sent_after_half_its_timeout_is_hurried() {
        let deadline = Deadline::after(Duration::from_secs(10));
        for (seconds, was_hurried) in [(0, false), (4, false), (6, true), (11, true)] {
            let sent = deadline.since + Duration::from_secs(seconds);
            assert_eq!(deadline.was_hurried(sent), was_hurried, "{seconds}");
        }
    }
}
