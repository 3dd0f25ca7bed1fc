//! Background work on a claim: renews it while the handler runs, and retries failed writes.

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
use crate::store::{Room, StoreError};

/// The next step of a claim.
enum NextStep {
    /// Renew the claim after this time.
    Renew(Duration),
    /// Retry: the step failed, or the claim of another run is in the way.
    Again,
    Nothing,
}

/// Returns the backoff for failed steps. The first retries come soon, so that several fit into the rest of the lease.
pub(super) fn backoff(lease: Duration) -> Backoff {
    Backoff::between((lease / 40).max(Duration::from_millis(10)), lease / 3)
}

/// Returns the backoff for revoking a claim that the store does not have, and that a stalled connection may still deliver.
pub(super) fn late_backoff(lease: Duration) -> Backoff {
    Backoff::between(lease / 8, lease / 2)
}

#[async_trait]
impl Renewable for Claim {
    async fn step(self: Arc<Self>) -> bool {
        let mut state = self.state.lock().await;
        self.leave_queue(&mut state);
        let (next, is_answered) = match &state.stage {
            // `settle` takes over from here.
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
        let is_patient = self.is_patient(&mut state);
        match next {
            NextStep::Renew(after) if is_patient => {
                state.backoff.reset();
                self.step_after(&mut state, after);
            }
            // A failed renewal bypasses the retry queue: the handler runs, and its lease must not expire while the store still executes
            // commands but replies late.
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
    /// Tries the remaining write once. Returns the next step, and whether the store has answered.
    async fn settle_on(&self, state: &mut ClaimProgress) -> (NextStep, bool) {
        // A full store has answered, so other retries need not wait.
        let advanced = self.advance(state).await;
        let is_refused = advanced.is_err();
        let mut failed = advanced.is_err_and(|error| !error.is_full());
        match state.stage {
            ClaimStage::Over => return (NextStep::Nothing, !failed),
            ClaimStage::Revoking { lapses: true, .. } => {
                state.stage = ClaimStage::Over;
                return (NextStep::Nothing, !failed);
            }
            // A full Redis rejects the reply but renews the claim, so no duplicate runs between the retries.
            ClaimStage::Completing(_) if is_refused => failed = self.renew(&mut state.own).await.is_err(),
            _ => {}
        }
        (NextStep::Again, !failed)
    }

    pub(super) fn step_after(self: &Arc<Self>, state: &mut ClaimProgress, after: Duration) {
        state.place = Some(self.terms.engine.renewals.add(Arc::<Self>::clone(self), after));
    }

    /// Schedules a retry with backoff. A revocation is retried for the last time when a late write can no longer arrive.
    pub(super) fn try_again(self: &Arc<Self>, state: &mut ClaimProgress) {
        let mut after = state.backoff.next();
        if let ClaimStage::Revoking { answered_at: Some(first), .. } = state.stage {
            let end = first.saturating_add(self.record.lease);
            after = after.min(Duration::from_millis(end.saturating_sub(self.terms.engine.clock.steady())));
        }
        state.place = Some(self.terms.engine.renewals.retry(Arc::<Self>::clone(self), after));
    }

    /// Renews the claim. Returns the next step, and whether the store has answered.
    async fn renew_and_log(&self, own: &mut RecordCell) -> (NextStep, bool) {
        let kept = self.renew(own).await;
        let is_answered = kept.is_ok();
        match &kept {
            Ok(NextStep::Nothing) => self.log(ClaimEvent::Lost),
            Ok(_) => {}
            Err(error) => {
                self.terms.engine.metrics.not_renewed();
                self.terms.engine.store.step_failed(error);
                tracing::debug!(
                    %error, ticket = ?self.terms.ticket, run = %self.run(),
                    "could not renew the claim; retrying until the lease expires"
                );
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
            CellWrite::Nothing => match own
                .insert_again(self.store(), &self.revived().encode(), lease, Room::Reserved)
                .await?
            {
                None => {
                    self.terms.engine.metrics.renewed();
                    // The next renewal restores the heartbeat, and is due at once.
                    return Ok(NextStep::Renew(if at_most_once { Duration::ZERO } else { self.renewal_interval() }));
                }
                Some(other) => other,
            },
        };
        // The other claim may be one that a stalled store wrote late, and that its owner revokes shortly.
        Ok(if matches!(other, Record::Claimed(_)) { NextStep::Again } else { NextStep::Nothing })
    }

    /// Extends the TTL of the claim, if the claim is there.
    pub(super) async fn write_again(
        &self,
        own: &mut RecordCell,
        record: &ClaimRecord,
    ) -> Result<CellWrite, StoreError> {
        let KeyRules { lease, at_most_once, .. } = self.terms.rules;
        match at_most_once {
            true => {
                own.write(self.store(), &self.terms.renewed(record), self.terms.at_most_once_life(), Room::Reserved)
                    .await
            }
            false => own.write(self.store(), &record.encode(), lease, Room::Reserved).await,
        }
    }

    /// Returns the record with which a renewal inserts a missing claim again. A late renewal may do so after the run has ended, so the
    /// record carries no attempt: otherwise a repeated request would receive the pass of a run that has ended.
    pub(super) fn revived(&self) -> ClaimRecord {
        ClaimRecord { attempt: None, ..self.record().clone() }
    }

    /// Returns the time until the next renewal. The handler of an interval has usually returned by then, so that no renewal is necessary. A
    /// lock lasts as long as its handler, and a remembered interval has to last until its reply is stored.
    pub(super) fn renewal_interval(&self) -> Duration {
        match &self.terms.origin {
            Origin::Interval(rules) if !rules.is_lock && rules.remember.is_none() => self.terms.rules.lease / 3 * 2,
            Origin::Interval(_) | Origin::Key | Origin::Token(..) => self.terms.rules.lease / 3,
        }
    }

    /// Returns whether the background task continues with the claim; otherwise it gives up.
    fn is_patient(&self, state: &mut ClaimProgress) -> bool {
        let KeyRules { lease, ceiling, retain, at_most_once, .. } = self.terms.rules;
        let age = self.age();
        match (&state.stage, &self.terms.origin) {
            (ClaimStage::Running, _) => age < ceiling,
            // A retryable claim expires on its own.
            (ClaimStage::Releasing | ClaimStage::Truncating, _) if !at_most_once => age < ceiling.saturating_add(lease),
            // An outcome is of no use long after its interval, which lasts at least as long as its handler.
            (_, Origin::Interval(_)) => {
                let first = *state.first_retry.get_or_insert(age);
                age < first.saturating_add(lease.saturating_mul(2))
            }
            _ => age < ceiling.saturating_add(retain),
        }
    }
}
