//! The own record in the store. Every write after the first compares what it finds, and knows its own by the run id: an
//! answer that was lost, or a command that came twice, is never mistaken for somebody else's. No two runs have the same id,
//! not even of the same attempt in the same millisecond, so that nothing said of the first ever reaches the second.

use std::sync::Arc;
use std::time::Duration;

use crate::record::{Claimed, Record};
use crate::run_id::RunId;
use crate::store::{Compared, Epoch, Store, StoreError};
use crate::ticket::Ticket;

/// How often a write is repeated at once because the own record has other bytes than it was known to have.
pub(super) const SURPRISES: usize = 4;

/// The record of one run.
pub(super) struct Own {
    store: Arc<dyn Store>,
    ticket: Ticket,
    run: RunId,
    /// What the store holds of us, as far as is known.
    held: Vec<u8>,
}

/// What was there when a claim was inserted.
pub(super) enum Inserted {
    /// Nothing: it is there now.
    New,
    /// Our own, from an earlier question for the same attempt.
    Own(Claimed),
    Other(Record),
}

/// What a write has met.
pub(super) enum Met {
    /// Our own: it is done.
    Own,
    Nothing,
    /// Somebody else's record, or a reply where there should be a claim.
    Other(Record),
}

impl Own {
    /// The record of this claim, which is not written yet.
    pub(super) fn new(store: Arc<dyn Store>, ticket: Ticket, claimed: &Claimed) -> Self {
        Self { store, ticket, run: claimed.run, held: Vec::new() }
    }

    /// The same of one that was written before.
    pub(super) fn written(store: Arc<dyn Store>, ticket: Ticket, claimed: &Claimed) -> Self {
        Self { held: claimed.encode(), ..Self::new(store, ticket, claimed) }
    }

    pub(super) fn holds(&self, record: &[u8]) -> bool {
        self.held == record
    }

    /// Whether it says how this run has ended.
    pub(super) fn is_end(&self, record: &Record) -> bool {
        matches!(record, Record::Done(done) if done.run == self.run)
    }

    /// Inserts where nothing is.
    pub(super) async fn insert(&mut self, claimed: &Claimed, life: Duration) -> Result<Inserted, StoreError> {
        // Known from the beginning, for whoever takes it back if the answer is lost.
        (self.run, self.held) = (claimed.run, claimed.encode());
        let Some(found) = self.store.insert(&self.ticket, &self.held, life).await? else { return Ok(Inserted::New) };
        let is_own =
            |found: &Claimed| found.run == claimed.run || (found.attempt.is_some() && found.attempt == claimed.attempt);
        // An attempt that is asked for again may have ended: then there is nothing to run.
        Ok(match Record::decode(&found).map_err(StoreError::not_executed)? {
            Record::Claimed(there) if is_own(&there) => {
                (self.run, self.held) = (there.run, found.to_vec());
                Inserted::Own(there)
            }
            other => Inserted::Other(other),
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
    ) -> Result<Option<Met>, StoreError> {
        self.held = record;
        Ok(match self.store.swap_under(&self.ticket, epoch, free, &self.held, life).await? {
            None => None,
            Some(Compared::Done) => Some(Met::Own),
            Some(Compared::Gone) => Some(Met::Nothing),
            Some(Compared::Found(found)) => Some(self.other(&found)?.map_or(Met::Own, Met::Other)),
        })
    }

    /// Leaves its place to an issued token, whatever it has become. If that is there already, that is what is found.
    pub(super) async fn hand_over(&mut self, free: &[u8], life: Duration) -> Result<Met, StoreError> {
        for _ in 0..SURPRISES {
            match self.store.swap(&self.ticket, &self.held, free, life).await? {
                Compared::Done => return Ok(Met::Own),
                Compared::Gone => return Ok(Met::Nothing),
                Compared::Found(found) if found == free => return Ok(Met::Other(Record::Issued)),
                Compared::Found(found) => {
                    if let Some(other) = self.other(&found)? {
                        return Ok(Met::Other(other));
                    }
                }
            }
        }
        Err(restless())
    }

    /// Writes over it, whatever it has become.
    pub(super) async fn write(&mut self, value: Vec<u8>, life: Duration) -> Result<Met, StoreError> {
        for _ in 0..SURPRISES {
            let found = match self.store.swap(&self.ticket, &self.held, &value, life).await? {
                Compared::Done => {
                    self.held = value;
                    return Ok(Met::Own);
                }
                Compared::Gone => return Ok(Met::Nothing),
                Compared::Found(found) => found,
            };
            if found == value {
                self.held = value;
                return Ok(Met::Own);
            }
            if let Some(other) = self.other(&found)? {
                return Ok(Met::Other(other));
            }
        }
        Err(restless())
    }

    /// Removes it, whatever it has become.
    pub(super) async fn erase(&mut self) -> Result<Met, StoreError> {
        for _ in 0..SURPRISES {
            match self.store.remove(&self.ticket, &self.held).await? {
                Compared::Done => return Ok(Met::Own),
                Compared::Gone => return Ok(Met::Nothing),
                Compared::Found(found) => {
                    if let Some(other) = self.other(&found)? {
                        return Ok(Met::Other(other));
                    }
                }
            }
        }
        Err(restless())
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

pub(super) fn restless() -> StoreError {
    StoreError::not_executed("the own record changes again and again")
}
