//! Exponential backoff with jitter.

use std::time::Duration;

/// A pause that doubles with every failure. Jitter spreads the retries of callers that failed at the same time.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Creates a backoff whose pauses grow from `first` to `longest`.
    pub(crate) fn between(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first.min(longest) }
    }

    /// Resets the backoff to the first pause, after a success.
    pub(crate) fn reset(&mut self) {
        self.next = self.first.min(self.longest);
    }

    /// Returns the next pause, between half and all of its current maximum.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.next = self.next.saturating_mul(2).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORTEST: Duration = Duration::from_millis(10);

    #[test]
    fn pauses_double_up_to_maximum_and_reset_after_success() {
        let mut backoff = Backoff::between(SHORTEST, SHORTEST * 50);
        for longest in [10, 20, 40, 80, 160, 320, 500, 500].map(Duration::from_millis) {
            let next = backoff.next();
            assert!((longest / 2..=longest).contains(&next), "{next:?} of {longest:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= SHORTEST);
    }

    #[test]
    fn jitter_gives_concurrent_failures_different_pauses() {
        let mut pauses: Vec<_> = (0..20).map(|_| Backoff::between(SHORTEST * 100, SHORTEST * 100).next()).collect();
        pauses.sort();
        pauses.dedup();
        assert!(pauses.len() > 10, "{pauses:?}");
    }
}
