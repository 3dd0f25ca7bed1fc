//! Redeems tokens, and marks a token with the attempt that redeemed it.

use std::time::Duration;

use onceward_api::Code;

use crate::attempt::Attempt;
use crate::engine::Engine;
use crate::record::{AttemptRecord, Record};
use crate::rejection::Rejection;
use crate::run_id::RunId;
use crate::settled::Settled;
use crate::store::{Compared, Room, StoreError};
use crate::ticket::Ticket;
use crate::token::TokenFields;

/// Time for which the same attempt is accepted again, and may release the token.
const ACCEPTED_AGAIN: Duration = Duration::from_secs(60);

/// `Ok` if this call redeemed the token, and otherwise the rejection for the client.
type RedeemResult = Result<(), Rejection>;

impl Engine {
    pub(crate) fn is_expired(&self, token: &TokenFields) -> bool {
        token.expires_at <= self.clock.wall()
    }

    /// Returns the rejection of a token that has expired or was issued in an earlier epoch. Reads the store's epoch before it rejects the
    /// token as stale: the token may be from a newer epoch than the one known here.
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

    /// Gives back a plain token that this process has redeemed. Does not overwrite the bar of a revocation.
    pub(crate) async fn give_back(&self, token: &TokenFields, ticket: &Ticket) -> Result<Settled, StoreError> {
        let Some(life) = TokenFields::worth_putting_back(token.expires_at, &self.clock) else {
            return Ok(Settled::Final);
        };
        // Sent once: this is the only write that cannot recognise that it was executed before.
        match self.store.insert(ticket, &Record::ISSUED, life, Room::Reserved).await? {
            Some(found) if found != Record::ISSUED.as_slice() => Ok(Settled::Final),
            _ => Ok(Settled::Released),
        }
    }

    /// Redeems a plain token: of any number of concurrent requests, one removes its record. A claim, a mark or a reply is not changed. A
    /// store in another epoch may have restored or lost the record, so there its presence or absence proves nothing.
    pub(crate) async fn redeem(&self, token: &TokenFields, ticket: &Ticket) -> Result<RedeemResult, StoreError> {
        Ok(match self.store.remove(ticket, &Record::ISSUED, Some(token.epoch)).await? {
            Compared::Done => Ok(()),
            Compared::Gone => Err(self.absent(token, ticket).into()),
            Compared::Found(found) => Err(Record::decode(&found).map_err(StoreError::not_executed)?.used().into()),
            Compared::Stale => Err(Code::TokenStale.into()),
        })
    }

    /// Returns the code with which a request is rejected if its token has no record: the token was used, or another store issued it. A
    /// store that does not distinguish epochs does not compare them, so they are compared here.
    pub(crate) fn absent(&self, token: &TokenFields, ticket: &Ticket) -> Code {
        let is_other = self.store.epoch(ticket).is_some_and(|epoch| epoch != token.epoch);
        if is_other { Code::TokenStale } else { Code::TokenUsed }
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
        let (ticket, record) = (Ticket::of_token(token.id), mark.encode());
        match self
            .store
            .swap(&ticket, &Record::ISSUED, &record, ACCEPTED_AGAIN, Room::Reserved, Some(token.epoch))
            .await?
        {
            Compared::Done => Ok(Ok(mark.run)),
            Compared::Gone => Ok(Err(self.absent(token, &ticket).into())),
            Compared::Stale => Ok(Err(Code::TokenStale.into())),
            Compared::Found(bytes) => match Record::decode(&bytes).map_err(StoreError::not_executed)? {
                Record::Attempted(found) if found.attempt == mark.attempt => Ok(Ok(found.run)),
                found => Ok(Err(found.used().into())),
            },
        }
    }

    /// Returns whether the store is still in the epoch that issued this token. Otherwise its record of an attempt may be outdated: the
    /// attempt may have released the token since, and another attempt may have used it.
    pub(crate) async fn is_of_epoch(&self, token: &TokenFields) -> Result<bool, StoreError> {
        let asked = self.store.ask_epoch(&Ticket::of_token(token.id)).await;
        Ok(asked.map_err(StoreError::certainly_not_executed)? == token.epoch)
    }

    /// Returns the run for which this attempt has redeemed the token, if that is still on record.
    pub(crate) async fn marked(&self, token: &TokenFields, attempt: &Attempt) -> Result<Option<RunId>, StoreError> {
        match self.record(&Ticket::of_token(token.id)).await? {
            Some(Record::Attempted(found)) if found.attempt == attempt.digest() => {
                Ok(self.is_of_epoch(token).await?.then_some(found.run))
            }
            _ => Ok(None),
        }
    }

    /// Releases a token that this attempt has redeemed for this run.
    pub(crate) async fn unmark(
        &self,
        token: &TokenFields,
        attempt: &Attempt,
        run: RunId,
    ) -> Result<Settled, StoreError> {
        let lost = || Ok(Settled::Lost);
        let ticket = Ticket::of_token(token.id);
        let Some(held) = self.store.look(&ticket).await? else { return lost() };
        let left = match Record::decode(&held).map_err(StoreError::not_executed)? {
            Record::Issued if self.is_of_epoch(token).await? => return Ok(Settled::Released),
            Record::Attempted(found) if found.attempt == attempt.digest() && found.run == run => {
                TokenFields::worth_putting_back(found.expires_at, &self.clock)
            }
            _ => return lost(),
        };
        // A token that is about to expire cannot be restored.
        let Some(life) = left else { return lost() };
        match self.store.swap(&ticket, &held, &Record::ISSUED, life, Room::Reserved, Some(token.epoch)).await? {
            Compared::Done => Ok(Settled::Released),
            Compared::Found(bytes) if bytes == Record::ISSUED.as_slice() => Ok(Settled::Released),
            Compared::Found(_) | Compared::Gone | Compared::Stale => lost(),
        }
    }
}
