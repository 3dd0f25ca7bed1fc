//! The report printed at the end.

use crate::case::Case;
use crate::statistics::{CaseStatistics, Spread};

/// The table: one line per case, with the medians of its rounds, and minimum and maximum of the ratio.
pub(crate) fn table(rows: &[(&Case, CaseStatistics)]) -> String {
    let mut lines = vec![format!(
        "{:<20} {:>11} {:>8} {:>8}   {:<18} {:>16}",
        "case", "requests/s", "p50 ms", "p99 ms", "ratio to bare", "commands/request"
    )];
    lines.extend(rows.iter().map(|(case, figures)| row(case, figures)));
    lines.join("\n")
}

fn row(case: &Case, figures: &CaseStatistics) -> String {
    let CaseStatistics { throughput, p50, p99, ratio, commands, .. } = figures;
    let (throughput, p50, p99, commands) = (throughput.median, p50.median, p99.median, commands.median);
    let ratio = if case.is_bare() { "1".to_owned() } else { apart(ratio) };
    format!("{:<20} {throughput:>11.0} {p50:>8.2} {p99:>8.2}   {ratio:<18} {commands:>16.2}", case.name)
}

/// CPU per request: one line per case. The three processes share the CPUs, so that the ratio of the sums approximates the ratio of the
/// throughputs on an otherwise idle machine.
pub(crate) fn costs(rows: &[(&Case, CaseStatistics)]) -> String {
    let sum = |figures: &CaseStatistics| figures.server.median + figures.redis.median + figures.generator.median;
    let bare = rows.iter().find(|(case, _)| case.is_bare()).map(|(_, figures)| sum(figures));
    let mut lines = vec![format!(
        "{:<20} {:>11} {:>8} {:>10} {:>7} {:>13}",
        "CPU µs/request", "server", "Redis", "generator", "sum", "ratio of sums"
    )];
    lines.extend(rows.iter().map(|(case, figures)| {
        let (server, redis, generator) = (figures.server.median, figures.redis.median, figures.generator.median);
        let (sum, share) = (sum(figures), bare.unwrap_or_default() / sum(figures));
        format!("{:<20} {server:>11.1} {redis:>8.1} {generator:>10.1} {sum:>7.1} {share:>13.2}", case.name)
    }));
    lines.join("\n")
}

/// The targets: one line per case with a target. A missed target is not an error.
pub(crate) fn targets(rows: &[(&Case, CaseStatistics)]) -> String {
    let line = |(case, figures): &(&Case, CaseStatistics)| {
        let target = case.target?;
        let verdict = if figures.ratio.median >= target { "met" } else { "missed" };
        Some(format!("{:<20} {} of bare, target {target:.2}: {verdict}", case.name, apart(&figures.ratio)))
    };
    rows.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

fn apart(Spread { median, least, most }: &Spread) -> String {
    format!("{median:.2} ({least:.2}–{most:.2})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(ratio: f64) -> CaseStatistics {
        let spread = |value| Spread { median: value, least: value - 0.1, most: value + 0.1 };
        let (throughput, p50, p99) = (spread(12_345.6), spread(1.0), spread(2.0));
        let (server, redis, generator) = (spread(10.0), spread(4.0), spread(6.0));
        CaseStatistics { throughput, p50, p99, ratio: spread(ratio), commands: spread(1.0), server, redis, generator }
    }

    fn rows(ratio: f64) -> Vec<(&'static Case, CaseStatistics)> {
        Case::ALL.iter().map(|case| (case, figures(ratio))).collect()
    }

    #[test]
    fn row_shows_medians_and_the_spread_of_the_ratio() {
        let table = table(&rows(0.7));
        let line = table.lines().find(|line| line.starts_with("token, Redis")).unwrap();
        let words: Vec<_> = line.split_whitespace().skip(2).collect();
        assert_eq!(words, ["12346", "1.00", "2.00", "0.70", "(0.60–0.80)", "1.00"]);
        assert_eq!(table.lines().count(), 1 + Case::ALL.len());
    }

    #[test]
    fn costs_are_summed_and_compared_with_the_bare_route() {
        let mut rows = rows(0.7);
        rows[2].1.redis = Spread { median: 24.0, least: 24.0, most: 24.0 };
        let costs = costs(&rows);
        let line = costs.lines().find(|line| line.starts_with("token, Redis")).unwrap();
        let words: Vec<_> = line.split_whitespace().skip(2).collect();
        assert_eq!(words, ["10.0", "24.0", "6.0", "40.0", "0.50"]);
    }

    #[test]
    fn target_is_met_or_missed_by_the_median() {
        let targets = targets(&rows(0.7));
        assert!(targets.contains("token, Redis         0.70 (0.60–0.80) of bare, target 0.60: met"), "{targets}");
        assert!(targets.contains("token, memory        0.70 (0.60–0.80) of bare, target 0.85: missed"), "{targets}");
        assert_eq!(targets.lines().count(), Case::ALL.iter().filter(|case| case.target.is_some()).count());
    }
}
