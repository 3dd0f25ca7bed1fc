//! Rate limits for warnings that every request may cause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Clock;

/// A rate limit for a warning: one line every ten seconds. Counts the lines that it suppresses.
///
/// Without it, a failure that affects every request would log a line for each of them. The first line is logged at once.
///
/// ```
/// use onceward::{Clock, WarningLimit};
///
/// let limit = WarningLimit::new(Clock::system());
/// for _ in 0..1_000 {
///     if let Some(suppressed) = limit.admit() {
///         println!("rejected an unknown API key; {suppressed} such lines were suppressed since the last one");
///     }
/// }
/// ```
#[derive(Debug)]
pub struct WarningLimit {
    clock: Clock,
    /// Time from which the next line may be logged, in milliseconds of the monotonic clock.
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

    /// Counts an occurrence. Returns the number of suppressed lines since the last one if this line is to be logged, and `None` otherwise.
    pub fn admit(&self) -> Option<u64> {
        let (now, next) = (self.clock.steady(), self.next.load(Ordering::Relaxed));
        let then = now.saturating_add(Self::EVERY.as_millis() as u64);
        // Of several concurrent threads, one logs.
        if now < next || self.next.compare_exchange(next, then, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.suppressed.swap(0, Ordering::Relaxed))
    }

    /// Returns whether the next occurrence is logged and no line is suppressed.
    fn is_idle(&self) -> bool {
        self.next.load(Ordering::Relaxed) <= self.clock.steady() && self.suppressed.load(Ordering::Relaxed) == 0
    }
}

/// Rate limits for warnings by topic, so that a frequent warning does not hide a rare one: each of a few topics has its own
/// [`WarningLimit`], and all others share one.
#[derive(Debug)]
pub struct WarningLimits {
    clock: Clock,
    limits: Mutex<Vec<(String, WarningLimit)>>,
    others: WarningLimit,
}

impl WarningLimits {
    /// Maximum number of topics with their own limit.
    const MOST: usize = 8;

    /// Creates limits that have logged nothing yet.
    pub fn new(clock: Clock) -> Self {
        Self { others: WarningLimit::new(clock.clone()), limits: Mutex::default(), clock }
    }

    /// Counts an occurrence of this topic, as [`WarningLimit::admit`] does.
    pub fn admit(&self, topic: &str) -> Option<u64> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, limit)) = limits.iter().find(|(known, _)| known == topic) {
            return limit.admit();
        }
        if limits.len() >= Self::MOST {
            // Replace a topic whose ten seconds have passed and that has no suppressed lines to report.
            let Some(idle) = limits.iter().position(|(_, limit)| limit.is_idle()) else { return self.others.admit() };
            limits.swap_remove(idle);
        }
        let limit = WarningLimit::new(self.clock.clone());
        let admitted = limit.admit();
        limits.push((topic.to_owned(), limit));
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn one_line_is_logged_per_ten_seconds() {
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
    fn frequent_topic_does_not_hide_a_rare_one() {
        let clock = ManualClock::new();
        let limits = WarningLimits::new((&clock).into());
        assert_eq!((limits.admit("often"), limits.admit("often")), (Some(0), None));
        assert_eq!(limits.admit("rare"), Some(0));
        for number in 2..WarningLimits::MOST {
            assert_eq!(limits.admit(&number.to_string()), Some(0));
        }
        assert_eq!((limits.admit("one more"), limits.admit("and another")), (Some(0), None), "they share one limit");
        clock.advance(WarningLimit::EVERY);
        assert_eq!(limits.admit("new"), Some(0), "an idle topic is replaced");
        assert_eq!(limits.admit("often"), Some(1), "the suppressed line is reported");
    }

    #[test]
    fn one_of_many_threads_logs_the_warning() {
        let limit = WarningLimit::new((&ManualClock::new()).into());
        let logged = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| (0..100).filter_map(|_| limit.admit()).count())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!((logged, limit.suppressed.load(Ordering::Relaxed)), (1, 799));
    }
}
