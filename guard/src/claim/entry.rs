//! Enters a claim: sends its first command, and decides by the reply whether the handler runs.
//!
//! Most claims are entered, or found to be duplicates, by one command. The others take several steps: a repeated attempt may continue the
//! run of an earlier request, and the claim of a key under *at most once* is extended beyond its lease.

use std::sync::Arc;

use onceward_api::Code;
use tokio::sync::MutexGuard;

use super::cell::CellInsert;
use super::{Claim, ClaimProgress, EntryGuard, Origin, Terms};
use crate::record::Record;
use crate::rejection::Duplicate;
use crate::shutdown::InFlight;
use crate::store::{Compared, Room, StoreError};

/// The result of entering a claim.
pub(crate) enum Entered {
    /// The handler runs.
    Run(Arc<Claim>, InFlight),
    Duplicate(Duplicate),
}

/// Writes the claim. Returns whether the handler runs, or else the verdict on the duplicate.
///
/// # Errors
/// If the store failed. A claim that may have been written is revoked in the background, unless it has an attempt.
///
/// # Cancel safety
///
/// Cancel safe without an attempt: if the future is dropped, the background task revokes a claim that may have been written. With an
/// attempt, the claim stays for a retry of the attempt.
pub(crate) async fn enter(claim: Arc<Claim>, running: InFlight) -> Result<Entered, StoreError> {
    if claim.terms.attempt.is_some() {
        return Box::pin(enter_by_steps(claim, None, running)).await;
    }
    let (found, mut state) = {
        // Declared before the lock, so that it is dropped after the lock is released.
        let mut entering = EntryGuard(Some(&claim));
        let mut state = claim.begin_step().await;
        claim.encode_first(&mut state);
        let found = claim.send_first(&state).await;
        entering.0 = None;
        (found, state)
    };
    match found {
        Ok(Compared::Done) if claim.terms.is_entered_at_once() => {
            claim.begin(&mut state);
            drop(state);
            Ok(Entered::Run(claim, running))
        }
        Ok(Compared::Done) => {
            drop(state);
            Box::pin(enter_by_steps(claim, Some(CellInsert::New), running)).await
        }
        Ok(Compared::Found(found)) => match Record::decode_shared(&found).map_err(StoreError::not_executed)? {
            // The command was executed twice, and its second reply shows the result of the first.
            Record::Claimed(found) if found.run == claim.record.run => {
                drop(state);
                Box::pin(enter_by_steps(claim, None, running)).await
            }
            found => claim.terms.duplicate_of(found).map(Entered::Duplicate),
        },
        Ok(Compared::Gone) => Ok(Entered::Duplicate(Duplicate::Reject(claim.terms.absent().into()))),
        Ok(Compared::Stale) => {
            Box::pin(claim.terms.reply_to_late(Code::TokenStale.into())).await.map(Entered::Duplicate)
        }
        Err(error) => {
            if matches!(error, StoreError::Unknown(_)) {
                state.running = Some(running);
                claim.revoke(&mut state);
            }
            Err(error)
        }
    }
}

async fn enter_by_steps(
    claim: Arc<Claim>,
    first: Option<CellInsert>,
    running: InFlight,
) -> Result<Entered, StoreError> {
    let mut running = Some(running);
    match (claim.enter_by_steps(first, &mut running).await?, running) {
        (None, Some(running)) => Ok(Entered::Run(claim, running)),
        (Some(duplicate), _) => Ok(Entered::Duplicate(duplicate)),
        (None, None) => unreachable!("`enter_by_steps` takes `running` only if it fails"),
    }
}

impl Terms {
    /// Returns whether one write is enough to enter the claim. The claim of a token outlives its lease from the start; that of a key under *at
    /// most once* outlives it only after a second write.
    fn is_entered_at_once(&self) -> bool {
        matches!(self.origin, Origin::Token(..)) || !self.rules.at_most_once
    }

    /// Returns the code with which a request is rejected if its token has no record.
    fn absent(&self) -> Code {
        self.token().map_or(Code::Internal, |token| self.engine.absent(token, &self.ticket))
    }
}

impl Claim {
    /// Encodes the record that the first command writes. The claim can be revoked from then on, even if the reply is lost.
    fn encode_first(&self, state: &mut MutexGuard<'_, ClaimProgress>) {
        state.own.expect(match &self.terms.origin {
            Origin::Token(..) => self.terms.renewed(&self.record),
            Origin::Key | Origin::Interval(_) => self.record.encode(),
        });
    }

    /// Sends the first command: it inserts the claim, or replaces the record of an issued, unused token.
    async fn send_first(&self, state: &ClaimProgress) -> Result<Compared, StoreError> {
        let (ticket, held) = (&self.terms.ticket, state.own.held());
        match &self.terms.origin {
            Origin::Token(token, _) => {
                let (life, epoch) = (self.terms.at_most_once_life(), Some(token.epoch));
                self.store().swap(ticket, &Record::ISSUED, held, life, Room::Reserved, epoch).await
            }
            Origin::Key | Origin::Interval(_) => {
                let found = self.store().insert(ticket, held, self.terms.rules.lease, Room::Free).await?;
                Ok(found.map_or(Compared::Done, Compared::Found))
            }
        }
    }
}
