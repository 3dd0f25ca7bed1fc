//! The latencies of a load at a fixed rate.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::statistics::percentile;

/// The times of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacedRequest {
    /// The time from the scheduled send to the end of the response.
    pub(crate) latency: Duration,
    /// The delay of the send by the generator: from its scheduled time, or from the end of the previous response on the connection if that is
    /// later, to the actual send.
    pub(crate) late: Duration,
}

/// The percentiles of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacedResult {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// 99th percentile of the delay by the generator. It is part of the latency, although the server did not cause it.
    pub(crate) late: Duration,
}

impl PacedResult {
    /// Computes the percentiles. Returns `None` if there are no requests.
    pub(crate) fn of(requests: &[PacedRequest]) -> Option<Self> {
        let latencies = sorted(requests, |request| request.latency);
        let late = sorted(requests, |request| request.late);
        Some(Self { p50: percentile(&latencies, 50)?, p99: percentile(&latencies, 99)?, late: percentile(&late, 99)? })
    }

    /// Parses what [`Display`](fmt::Display) writes.
    pub(crate) fn read(said: &str) -> Option<Self> {
        let line = said.lines().find_map(|line| line.strip_prefix("paced "))?;
        let pairs: HashMap<_, _> = line.split(' ').filter_map(|pair| pair.split_once('=')).collect();
        let micros = |name| Some(Duration::from_micros(pairs.get(name)?.parse().ok()?));
        Some(Self { p50: micros("p50")?, p99: micros("p99")?, late: micros("late")? })
    }
}

impl fmt::Display for PacedResult {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, late] = [self.p50, self.p99, self.late].map(|time| time.as_micros());
        write!(out, "paced p50={p50} p99={p99} late={late}")
    }
}

fn sorted(requests: &[PacedRequest], figure: fn(&PacedRequest) -> Duration) -> Vec<Duration> {
    let mut figures: Vec<_> = requests.iter().map(figure).collect();
    figures.sort();
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_requests_in_any_order() {
        let request =
            |number| PacedRequest { latency: Duration::from_micros(number), late: Duration::from_nanos(number) };
        let result = PacedResult::of(&(0..200).rev().map(request).collect::<Vec<_>>()).unwrap();
        assert_eq!((result.p50, result.p99), (Duration::from_micros(100), Duration::from_micros(198)));
        assert_eq!(result.late, Duration::from_nanos(198));
        assert_eq!(PacedResult::of(&[]), None);
    }

    #[test]
    fn result_is_parsed_as_printed() {
        let [p50, p99, late] = [123, 4567, 8].map(Duration::from_micros);
        let result = PacedResult { p50, p99, late };
        assert_eq!(PacedResult::read(&format!("one\n{result}\n")), Some(result));
        assert_eq!(PacedResult::read("paced p50=1 late=2"), None);
        assert_eq!(PacedResult::read("p50=1 p99=1 late=1"), None);
    }
}
