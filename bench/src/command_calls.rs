//! The calls in a Redis, including those inside scripts.

/// The calls since the start of the server, or between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommandCalls {
    /// Commands and scripts, and the commands inside scripts.
    pub(crate) all: u64,
    /// Scripts.
    pub(crate) scripts: u64,
}

impl CommandCalls {
    /// Sums the calls in `INFO commandstats`.
    pub(crate) fn read(stats: &str) -> Self {
        let calls = |line: &str| -> Option<(bool, u64)> {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((matches!(name, "eval" | "evalsha"), rest.split(',').next()?.parse().ok()?))
        };
        stats.lines().filter_map(calls).fold(Self { all: 0, scripts: 0 }, |sum, (is_script, calls)| Self {
            all: sum.all + calls,
            scripts: sum.scripts + if is_script { calls } else { 0 },
        })
    }

    /// The calls since `then`.
    pub(crate) fn since(self, then: Self) -> Self {
        Self { all: self.all.saturating_sub(then.all), scripts: self.scripts.saturating_sub(then.scripts) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_inside_scripts_are_counted() {
        // Each of fifty requests sends two scripts, which run `INFO` and two more commands.
        let stats = "# Commandstats\r\ncmdstat_evalsha:calls=99,usec=9,usec_per_call=0.09\r\ncmdstat_eval:calls=1,usec=9\r\n\
            cmdstat_info:calls=50,usec=9\r\ncmdstat_hset:calls=100,usec=9\r\n";
        assert_eq!(CommandCalls::read(stats), CommandCalls { all: 250, scripts: 100 });
        assert_eq!(CommandCalls::read("# Commandstats\r\n"), CommandCalls { all: 0, scripts: 0 });
    }

    #[test]
    fn difference_is_by_field() {
        let [then, now] = [(10, 2), (25, 9)].map(|(all, scripts)| CommandCalls { all, scripts });
        assert_eq!(now.since(then), CommandCalls { all: 15, scripts: 7 });
    }
}
