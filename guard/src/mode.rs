//! How much a guard does, for whoever brings it into a service that runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use onceward_api::Outcome;

use crate::audit;
use crate::guard::Guard;
use crate::metrics;
use crate::store::StoreError;

/// How much a guard does, on its routes and in [`Guard::run`].
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

/// What would not have run, and what ran although nobody could tell whether it may.
#[derive(Default)]
pub(crate) struct ObservedCounts {
    counts: Mutex<BTreeMap<&'static str, u64>>,
    let_through: AtomicU64,
}

/// The handler has answered, and the guard has not seen enough of the body to judge the request.
#[cfg(feature = "actix")]
const UNREAD: &str = "unread";

impl ObservedCounts {
    fn count(&self, outcome: &'static str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(outcome).or_default() += 1;
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Guard {
    /// Counts and logs what was let run although it would not have been.
    pub(crate) fn observe(&self, outcome: Outcome, action: &str) {
        self.count_observed(outcome.as_str(), action);
    }

    /// Counts and logs a request that could not be judged: its handler answered without reading the body, which had not arrived.
    #[cfg(feature = "actix")]
    pub(crate) fn observe_unread(&self, action: &str) {
        self.count_observed(UNREAD, action);
    }

    fn count_observed(&self, outcome: &'static str, action: &str) {
        self.observed().count(outcome);
        metrics::would_have(outcome);
        tracing::info!(target: "onceward::event", event = "observed", outcome, action);
    }

    /// How often what would have become of a request in [`Mode::Observe`]: by the code of the rejection, or `replayed`. `unread` are
    /// requests that could not be judged, because their handler answered without reading a body that had not arrived.
    pub fn would_have(&self) -> BTreeMap<&'static str, u64> {
        self.observed().counts()
    }

    /// Counts and logs what runs although the store could not be asked.
    pub(crate) fn note_let_through(&self, action: &str, error: &StoreError) {
        self.observed().let_through.fetch_add(1, Ordering::Relaxed);
        self.meter().unprotected();
        audit::let_through(action, error);
    }

    /// How many submissions ran unprotected because the store could not be asked and their policy
    /// [fails open](crate::IntervalRules::fail_open).
    pub fn let_through(&self) -> u64 {
        self.observed().let_through.load(Ordering::Relaxed)
    }
}
