//! A goal of the benchmark: a figure that should not be exceeded. A missed goal is not an error.

/// The most that a figure should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Goal(pub(crate) f64);

impl Goal {
    /// The cell of a table that says whether a figure with this many decimals meets the goal. The figure is judged as it is printed.
    pub(crate) fn verdict(self, figure: f64, decimals: i32) -> String {
        let scale = 10_f64.powi(decimals);
        let is_met = (figure * scale).round() <= (self.0 * scale).round();
        format!("≤ {} {}", self.0, if is_met { "met" } else { "missed" })
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
    fn cell_without_goal_is_empty() {
        assert_eq!(Goal::cell(None, 1.0, 1), "");
        assert_eq!(Goal::cell(Some(Goal(8.0)), 9.0, 1), "≤ 8 missed");
        assert_eq!(Goal(0.5).unknown(), "≤ 0.5 unknown");
    }
}
