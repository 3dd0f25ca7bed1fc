//! Redeems tokens, and marks a token with the attempt that used it.

use std::time::Duration;

use onceward_api::Code;

use crate::attempt::Attempt;
use crate::engine::Engine;
use crate::record::{AttemptRecord, Record, UnknownRecord};
use crate::rejection::Rejection;
use crate::run_id::RunId;
use crate::settled::Settled;
use crate::store::{Bytes, Compared, StoreError, Taken};
use crate::ticket::Ticket;
use crate::token::{GRACE, TokenFields};

/// Time for which the same attempt is accepted again, and may release the token.
const ACCEPTED_AGAIN: Duration = Duration::from_secs(60);
/// Number of repeated lookups of a missing record of a token's use, and the pause before each.
///
/// A concurrent plain redemption removes the record for a moment and puts it back, so a single miss does not prove that the record is gone.
pub(crate) const IN_HAND: (usize, Duration) = (8, Duration::from_millis(8));

/// `Ok` if this call redeems the token, and otherwise what the client receives.
type RedeemResult = Result<(), Rejection>;

impl Engine {
    pub(crate) fn is_expired(&self, token: &TokenFields) -> bool {
        token.expires_at <= self.clock.wall()
    }

    /// Returns the rejection of a token that has expired or was issued in an earlier epoch. Asks the store for its epoch before it rejects
    /// the token as stale: the token may be from a newer epoch than the one known here.
    pub(crate) async fn lateness(&self, token: &TokenFields, ticket: &Ticket) -> Result<Option<Rejection>, StoreError> {
        if self.is_expired(token) {
            return Ok(Some(Code::TokenExpired.into()));
        }
        if self.store.epoch(ticket) == Some(token.epoch) {
            return Ok(None);
        }
        let asked = self.store.ask_epoch(ticket).await.map_err(StoreError::certainly_not_executed)?;
        Ok((asked != token.epoch).then(|| Code::TokenStale.into()))
    }

    /// Restores a plain token that this process has redeemed.
    pub(crate) async fn give_back(&self, token: &TokenFields) -> Result<Settled, StoreError> {
        let Some(life) = TokenFields::worth_putting_back(token.expires_at, &self.clock) else {
            return Ok(Settled::Final);
        };
        // The only write that could not recognise its own earlier execution, so it is sent once.
        match self.store.put_back(&Ticket::of_token(token.id), &Record::ISSUED, life).await? {
            Some(found) if found != Record::ISSUED.as_slice() => Ok(Settled::Final),
            _ => Ok(Settled::Released),
        }
    }

    /// Redeems a plain token: of any number of concurrent requests, one receives the record. A store in another epoch may have restored or
    /// lost the record, so its presence or absence proves nothing there.
    pub(crate) async fn redeem(&self, token: &TokenFields, ticket: &Ticket) -> Result<RedeemResult, StoreError> {
        let Taken { found, is_of_epoch } = self.store.take_under(ticket, token.epoch).await?;
        let used = if is_of_epoch { Code::TokenUsed } else { Code::TokenStale };
        match found {
            None => Ok(Err(used.into())),
            Some(taken) => match Record::decode(&taken) {
                Ok(Record::Issued) if is_of_epoch => Ok(Ok(())),
                Ok(Record::Issued) => Ok(Err(used.into())),
                // Boxed to keep the future of the common path small.
                _ => Box::pin(self.put_back_used(ticket, &taken, token, used)).await.map(Err),
            },
        }
    }

    /// Puts back the record of a used token, for the rest of the lifetime that the record states.
    pub(crate) async fn put_back_used(
        &self,
        ticket: &Ticket,
        taken: &[u8],
        token: &TokenFields,
        used: Code,
    ) -> Result<Rejection, StoreError> {
        let record = Record::decode(taken);
        let deadline = match &record {
            Ok(Record::Attempted(mark)) => Some(mark.deadline),
            // A claim that a renewal has just inserted again lives for a lease.
            Ok(Record::Claimed(claimed)) => {
                let lease = self.clock.wall().saturating_add(claimed.lease);
                Some(claimed.heartbeat.map_or(lease, |heartbeat| heartbeat.deadline))
            }
            Ok(Record::Done(done)) => Some(done.deadline),
            Ok(Record::Issued) | Err(UnknownRecord) => None,
        };
        let until = deadline.unwrap_or(token.expires_at.saturating_add(GRACE.as_millis() as u64));
        let life = Duration::from_millis(until.saturating_sub(self.clock.wall()));
        // A concurrent redemption may have taken the claim of the same run and put it back first: the run's reply replaces it. The reply
        // also replaces the token itself, if the token was revoked and a request that had taken it restored it in between.
        if let Some(there) = self.store.put_back(ticket, taken, life).await?
            && let (Ok(Record::Done(done)), Ok(other)) = (&record, Record::decode(&there))
            && (other == Record::Issued || matches!(&other, Record::Claimed(claimed) if done.run == claimed.run))
        {
            self.store.swap(ticket, &there, taken, life).await?;
        }
        match (deadline, record) {
            // Records of an earlier epoch prove nothing.
            (Some(_), Ok(record)) if used == Code::TokenUsed => Ok(record.used().into()),
            (Some(_), _) => Ok(used.into()),
            (None, _) => Err(StoreError::not_executed(UnknownRecord)),
        }
    }

    /// Marks the token as used by this attempt. Returns the id of its run, which may be from an earlier request of the attempt.
    pub(crate) async fn mark(
        &self,
        token: &TokenFields,
        attempt: &Attempt,
    ) -> Result<Result<RunId, Rejection>, StoreError> {
        let mark = AttemptRecord {
            attempt: attempt.digest(),
            run: RunId::new(),
            deadline: self.clock.wall() + ACCEPTED_AGAIN.as_millis() as u64,
            expires_at: token.expires_at,
        };
        let ticket = Ticket::of_token(token.id);
        match self.store.swap_under(&ticket, token.epoch, &Record::ISSUED, &mark.encode(), ACCEPTED_AGAIN).await? {
            None => Ok(Err(Code::TokenStale.into())),
            Some(Compared::Done) => Ok(Ok(mark.run)),
            Some(Compared::Gone) => Ok(self.marked(token, attempt).await?.ok_or(Code::TokenUsed.into())),
            Some(Compared::Found(bytes)) => match Record::decode(&bytes).map_err(StoreError::not_executed)? {
                Record::Attempted(found) if found.attempt == mark.attempt => Ok(Ok(found.run)),
                found => Ok(Err(found.used().into())),
            },
        }
    }

    /// Returns whether the store is still in the epoch that issued this token. Otherwise its record of an attempt may be outdated: the
    /// attempt may have released the token since, and another attempt may have used it.
    async fn is_of_epoch(&self, token: &TokenFields) -> Result<bool, StoreError> {
        let asked = self.store.ask_epoch(&Ticket::of_token(token.id)).await;
        Ok(asked.map_err(StoreError::certainly_not_executed)? == token.epoch)
    }

    /// Returns the run for which this attempt has used the token, if that is still known.
    pub(crate) async fn marked(&self, token: &TokenFields, attempt: &Attempt) -> Result<Option<RunId>, StoreError> {
        let Some(bytes) = self.look_again(&Ticket::of_token(token.id)).await? else { return Ok(None) };
        match Record::decode(&bytes).map_err(StoreError::not_executed)? {
            Record::Attempted(found) if found.attempt == attempt.digest() => {
                Ok(self.is_of_epoch(token).await?.then_some(found.run))
            }
            _ => Ok(None),
        }
    }

    /// Looks up the record, with retries in case a concurrent redemption has taken it for a moment.
    async fn look_again(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        for _ in 0..IN_HAND.0 {
            if let Some(found) = self.store.look(ticket).await? {
                return Ok(Some(found));
            }
            tokio::time::sleep(IN_HAND.1).await;
        }
        self.store.look(ticket).await
    }

    pub(crate) async fn unmark(
        &self,
        token: &TokenFields,
        attempt: &Attempt,
        run: RunId,
    ) -> Result<Settled, StoreError> {
        let lost = || Ok(Settled::Lost);
        let ticket = Ticket::of_token(token.id);
        let Some(held) = self.look_again(&ticket).await? else { return lost() };
        let left = match Record::decode(&held).map_err(StoreError::not_executed)? {
            Record::Issued if self.is_of_epoch(token).await? => return Ok(Settled::Released),
            Record::Attempted(found) if found.attempt == attempt.digest() && found.run == run => {
                TokenFields::worth_putting_back(found.expires_at, &self.clock)
            }
            _ => return lost(),
        };
        // A token that is about to expire cannot be restored.
        let Some(life) = left else { return lost() };
        match self.store.swap_under(&ticket, token.epoch, &held, &Record::ISSUED, life).await? {
            Some(Compared::Done) => Ok(Settled::Released),
            Some(Compared::Found(bytes)) if bytes == Record::ISSUED.as_slice() => Ok(Settled::Released),
            Some(Compared::Found(_) | Compared::Gone) | None => lost(),
        }
    }
}
