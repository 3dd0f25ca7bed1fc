//! A limit for warnings about something that every request may run into.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;

/// Limits a warning to one line every ten seconds, and counts the lines that it suppresses.
///
/// A failure that concerns every request would otherwise write a line for each of them. The first one is logged at once.
///
/// ```
/// use onceward::{Clock, WarningLimit};
///
/// let limit = WarningLimit::new(Clock::system());
/// for _ in 0..1_000 {
///     if let Some(suppressed) = limit.admit() {
///         println!("a key is wrong; {suppressed} such lines were suppressed since the last one");
///     }
/// }
/// ```
#[derive(Debug)]
pub struct WarningLimit {
    clock: Clock,
    /// From when on the next line may be logged, in milliseconds of the steady clock.
    next: AtomicU64,
    suppressed: AtomicU64,
}

impl WarningLimit {
    /// The time between two lines.
    pub const EVERY: Duration = Duration::from_secs(10);

    /// Creates a limit that has logged nothing yet.
    pub fn new(clock: Clock) -> Self {
        Self { clock, next: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Counts an occurrence. Returns how many were suppressed since the last line if this one is to be logged, and `None` if it is not.
    pub fn admit(&self) -> Option<u64> {
        let (now, next) = (self.clock.steady(), self.next.load(Ordering::Relaxed));
        let then = now.saturating_add(Self::EVERY.as_millis() as u64);
        // Of several threads at the same time, one logs.
        if now < next || self.next.compare_exchange(next, then, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.suppressed.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn first_occurrence_is_logged_and_the_others_are_counted_until_ten_seconds_later() {
        let clock = ManualClock::new();
        let limit = WarningLimit::new((&clock).into());
        assert_eq!(limit.admit(), Some(0));
        for _ in 0..3 {
            clock.advance(Duration::from_secs(3));
            assert_eq!(limit.admit(), None);
        }
        clock.advance(Duration::from_secs(1));
        assert_eq!(limit.admit(), Some(3));
        assert_eq!(limit.admit(), None);
        clock.advance(Duration::from_secs(60));
        assert_eq!(limit.admit(), Some(1));
    }

    #[test]
    fn one_of_many_threads_logs() {
        let limit = WarningLimit::new((&ManualClock::new()).into());
        let logged = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| (0..100).filter_map(|_| limit.admit()).count())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!((logged, limit.suppressed.load(Ordering::Relaxed)), (1, 799));
    }
}
