//! How long nothing is tried after something has failed: exponential backoff with jitter.

use std::time::Duration;

/// Doubles with every failure. Jitter keeps callers apart that failed together.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// From the first pause to the longest.
    pub(crate) fn between(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first.min(longest) }
    }

    /// It went well: the next pause is short.
    pub(crate) fn reset(&mut self) {
        self.next = self.first.min(self.longest);
    }

    /// The next pause: from a half to all of what it is at the most.
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
    fn pauses_double_up_to_the_longest_and_start_over_after_a_success() {
        let mut backoff = Backoff::between(SHORTEST, SHORTEST * 50);
        for longest in [10, 20, 40, 80, 160, 320, 500, 500].map(Duration::from_millis) {
            let next = backoff.next();
            assert!((longest / 2..=longest).contains(&next), "{next:?} of {longest:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= SHORTEST);
    }

    #[test]
    fn pauses_of_those_that_failed_together_differ() {
        let mut pauses: Vec<_> = (0..20).map(|_| Backoff::between(SHORTEST * 100, SHORTEST * 100).next()).collect();
        pauses.sort();
        pauses.dedup();
        assert!(pauses.len() > 10, "{pauses:?}");
    }
}
