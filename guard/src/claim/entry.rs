//! Enters a claim: sends its first command, and decides by the reply whether the handler runs.
//!
//! A duplicate needs no claim, so the claim is built only once the store has accepted it.

use std::sync::Arc;

use onceward_api::Code;

use super::cell::CellInsert;
use super::{Claim, Origin, Terms};
use crate::record::{ClaimRecord, Record};
use crate::rejection::Duplicate;
use crate::shutdown::InFlight;
use crate::store::{Compared, Room, StoreError};

/// The result of entering a claim.
pub(crate) enum Entered {
    /// The handler runs.
    Run(Arc<Claim>, InFlight),
    Duplicate(Duplicate),
}

impl Terms {
    /// Writes the claim. Returns whether the handler runs, or else the verdict on the duplicate.
    ///
    /// # Errors
    /// If the store failed. A claim that may have been written is revoked in the background, unless it has an attempt.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe without an attempt: if the future is dropped, the background task revokes a claim that may have been written. With an
    /// attempt, the claim stays for a retry of the attempt.
    pub(crate) async fn enter(self, running: InFlight) -> Result<Entered, StoreError> {
        let record = self.record();
        // A repeated attempt may continue an earlier run.
        if self.attempt.is_some() {
            return enter_by_steps(Arc::new(Claim::of_record(self, record)), None, running).await;
        }
        let held = match &self.origin {
            Origin::Token(..) => self.renewed(&record),
            Origin::Key | Origin::Interval(_) => record.encode(),
        };
        let mut entry = Entry(Some(UnbuiltClaim { terms: self, record, held }));
        let first = entry.send().await;
        match entry.0.take() {
            Some(unbuilt) => unbuilt.enter_after(first, running).await,
            None => Err(StoreError::not_executed("the claim was entered before")),
        }
    }

    /// Returns whether one write is enough to enter the claim. The claim of a token outlives its lease from the start; that of a key under *at
    /// most once* outlives it only after a second write.
    fn is_entered_at_once(&self) -> bool {
        matches!(self.origin, Origin::Token(..)) || !self.rules.at_most_once
    }
}

/// A claim whose first command may be in flight. If it is dropped by then, the claim is revoked.
struct Entry(Option<UnbuiltClaim>);

/// The parts of a claim, and the bytes that its first command writes.
struct UnbuiltClaim {
    terms: Terms,
    record: ClaimRecord,
    held: Vec<u8>,
}

impl Entry {
    /// Sends the first command: it inserts the claim, or replaces the record of an issued, unused token.
    async fn send(&self) -> Result<Compared, StoreError> {
        let Some(UnbuiltClaim { terms, held, .. }) = &self.0 else { return Ok(Compared::Gone) };
        let (store, ticket) = (&terms.engine.store, &terms.ticket);
        match &terms.origin {
            Origin::Token(token, _) => {
                let (life, epoch) = (terms.at_most_once_life(), Some(token.epoch));
                store.swap(ticket, &Record::ISSUED, held, life, Room::Reserved, epoch).await
            }
            Origin::Key | Origin::Interval(_) => {
                let found = store.insert(ticket, held, terms.rules.lease, Room::Free).await?;
                Ok(found.map_or(Compared::Done, Compared::Found))
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(unbuilt) = self.0.take() {
            unbuilt.revoke(None);
        }
    }
}

impl UnbuiltClaim {
    /// Decides by the result of the first command.
    async fn enter_after(self, first: Result<Compared, StoreError>, running: InFlight) -> Result<Entered, StoreError> {
        let found = match first {
            Ok(Compared::Done) if self.terms.is_entered_at_once() => return Ok(self.run(running)),
            Ok(Compared::Done) => return Box::pin(enter_by_steps(self.build(), Some(CellInsert::New), running)).await,
            Ok(Compared::Found(found)) => Record::decode_shared(&found).map_err(StoreError::not_executed)?,
            Ok(Compared::Gone) => return Ok(Entered::Duplicate(Duplicate::Reject(self.absent().into()))),
            Ok(Compared::Stale) => {
                let late = Box::pin(self.terms.reply_to_late(Code::TokenStale.into())).await;
                return late.map(Entered::Duplicate);
            }
            Err(error) => {
                if matches!(error, StoreError::Unknown(_)) {
                    self.revoke(Some(running));
                }
                return Err(error);
            }
        };
        match found {
            // The command was executed twice, and its second reply shows the result of the first.
            Record::Claimed(found) if found.run == self.record.run => {
                Box::pin(enter_by_steps(self.build(), None, running)).await
            }
            found => self.terms.duplicate_of(found).map(Entered::Duplicate),
        }
    }

    fn build(self) -> Arc<Claim> {
        Arc::new(Claim::written(self.terms, self.record, self.held))
    }

    /// Runs the handler: the claim is written.
    fn run(self, running: InFlight) -> Entered {
        let claim = self.build();
        if let Ok(mut state) = claim.state.try_lock() {
            claim.begin(&mut state);
        }
        Entered::Run(claim, running)
    }

    /// Revokes a claim that may have been written. A shutdown waits for it if `running` is given.
    fn revoke(self, running: Option<InFlight>) {
        let claim = self.build();
        if let Ok(mut state) = claim.state.try_lock() {
            state.running = running;
            claim.revoke(&mut state);
        }
    }

    /// Returns the code with which a request is rejected if its token has no record.
    fn absent(&self) -> Code {
        match self.terms.token() {
            Some(token) => self.terms.engine.absent(token, &self.terms.ticket),
            None => Code::Internal,
        }
    }
}

/// Enters a claim that takes several steps: one that may continue the run of an earlier request, or that is extended beyond its lease.
async fn enter_by_steps(
    claim: Arc<Claim>,
    first: Option<CellInsert>,
    running: InFlight,
) -> Result<Entered, StoreError> {
    let mut running = Some(running);
    match (claim.enter(first, &mut running).await?, running) {
        (None, Some(running)) => Ok(Entered::Run(claim, running)),
        (Some(duplicate), _) => Ok(Entered::Duplicate(duplicate)),
        (None, None) => unreachable!("`enter` takes `running` only if it fails"),
    }
}
