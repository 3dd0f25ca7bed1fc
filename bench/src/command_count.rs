//! The number of commands that a Redis has received.

/// Number of commands that a script of the store runs inside Redis if its comparison succeeds: one read and one write.
const INSIDE_A_SCRIPT: u64 = 2;

/// The commands since the start of the server, or between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CommandCount {
    /// Commands received from clients, without `INFO`.
    pub(crate) received: u64,
    /// Scripts among them.
    pub(crate) scripts: u64,
    /// All commands that the server ran, with `INFO` and with the commands inside scripts.
    pub(crate) executed: u64,
}

impl CommandCount {
    /// Sums the calls in `INFO commandstats`. Received commands are those without `INFO` itself (from the benchmark, and from a guard that
    /// reads the epoch of the server), and without the commands inside scripts, which Redis counts like received ones. A script whose
    /// comparison fails runs fewer commands; then the count is too low, and the run is rejected.
    pub(crate) fn read(stats: &str) -> Self {
        let sum = |is_counted: fn(&str) -> bool| {
            stats.lines().filter_map(calls).filter(|(name, _)| is_counted(name)).map(|(_, calls)| calls).sum()
        };
        let scripts: u64 = sum(|name| matches!(name, "eval" | "evalsha"));
        let without_info: u64 = sum(|name| name != "info");
        let received = without_info.saturating_sub(scripts * INSIDE_A_SCRIPT);
        Self { received, scripts, executed: sum(|_| true) }
    }

    /// The commands since `then`.
    pub(crate) fn since(self, then: Self) -> Self {
        Self {
            received: self.received.saturating_sub(then.received),
            scripts: self.scripts.saturating_sub(then.scripts),
            executed: self.executed.saturating_sub(then.executed),
        }
    }
}

/// Parses a line of `INFO commandstats`: the name of a command and its calls.
fn calls(line: &str) -> Option<(&str, u64)> {
    let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    Some((name, rest.split(',').next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_info_commands_are_not_counted() {
        let stats = "# Commandstats\r\ncmdstat_getdel:calls=120,usec=9,usec_per_call=1.00,rejected_calls=0\r\n\
            cmdstat_client|setinfo:calls=2,usec=3\r\ncmdstat_info:calls=7,usec=90,usec_per_call=12.00\r\n\
            cmdstat_set:calls=1,usec=9\r\n";
        assert_eq!(CommandCount::read(stats), CommandCount { received: 123, scripts: 0, executed: 130 });
        assert_eq!(CommandCount::read("# Commandstats\r\n"), CommandCount::default());
    }

    #[test]
    fn commands_inside_scripts_are_not_counted() {
        // Each of fifty first runs with a key sends a `SET` and a script, which reads and writes.
        let stats =
            "cmdstat_set:calls=100,usec=9\r\ncmdstat_evalsha:calls=50,usec=9\r\ncmdstat_get:calls=50,usec=9\r\n";
        assert_eq!(CommandCount::read(stats), CommandCount { received: 100, scripts: 50, executed: 200 });
    }

    #[test]
    fn difference_is_by_field() {
        let count = |[received, scripts, executed]: [u64; 3]| CommandCount { received, scripts, executed };
        assert_eq!(count([25, 9, 70]).since(count([10, 2, 30])), count([15, 7, 40]));
    }
}
