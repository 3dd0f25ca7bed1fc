//! The statistics of a client over all its rounds.

use crate::statistics::Spread;
use crate::wrk::LoadResult;

/// The measurements of one run of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientRun {
    pub(crate) load: LoadResult,
    /// CPU time per request, in microseconds.
    pub(crate) micros: f64,
}

impl ClientRun {
    /// Requests per second.
    pub(crate) fn throughput(&self) -> f64 {
        self.load.requests as f64 / self.load.lasted.as_secs_f64()
    }
}

/// The statistics of one client.
#[derive(Debug)]
pub(crate) struct ClientStatistics {
    /// Requests per second.
    pub(crate) throughput: Spread,
    /// Median latency, in milliseconds.
    pub(crate) p50: Spread,
    /// 99th percentile of the latency, in milliseconds.
    pub(crate) p99: Spread,
    /// CPU time per request, in microseconds.
    pub(crate) micros: Spread,
    /// CPU time per request above that of plain reqwest in the same round, in microseconds.
    pub(crate) above: Spread,
    /// CPU time per request of plain reqwest in the same round, divided by that of the client.
    pub(crate) ratio: Spread,
}

impl ClientStatistics {
    /// Computes the statistics from the runs of a client and of plain reqwest, round by round. Returns `None` if there are no runs.
    pub(crate) fn of(runs: &[ClientRun], plain: &[ClientRun]) -> Option<Self> {
        let spread = |figure: fn(&ClientRun) -> f64| Spread::of(runs.iter().map(figure));
        Some(Self {
            throughput: spread(ClientRun::throughput)?,
            p50: spread(|run| run.load.p50.as_secs_f64() * 1000.0)?,
            p99: spread(|run| run.load.p99.as_secs_f64() * 1000.0)?,
            micros: spread(|run| run.micros)?,
            above: Spread::of_pairs(runs, plain, |run, plain| run.micros - plain.micros)?,
            ratio: Spread::of_pairs(runs, plain, |run, plain| plain.micros / run.micros)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run(micros: f64) -> ClientRun {
        let (p50, p99) = (Duration::from_millis(1), Duration::from_millis(2));
        ClientRun { load: LoadResult { requests: 1000, lasted: Duration::from_secs(2), p50, p99 }, micros }
    }

    #[test]
    fn clients_are_compared_per_round() {
        let figures =
            ClientStatistics::of(&[run(20.0), run(40.0), run(50.0)], &[run(10.0), run(35.0), run(30.0)]).unwrap();
        assert_eq!(figures.above.cell(1), "10.0 (5.0–20.0)");
        assert_eq!(figures.ratio.cell(2), "0.60 (0.50–0.88)");
        assert_eq!((figures.throughput.median, figures.micros.median), (500.0, 40.0));
        assert_eq!((figures.p50.median, figures.p99.median), (1.0, 2.0));
        assert!(ClientStatistics::of(&[], &[]).is_none());
    }
}
