//! What goes on beside the handler: the claim is renewed, and what failed is tried again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::cell::{CellWrite, RecordCell};
use super::{Claim, ClaimProgress, ClaimStage, Origin};
use crate::backoff::Backoff;
use crate::metrics::ClaimEvent;
use crate::policy::KeyRules;
use crate::record::{ClaimRecord, Record};
use crate::renewal::Renewable;
use crate::store::StoreError;

/// What is due after a step.
enum NextStep {
    /// A renewal, after this time.
    Renew(Duration),
    /// The same again: it failed, or the claim of another run is in the way.
    Again,
    Nothing,
}

/// How long to wait before what failed is tried again: soon at first, for what a renewal is owed in the rest of the lease.
pub(super) fn backoff(lease: Duration) -> Backoff {
    Backoff::between((lease / 40).max(Duration::from_millis(10)), lease / 3)
}

/// The same for a claim that the store does not have, and may be sent yet by a connection that was held up.
pub(super) fn late_backoff(lease: Duration) -> Backoff {
    Backoff::between(lease / 8, lease / 2)
}

#[async_trait]
impl Renewable for Claim {
    async fn step(self: Arc<Self>) -> bool {
        let mut state = self.state.lock().await;
        self.leave_queue(&mut state);
        let (next, is_answered) = match &state.stage {
            // Whoever settles goes on from here.
            ClaimStage::Running if self.is_settling() => (NextStep::Nothing, true),
            ClaimStage::Running => {
                state.is_renewed = true;
                self.renew_and_log(&mut state.own).await
            }
            ClaimStage::Over => (NextStep::Nothing, true),
            ClaimStage::Completing(_)
            | ClaimStage::Truncating
            | ClaimStage::Releasing
            | ClaimStage::MarkingUnknown
            | ClaimStage::Revoking { .. } => self.settle_on(&mut state).await,
        };
        let is_patient = self.age() < self.patience(&state.stage);
        match next {
            NextStep::Renew(after) if is_patient => {
                state.backoff.reset();
                self.step_after(&mut state, after);
            }
            // A renewal waits for no other retry: the handler runs, and its lease must not expire while the store executes what it answers late.
            NextStep::Again if is_patient && matches!(state.stage, ClaimStage::Running) => {
                let after = state.backoff.next();
                self.step_after(&mut state, after);
            }
            NextStep::Again if is_patient => self.try_again(&mut state),
            NextStep::Renew(_) | NextStep::Again | NextStep::Nothing => state.running = None,
        }
        is_answered
    }

    async fn is_answered(&self) -> bool {
        self.terms.engine.store.look(&self.terms.ticket).await.is_ok()
    }

    fn lease(&self) -> Duration {
        self.terms.rules.lease
    }
}

impl Claim {
    /// One try at what is left to do, and what is next.
    async fn settle_on(&self, state: &mut ClaimProgress) -> (NextStep, bool) {
        // A store that is full has answered: others need not wait because of it.
        let advanced = self.advance(state).await;
        let is_refused = advanced.is_err();
        let mut failed = advanced.is_err_and(|error| !error.is_full());
        match state.stage {
            ClaimStage::Over => return (NextStep::Nothing, !failed),
            ClaimStage::Revoking { lapses: true, .. } => {
                state.stage = ClaimStage::Over;
                return (NextStep::Nothing, !failed);
            }
            // A Redis that is full refuses the reply and renews the claim: nobody else runs while this is tried.
            ClaimStage::Completing(_) if is_refused => failed = self.renew(&mut state.own).await.is_err(),
            _ => {}
        }
        (NextStep::Again, !failed)
    }

    pub(super) fn step_after(self: &Arc<Self>, state: &mut ClaimProgress, after: Duration) {
        state.place = Some(self.terms.engine.renewals.add(Arc::<Self>::clone(self), after));
    }

    /// What failed is tried again after a while; what may still be written late, at the end of that time for the last time.
    pub(super) fn try_again(self: &Arc<Self>, state: &mut ClaimProgress) {
        let mut after = state.backoff.next();
        if let ClaimStage::Revoking { answered_at: Some(first), .. } = state.stage {
            let end = first.saturating_add(self.record.lease);
            after = after.min(Duration::from_millis(end.saturating_sub(self.terms.engine.clock.steady())));
        }
        state.place = Some(self.terms.engine.renewals.retry(Arc::<Self>::clone(self), after));
    }

    /// Renews, and says what is next, and whether the store has answered.
    async fn renew_and_log(&self, own: &mut RecordCell) -> (NextStep, bool) {
        let kept = self.renew(own).await;
        let is_answered = kept.is_ok();
        match &kept {
            Ok(NextStep::Nothing) => self.log(ClaimEvent::Lost),
            Ok(_) => {}
            Err(error) => {
                self.terms.engine.metrics.not_renewed();
                tracing::warn!(%error, ticket = ?self.terms.ticket, run = %self.run(), "could not renew the claim; retrying until the lease expires");
            }
        }
        (kept.unwrap_or(NextStep::Again), is_answered)
    }

    async fn renew(&self, own: &mut RecordCell) -> Result<NextStep, StoreError> {
        let KeyRules { lease, at_most_once, .. } = self.terms.rules;
        let other = match self.write_again(own, self.record()).await? {
            CellWrite::Own => {
                self.terms.engine.metrics.renewed();
                return Ok(NextStep::Renew(self.renewal_interval()));
            }
            CellWrite::Other(other) => other,
            CellWrite::Nothing => match own.insert_again(self.revived().encode(), lease).await? {
                None => {
                    self.terms.engine.metrics.renewed();
                    // Heartbeat again with the next renewal, which is due at once.
                    return Ok(NextStep::Renew(if at_most_once { Duration::ZERO } else { self.renewal_interval() }));
                }
                Some(other) => other,
            },
        };
        // A claim may be one that nobody knows of, written late by a store that was frozen, and taken back in a moment.
        Ok(if matches!(other, Record::Claimed(_)) { NextStep::Again } else { NextStep::Nothing })
    }

    /// Has it live for as long again, if it is there.
    pub(super) async fn write_again(
        &self,
        own: &mut RecordCell,
        record: &ClaimRecord,
    ) -> Result<CellWrite, StoreError> {
        let KeyRules { lease, at_most_once, .. } = self.terms.rules;
        match at_most_once {
            true => own.write(self.renewed(record), self.at_most_once_life()).await,
            false => own.write(record.encode(), lease).await,
        }
    }

    /// The claim as a renewal makes it again that has found nothing. A late renewal may do so after the run has ended, so
    /// the attempt does not carry on with it: it would get the pass of a run that is over.
    pub(super) fn revived(&self) -> ClaimRecord {
        ClaimRecord { attempt: None, ..self.record().clone() }
    }

    /// How long until the next renewal. An interval is over by then as a rule, and need not be renewed; a lock lasts as long as its handler.
    pub(super) fn renewal_interval(&self) -> Duration {
        match &self.terms.origin {
            Origin::Interval(rules) if !rules.is_lock => self.terms.rules.lease / 3 * 2,
            Origin::Interval(_) | Origin::Key | Origin::Token(..) => self.terms.rules.lease / 3,
        }
    }

    /// How long trying goes on.
    fn patience(&self, stage: &ClaimStage) -> Duration {
        let KeyRules { lease, ceiling, retain, at_most_once, .. } = self.terms.rules;
        match stage {
            ClaimStage::Running => ceiling,
            // A claim that is not held goes away by itself.
            ClaimStage::Releasing | ClaimStage::Truncating if !at_most_once => ceiling.saturating_add(lease),
            _ => ceiling.saturating_add(retain),
        }
    }
}
