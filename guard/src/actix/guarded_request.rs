//! One request on its way through the guards around a handler.

use std::cell::Cell;
use std::rc::Rc;

use actix_web::{HttpMessage as _, HttpRequest};

use crate::http::{Entry, ParsedRequest};
use crate::pass::Pass;
use crate::run_id::RunId;
use crate::ticket::Ticket;

/// What a guard knows of a request that it lets through. It stays with the request, for the mark of the handler and for guards
/// further in.
pub(super) struct GuardedRequest {
    parsed: ParsedRequest,
    policy: &'static str,
    ticket: Ticket,
    run: Option<RunId>,
    entry: Cell<Entry>,
    outer: Option<Rc<Self>>,
}

impl GuardedRequest {
    /// A request that was let through with this pass, by a guard inside of `outer`.
    pub(super) fn new(parsed: ParsedRequest, policy: &'static str, pass: &Pass, outer: Option<Rc<Self>>) -> Rc<Self> {
        let entry = Cell::new(Entry::Unmarked);
        Rc::new(Self { parsed, policy, ticket: pass.ticket(), run: pass.run_id(), entry, outer })
    }

    /// What the innermost guard so far knows of a request.
    pub(super) fn of(request: &HttpRequest) -> Option<Rc<Self>> {
        request.extensions().get::<Rc<Self>>().cloned()
    }

    /// Leaves this with the request.
    pub(super) fn accompany(self: &Rc<Self>, request: &HttpRequest) {
        request.extensions_mut().insert(Rc::clone(self));
    }

    pub(super) fn asked(&self) -> &ParsedRequest {
        &self.parsed
    }

    /// The name of the policy, as in metrics.
    pub(super) fn policy(&self) -> &'static str {
        self.policy
    }

    /// The run that holds the claim, if there is one.
    pub(super) fn run(&self) -> Option<RunId> {
        self.run
    }

    pub(super) fn entry(&self) -> Entry {
        self.entry.get()
    }

    /// A marked handler's extractors are parsed. If the service is called a second time, it stays entered.
    pub(super) fn note_extracting(&self) {
        for guarded in self.outward().filter(|guarded| guarded.entry() == Entry::Unmarked) {
            guarded.entry.set(Entry::Extracting);
        }
    }

    /// A marked handler is entered.
    pub(super) fn note_entered(&self) {
        self.outward().for_each(|guarded| guarded.entry.set(Entry::Entered));
    }

    /// The guarded through this guard, or one further out, that holds this ticket.
    pub(super) fn holding(&self, ticket: &Ticket) -> Option<&Self> {
        self.outward().find(|guarded| guarded.ticket == *ticket)
    }

    /// The guarded through this guard, or the next one further out, that has a run; this one if none has.
    pub(super) fn with_run(&self) -> &Self {
        self.outward().find(|guarded| guarded.run.is_some()).unwrap_or(self)
    }

    fn outward(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |guarded| guarded.outer.as_deref())
    }
}
