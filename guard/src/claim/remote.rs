//! Claims of runs in another process. This process keeps no state for them, and rebuilds each claim from its signed pass.

use std::sync::Arc;

use super::cell::{CellWrite, RecordCell};
use super::{Claim, ClaimStage, Origin, Terms};
use crate::metrics::ClaimEvent;
use crate::policy::KeyRules;
use crate::record::ClaimRecord;
use crate::reply::{NoReply, Reply};
use crate::settled::Settled;
use crate::store::{Room, StoreError};

impl Claim {
    /// Rebuilds the claim of a run in another process.
    pub(crate) fn remote(terms: Terms, record: ClaimRecord) -> Self {
        Self::of_record(terms, record)
    }

    /// Returns the contents of a signed pass: the claim's record, its rules and its action. Returns `None` unless the claim is on a key.
    pub(crate) fn to_sign(&self) -> Option<(ClaimRecord, &KeyRules, &str)> {
        match self.terms.origin {
            Origin::Key => Some((self.record().clone(), &self.terms.rules, &self.terms.action)),
            Origin::Token(..) | Origin::Interval(_) => None,
        }
    }

    /// Stops renewing the claim in this process: the holder of the signed pass renews and settles it.
    pub(crate) async fn hand_over_to_signed(self: &Arc<Self>) {
        let mut state = self.begin_settling().await;
        self.leave_queue(&mut state);
        state.stage = ClaimStage::Over;
    }

    /// Records that the run took effect.
    pub(crate) async fn complete_remotely(&self, reply: Option<Reply>) -> Result<Settled, StoreError> {
        let settled = self.complete(&mut self.signed_cell(), &self.done(reply.ok_or(NoReply::NotGiven))).await?;
        Ok(self.settled(settled == Some(Settled::Final), ClaimEvent::Completed, Settled::Final))
    }

    /// Removes the claim of a run that did not take effect.
    pub(crate) async fn release_remotely(&self) -> Result<Settled, StoreError> {
        let met = self.give_back(&mut self.signed_cell()).await?;
        Ok(self.settled(!matches!(met, CellWrite::Other(_)), ClaimEvent::Released, Settled::Released))
    }

    /// Renews the claim. An expired claim is inserted again, since its owner is alive.
    pub(crate) async fn renew_remotely(&self) -> Result<bool, StoreError> {
        let mut own = self.signed_cell();
        let is_ours = match self.write_again(&mut own, &self.record).await? {
            CellWrite::Own => true,
            CellWrite::Nothing => {
                own.insert_again(self.revived().encode(), self.terms.rules.lease, Room::Reserved).await?.is_none()
            }
            CellWrite::Other(_) => false,
        };
        if is_ours {
            self.terms.engine.metrics.renewed();
            return Ok(true);
        }
        self.log(ClaimEvent::Lost);
        Ok(false)
    }

    /// Creates the cell of the record that the pass names, regardless of earlier commands with the same pass.
    fn signed_cell(&self) -> RecordCell {
        RecordCell::written(Arc::clone(&self.terms.engine.store), self.terms.ticket, &self.record)
    }

    fn settled(&self, is_ours: bool, event: ClaimEvent, settled: Settled) -> Settled {
        self.log(if is_ours { event } else { ClaimEvent::Lost });
        if is_ours { settled } else { Settled::Lost }
    }
}
