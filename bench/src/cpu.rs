//! The CPU time of processes: the cost of a request, largely independent of other load on the machine.

use std::io::ErrorKind;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

use crate::Failure;

/// Returns the CPU time of a process.
pub(crate) fn used_by(process: u32) -> Result<Duration, Failure> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let [own, _] = read(&stat).ok_or_else(|| format!("cannot parse /proc/{process}/stat: {stat}"))?;
    Ok(own)
}

/// Returns the CPU time of all child processes that have exited.
pub(crate) fn used_by_ended_children() -> Result<Duration, Failure> {
    used_by_ended_children_of(std::process::id())
}

fn used_by_ended_children_of(process: u32) -> Result<Duration, Failure> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let [_, children] = read(&stat).ok_or_else(|| format!("cannot parse /proc/{process}/stat: {stat}"))?;
    Ok(children)
}

/// Returns the CPU time of a process in nanoseconds, where [`used_by`] counts in steps of 10 ms: that of its threads, without those that
/// have exited.
///
/// # Errors
/// If the process has exited, or if the kernel does not count.
pub(crate) fn of_threads(process: u32) -> Result<Duration, Failure> {
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let schedstat = unless_vanished(std::fs::read_to_string(thread?.path().join("schedstat")))?;
        nanos += schedstat.map_or(Some(0), |text| on_cpu(&text)).ok_or("cannot parse schedstat")?;
    }
    if nanos == 0 {
        return Err(format!("/proc/{process}/task/*/schedstat has no times: the kernel lacks CONFIG_SCHED_INFO").into());
    }
    Ok(Duration::from_nanos(nanos))
}

/// Returns the CPU time of a process, its children, and those of its children that have exited.
pub(crate) fn of_family(process: u32) -> Result<Duration, Failure> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
    let mut used = of_threads(process)? + used_by_ended_children_of(process)?;
    for child in children.split_whitespace() {
        // A child that exits meanwhile counts among the exited ones in the next reading.
        if let Ok(time) = of_threads(child.parse()?) {
            used += time;
        }
    }
    Ok(used)
}

/// Parses the time on the CPU in `schedstat`, in nanoseconds.
fn on_cpu(schedstat: &str) -> Option<u64> {
    schedstat.split(' ').next()?.parse().ok()
}

/// Returns `None` for a thread that has exited.
fn unless_vanished(read: std::io::Result<String>) -> std::io::Result<Option<String>> {
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound || is_vanished(&error) => Ok(None),
        read => read.map(Some),
    }
}

fn is_vanished(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// Parses the CPU time (user and system) of the process, and that of its exited children.
fn read(stat: &str) -> Option<[Duration; 2]> {
    // The process name, in parentheses, may contain any character.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut ticks = fields.split(' ').skip(11).map(str::parse::<u64>);
    let mut both = || Some(ticks.next()?.ok()? + ticks.next()?.ok()?);
    let [own, children] = [both()?, both()?];
    let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64);
    Some([time(own), time(children)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_are_parsed_after_any_process_name() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 100 200 30 40 20 0 1 0 5";
        let time = |ticks| Duration::from_secs_f64(f64::from(ticks) / clock_ticks_per_second() as f64);
        assert_eq!(read(stat), Some([time(300), time(70)]));
        assert_eq!(read("42 (a) S 1 2"), None);
    }

    #[test]
    fn time_of_a_process_is_read_and_that_of_none_is_an_error() {
        let times = [of_threads, of_family].map(|time| time(std::process::id()).unwrap());
        assert!(times.iter().all(|time| *time > Duration::ZERO));
        assert!(of_threads(u32::MAX).is_err() && of_family(u32::MAX).is_err());
    }

    #[test]
    fn time_on_the_cpu_is_the_first_number_of_schedstat() {
        assert_eq!((on_cpu("316479887 98790339 87\n"), on_cpu("\n")), (Some(316_479_887), None));
    }

    #[test]
    fn vanished_thread_is_skipped() {
        let failed = |kind: ErrorKind| unless_vanished(Err(kind.into()));
        assert!(failed(ErrorKind::NotFound).unwrap().is_none() && failed(ErrorKind::PermissionDenied).is_err());
        let gone = std::io::Error::from(rustix::io::Errno::SRCH);
        assert!(unless_vanished(Err(gone)).unwrap().is_none());
    }
}
