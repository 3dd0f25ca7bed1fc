//! What ran although it would not have in [`Mode::Enforce`](crate::Mode::Enforce), or although the store could not be asked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counts for a service that brings a guard in step by step.
#[derive(Default)]
pub(crate) struct RolloutCounts {
    observed: Mutex<BTreeMap<&'static str, u64>>,
    let_through: AtomicU64,
}

impl RolloutCounts {
    /// Counts a request that ran although it would have had this outcome.
    pub(crate) fn observe(&self, outcome: &'static str) {
        let mut observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner);
        *observed.entry(outcome).or_default() += 1;
    }

    pub(crate) fn observed(&self) -> BTreeMap<&'static str, u64> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a submission that ran although the store could not be asked.
    pub(crate) fn let_through(&self) {
        self.let_through.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_let_through(&self) -> u64 {
        self.let_through.load(Ordering::Relaxed)
    }
}
