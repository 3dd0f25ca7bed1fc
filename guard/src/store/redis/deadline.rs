//! Until when an answer is waited for.

use std::time::Duration;

use tokio::time::Instant;

/// What an answer gets beyond its time, at least and at most. A thread that was held up, and drives its own connection, finds
/// that the time is over before it has sent what it asks, or read what has long been there: it gets as long as it was late.
const BEYOND: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Until when, and since when.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    since: Instant,
    pub(super) at: Instant,
}

impl Deadline {
    /// From now on, for so long.
    pub(super) fn after(time: Duration) -> Self {
        let since = Instant::now();
        Self { since, at: since + time }
    }

    /// Whether nothing can be sent any more that would be answered in time.
    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.at
    }

    /// Whether there is more than that left.
    pub(super) fn leaves(self, time: Duration) -> bool {
        Instant::now() + time < self.at
    }

    /// Whether more than half of the time was over when it was sent. What had waited long for a connection, or was sent on by
    /// others, leaves little time for an answer: that there is none says nothing against the connection.
    pub(super) fn was_hurried(self, sent: Instant) -> bool {
        sent.saturating_duration_since(self.since) > self.at.saturating_duration_since(sent)
    }

    /// How much longer than this an answer may take.
    pub(super) fn beyond(self) -> Duration {
        self.at.elapsed().clamp(BEYOND.0, BEYOND.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_sends_in_the_second_half_of_its_time_is_hurried() {
        let deadline = Deadline::after(Duration::from_secs(10));
        for (seconds, was_hurried) in [(0, false), (4, false), (6, true), (11, true)] {
            let sent = deadline.since + Duration::from_secs(seconds);
            assert_eq!(deadline.was_hurried(sent), was_hurried, "{seconds}");
        }
    }
}
