//! The own record in the store. Every write after the first compares what it finds, and knows its own by the run id: an
//! answer that was lost, or a command that came twice, is never mistaken for somebody else's. No two runs have the same id,
//! not even of the same attempt in the same millisecond, so that nothing said of the first ever reaches the second.

use std::sync::Arc;
use std::time::Duration;

use crate::epoch::Epoch;
use crate::record::{ClaimRecord, Record};
use crate::run_id::RunId;
use crate::store::{Compared, Store, StoreError};
use crate::ticket::Ticket;

/// How often a write is repeated at once because the own record has other bytes than it was known to have.
pub(super) const MAX_CONFLICTS: usize = 4;

/// The record of one run.
pub(super) struct RecordCell {
    store: Arc<dyn Store>,
    ticket: Ticket,
    run: RunId,
    /// What the store holds of us, as far as is known.
    held: Vec<u8>,
}

/// What was there when a claim was inserted.
pub(super) enum CellInsert {
    /// Nothing: it is there now.
    New,
    /// Our own, from an earlier question for the same attempt.
    Own(ClaimRecord),
    Other(Record),
}

/// What a write has met.
pub(super) enum CellWrite {
    /// Our own: it is done.
    Own,
    Nothing,
    /// Somebody else's record, or a reply where there should be a claim.
    Other(Record),
}

/// What becomes of the record.
#[derive(Clone, Copy)]
enum Change<'a> {
    /// A record that is nobody's.
    Write(&'a [u8], Duration),
    /// A record of the same run: found there already, it was written by a command whose reply was lost.
    Renew(&'a [u8], Duration),
    Erase,
}

impl RecordCell {
    /// The record of this claim, which is not written yet.
    pub(super) fn new(store: Arc<dyn Store>, ticket: Ticket, claimed: &ClaimRecord) -> Self {
        Self { store, ticket, run: claimed.run, held: Vec::new() }
    }

    /// The same of one that was written before.
    pub(super) fn written(store: Arc<dyn Store>, ticket: Ticket, claimed: &ClaimRecord) -> Self {
        Self { held: claimed.encode(), ..Self::new(store, ticket, claimed) }
    }

    pub(super) fn is_at(&self, record: &[u8]) -> bool {
        self.held == record
    }

    /// Whether it says how this run has ended.
    pub(super) fn is_end(&self, record: &Record) -> bool {
        matches!(record, Record::Done(done) if done.run == self.run)
    }

    /// Inserts where nothing is.
    pub(super) async fn insert(&mut self, claimed: &ClaimRecord, life: Duration) -> Result<CellInsert, StoreError> {
        // Known from the beginning, for whoever takes it back if the answer is lost.
        (self.run, self.held) = (claimed.run, claimed.encode());
        let Some(found) = self.store.insert(&self.ticket, &self.held, life).await? else { return Ok(CellInsert::New) };
        let is_own = |found: &ClaimRecord| {
            found.run == claimed.run || (found.attempt.is_some() && found.attempt == claimed.attempt)
        };
        // An attempt that is asked for again may have ended: then there is nothing to run.
        Ok(match Record::decode(&found).map_err(StoreError::not_executed)? {
            Record::Claimed(there) if is_own(&there) => {
                (self.run, self.held) = (there.run, found.to_vec());
                CellInsert::Own(there)
            }
            other => CellInsert::Other(other),
        })
    }

    /// The same for what was there before, for which a store with a limit keeps some room; gives what is there, unless that is our own.
    pub(super) async fn insert_again(&mut self, record: Vec<u8>, life: Duration) -> Result<Option<Record>, StoreError> {
        match self.store.put_back(&self.ticket, &record, life).await? {
            Some(found) => self.other(&found),
            None => {
                self.held = record;
                Ok(None)
            }
        }
    }

    /// Takes the place of a record that is nobody's, if this epoch lasts; `None` if it is over. What is written is known from
    /// the beginning, for whoever takes it back.
    pub(super) async fn take_over(
        &mut self,
        epoch: Epoch,
        free: &[u8],
        record: Vec<u8>,
        life: Duration,
    ) -> Result<Option<CellWrite>, StoreError> {
        self.held = record;
        Ok(match self.store.swap_under(&self.ticket, epoch, free, &self.held, life).await? {
            None => None,
            Some(Compared::Done) => Some(CellWrite::Own),
            Some(Compared::Gone) => Some(CellWrite::Nothing),
            Some(Compared::Found(found)) => Some(self.other(&found)?.map_or(CellWrite::Own, CellWrite::Other)),
        })
    }

    /// Replaces it by an issued token, whatever it has become. If the token is there already, that is what is found.
    pub(super) async fn hand_over(&mut self, free: &[u8], life: Duration) -> Result<CellWrite, StoreError> {
        self.change(Change::Write(free, life)).await
    }

    /// Writes over it, whatever it has become.
    pub(super) async fn write(&mut self, value: Vec<u8>, life: Duration) -> Result<CellWrite, StoreError> {
        let written = self.change(Change::Renew(&value, life)).await?;
        if matches!(written, CellWrite::Own) {
            self.held = value;
        }
        Ok(written)
    }

    /// Removes it, whatever it has become.
    pub(super) async fn erase(&mut self) -> Result<CellWrite, StoreError> {
        self.change(Change::Erase).await
    }

    /// Compares and swaps, again as long as a claim of our own is found with other bytes than it was known to have.
    async fn change(&mut self, change: Change<'_>) -> Result<CellWrite, StoreError> {
        for _ in 0..MAX_CONFLICTS {
            let compared = match change {
                Change::Write(value, life) | Change::Renew(value, life) => {
                    self.store.swap(&self.ticket, &self.held, value, life).await?
                }
                Change::Erase => self.store.remove(&self.ticket, &self.held).await?,
            };
            match (compared, change) {
                (Compared::Done, _) => return Ok(CellWrite::Own),
                (Compared::Gone, _) => return Ok(CellWrite::Nothing),
                (Compared::Found(found), Change::Renew(value, _)) if found == value => return Ok(CellWrite::Own),
                (Compared::Found(found), _) => {
                    if let Some(other) = self.other(&found)? {
                        return Ok(CellWrite::Other(other));
                    }
                }
            }
        }
        Err(conflict())
    }

    /// What was found, unless it is a claim of our own, which is known from now on.
    fn other(&mut self, found: &[u8]) -> Result<Option<Record>, StoreError> {
        let record = Record::decode(found).map_err(StoreError::not_executed)?;
        if matches!(&record, Record::Claimed(claimed) if claimed.run == self.run) {
            self.held = found.to_vec();
            return Ok(None);
        }
        Ok(Some(record))
    }
}

pub(super) fn conflict() -> StoreError {
    StoreError::not_executed("gave up after 4 compare-and-swap conflicts on the claim")
}
