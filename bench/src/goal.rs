//! A goal of the benchmark: a figure that should not be exceeded, or that should be reached. A missed goal is not an error.

/// The most, or the least, that a figure should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Goal(pub(crate) f64);

impl Goal {
    /// The cell of a table that says whether a figure with this many decimals meets the goal. The figure is judged as it is printed.
    pub(crate) fn verdict(self, figure: f64, decimals: i32) -> String {
        format!("≤ {} {}", self.0, met(self.is_met(figure, decimals)))
    }

    /// Like [`verdict`](Self::verdict), for a figure that should be at least the goal.
    pub(crate) fn verdict_at_least(self, figure: f64, decimals: i32) -> String {
        format!("≥ {} {}", self.0, met(rounded(figure, decimals) >= rounded(self.0, decimals)))
    }

    /// Returns whether a figure, as it is printed, does not exceed the goal.
    pub(crate) fn is_met(self, figure: f64, decimals: i32) -> bool {
        rounded(figure, decimals) <= rounded(self.0, decimals)
    }

    /// The cell of a figure that could not be measured.
    pub(crate) fn unknown(self) -> String {
        format!("≤ {} unknown", self.0)
    }

    /// Like [`verdict`](Self::verdict); empty without a goal.
    pub(crate) fn cell(goal: Option<Self>, figure: f64, decimals: i32) -> String {
        goal.map(|goal| goal.verdict(figure, decimals)).unwrap_or_default()
    }
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

/// The figure as it is printed, in units of its last decimal.
fn rounded(figure: f64, decimals: i32) -> f64 {
    (figure * 10_f64.powi(decimals)).round()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_is_judged_as_printed() {
        assert_eq!(Goal(2.5).verdict(2.54, 1), "≤ 2.5 met");
        assert_eq!(Goal(2.5).verdict(2.56, 1), "≤ 2.5 missed");
        assert_eq!(Goal(0.0).verdict(0.04, 1), "≤ 0 met");
        assert_eq!(Goal(0.15).verdict(0.151, 3), "≤ 0.15 missed");
        assert_eq!(Goal(0.3).verdict(0.3, 3), "≤ 0.3 met");
    }

    #[test]
    fn goal_to_reach_is_judged_as_printed() {
        assert_eq!(Goal(2.0).verdict_at_least(1.996, 2), "≥ 2 met");
        assert_eq!(Goal(1.4).verdict_at_least(1.394, 2), "≥ 1.4 missed");
    }

    #[test]
    fn cell_without_goal_is_empty() {
        assert_eq!(Goal::cell(None, 1.0, 1), "");
        assert_eq!(Goal::cell(Some(Goal(8.0)), 9.0, 1), "≤ 8 missed");
        assert_eq!(Goal(0.5).unknown(), "≤ 0.5 unknown");
    }
}
