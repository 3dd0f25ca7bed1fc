//! The statistics of a case over all its rounds.

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
    /// Ratio to the throughput of the bare route in the same round.
    pub(crate) ratio: Spread,
    /// Redis commands per request.
    pub(crate) commands: Spread,
    /// CPU time of the server per request, in microseconds.
    pub(crate) server: Spread,
    /// CPU time of Redis per request, in microseconds.
    pub(crate) redis: Spread,
    /// CPU time of the load generator per request, in microseconds.
    pub(crate) generator: Spread,
}

impl CaseStatistics {
    /// Computes the statistics from the runs of a case and of the bare route, round by round. Returns `None` if there are no runs.
    pub(crate) fn of(runs: &[CaseRun], bare: &[CaseRun]) -> Option<Self> {
        let spread = |figure: fn(&CaseRun) -> f64| Spread::of(runs.iter().map(figure));
        let ratios = runs.iter().zip(bare).map(|(run, bare)| run.throughput() / bare.throughput());
        Some(Self {
            throughput: spread(CaseRun::throughput)?,
            p50: spread(|run| run.load.p50.as_secs_f64() * 1000.0)?,
            p99: spread(|run| run.load.p99.as_secs_f64() * 1000.0)?,
            ratio: Spread::of(ratios)?,
            commands: spread(CaseRun::commands_per_request)?,
            server: spread(|run| run.micros_per_request(run.cpu.server))?,
            redis: spread(|run| run.micros_per_request(run.cpu.redis))?,
            generator: spread(|run| run.micros_per_request(run.cpu.generator))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::case_run::CpuTime;
    use crate::wrk::LoadResult;

    fn run(requests: u64, commands: u64) -> CaseRun {
        let (p50, p99) = (Duration::from_millis(1), Duration::from_millis(4));
        let cpu = CpuTime { server: Duration::from_micros(requests * 12), ..CpuTime::default() };
        CaseRun { load: LoadResult { requests, lasted: Duration::from_secs(2), p50, p99 }, commands, cpu }
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
    fn ratio_is_to_the_bare_route_per_round() {
        let bare = [run(100, 0), run(1000, 0), run(10, 0)];
        let figures = CaseStatistics::of(&[run(50, 50), run(600, 600), run(7, 7)], &bare).unwrap();
        assert_eq!(figures.ratio, Spread { median: 0.6, least: 0.5, most: 0.7 });
        assert_eq!((figures.throughput.median, figures.throughput.most), (25.0, 300.0));
        assert_eq!((figures.p50.median, figures.p99.median, figures.commands.median), (1.0, 4.0, 1.0));
        assert!((figures.server.median - 12.0).abs() < 1e-6 && figures.redis.median == 0.0);
    }
}
