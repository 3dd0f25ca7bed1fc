//! The CPU time of processes: the cost of a request, largely independent of other load on the machine.

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
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let [_, children] = read(&stat).ok_or_else(|| format!("cannot parse /proc/self/stat: {stat}"))?;
    Ok(children)
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
}
