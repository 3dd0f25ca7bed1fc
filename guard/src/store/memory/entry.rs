//! One entry of the memory store, and how many bytes are counted for it.

use std::time::Duration;

/// What a record costs beside its bytes: its place in the table at the usual load, and the allocation of the value.
const OVERHEAD: usize = 144;
/// How many bytes every record is counted with at least: a token may become a claim, and a claim the record of a run without its
/// response, so both always have the room for it.
const RESERVED: usize = 112;
/// What an entry in the eviction queue costs.
const QUEUE_ENTRY: usize = 64;

/// What is stored under a ticket.
pub(super) struct MemoryEntry {
    pub(super) value: Box<[u8]>,
    pub(super) deadline: u64,
    /// Its position in the eviction queue; `None` if it has no response to drop.
    pub(super) eviction_seq: Option<u64>,
}

/// The size of an entry.
#[derive(Clone, Copy)]
pub(super) struct EntryWeight {
    length: usize,
    pub(super) eviction_seq: Option<u64>,
}

impl MemoryEntry {
    /// An entry that is written now.
    pub(super) fn new(value: &[u8], eviction_seq: Option<u64>, now: u64, ttl: Duration) -> Self {
        let deadline = now.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1));
        Self { value: value.into(), deadline, eviction_seq }
    }

    pub(super) fn is_live(&self, now: u64) -> bool {
        self.deadline > now
    }

    pub(super) fn weight(&self) -> EntryWeight {
        EntryWeight { length: self.value.len(), eviction_seq: self.eviction_seq }
    }
}

impl EntryWeight {
    /// The weight of a value. `eviction_seq` is called for a value that is larger than the reserve.
    pub(super) fn of(value: &[u8], eviction_seq: impl FnOnce() -> Option<u64>) -> Self {
        Self { length: value.len(), eviction_seq: if value.len() > RESERVED { eviction_seq() } else { None } }
    }

    /// How many bytes are counted.
    pub(super) fn cost(self) -> usize {
        OVERHEAD + self.length.max(RESERVED) + self.eviction_seq.map_or(0, |_| QUEUE_ENTRY)
    }

    /// How many of them dropping the response gives back.
    pub(super) fn response(self) -> usize {
        self.eviction_seq.map_or(0, |_| self.cost() - OVERHEAD - RESERVED)
    }
}
