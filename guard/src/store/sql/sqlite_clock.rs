//! The clock of a database file.
//!
//! A file has no clock of its own, and a machine's wall clock can be set: a jump forward would expire a claim while its handler runs,
//! and a jump back would keep a record for too long. So the file stores a time that only advances. It advances by the boot clock, which
//! cannot be set and is the same for all processes of the machine. After a reboot, or on another machine, it advances by the wall
//! clock: no other clock shows how much time has passed. One row stores the time, and the readings of both clocks at that moment.

use crate::clock::{Clock, Uptime};

/// The age of the row at which the next write updates it, in milliseconds. Within one boot its age does not matter. After a reboot, a
/// jump of the wall clock counts if it happened after the row was written.
const TICK: i64 = 1_000;
/// Maximum lag of the boot clock behind the row, in milliseconds. A process that read the clock early and was delayed has a slightly
/// lower reading than the one that wrote the row. A virtual machine that was restored to an earlier state reads much less, and uses the
/// wall clock.
const LATE: i64 = 60_000;

/// The row: the time of the file, and the readings of both clocks at that moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SqliteClock {
    /// The time of the file in milliseconds; initially the wall clock's time when the file was created.
    pub(super) time_ms: i64,
    /// The identity of the boot clock.
    pub(super) boot: String,
    /// The reading of the boot clock.
    pub(super) boot_ms: i64,
    /// The reading of the wall clock.
    pub(super) wall_ms: i64,
}

/// The readings of this machine's clocks.
pub(super) struct ClockReading {
    boot: String,
    boot_ms: i64,
    wall_ms: i64,
}

impl ClockReading {
    /// Reads the clocks.
    pub(super) fn now() -> Self {
        let Uptime { boot, millis } = Uptime::now();
        Self { boot, boot_ms: signed(millis), wall_ms: signed(Clock::system().wall()) }
    }
}

impl SqliteClock {
    /// Advances the row to a reading. The time never goes back.
    pub(super) fn at(&self, reading: ClockReading) -> Self {
        let ClockReading { boot, boot_ms, wall_ms } = reading;
        let is_same_clock = self.boot == boot && boot_ms >= self.boot_ms.saturating_sub(LATE);
        let passed = match is_same_clock {
            true => boot_ms.saturating_sub(self.boot_ms),
            false => wall_ms.saturating_sub(self.wall_ms),
        };
        // A delayed process does not change the row.
        if is_same_clock && passed <= 0 {
            return self.clone();
        }
        Self { time_ms: self.time_ms.saturating_add(passed.max(0)), boot, boot_ms, wall_ms }
    }

    /// Returns whether this row should replace the stored `row`.
    pub(super) fn is_due_after(&self, row: &Self) -> bool {
        self.boot != row.boot || self.boot_ms < row.boot_ms || self.boot_ms.saturating_sub(row.boot_ms) >= TICK
    }
}

fn signed(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 60 * 60 * 1000;

    fn row() -> SqliteClock {
        SqliteClock { time_ms: 1_000_000, boot: "this boot".to_owned(), boot_ms: 50 * HOUR, wall_ms: 900 * HOUR }
    }

    fn read(boot: &str, boot_ms: i64, wall_ms: i64) -> ClockReading {
        ClockReading { boot: boot.to_owned(), boot_ms, wall_ms }
    }

    /// Returns how far the time has advanced since this row, in milliseconds.
    fn passed(row: &SqliteClock, reading: ClockReading) -> i64 {
        row.at(reading).time_ms - row.time_ms
    }

    #[test]
    fn wall_clock_is_ignored_within_one_boot() {
        let row = row();
        for jump in [0, 20_000, 24 * HOUR, -HOUR, -900 * HOUR, i64::MAX - 900 * HOUR] {
            assert_eq!(passed(&row, read("this boot", row.boot_ms + 7, row.wall_ms + jump)), 7, "{jump}");
        }
    }

    #[test]
    fn wall_clock_measures_the_time_between_boots() {
        let row = row();
        for boot_ms in [0, row.boot_ms, 2 * row.boot_ms] {
            assert_eq!(passed(&row, read("another boot", boot_ms, row.wall_ms + HOUR)), HOUR);
            assert_eq!(passed(&row, read("another boot", boot_ms, row.wall_ms - HOUR)), 0, "it never goes back");
            assert_eq!(passed(&row, read("another boot", boot_ms, 0)), 0, "a machine that starts in 1970");
        }
    }

    /// From the first reading of a boot on, its boot clock is what counts.
    #[test]
    fn wall_clock_correction_after_boot_is_ignored() {
        let row = row();
        let started = row.at(read("another boot", 10_000, 0));
        assert_eq!(passed(&started, read("another boot", 10_500, row.wall_ms + HOUR)), 500);
        let corrected = started.at(read("another boot", 12_000, row.wall_ms + HOUR));
        assert_eq!(passed(&corrected, read("a third boot", 1, row.wall_ms + 2 * HOUR)), HOUR);
    }

    #[test]
    fn late_process_changes_nothing() {
        let row = row();
        for behind in [0, 1, LATE] {
            let at = row.at(read("this boot", row.boot_ms - behind, row.wall_ms + HOUR));
            assert_eq!(at, row, "{behind}");
            assert!(!at.is_due_after(&row));
        }
    }

    /// Otherwise its time would stand still until its boot clock has come as far again.
    #[test]
    fn restored_machine_snapshot_uses_the_wall_clock() {
        let row = row();
        let at = row.at(read("this boot", row.boot_ms - LATE - 1, row.wall_ms + HOUR));
        assert_eq!(at.time_ms - row.time_ms, HOUR);
        assert!(at.is_due_after(&row), "from here on its boot clock counts again");
    }

    #[test]
    fn row_is_written_every_second_and_after_a_boot() {
        let row = row();
        let is_due = |boot: &str, boot_ms| row.at(read(boot, boot_ms, row.wall_ms)).is_due_after(&row);
        assert!(!is_due("this boot", row.boot_ms + TICK - 1));
        assert!(is_due("this boot", row.boot_ms + TICK));
        assert!(is_due("another boot", row.boot_ms));
    }

    #[test]
    fn impossible_clock_values_do_not_panic() {
        let extremes = [i64::MIN, -1, 0, 1, i64::MAX];
        for time_ms in extremes {
            for (boot_ms, wall_ms) in extremes.into_iter().zip(extremes) {
                let row = SqliteClock { time_ms, boot: "this boot".to_owned(), boot_ms, wall_ms };
                for boot in ["this boot", "another boot"] {
                    for (now_boot, now_wall) in extremes.into_iter().zip(extremes.into_iter().rev()) {
                        assert!(row.at(read(boot, now_boot, now_wall)).time_ms >= time_ms);
                    }
                }
            }
        }
    }
}
