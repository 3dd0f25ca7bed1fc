//! An entry of the memory store, and the number of bytes it counts as.

use std::num::NonZeroU64;
use std::time::Duration;

use super::value::StoredValue;
use crate::ticket::Ticket;

/// The cost of a record besides its value: its slot, its places in the index and in the list of deadlines at the usual load, and the
/// allocation of the value.
const OVERHEAD: usize = 144;
/// The minimum size that a value counts as. A token may become a claim, and a claim the record of a run without its response, so both
/// always have room for it.
const RESERVED: usize = 112;
/// The cost of an entry in the eviction queue.
const QUEUE_ENTRY: usize = 64;

/// A stored record.
pub(super) struct MemoryEntry {
    pub(super) ticket: Ticket,
    pub(super) value: StoredValue,
    pub(super) deadline: u64,
    /// Its position in the eviction queue; `None` if it has no response to drop.
    pub(super) eviction_seq: Option<NonZeroU64>,
}

/// The size of an entry.
#[derive(Clone, Copy)]
pub(super) struct EntryWeight {
    length: usize,
    pub(super) eviction_seq: Option<NonZeroU64>,
}

impl MemoryEntry {
    /// Creates an entry that is written at `now`.
    pub(super) fn new(ticket: Ticket, value: &[u8], eviction_seq: Option<NonZeroU64>, now: u64, ttl: Duration) -> Self {
        let deadline = now.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1));
        Self { ticket, value: StoredValue::new(value), deadline, eviction_seq }
    }

    pub(super) fn is_live(&self, now: u64) -> bool {
        self.deadline > now
    }

    pub(super) fn weight(&self) -> EntryWeight {
        EntryWeight { length: self.value.len(), eviction_seq: self.eviction_seq }
    }
}

impl EntryWeight {
    /// Returns the weight of a value. Calls `eviction_seq` only for a value that is larger than the reserve.
    pub(super) fn of(value: &[u8], eviction_seq: impl FnOnce() -> Option<NonZeroU64>) -> Self {
        Self { length: value.len(), eviction_seq: if value.len() > RESERVED { eviction_seq() } else { None } }
    }

    /// Returns the number of bytes that count towards the quota.
    pub(super) fn cost(self) -> usize {
        OVERHEAD + self.length.max(RESERVED) + self.eviction_seq.map_or(0, |_| QUEUE_ENTRY)
    }

    /// Returns how many of these bytes are freed when the response is dropped.
    pub(super) fn response(self) -> usize {
        self.eviction_seq.map_or(0, |_| self.cost() - OVERHEAD - RESERVED)
    }
}
