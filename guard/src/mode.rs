//! Modes of a guard, for a step-by-step rollout.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The mode of a guard, on its routes and in [`Guard::run`](crate::Guard::run).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mode {
    /// Does nothing: sends no store command, and changes no request and no response.
    Off,
    /// Checks requests, counts and logs those that [`Enforce`](Self::Enforce) would not run, and changes nothing for the client. It does
    /// not wait for a body: if the guard needs a body that has not arrived, the handler is called first, and the guard judges the request
    /// after the response, by the part of the body that the handler has read by then.
    Observe,
    /// Protects requests: a duplicate does not run.
    #[default]
    Enforce,
}

/// Counters for a step-by-step rollout.
#[derive(Default)]
pub(crate) struct RolloutCounts {
    observed: Mutex<BTreeMap<&'static str, u64>>,
    unprotected: AtomicU64,
}

impl RolloutCounts {
    /// Counts a request that ran in observe mode, by the outcome that it would have had.
    pub(crate) fn observe(&self, outcome: &'static str) {
        let mut observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner);
        *observed.entry(outcome).or_default() += 1;
    }

    pub(crate) fn observed(&self) -> BTreeMap<&'static str, u64> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a submission that ran although the store failed.
    pub(crate) fn count_unprotected(&self) {
        self.unprotected.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unprotected(&self) -> u64 {
        self.unprotected.load(Ordering::Relaxed)
    }
}
