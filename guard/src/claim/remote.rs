//! Claims of runs in another process. This process keeps no state for them, and rebuilds each claim from its signed pass.

use std::sync::Arc;

use super::cell::{CellWrite, RecordCell};
use super::{Claim, ClaimStage, Origin, Terms};
use crate::engine::Engine;
use crate::metrics::ClaimEvent;
use crate::record::{ClaimRecord, Record};
use crate::reply::{NoReply, Reply};
use crate::settled::Settled;
use crate::store::{Room, StoreError};

impl Claim {
    /// Rebuilds the claim of a run in another process.
    pub(crate) fn remote(terms: Terms, record: ClaimRecord) -> Self {
        let clock = &terms.engine.clock;
        let begun = clock.steady().saturating_sub(clock.wall().saturating_sub(record.started_at));
        Self { begun, ..Self::of_record(terms, record) }
    }

    /// Returns the terms of the claim and its record, for a signed pass.
    pub(crate) fn to_sign(&self) -> (&Terms, &ClaimRecord) {
        (&self.terms, self.record())
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.terms.engine
    }

    /// Stops renewing the claim in this process: the holder of the signed pass renews and settles it.
    pub(crate) async fn hand_over_to_signed(self: &Arc<Self>) {
        let mut state = self.begin_settling().await;
        self.leave_queue(&mut state);
        state.stage = ClaimStage::Over;
        self.watch();
    }

    /// Records that the run took effect.
    pub(crate) async fn complete_remotely(&self, reply: Option<Reply>) -> Result<Settled, StoreError> {
        let is_ours = match &self.terms.origin {
            Origin::Interval(rules) if rules.is_lock => {
                !matches!(self.give_back(&mut self.signed_cell()).await?, CellWrite::Other(_))
            }
            Origin::Interval(rules) if rules.remember.is_none() => self.is_interval_ours().await?,
            Origin::Interval(_) | Origin::Key | Origin::Token(..) => {
                let done = self.done(reply.ok_or(NoReply::NotGiven));
                self.complete(&mut self.signed_cell(), &done).await? == Some(Settled::Final)
            }
        };
        Ok(self.settled(is_ours, ClaimEvent::Completed, Settled::Final))
    }

    /// Returns whether no other run has claimed the interval. The claim is left to expire: until then, a duplicate is rejected.
    async fn is_interval_ours(&self) -> Result<bool, StoreError> {
        Ok(match self.terms.engine.record(&self.terms.ticket).await? {
            Some(Record::Claimed(found)) => found.run == self.run(),
            None => true,
            Some(_) => false,
        })
    }

    /// Removes the claim of a run that did not take effect, or makes its token valid again.
    pub(crate) async fn release_remotely(&self) -> Result<Settled, StoreError> {
        let is_ours = match (self.give_back(&mut self.signed_cell()).await?, self.token()) {
            (CellWrite::Own, _) | (CellWrite::Nothing, None) => true,
            // An earlier call has released the token.
            (CellWrite::Other(Record::Issued), Some(_)) => true,
            // An expired token is not given back, so an earlier call may have removed the claim.
            (CellWrite::Nothing, Some(token)) => self.terms.engine.is_expired(token),
            (CellWrite::Other(_), _) => false,
        };
        Ok(self.settled(is_ours, ClaimEvent::Released, Settled::Released))
    }

    /// Renews the claim. An expired claim is inserted again, since its owner is alive.
    pub(crate) async fn renew_remotely(&self) -> Result<bool, StoreError> {
        let mut own = self.signed_cell();
        let is_ours = match self.write_again(&mut own, &self.record).await? {
            CellWrite::Own => true,
            CellWrite::Nothing => own
                .insert_again(self.store(), &self.revived().encode(), self.terms.rules.lease, Room::Reserved)
                .await?
                .is_none(),
            CellWrite::Other(_) => false,
        };
        if is_ours {
            self.terms.engine.metrics.renewed();
            self.watch_on();
            return Ok(true);
        }
        self.end_watch();
        self.log(ClaimEvent::Lost);
        Ok(false)
    }

    /// Creates the cell of the record that the pass names, regardless of earlier commands with the same pass.
    fn signed_cell(&self) -> RecordCell {
        RecordCell::written(self.terms.ticket, &self.record, self.record.encode())
    }

    fn settled(&self, is_ours: bool, event: ClaimEvent, settled: Settled) -> Settled {
        self.end_watch();
        self.log(if is_ours { event } else { ClaimEvent::Lost });
        if is_ours { settled } else { Settled::Lost }
    }
}
