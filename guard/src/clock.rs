//! Clocks: the only place that reads the time, so that a test can control it.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[cfg(feature = "sql")]
use uuid::Uuid;

/// The time source of a guard and its memory store.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<ManualClock>);

impl Clock {
    /// Returns the system clock.
    pub fn system() -> Self {
        Self(None)
    }

    /// Returns whether this is a [`ManualClock`].
    pub(crate) fn is_manual(&self) -> bool {
        self.0.is_some()
    }

    /// Returns milliseconds since 1970, for timestamps that other machines read, such as the expiry of a token.
    #[expect(clippy::disallowed_methods, reason = "the system time is read only here")]
    pub fn wall(&self) -> u64 {
        match &self.0 {
            Some(manual) => manual.now(),
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64,
        }
    }

    /// Returns milliseconds of a monotonic clock: it never goes backward, even if the system time is changed.
    #[expect(clippy::disallowed_methods, reason = "the monotonic clock is read only here")]
    pub(crate) fn steady(&self) -> u64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        match &self.0 {
            Some(manual) => manual.now(),
            None => START.elapsed().as_millis() as u64,
        }
    }
}

/// Converts milliseconds since 1970, as tokens and records hold them.
pub(crate) fn system_time(millis: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(UNIX_EPOCH)
}

/// A reading of the boot clock: the time since the machine started, including the time it slept. This clock cannot be set.
#[cfg(feature = "sql")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Uptime {
    /// The name of the clock. Processes that have the same name read the same clock.
    pub(crate) boot: String,
    /// Milliseconds since the clock started.
    pub(crate) millis: u64,
}

#[cfg(feature = "sql")]
impl Uptime {
    /// Reads the clock. Where the system has no boot clock, each process reads a clock of its own.
    pub(crate) fn now() -> Self {
        static MACHINE: LazyLock<Option<String>> = LazyLock::new(boot_clock::name);
        static PROCESS: LazyLock<String> = LazyLock::new(|| format!("process {}", Uuid::new_v4()));
        match (&*MACHINE, boot_clock::millis()) {
            (Some(boot), Some(millis)) => Self { boot: boot.clone(), millis },
            _ => Self { boot: PROCESS.clone(), millis: Clock::system().steady() },
        }
    }
}

/// A point in time, to measure elapsed time including the time that the machine slept, as a database does.
#[cfg(feature = "sql")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    at: tokio::time::Instant,
    uptime: u64,
}

#[cfg(feature = "sql")]
impl Moment {
    /// Returns the current point in time.
    pub(crate) fn now() -> Self {
        Self { at: tokio::time::Instant::now(), uptime: Uptime::now().millis }
    }

    /// Returns the elapsed time by the clock that shows more: the monotonic clock may stop while the machine sleeps.
    pub(crate) fn elapsed(&self) -> Duration {
        let since_boot = Uptime::now().millis.saturating_sub(self.uptime);
        self.at.elapsed().max(Duration::from_millis(since_boot))
    }
}

/// The boot clock of Linux.
#[cfg(all(feature = "sql", target_os = "linux"))]
mod boot_clock {
    use std::fs::{read_link, read_to_string};

    use rustix::time::{ClockId, clock_gettime};

    /// Returns a name of the boot and the time namespace, which shifts the boot clock by a constant. The number of a namespace is reused
    /// after it is removed, so its offset is part of the name. Returns `None` if the system has no boot id.
    pub(super) fn name() -> Option<String> {
        let boot = read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = read_link("/proc/self/ns/time").unwrap_or_default();
        let offsets = read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        let offset = offsets.lines().find(|line| line.starts_with("boottime")).unwrap_or_default();
        let words: Vec<_> = offset.split_whitespace().skip(1).collect();
        Some(format!("{} {} {}", boot.trim(), namespace.display(), words.join(".")))
    }

    pub(super) fn millis() -> Option<u64> {
        let read = clock_gettime(ClockId::Boottime);
        u64::try_from(read.tv_sec).ok()?.checked_mul(1000)?.checked_add(u64::try_from(read.tv_nsec).ok()? / 1_000_000)
    }
}

/// The stand-in for other systems, which have no boot clock that is the same in all processes.
#[cfg(all(feature = "sql", not(target_os = "linux")))]
mod boot_clock {
    pub(super) fn name() -> Option<String> {
        None
    }

    pub(super) fn millis() -> Option<u64> {
        None
    }
}

/// A clock that stands still until the test [advances](Self::advance) it.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Creates a clock that shows a fixed time in 2027.
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_800_000_000_000)))
    }

    /// Advances the clock by this much.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl From<&ManualClock> for Clock {
    fn from(manual: &ManualClock) -> Self {
        Self(Some(manual.clone()))
    }
}

#[cfg(all(test, feature = "sql", target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_includes_machine_sleep() {
        // As if the moment was taken at boot, and the monotonic clock has stood still since.
        let (since_boot, moment) = (Uptime::now().millis, Moment { uptime: 0, ..Moment::now() });
        assert!(moment.elapsed() >= Duration::from_millis(since_boot));
    }

    #[test]
    fn boot_clock_has_one_name_per_machine_and_only_advances() {
        let (first, second) = (Uptime::now(), Uptime::now());
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert!(first.boot.starts_with(boot.trim()) && first.boot.contains("time:["), "{}", first.boot);
        assert!(first.boot == second.boot && first.millis <= second.millis);
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let read = second.millis as f64 / 1000.0;
        assert!((read - seconds).abs() < 60.0, "{read} is not {seconds}");
    }
}
