//! Methods that adapters need in addition to the public ones.

use std::sync::Arc;
use std::time::Duration;

use onceward_api::{Code, Outcome};

use super::{Guard, check, issue, wait};
use crate::binding::Binding;
use crate::intent::Intent;
use crate::policy::Policy;
use crate::rejection::Rejection;
use crate::run_id::RunId;
use crate::shutdown::InFlight;
use crate::store::{OriginThread, StoreError};
use crate::ticket::Ticket;
use crate::token::Token;
use crate::verdict::Verdict;

/// Label of a request that could not be judged: the handler responded before the guard had seen enough of the body.
const UNREAD: &str = "unread";

#[allow(dead_code, reason = "each adapter is a feature of its own")]
impl Guard {
    /// Like [`check`](Self::check), but does not count the verdict: the adapter counts it once it is final.
    pub(crate) async fn decide(&self, policy: &Policy, intent: &Intent<'_>) -> Result<Verdict, StoreError> {
        check::decide(&self.0, policy, intent).await
    }

    /// Waits if the rejection is `in_progress`: the request is a duplicate of a run in flight. Cancel safe only after `idle(true)` and
    /// before `idle(false)`.
    pub(crate) async fn wait_if_in_progress(
        &self,
        rejection: Rejection,
        policy: &Policy,
        intent: &Intent<'_>,
        enough: impl Future<Output = ()>,
        idle: impl Fn(bool),
    ) -> Result<Verdict, StoreError> {
        wait::wait_after(&self.0, rejection, policy, intent, enough, idle).await
    }

    /// Counts a verdict. A store error is counted by the code that the client receives.
    pub(crate) fn count_verdict(&self, policy: &Policy, verdict: &Result<Verdict, StoreError>, intent: &Intent<'_>) {
        let (metrics, label) = (&self.0.metrics, policy.label());
        match verdict {
            Ok(Verdict::Run(_)) => metrics.run(label),
            Ok(Verdict::Replay(_)) => metrics.replay(label),
            Ok(Verdict::Reject(rejection)) => metrics.reject(label, rejection.code()),
            Err(error) => {
                metrics.reject(label, Guard::rejection_after(error, policy, intent).code());
                if !check::fails_open(policy, error) {
                    self.0.store.request_failed(error);
                }
            }
        }
    }

    /// Counts a rejection before the guard has decided.
    pub(crate) fn count_rejection(&self, policy: &Policy, code: Code) {
        self.0.metrics.reject(policy.label(), code);
    }

    /// Returns whether a submission runs although the store failed.
    pub(crate) fn fails_open(&self, policy: &Policy, error: &StoreError) -> bool {
        check::fails_open(policy, error)
    }

    /// Counts and logs a submission that runs although the store failed.
    pub(crate) fn note_unprotected(&self, action: &str, error: &StoreError) {
        self.0.note_unprotected(action, error);
    }

    /// Counts and logs a request that ran in observe mode, by the outcome that it would have had.
    pub(crate) fn observe(&self, outcome: Outcome, action: &str) {
        self.0.observe(outcome, action);
    }

    /// Counts and logs a request that could not be judged: its handler responded without reading the body, which had not arrived.
    pub(crate) fn observe_unread(&self, action: &str) {
        self.0.count_observed(UNREAD, action);
    }

    /// Counts a run in flight that has no pass. Returns `None` if the guard rejects new work.
    pub(crate) fn begin_run(&self) -> Option<InFlight> {
        self.0.shutdown.begin()
    }

    /// Creates a token that is not stored, for the pages of an application whose guard does not enforce.
    pub(crate) fn blank_token(&self, ttl: Duration, bound: &Binding<'_>) -> Token {
        issue::blank(&self.0, ttl, bound)
    }

    /// Returns the ticket that a submission claims, or `None` if it presents no token or key for it.
    pub(crate) async fn ticket_of(&self, policy: &Policy, intent: &Intent<'_>) -> Result<Option<Ticket>, StoreError> {
        check::ticket(&self.0, policy, intent).await
    }

    /// Returns whether this run holds the claim on a ticket.
    pub(crate) async fn is_claimed_by(&self, ticket: &Ticket, run: RunId) -> Result<bool, StoreError> {
        check::is_claimed_by(&self.0, ticket, run).await
    }

    #[cfg(test)]
    pub(crate) fn renewals(&self) -> &crate::renewal::RenewalQueue {
        &self.0.renewals
    }

    #[cfg(test)]
    pub(crate) fn open_claims(&self) -> crate::open_claims::ClaimCounts {
        self.0.open_claims.counts()
    }

    #[cfg(test)]
    pub(crate) fn waiters(&self) -> &crate::waiters::Waiters {
        &self.0.waiters
    }

    /// Returns the thread that built the guard's store, if that is a memory store.
    pub(crate) fn origin_thread(&self) -> Option<&Arc<OriginThread>> {
        self.0.origin_thread.as_ref()
    }
}
