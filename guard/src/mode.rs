//! How much a guard does, for a service that brings one in step by step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How much a guard does, on its routes and in [`Guard::run`](crate::Guard::run).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mode {
    /// Nothing: no command is sent to the store, and no byte of a request or an answer is changed.
    Off,
    /// It checks, counts and logs what it would not let run, and changes nothing for the caller. It does not wait for a body
    /// either: where the guard looks into one that has not arrived, the handler is called first and the request is judged after
    /// its answer, by the body that the handler has read by then.
    Observe,
    /// It protects.
    #[default]
    Enforce,
}

/// Counts for a service that brings a guard in step by step.
#[derive(Default)]
pub(crate) struct RolloutCounts {
    observed: Mutex<BTreeMap<&'static str, u64>>,
    unprotected: AtomicU64,
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
    pub(crate) fn count_unprotected(&self) {
        self.unprotected.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unprotected(&self) -> u64 {
        self.unprotected.load(Ordering::Relaxed)
    }
}
