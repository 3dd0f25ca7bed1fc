//! The window of a remembered interval: how long the outcome of its run is stored.

use std::time::Duration;

use super::{Claim, Origin};

/// Minimum time for which the outcome of a run is stored after the run, so that each duplicate that waits finds it at its next lookup. This
/// applies also if the run ended within the interval: just before its end, or within an interval that is shorter than two lookups.
const HANDOVER: Duration = Duration::from_secs(1);

impl Claim {
    /// Returns how long the outcome of this run is stored: the retention of a key or token, or what is left of an interval.
    pub(super) fn retention(&self) -> Duration {
        match &self.terms.origin {
            Origin::Interval(rules) => rules.every.saturating_sub(self.window_age()).max(HANDOVER),
            Origin::Key | Origin::Token(..) => self.terms.rules.retain,
        }
    }

    /// Returns the expiry of the outcome, in milliseconds since 1970.
    pub(super) fn outcome_deadline(&self) -> u64 {
        self.terms.engine.clock.wall().saturating_add(self.retention().as_millis() as u64)
    }

    /// Returns whether the interval has ended. If its claim is gone too, a later request may run, and must not find this outcome.
    pub(super) fn is_window_over(&self) -> bool {
        matches!(&self.terms.origin, Origin::Interval(rules) if rules.every <= self.window_age())
    }

    /// Returns the time since the claim was first written. A claim of another process has its start by the clock of that process.
    fn window_age(&self) -> Duration {
        match self.carried_on.get() {
            Some(theirs) => Duration::from_millis(self.terms.engine.clock.wall().saturating_sub(theirs.started_at)),
            None => self.age(),
        }
    }
}
