//! The record of one claim in the store.
//!
//! Every write after the first is a compare-and-swap, and recognises the claim's own record by the run id. A lost reply or a command that
//! was executed twice is therefore never mistaken for another run. Run ids are unique, even for two runs of the same attempt in the same
//! millisecond, so a command of the first run never affects the second.

use std::time::Duration;

use crate::epoch::Epoch;
use crate::record::{ClaimRecord, Record};
use crate::run_id::RunId;
use crate::store::{Compared, Room, StoreError, WatchedStore};
use crate::ticket::Ticket;

/// Maximum number of immediate compare-and-swap tries if the claim's own record has other bytes than expected.
pub(super) const MAX_CONFLICTS: usize = 4;

/// The record of one run.
pub(super) struct RecordCell {
    ticket: Ticket,
    run: RunId,
    /// The bytes that the store holds for this run, as far as known.
    held: Vec<u8>,
}

/// The result of inserting a claim.
pub(super) enum CellInsert {
    /// No record existed: the claim is inserted.
    New,
    /// A claim of the same run or attempt, from an earlier request.
    Own(ClaimRecord),
    Other(Record),
}

/// The record that a write found.
pub(super) enum CellWrite {
    /// The claim's own record: the write succeeded.
    Own,
    Nothing,
    /// A record of another run, an issued token, or a reply where a claim was expected.
    Other(Record),
}

/// A change to the record.
#[derive(Clone, Copy)]
enum Change<'a> {
    /// Replaces it with a record that belongs to no run.
    Write(&'a [u8], Duration),
    /// Replaces it with a record of the same run. If those bytes are there already, an earlier command wrote them and its reply was lost.
    Renew(&'a [u8], Duration, Room),
    Erase,
}

impl RecordCell {
    /// Creates the cell of a claim that is not written yet.
    pub(super) fn new(ticket: Ticket, claimed: &ClaimRecord) -> Self {
        Self { ticket, run: claimed.run, held: Vec::new() }
    }

    /// Creates the cell of a claim that is already in the store, with these bytes.
    pub(super) fn written(ticket: Ticket, claimed: &ClaimRecord, held: Vec<u8>) -> Self {
        Self { held, ..Self::new(ticket, claimed) }
    }

    pub(super) fn is_at(&self, record: &[u8]) -> bool {
        self.held == record
    }

    /// Returns whether `record` is the stored outcome of this run.
    pub(super) fn is_end(&self, record: &Record) -> bool {
        matches!(record, Record::Done(done) if done.run == self.run)
    }

    /// Inserts the claim if there is no record.
    pub(super) async fn insert(
        &mut self,
        store: &WatchedStore,
        claimed: &ClaimRecord,
        life: Duration,
    ) -> Result<CellInsert, StoreError> {
        // Set before the write, so that the claim can be revoked if the reply is lost.
        (self.run, self.held) = (claimed.run, claimed.encode());
        let Some(found) = store.insert(&self.ticket, &self.held, life, Room::Free).await? else {
            return Ok(CellInsert::New);
        };
        let is_own = |found: &ClaimRecord| {
            found.run == claimed.run || (found.attempt.is_some() && found.attempt == claimed.attempt)
        };
        // A run of the same attempt may have ended already: its reply is `Other`, and nothing runs.
        Ok(match Record::decode(&found).map_err(StoreError::not_executed)? {
            Record::Claimed(there) if is_own(&there) => {
                (self.run, self.held) = (there.run, found.to_vec());
                CellInsert::Own(there)
            }
            other => CellInsert::Other(other),
        })
    }

    /// Inserts a record of this run again, because its claim has expired. Returns the record that is there instead, unless that is a
    /// claim of this run.
    pub(super) async fn insert_again(
        &mut self,
        store: &WatchedStore,
        record: &[u8],
        life: Duration,
        room: Room,
    ) -> Result<Option<Record>, StoreError> {
        match store.insert(&self.ticket, record, life, room).await? {
            Some(found) => self.other(&found),
            None => {
                self.hold(record);
                Ok(None)
            }
        }
    }

    /// Replaces `free`, a record that belongs to no run, within `epoch`. Returns `None` if the epoch has ended. `held` is set before the
    /// write, so that the claim can be revoked.
    pub(super) async fn take_over(
        &mut self,
        store: &WatchedStore,
        epoch: Epoch,
        free: &[u8],
        record: Vec<u8>,
        life: Duration,
    ) -> Result<Option<CellWrite>, StoreError> {
        self.held = record;
        Ok(match store.swap(&self.ticket, free, &self.held, life, Room::Reserved, Some(epoch)).await? {
            Compared::Stale => None,
            Compared::Done => Some(CellWrite::Own),
            Compared::Gone => Some(CellWrite::Nothing),
            Compared::Found(found) => Some(self.other(&found)?.map_or(CellWrite::Own, CellWrite::Other)),
        })
    }

    /// Replaces the claim with an issued token, whatever its current bytes. If the token is there already, returns it as `Other`.
    pub(super) async fn hand_over(
        &mut self,
        store: &WatchedStore,
        free: &[u8],
        life: Duration,
    ) -> Result<CellWrite, StoreError> {
        self.change(store, Change::Write(free, life)).await
    }

    /// Overwrites the claim, whatever its current bytes.
    pub(super) async fn write(
        &mut self,
        store: &WatchedStore,
        value: &[u8],
        life: Duration,
        room: Room,
    ) -> Result<CellWrite, StoreError> {
        let written = self.change(store, Change::Renew(value, life, room)).await?;
        if matches!(written, CellWrite::Own) {
            self.hold(value);
        }
        Ok(written)
    }

    /// Overwrites the claim for good, whatever its current bytes. Nothing is written afterwards, so the new bytes, which may contain a large
    /// response, are not copied.
    pub(super) async fn end(
        &mut self,
        store: &WatchedStore,
        value: &[u8],
        life: Duration,
        room: Room,
    ) -> Result<CellWrite, StoreError> {
        self.change(store, Change::Renew(value, life, room)).await
    }

    /// Removes the claim, whatever its current bytes.
    pub(super) async fn erase(&mut self, store: &WatchedStore) -> Result<CellWrite, StoreError> {
        self.change(store, Change::Erase).await
    }

    /// Returns the bytes that the store holds for this run, as far as known.
    pub(super) fn held(&self) -> &[u8] {
        &self.held
    }

    /// Expects these bytes, which are about to be written.
    pub(super) fn expect(&mut self, held: Vec<u8>) {
        self.held = held;
    }

    /// Expects a copy of these bytes from now on.
    fn hold(&mut self, bytes: &[u8]) {
        self.held.clear();
        self.held.extend_from_slice(bytes);
    }

    /// Repeats the compare-and-swap while it finds a claim of this run with other bytes than expected.
    async fn change(&mut self, store: &WatchedStore, change: Change<'_>) -> Result<CellWrite, StoreError> {
        for _ in 0..MAX_CONFLICTS {
            let compared = match change {
                Change::Write(value, life) => {
                    store.swap(&self.ticket, &self.held, value, life, Room::Reserved, None).await?
                }
                Change::Renew(value, life, room) => {
                    store.swap(&self.ticket, &self.held, value, life, room, None).await?
                }
                Change::Erase => store.remove(&self.ticket, &self.held, None).await?,
            };
            match (compared, change) {
                (Compared::Done, _) => return Ok(CellWrite::Own),
                (Compared::Gone | Compared::Stale, _) => return Ok(CellWrite::Nothing),
                (Compared::Found(found), Change::Renew(value, ..)) if found == value => return Ok(CellWrite::Own),
                (Compared::Found(found), _) => {
                    if let Some(other) = self.other(&found)? {
                        return Ok(CellWrite::Other(other));
                    }
                }
            }
        }
        Err(conflict())
    }

    /// Decodes `found`. Returns `None` for a claim of this run, and expects its bytes from then on.
    fn other(&mut self, found: &[u8]) -> Result<Option<Record>, StoreError> {
        let record = Record::decode(found).map_err(StoreError::not_executed)?;
        if matches!(&record, Record::Claimed(claimed) if claimed.run == self.run) {
            self.hold(found);
            return Ok(None);
        }
        Ok(Some(record))
    }
}

pub(super) fn conflict() -> StoreError {
    StoreError::not_executed("gave up after 4 compare-and-swap conflicts on the claim")
}
