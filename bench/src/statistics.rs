//! The statistics of a case over all its rounds.

use std::time::Duration;

use crate::case_run::CaseRun;

/// The median, minimum and maximum of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Computes the spread. Returns `None` if there are no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let upper = values.len() / 2;
        let lower = (values.len() - 1) / 2;
        Some(Self { median: f64::midpoint(values[lower], values[upper]), least, most })
    }

    /// Computes the spread of a comparison, round by round. Returns `None` if there are no rounds.
    pub(crate) fn of_pairs<T>(runs: &[T], others: &[T], compared: impl Fn(&T, &T) -> f64) -> Option<Self> {
        Self::of(runs.iter().zip(others).map(|(run, other)| compared(run, other)))
    }

    /// The median, and the minimum and maximum in parentheses.
    pub(crate) fn cell(&self, decimals: usize) -> String {
        let Self { median, least, most } = self;
        format!("{median:.decimals$} ({least:.decimals$}–{most:.decimals$})")
    }
}

/// Returns the value that this percentage of sorted values lies below. Returns `None` if there are no values.
pub(crate) fn percentile(sorted: &[Duration], percentage: usize) -> Option<Duration> {
    sorted.get(sorted.len() * percentage / 100).or(sorted.last()).copied()
}

/// The statistics of one case.
#[derive(Debug)]
pub(crate) struct CaseStatistics {
    /// Requests per second.
    pub(crate) throughput: Spread,
    /// Median latency, in milliseconds.
    pub(crate) p50: Spread,
    /// 99th percentile of the latency, in milliseconds.
    pub(crate) p99: Spread,
    /// Redis commands per request.
    pub(crate) commands: Spread,
    /// CPU time of the server per request, in microseconds.
    pub(crate) server: Spread,
    /// CPU time of Redis per request, in microseconds.
    pub(crate) redis: Spread,
    /// CPU time of the load generator per request, in microseconds.
    pub(crate) generator: Spread,
    /// CPU time of the server per request above that of the bare route in the same round, in microseconds.
    pub(crate) above: Spread,
    /// Ratio of the CPU time of all processes per request: that of the bare route in the same round, divided by that of the case.
    pub(crate) ratio: Spread,
}

impl CaseStatistics {
    /// Computes the statistics from the runs of a case and of the bare route, round by round. Returns `None` if there are no runs.
    pub(crate) fn of(runs: &[CaseRun], bare: &[CaseRun]) -> Option<Self> {
        let spread = |figure: fn(&CaseRun) -> f64| Spread::of(runs.iter().map(figure));
        let both = |figure: fn(&CaseRun, &CaseRun) -> f64| Spread::of_pairs(runs, bare, figure);
        Some(Self {
            throughput: spread(CaseRun::throughput)?,
            p50: spread(|run| run.load.p50.as_secs_f64() * 1000.0)?,
            p99: spread(|run| run.load.p99.as_secs_f64() * 1000.0)?,
            commands: spread(CaseRun::commands_per_request)?,
            server: spread(CaseRun::server_micros)?,
            redis: spread(CaseRun::redis_micros)?,
            generator: spread(|run| run.micros_per_request(run.cpu.generator))?,
            above: both(|run, bare| run.server_micros() - bare.server_micros())?,
            ratio: both(|run, bare| bare.micros() / run.micros())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case_run::CpuTime;
    use crate::command_count::CommandCount;
    use crate::wrk::LoadResult;

    /// A run of 100 requests with these CPU times per request, in microseconds.
    fn run(server: u64, redis: u64, generator: u64) -> CaseRun {
        let (p50, p99) = (Duration::from_millis(1), Duration::from_millis(4));
        let load = LoadResult { requests: 100, lasted: Duration::from_secs(2), p50, p99 };
        let [server, redis, generator] = [server, redis, generator].map(|micros| Duration::from_micros(micros * 100));
        let commands = CommandCount { received: 200, scripts: 100, executed: 400 };
        CaseRun { load, commands, cpu: CpuTime { server, redis, generator } }
    }

    #[test]
    fn median_is_the_middle_or_the_mean_of_two() {
        let median = |values: &[f64]| Spread::of(values.iter().copied()).map(|spread| spread.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 100.0, 2.0]), Some(3.0));
    }

    #[test]
    fn spread_is_minimum_to_maximum() {
        let spread = Spread::of([0.7, 0.5, 0.9]);
        assert_eq!(spread, Some(Spread { median: 0.7, least: 0.5, most: 0.9 }));
    }

    #[test]
    fn percentile_is_the_value_above_the_percentage() {
        let values: Vec<_> = (0..200).map(Duration::from_micros).collect();
        let micros = |percentage| percentile(&values, percentage).map(|value| value.as_micros());
        assert_eq!([0, 50, 99, 100].map(micros), [Some(0), Some(100), Some(198), Some(199)]);
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn cell_shows_median_and_range() {
        let spread = Spread { median: 1.25, least: -0.5, most: 3.0 };
        assert_eq!((spread.cell(1), spread.cell(2)), ("1.2 (-0.5–3.0)".to_owned(), "1.25 (-0.50–3.00)".to_owned()));
    }

    #[test]
    fn costs_are_compared_with_the_bare_route_per_round() {
        let bare = [run(9, 0, 11), run(20, 0, 20), run(10, 0, 10)];
        let figures = CaseStatistics::of(&[run(12, 13, 15), run(21, 1, 18), run(15, 15, 20)], &bare).unwrap();
        assert_eq!(figures.above.cell(1), "3.0 (1.0–5.0)");
        assert_eq!(figures.ratio.cell(2), "0.50 (0.40–1.00)");
        assert_eq!((figures.server.median, figures.redis.median, figures.generator.median), (15.0, 13.0, 18.0));
        assert_eq!((figures.throughput.median, figures.commands.median), (50.0, 2.0));
        assert_eq!((figures.p50.median, figures.p99.median), (1.0, 4.0));
    }
}
