//! What is printed at the end.

use crate::case::Case;
use crate::figures::{Figures, Spread};

/// One line for each case, with the median of its rounds, and the ratio's least and most.
pub(crate) fn table(rows: &[(&Case, Figures)]) -> String {
    let mut lines = vec![format!(
        "{:<14} {:>11} {:>8} {:>8}   {:<18} {:>16}",
        "case", "requests/s", "p50 ms", "p99 ms", "ratio to bare", "commands/request"
    )];
    lines.extend(rows.iter().map(|(case, figures)| row(case, figures)));
    lines.join("\n")
}

fn row(case: &Case, figures: &Figures) -> String {
    let Figures { throughput, p50, p99, ratio, commands } = figures;
    let (throughput, p50, p99, commands) = (throughput.median, p50.median, p99.median, commands.median);
    let ratio = if case.is_bare() { "1".to_owned() } else { apart(ratio) };
    format!("{:<14} {throughput:>11.0} {p50:>8.2} {p99:>8.2}   {ratio:<18} {commands:>16.2}", case.name)
}

/// One line for each case that has a target. A missed one is said, and is no failure.
pub(crate) fn targets(rows: &[(&Case, Figures)]) -> String {
    let line = |(case, figures): &(&Case, Figures)| {
        let target = case.target?;
        let verdict = if figures.ratio.median >= target { "met" } else { "missed" };
        Some(format!("{:<14} {} of bare, target {target:.2}: {verdict}", case.name, apart(&figures.ratio)))
    };
    rows.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

fn apart(Spread { median, least, most }: &Spread) -> String {
    format!("{median:.2} ({least:.2}–{most:.2})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(ratio: f64) -> Figures {
        let spread = |value| Spread { median: value, least: value - 0.1, most: value + 0.1 };
        let (throughput, p50, p99) = (spread(12_345.6), spread(1.0), spread(2.0));
        Figures { throughput, p50, p99, ratio: spread(ratio), commands: spread(1.0) }
    }

    fn rows(ratio: f64) -> Vec<(&'static Case, Figures)> {
        Case::ALL.iter().map(|case| (case, figures(ratio))).collect()
    }

    #[test]
    fn a_row_shows_medians_and_how_far_the_ratio_spreads() {
        let table = table(&rows(0.7));
        let line = table.lines().find(|line| line.starts_with("token, Redis")).unwrap();
        let words: Vec<_> = line.split_whitespace().skip(2).collect();
        assert_eq!(words, ["12346", "1.00", "2.00", "0.70", "(0.60–0.80)", "1.00"]);
        assert_eq!(table.lines().count(), 1 + Case::ALL.len());
    }

    #[test]
    fn a_target_is_met_or_missed_by_the_median() {
        let targets = targets(&rows(0.7));
        assert!(targets.contains("token, Redis   0.70 (0.60–0.80) of bare, target 0.60: met"), "{targets}");
        assert!(targets.contains("token, memory  0.70 (0.60–0.80) of bare, target 0.85: missed"), "{targets}");
        assert_eq!(targets.lines().count(), 3);
    }
}
