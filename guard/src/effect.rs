//! Whether a submission took effect.

/// Whether a submission took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It took effect; a duplicate must not run.
    Applied,
    /// It did not take effect; the same may be sent again.
    NotApplied,
    /// Whether it took effect is unknown, so nothing is given back.
    Unknown,
}
