//! The effect of a run.

/// The effect of a run: applied, not applied or unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The run took effect; a duplicate must not run.
    Applied,
    /// The run did not take effect; the token or key is free again, and a retry may run.
    NotApplied,
    /// The outcome is unknown: the run may have taken effect, so the token stays used and the claim stays.
    Unknown,
}
