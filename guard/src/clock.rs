//! Time, asked for in one place, so that a test can move it by hand.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[cfg(feature = "sql")]
use uuid::Uuid;

/// Where a guard and its memory store get the time from.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<ManualClock>);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(None)
    }

    /// Whether it is moved by hand.
    pub(crate) fn is_manual(&self) -> bool {
        self.0.is_some()
    }

    /// Milliseconds since 1970: what tokens are dated by, the same on every machine.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn wall(&self) -> u64 {
        match &self.0 {
            Some(manual) => manual.now(),
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64,
        }
    }

    /// Milliseconds since some moment in the past: only ever goes forward, whatever is done to the machine's date.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub(crate) fn steady(&self) -> u64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        match &self.0 {
            Some(manual) => manual.now(),
            None => START.elapsed().as_millis() as u64,
        }
    }
}

/// A time in milliseconds since 1970, as tokens and records hold it.
pub(crate) fn system_time(millis: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(UNIX_EPOCH)
}

/// What the boot clock reads: it counts since the machine was started, also while the machine sleeps, and cannot be set.
#[cfg(feature = "sql")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Uptime {
    /// Which clock was read. Processes that name the same one read the same.
    pub(crate) boot: String,
    /// Milliseconds since it began.
    pub(crate) millis: u64,
}

#[cfg(feature = "sql")]
impl Uptime {
    /// What it reads now. Where the system has no such clock, each process reads one of its own.
    pub(crate) fn now() -> Self {
        static MACHINE: LazyLock<Option<String>> = LazyLock::new(boot_clock::name);
        static PROCESS: LazyLock<String> = LazyLock::new(|| format!("process {}", Uuid::new_v4()));
        match (&*MACHINE, boot_clock::millis()) {
            (Some(boot), Some(millis)) => Self { boot: boot.clone(), millis },
            _ => Self { boot: PROCESS.clone(), millis: Clock::system().steady() },
        }
    }
}

/// A moment from which time is counted that also passes while the machine sleeps, as it does for a database.
#[cfg(feature = "sql")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    at: tokio::time::Instant,
    uptime: u64,
}

#[cfg(feature = "sql")]
impl Moment {
    /// This moment.
    pub(crate) fn now() -> Self {
        Self { at: tokio::time::Instant::now(), uptime: Uptime::now().millis }
    }

    /// How long ago that was, by the clock that says more: the steady one may stand still while the machine sleeps.
    pub(crate) fn elapsed(&self) -> Duration {
        let by_the_boot_clock = Uptime::now().millis.saturating_sub(self.uptime);
        self.at.elapsed().max(Duration::from_millis(by_the_boot_clock))
    }
}

/// The boot clock of Linux.
#[cfg(all(feature = "sql", target_os = "linux"))]
mod boot_clock {
    use std::fs::{read_link, read_to_string};

    use rustix::time::{ClockId, clock_gettime};

    /// Names the boot, and the time namespace, in which the same clock is set off by a constant. A namespace's number is given to another
    /// one when it is gone, so its offset belongs to the name. `None` if the system does not name its boot.
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

/// There is none that all processes read alike.
#[cfg(all(feature = "sql", not(target_os = "linux")))]
mod boot_clock {
    pub(super) fn name() -> Option<String> {
        None
    }

    pub(super) fn millis() -> Option<u64> {
        None
    }
}

/// A clock that stands still until it is told to move.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that stands at some day in 2027.
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_800_000_000_000)))
    }

    /// Lets this much time pass at once.
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
    fn time_passes_while_the_machine_sleeps() {
        // It was taken when the machine was started, and the steady clock has counted nothing since.
        let (since_boot, moment) = (Uptime::now().millis, Moment { uptime: 0, ..Moment::now() });
        assert!(moment.elapsed() >= Duration::from_millis(since_boot));
    }

    #[test]
    fn every_process_of_the_machine_names_the_same_boot_clock_and_it_only_advances() {
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
