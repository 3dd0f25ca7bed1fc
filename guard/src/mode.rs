//! How much a guard does, for whoever brings it into a service that runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use onceward_api::Outcome;

use crate::event;
use crate::guard::Guard;
use crate::meter;
use crate::store::StoreError;

/// How much a guard does, on its routes and in [`Guard::run`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mode {
    /// Nothing: no command is sent to the store, and no byte of a request or an answer is changed.
    Off,
    /// It checks, counts and logs what it would not let run, and changes nothing for the caller.
    Observe,
    /// It protects.
    #[default]
    Enforce,
}

/// What would not have run, and what ran although nobody could tell whether it may.
#[derive(Default)]
pub(crate) struct Observed {
    counts: Mutex<BTreeMap<&'static str, u64>>,
    let_through: AtomicU64,
}

impl Observed {
    fn count(&self, outcome: Outcome) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(outcome.as_str()).or_default() += 1;
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Guard {
    /// Counts and logs what was let run although it would not have been.
    pub(crate) fn observe(&self, outcome: Outcome, action: &str) {
        self.observed().count(outcome);
        meter::would_have(outcome);
        tracing::info!(target: "onceward::event", event = "observed", outcome = outcome.as_str(), action);
    }

    /// How often what would have become of a request in [`Mode::Observe`]: by the code of the refusal, or `replayed`.
    pub fn would_have(&self) -> BTreeMap<&'static str, u64> {
        self.observed().counts()
    }

    /// Counts and logs what runs although the store could not be asked.
    pub(crate) fn note_let_through(&self, action: &str, error: &StoreError) {
        self.observed().let_through.fetch_add(1, Ordering::Relaxed);
        self.meter().unprotected();
        event::let_through(action, error);
    }

    /// How many submissions ran unprotected because the store could not be asked and their policy
    /// [fails open](crate::IntervalRules::fail_open).
    pub fn let_through(&self) -> u64 {
        self.observed().let_through.load(Ordering::Relaxed)
    }
}
