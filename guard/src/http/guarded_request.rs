//! One request within the guards around a handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::effect::Entry;
use super::request::ParsedRequest;
use crate::pass::Pass;
use crate::run_id::RunId;
use crate::ticket::Ticket;

/// The data of a request that a guard has admitted. An adapter attaches it to the request, for the handler's mark and for inner guards.
pub(crate) struct GuardedRequest {
    parsed: ParsedRequest,
    policy: &'static str,
    ticket: Ticket,
    run: Option<RunId>,
    entry: AtomicU8,
    /// Calls of a marked handler that have not returned. Middleware may call the handler again.
    running: AtomicU32,
    outer: Option<Arc<Self>>,
}

impl GuardedRequest {
    /// Creates the data of a request that was admitted with this pass, by a guard inside of `outer`.
    pub(crate) fn new(parsed: ParsedRequest, policy: &'static str, pass: &Pass, outer: Option<Arc<Self>>) -> Arc<Self> {
        let entry = AtomicU8::new(Entry::Unmarked as u8);
        let running = AtomicU32::new(0);
        Arc::new(Self { parsed, policy, ticket: pass.ticket(), run: pass.run_id(), entry, running, outer })
    }

    pub(crate) fn parsed(&self) -> &ParsedRequest {
        &self.parsed
    }

    /// Returns the name of the policy, as in metrics.
    pub(super) fn policy(&self) -> &'static str {
        self.policy
    }

    /// Returns the run that holds the claim, if there is one.
    pub(crate) fn run(&self) -> Option<RunId> {
        self.run
    }

    pub(crate) fn entry(&self) -> Entry {
        Entry::from_u8(self.entry.load(Ordering::Relaxed))
    }

    /// Records that the extractors of a marked handler are called. If the service is called a second time, the handler stays entered.
    pub(super) fn note_extracting(&self) {
        for guarded in self.outward().filter(|guarded| guarded.entry() == Entry::Unmarked) {
            guarded.entry.store(Entry::Extracting as u8, Ordering::Relaxed);
        }
    }

    /// Records that a marked handler is called.
    pub(super) fn note_entered(&self) {
        for guarded in self.outward() {
            guarded.running.fetch_add(1, Ordering::Relaxed);
            guarded.entry.store(Entry::Entered as u8, Ordering::Relaxed);
        }
    }

    /// Records that a marked handler has returned.
    pub(super) fn note_returned(&self) {
        // If an earlier call was dropped, its effect stays unknown.
        for guarded in self.outward().filter(|guarded| guarded.running.fetch_sub(1, Ordering::Relaxed) == 1) {
            guarded.entry.store(Entry::Returned as u8, Ordering::Relaxed);
        }
    }

    /// Returns the innermost request, from this guard outwards, that holds this ticket.
    pub(super) fn holding(&self, ticket: &Ticket) -> Option<&Self> {
        self.outward().find(|guarded| guarded.ticket == *ticket)
    }

    /// Returns the innermost request, from this guard outwards, that has a run; this one if none has.
    pub(crate) fn with_run(&self) -> &Self {
        self.outward().find(|guarded| guarded.run.is_some()).unwrap_or(self)
    }

    fn outward(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |guarded| guarded.outer.as_deref())
    }
}
