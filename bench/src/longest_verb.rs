//! The longest call of a verb, and the 99.999th percentile.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Number of parts of a power of two that the histogram distinguishes: an error of an eighth.
const PARTS: u32 = 8;
/// One call in this many may be longer than the 99.999th percentile.
const FEW: u64 = 100_000;

/// The times of many calls.
///
/// The elapsed time includes waiting for a CPU and for locks. The CPU time does not advance while another process of this machine runs, but
/// does while another virtual machine of the same host runs. So one long call may be noise of the machine; a store that pauses has many.
#[derive(Debug, Clone)]
pub(crate) struct VerbTimes {
    elapsed: Duration,
    cpu: Duration,
    /// Number of calls by CPU time.
    histogram: Vec<u64>,
}

/// The figures of many calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LongestVerb {
    /// The longest by elapsed time.
    pub(crate) elapsed: Duration,
    /// The longest by CPU time.
    pub(crate) cpu: Duration,
    /// The 99.999th percentile of the CPU time.
    pub(crate) usual: Duration,
}

impl VerbTimes {
    pub(crate) fn new() -> Self {
        let size = bucket(Duration::from_nanos(u64::MAX)) + 1;
        Self { elapsed: Duration::ZERO, cpu: Duration::ZERO, histogram: vec![0; size] }
    }

    /// Times one call on this thread.
    pub(crate) fn time<T>(&mut self, verb: impl FnOnce() -> T) -> T {
        let (begun, used) = (now(), cpu_of_thread());
        let done = verb();
        let cpu = cpu_of_thread().saturating_sub(used);
        self.add(begun.elapsed(), cpu);
        done
    }

    fn add(&mut self, elapsed: Duration, cpu: Duration) {
        self.elapsed = self.elapsed.max(elapsed);
        self.cpu = self.cpu.max(cpu);
        self.histogram[bucket(cpu)] += 1;
    }

    pub(crate) fn longest(&self) -> LongestVerb {
        LongestVerb { elapsed: self.elapsed, cpu: self.cpu, usual: self.usual() }
    }

    /// Returns the 99.999th percentile of the CPU time, rounded up.
    fn usual(&self) -> Duration {
        let mut longer = self.histogram.iter().sum::<u64>() / FEW;
        for (bucket, count) in self.histogram.iter().enumerate().rev() {
            if *count > longer {
                return end(bucket).min(self.cpu);
            }
            longer -= count;
        }
        Duration::ZERO
    }
}

impl LongestVerb {
    /// Returns the longer of both, figure by figure.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            elapsed: self.elapsed.max(other.elapsed),
            cpu: self.cpu.max(other.cpu),
            usual: self.usual.max(other.usual),
        }
    }
}

/// Returns the bucket of a time: its power of two, and which eighth of it.
fn bucket(time: Duration) -> usize {
    let nanos = (time.as_nanos() as u64).max(u64::from(PARTS));
    let power = nanos.ilog2();
    let part = (nanos >> (power - PARTS.ilog2())) as u32 - PARTS;
    (power * PARTS + part) as usize
}

/// Returns the time below which a bucket ends.
fn end(bucket: usize) -> Duration {
    let (power, part) = (bucket as u32 / PARTS, bucket as u64 % u64::from(PARTS));
    let next = (u64::from(PARTS) + part + 1).checked_shl(power.saturating_sub(PARTS.ilog2()));
    Duration::from_nanos(next.unwrap_or(u64::MAX))
}

/// The CPU time of this thread.
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

    fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    #[test]
    fn longest_call_is_kept() {
        let mut times = VerbTimes::new();
        times.time(|| {
            let begun = now();
            while begun.elapsed() < micros(2_000) {}
        });
        let longest = times.longest();
        assert!(longest.elapsed >= micros(2_000) && longest.cpu > Duration::ZERO && longest.usual == longest.cpu);
        times.time(|| ());
        assert_eq!(times.longest(), longest);
    }

    #[test]
    fn one_call_in_a_hundred_thousand_may_be_longer() {
        let mut times = VerbTimes::new();
        (0..FEW - 2).for_each(|_| times.add(micros(1), micros(1)));
        times.add(micros(300), micros(300));
        times.add(micros(9_000), micros(8_000));
        let LongestVerb { elapsed, cpu, usual } = times.longest();
        assert_eq!((elapsed, cpu), (micros(9_000), micros(8_000)));
        assert!((micros(300)..micros(300 * 9 / 8)).contains(&usual), "{usual:?}");
    }

    #[test]
    fn every_time_is_in_a_bucket_that_ends_after_it() {
        for nanos in [0, 1, 7, 8, 9, 15, 16, 100, 1_000_000, 123_456_789, u64::MAX / 3] {
            let time = Duration::from_nanos(nanos);
            assert!(end(bucket(time)) > time, "{time:?}");
            assert!(bucket(time) == 24 || end(bucket(time) - 1) <= time, "{time:?}");
        }
    }

    #[test]
    fn longer_figures_are_combined() {
        let one = LongestVerb { elapsed: micros(9), cpu: micros(1), usual: micros(2) };
        let two = LongestVerb { elapsed: micros(8), cpu: micros(3), usual: micros(1) };
        assert_eq!(one.max(two), LongestVerb { elapsed: micros(9), cpu: micros(3), usual: micros(2) });
    }
}
