//! Redeeming a token: the one step that decides, and the mark that an attempt leaves on it.

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

/// How long the same attempt is accepted again, and may release the token.
const ACCEPTED_AGAIN: Duration = Duration::from_secs(60);
/// How often a record of a token's use that is not there is looked for again, and the pause before each time.
///
/// A concurrent plain redeem removes that record for a moment and puts it back. In that moment it is not gone.
pub(crate) const IN_HAND: (usize, Duration) = (8, Duration::from_millis(8));

/// `Ok` if the token is redeemed by this call; otherwise what the caller receives.
type RedeemResult = Result<(), Rejection>;

impl Engine {
    pub(crate) fn is_expired(&self, token: &TokenFields) -> bool {
        token.expires_at <= self.clock.wall()
    }

    /// Why it is too late for a token, if it has expired or is of an earlier epoch. That an epoch is over is not believed before the store
    /// has been asked: the token may be of a newer one.
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

    /// Makes a plain token valid again that was redeemed by this process.
    pub(crate) async fn give_back(&self, token: &TokenFields) -> Result<Settled, StoreError> {
        let Some(life) = TokenFields::worth_putting_back(token.expires_at, &self.clock) else {
            return Ok(Settled::Final);
        };
        // The one write that would not recognise itself if it were sent again, so it is sent once.
        match self.store.put_back(&Ticket::of_token(token.id), &Record::ISSUED, life).await? {
            Some(found) if found != Record::ISSUED.as_slice() => Ok(Settled::Final),
            _ => Ok(Settled::Released),
        }
    }

    /// Redeems a plain token: of any number of callers, one gets the record. A store in another epoch may have the record again, or have
    /// lost it, so that neither proves anything there.
    pub(crate) async fn redeem(&self, token: &TokenFields, ticket: &Ticket) -> Result<RedeemResult, StoreError> {
        let Taken { found, is_of_epoch } = self.store.take_under(ticket, token.epoch).await?;
        let used = if is_of_epoch { Code::TokenUsed } else { Code::TokenStale };
        match found {
            None => Ok(Err(used.into())),
            Some(taken) => match Record::decode(&taken) {
                Ok(Record::Issued) if is_of_epoch => Ok(Ok(())),
                Ok(Record::Issued) => Ok(Err(used.into())),
                // Boxed, since every request pays for the size of what few need.
                _ => Box::pin(self.put_back_used(ticket, &taken, token, used)).await.map(Err),
            },
        }
    }

    /// Somebody has used it: what is known of that goes back for the life that is written in it.
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
            // One that has just been inserted again lives for a lease.
            Ok(Record::Claimed(claimed)) => {
                let lease = self.clock.wall().saturating_add(claimed.lease);
                Some(claimed.heartbeat.map_or(lease, |heartbeat| heartbeat.deadline))
            }
            Ok(Record::Done(done)) => Some(done.deadline),
            Ok(Record::Issued) | Err(UnknownRecord) => None,
        };
        let until = deadline.unwrap_or(token.expires_at.saturating_add(GRACE.as_millis() as u64));
        let life = Duration::from_millis(until.saturating_sub(self.clock.wall()));
        // Somebody else may have had the claim of that run in hand, and been quicker: its reply goes over it.
        // And over the token itself, if it was barred and whoever had it in hand has given it back in between.
        if let Some(there) = self.store.put_back(ticket, taken, life).await?
            && let (Ok(Record::Done(done)), Ok(other)) = (&record, Record::decode(&there))
            && (other == Record::Issued || matches!(&other, Record::Claimed(claimed) if done.run == claimed.run))
        {
            self.store.swap(ticket, &there, taken, life).await?;
        }
        match (deadline, record) {
            // Of a life of the store that is over, nothing on record counts.
            (Some(_), Ok(record)) if used == Code::TokenUsed => Ok(record.used().into()),
            (Some(_), _) => Ok(used.into()),
            (None, _) => Err(StoreError::not_executed(UnknownRecord)),
        }
    }

    /// Marks the token as used by this attempt, and names the run that it is used for, now or from before.
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

    /// Whether the store still lives the life that issued this token. What it has on record of an attempt is otherwise perhaps of
    /// before: the attempt may have released the token since, and another one used it.
    async fn is_of_epoch(&self, token: &TokenFields) -> Result<bool, StoreError> {
        let asked = self.store.ask_epoch(&Ticket::of_token(token.id)).await;
        Ok(asked.map_err(StoreError::certainly_not_executed)? == token.epoch)
    }

    /// The run that this attempt has used the token for, as far as is still known.
    pub(crate) async fn marked(&self, token: &TokenFields, attempt: &Attempt) -> Result<Option<RunId>, StoreError> {
        let Some(bytes) = self.look_again(&Ticket::of_token(token.id)).await? else { return Ok(None) };
        match Record::decode(&bytes).map_err(StoreError::not_executed)? {
            Record::Attempted(found) if found.attempt == attempt.digest() => {
                Ok(self.is_of_epoch(token).await?.then_some(found.run))
            }
            _ => Ok(None),
        }
    }

    /// What is there, also if somebody has it in hand at this moment.
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
        // A token that is as good as expired cannot be given back any more.
        let Some(life) = left else { return lost() };
        match self.store.swap_under(&ticket, token.epoch, &held, &Record::ISSUED, life).await? {
            Some(Compared::Done) => Ok(Settled::Released),
            Some(Compared::Found(bytes)) if bytes == Record::ISSUED.as_slice() => Ok(Settled::Released),
            Some(Compared::Found(_) | Compared::Gone) | None => lost(),
        }
    }
}
