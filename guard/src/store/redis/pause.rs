//! How long nothing is tried after something has failed.

use std::time::Duration;

/// The first and the longest pause.
const BETWEEN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Twice as long each time, and never as long as others wait who began at the same moment.
pub(super) struct Pause(Duration);

impl Pause {
    pub(super) fn new() -> Self {
        Self(BETWEEN.0)
    }

    /// It went well: the next one is short.
    pub(super) fn reset(&mut self) {
        self.0 = BETWEEN.0;
    }

    /// The next one: from a half to all of what it is at the most.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.0 = (self.0 * 2).min(BETWEEN.1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_second_and_begin_anew() {
        let mut pause = Pause::new();
        for longest in [10, 20, 40, 80, 160, 320, 500, 500].map(Duration::from_millis) {
            let next = pause.next();
            assert!((longest / 2..=longest).contains(&next), "{next:?} of {longest:?}");
        }
        pause.reset();
        assert!(pause.next() <= BETWEEN.0);
    }
}
