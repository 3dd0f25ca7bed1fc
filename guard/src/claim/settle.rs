//! Settles claims: completes, truncates or releases them, marks them as unknown, or revokes them. Failed writes are retried in the
//! background.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::MutexGuard;

use super::cell::{CellWrite, MAX_CONFLICTS, RecordCell, conflict};
use super::renewal::late_backoff;
use super::{Claim, ClaimProgress, ClaimStage, Origin};
use crate::audit;
use crate::effect::Effect;
use crate::metrics::ClaimEvent;
use crate::record::Record;
use crate::reply::{NoReply, Reply};
use crate::settled::Settled;
use crate::shutdown::InFlight;
use crate::store::{Room, StoreError};
use crate::token::TokenFields;

impl Claim {
    /// Records the outcome of the run. A failed write is retried in the background.
    pub(crate) async fn settle(
        self: &Arc<Self>,
        effect: Effect,
        reply: Result<Reply, NoReply>,
        running: InFlight,
    ) -> Result<Settled, StoreError> {
        let mut state = self.begin_settling().await;
        state.stage = match (&self.terms.origin, effect) {
            (Origin::Interval(rules), _) if rules.is_lock => ClaimStage::Releasing,
            (_, Effect::NotApplied) => ClaimStage::Releasing,
            (Origin::Interval(rules), effect) if rules.remember.is_some() => match effect {
                Effect::Applied => ClaimStage::Completing(self.done(reply)),
                Effect::NotApplied | Effect::Unknown => ClaimStage::MarkingUnknown,
            },
            (Origin::Interval(rules), Effect::Applied) if rules.is_shorter_than_its_claim() || state.is_renewed => {
                ClaimStage::Truncating
            }
            (_, Effect::Unknown) if self.terms.rules.at_most_once => ClaimStage::MarkingUnknown,
            (Origin::Interval(_), _) | (_, Effect::Unknown) => {
                self.end(&mut state, effect);
                return Ok(Settled::Final);
            }
            (Origin::Key | Origin::Token(..), Effect::Applied) => ClaimStage::Completing(self.done(reply)),
        };
        state.running = Some(running);
        let settled = self.advance(&mut state).await;
        // The next renewal stays queued until here, so that it continues with this write if the future is dropped.
        self.leave_queue(&mut state);
        if !matches!(state.stage, ClaimStage::Over) {
            self.try_again(&mut state);
        }
        settled
    }

    /// Ends a claim that needs no write: an interval whose run took effect is left to expire. Returns `false` if a write is necessary, or
    /// if a renewal was sent or is in flight.
    pub(crate) fn try_end_unwritten(&self, effect: Effect) -> bool {
        let Origin::Interval(rules) = &self.terms.origin else { return false };
        if effect != Effect::Applied || rules.is_lock || rules.remember.is_some() || rules.is_shorter_than_its_claim() {
            return false;
        }
        self.is_settling.store(true, Ordering::SeqCst);
        match self.state.try_lock() {
            Ok(mut state) if !state.is_renewed => {
                self.end(&mut state, effect);
                true
            }
            _ => false,
        }
    }

    /// Ends the claim without a further write.
    fn end(&self, state: &mut ClaimProgress, effect: Effect) {
        self.leave_queue(state);
        state.stage = ClaimStage::Over;
        self.log(audit::end(effect));
    }

    /// Ends a run without an outcome: the claim expires with its lease, and an at-most-once claim is marked as unknown. A lock is released
    /// at once.
    pub(crate) fn abandon(self: &Arc<Self>) {
        self.is_settling.store(true, Ordering::SeqCst);
        // A step is in flight; the next one sees `is_settling` and ends.
        let Ok(mut state) = self.state.try_lock() else { return self.log(ClaimEvent::Unknown) };
        self.leave_queue(&mut state);
        state.stage = match &self.terms.origin {
            Origin::Interval(rules) if rules.is_lock => ClaimStage::Releasing,
            Origin::Interval(rules) if rules.remember.is_some() => ClaimStage::MarkingUnknown,
            Origin::Key | Origin::Token(..) if self.terms.rules.at_most_once => ClaimStage::MarkingUnknown,
            Origin::Key | Origin::Token(..) | Origin::Interval(_) => ClaimStage::Over,
        };
        if matches!(state.stage, ClaimStage::Over) {
            return self.log(ClaimEvent::Unknown);
        }
        self.step_after(&mut state, Duration::ZERO);
    }

    /// Waits for a renewal in flight, and prevents further renewals.
    pub(super) async fn begin_settling(&self) -> MutexGuard<'_, ClaimProgress> {
        self.is_settling.store(true, Ordering::SeqCst);
        self.begin_step().await
    }

    /// Waits for a step in flight, of which there is seldom one: `lock` alone costs several times more.
    pub(super) async fn begin_step(&self) -> MutexGuard<'_, ClaimProgress> {
        match self.state.try_lock() {
            Ok(state) => state,
            Err(_) => self.state.lock().await,
        }
    }

    /// Removes the claim from the renewal queue.
    pub(super) fn leave_queue(&self, state: &mut ClaimProgress) {
        state.place.take().into_iter().for_each(|place| self.terms.engine.renewals.remove(place));
    }

    /// Marks the outcome as unknown in the record.
    pub(super) async fn mark_unknown(&self, own: &mut RecordCell) -> Result<(), StoreError> {
        let (ended, retain) = (self.record().with_heartbeat(0, self.outcome_deadline()).encode(), self.retention());
        let written = own.write(self.store(), &ended, retain, Room::Reserved).await?;
        if matches!(written, CellWrite::Nothing) && !self.is_window_over() {
            own.insert_again(self.store(), &ended, retain, Room::Reserved).await?;
        }
        Ok(())
    }

    /// Tries the remaining write once.
    pub(super) async fn advance(&self, state: &mut ClaimProgress) -> Result<Settled, StoreError> {
        let own = &mut state.own;
        let settled = match &mut state.stage {
            ClaimStage::Completing(record) => match self.complete(own, record).await? {
                Some(settled) => settled,
                // Retry: the other claim may be one that was written late, and that its owner revokes shortly.
                None => return Ok(Settled::Lost),
            },
            ClaimStage::Truncating => self.truncate(own).await.map(|()| Settled::Final)?,
            ClaimStage::MarkingUnknown => {
                self.mark_unknown(own).await?;
                self.log(ClaimEvent::Unknown);
                (state.stage, state.running) = (ClaimStage::Over, None);
                return Ok(Settled::Final);
            }
            ClaimStage::Releasing => {
                let is_back = self.release(own).await?;
                self.log(ClaimEvent::Released);
                (state.stage, state.running) = (ClaimStage::Over, None);
                return Ok(if is_back { Settled::Released } else { Settled::Final });
            }
            ClaimStage::Revoking { answered_at, lapses } => {
                let met = self.give_back(own).await?;
                if answered_at.is_none() {
                    state.backoff = late_backoff(self.terms.rules.lease);
                }
                if !*lapses && self.may_still_come(&met, answered_at) {
                    return Ok(Settled::Released);
                }
                Settled::Released
            }
            ClaimStage::Running | ClaimStage::Over => return Ok(Settled::Final),
        };
        self.log(match settled {
            Settled::Final | Settled::Rejected(_) => ClaimEvent::Completed,
            Settled::Released => ClaimEvent::Released,
            Settled::Lost => ClaimEvent::Lost,
        });
        state.stage = ClaimStage::Over;
        state.running = None;
        Ok(settled)
    }

    /// Releases the claim for good. Returns whether the client may send the same request again. With a key or an interval it may, whatever
    /// record is there now; with a token only if the token is valid again.
    pub(super) async fn release(&self, own: &mut RecordCell) -> Result<bool, StoreError> {
        let met = self.give_back(own).await?;
        let Some(token) = self.token() else { return Ok(true) };
        let is_worth_it = TokenFields::worth_putting_back(token.expires_at, &self.terms.engine.clock).is_some();
        Ok(is_worth_it && matches!(met, CellWrite::Own | CellWrite::Other(Record::Issued)))
    }

    /// Removes the claim, or restores the token if it is not about to expire, and notifies the waiters of this run.
    pub(super) async fn give_back(&self, own: &mut RecordCell) -> Result<CellWrite, StoreError> {
        let life =
            self.token().map(|token| TokenFields::worth_putting_back(token.expires_at, &self.terms.engine.clock));
        let met = match life {
            Some(Some(life)) => own.hand_over(self.store(), &Record::ISSUED, life).await?,
            Some(None) | None => own.erase(self.store()).await?,
        };
        if matches!(met, CellWrite::Own) {
            self.terms.engine.waiters.released(&self.terms.ticket);
        }
        Ok(met)
    }

    /// Shortens the claim to the end of its interval, or removes it if the handler took longer.
    pub(super) async fn truncate(&self, own: &mut RecordCell) -> Result<(), StoreError> {
        let Origin::Interval(rules) = &self.terms.origin else { return Ok(()) };
        match rules.every.checked_sub(self.age()).filter(|left| !left.is_zero()) {
            Some(left) => own.write(self.store(), &self.record().encode(), left, Room::Reserved).await.map(drop),
            None => own.erase(self.store()).await.map(drop),
        }
    }

    /// Writes the reply. Returns `None` if the claim of another run is there.
    pub(super) async fn complete(&self, own: &mut RecordCell, record: &[u8]) -> Result<Option<Settled>, StoreError> {
        for _ in 0..MAX_CONFLICTS {
            let retain = self.retention();
            let other = match own.end(self.store(), record, retain, Room::Free).await? {
                CellWrite::Own => return Ok(Some(Settled::Final)),
                CellWrite::Other(found) => found,
                CellWrite::Nothing if self.is_window_over() => return Ok(Some(Settled::Final)),
                // The claim has expired, and no other request has claimed.
                CellWrite::Nothing => match own.insert_again(self.store(), record, retain, Room::Free).await? {
                    None if own.is_at(record) => return Ok(Some(Settled::Final)),
                    // A late renewal has inserted the claim first.
                    None => continue,
                    Some(found) => found,
                },
            };
            return Ok(match other {
                other if own.is_end(&other) => Some(Settled::Final),
                // Belongs to another run, possibly of the same attempt.
                Record::Claimed(_) => None,
                _ => Some(Settled::Lost),
            });
        }
        Err(conflict())
    }

    /// Returns whether the write of a revoked claim may still arrive: until one lease after the first reply of the store.
    pub(super) fn may_still_come(&self, met: &CellWrite, answered_at: &mut Option<u64>) -> bool {
        let now = self.terms.engine.clock.steady();
        let first = *answered_at.get_or_insert(now);
        matches!(met, CellWrite::Nothing | CellWrite::Other(Record::Issued))
            && now < first.saturating_add(self.record.lease)
    }
}
