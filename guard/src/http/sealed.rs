//! Keeps other crates from implementing [`Framework`](super::Framework), whose methods only this crate calls.

/// A framework with an adapter in this crate.
pub trait Sealed {}
