//! One request on its way through the guards around a handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::effect::Entry;
use super::request::ParsedRequest;
use crate::pass::Pass;
use crate::run_id::RunId;
use crate::ticket::Ticket;

/// What a guard knows of a request that it lets through. An adapter leaves it with the request, for the mark of the handler and for guards
/// further in.
pub(crate) struct GuardedRequest {
    parsed: ParsedRequest,
    policy: &'static str,
    ticket: Ticket,
    run: Option<RunId>,
    entry: AtomicU8,
    outer: Option<Arc<Self>>,
}

impl GuardedRequest {
    /// A request that was let through with this pass, by a guard inside of `outer`.
    pub(crate) fn new(parsed: ParsedRequest, policy: &'static str, pass: &Pass, outer: Option<Arc<Self>>) -> Arc<Self> {
        let entry = AtomicU8::new(Entry::Unmarked as u8);
        Arc::new(Self { parsed, policy, ticket: pass.ticket(), run: pass.run_id(), entry, outer })
    }

    pub(crate) fn parsed(&self) -> &ParsedRequest {
        &self.parsed
    }

    /// The name of the policy, as in metrics.
    pub(super) fn policy(&self) -> &'static str {
        self.policy
    }

    /// The run that holds the claim, if there is one.
    pub(crate) fn run(&self) -> Option<RunId> {
        self.run
    }

    pub(crate) fn entry(&self) -> Entry {
        Entry::from_u8(self.entry.load(Ordering::Relaxed))
    }

    /// Notes that the extractors of a marked handler are called. If the service is called a second time, the handler stays entered.
    pub(crate) fn note_extracting(&self) {
        for guarded in self.outward().filter(|guarded| guarded.entry() == Entry::Unmarked) {
            guarded.entry.store(Entry::Extracting as u8, Ordering::Relaxed);
        }
    }

    /// Notes that a marked handler is called.
    pub(crate) fn note_entered(&self) {
        self.outward().for_each(|guarded| guarded.entry.store(Entry::Entered as u8, Ordering::Relaxed));
    }

    /// The request at this guard, or at one further out, that holds this ticket.
    pub(super) fn holding(&self, ticket: &Ticket) -> Option<&Self> {
        self.outward().find(|guarded| guarded.ticket == *ticket)
    }

    /// The request at this guard, or at the next one further out, that has a run; at this one if none has.
    pub(crate) fn with_run(&self) -> &Self {
        self.outward().find(|guarded| guarded.run.is_some()).unwrap_or(self)
    }

    fn outward(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |guarded| guarded.outer.as_deref())
    }
}
