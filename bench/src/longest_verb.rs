//! The longest call of a verb.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The longest call so far: its elapsed time, which includes waiting for a CPU and for locks, and the longest by CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LongestVerb {
    pub(crate) elapsed: Duration,
    pub(crate) cpu: Duration,
}

impl LongestVerb {
    /// Times one call on this thread.
    pub(crate) fn time<T>(&mut self, verb: impl FnOnce() -> T) -> T {
        let (begun, used) = (now(), cpu_of_thread());
        let done = verb();
        self.elapsed = self.elapsed.max(begun.elapsed());
        self.cpu = self.cpu.max(cpu_of_thread().saturating_sub(used));
        done
    }

    /// Returns the longer of both, clock by clock.
    pub(crate) fn max(self, other: Self) -> Self {
        Self { elapsed: self.elapsed.max(other.elapsed), cpu: self.cpu.max(other.cpu) }
    }
}

/// The CPU time of this thread. It does not advance while other processes run.
pub(crate) fn cpu_of_thread() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "measures the time that passes")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_call_is_kept() {
        let mut longest = LongestVerb::default();
        let spin = |micros: u64| {
            let begun = now();
            while begun.elapsed() < Duration::from_micros(micros) {}
        };
        longest.time(|| spin(2_000));
        let after = longest;
        assert!(after.elapsed >= Duration::from_micros(2_000) && after.cpu > Duration::ZERO);
        longest.time(|| ());
        assert_eq!(longest, after);
        let other = LongestVerb { elapsed: Duration::from_secs(9), cpu: Duration::ZERO };
        assert_eq!(longest.max(other), LongestVerb { elapsed: Duration::from_secs(9), cpu: after.cpu });
    }
}
