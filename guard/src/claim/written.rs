//! A claim that was given out in writing: nothing of it is kept here, and it is put together again from what is written.

use std::sync::Arc;

use onceward_api::Code;

use super::cell::{CellWrite, RecordCell};
use super::{Claim, ClaimStage, Origin, Terms};
use crate::audit::AuditEvent;
use crate::no_reply::NoReply;
use crate::pass::Settled;
use crate::policy::KeyRules;
use crate::record::ClaimRecord;
use crate::reply::Reply;
use crate::settlement::Resolved;
use crate::store::StoreError;

impl Claim {
    /// The claim of a run that is going on elsewhere.
    pub(crate) fn elsewhere(terms: Terms, record: ClaimRecord) -> Self {
        Self::of_record(terms, record)
    }

    /// What is given out: the claim as it stands in the store, its rules, and its action; `None` unless it is on a key.
    pub(crate) fn to_give_out(&self) -> Option<(ClaimRecord, &KeyRules, &str)> {
        match self.terms.origin {
            Origin::Key => Some((self.record().clone(), &self.terms.rules, &self.terms.action)),
            Origin::Token(..) | Origin::Interval(_) => None,
        }
    }

    /// Does nothing more for it: somebody else renews it and settles it.
    pub(crate) async fn give_out(self: &Arc<Self>) {
        let mut state = self.begin_settling().await;
        self.leave_queue(&mut state);
        state.stage = ClaimStage::Over;
    }

    /// It happened.
    pub(crate) async fn complete_elsewhere(&self, reply: Option<Reply>) -> Result<Resolved, StoreError> {
        let settled = self.complete(&mut self.presented(), &self.done(reply.ok_or(NoReply::NotGiven))).await?;
        Ok(self.resolved(settled == Some(Settled::Final), AuditEvent::Completed))
    }

    /// It did not happen.
    pub(crate) async fn release_elsewhere(&self) -> Result<Resolved, StoreError> {
        let met = self.give_back(&mut self.presented()).await?;
        Ok(self.resolved(!matches!(met, CellWrite::Other(_)), AuditEvent::Released))
    }

    /// It is still at work. A claim that has lapsed is made again: its owner is alive.
    pub(crate) async fn renew_elsewhere(&self) -> Result<Resolved, StoreError> {
        let mut own = self.presented();
        let is_ours = match self.write_again(&mut own, &self.record).await? {
            CellWrite::Own => true,
            CellWrite::Nothing => own.insert_again(self.revived().encode(), self.terms.rules.lease).await?.is_none(),
            CellWrite::Other(_) => false,
        };
        if is_ours {
            self.terms.meter.renewed();
            return Ok(Resolved::Settled);
        }
        Ok(self.resolved(false, AuditEvent::Lost))
    }

    /// The record as the pass names it, whatever was said with the same pass before.
    fn presented(&self) -> RecordCell {
        RecordCell::written(Arc::clone(&self.terms.store), self.terms.ticket, &self.record)
    }

    fn resolved(&self, is_ours: bool, event: AuditEvent) -> Resolved {
        self.log(if is_ours { event } else { AuditEvent::Lost });
        if is_ours { Resolved::Settled } else { Resolved::Rejected(Code::ClaimLost.into()) }
    }
}
