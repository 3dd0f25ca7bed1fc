//! One record of the memory store, and how many bytes are counted for it.

use std::time::Duration;

/// What a record costs beside its bytes: its place in the table at the usual load, and the allocation of the value.
const OVERHEAD: usize = 144;
/// How many bytes every record is counted with at least: a token may become a claim, and a claim the record of a run without its
/// response, so both always have the room for it.
const RESERVED: usize = 112;
/// What it costs to know which response is the oldest.
const TURN: usize = 64;

/// What is stored under a ticket.
pub(super) struct Record {
    pub(super) value: Box<[u8]>,
    pub(super) deadline: u64,
    /// When its response gives way to others; `None` if there is none to drop.
    pub(super) turn: Option<u64>,
}

/// How large a record is.
#[derive(Clone, Copy)]
pub(super) struct Weight {
    length: usize,
    pub(super) turn: Option<u64>,
}

impl Record {
    /// A record that is written now.
    pub(super) fn new(value: &[u8], turn: Option<u64>, now: u64, ttl: Duration) -> Self {
        let deadline = now.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1));
        Self { value: value.into(), deadline, turn }
    }

    pub(super) fn is_live(&self, now: u64) -> bool {
        self.deadline > now
    }

    pub(super) fn weight(&self) -> Weight {
        Weight { length: self.value.len(), turn: self.turn }
    }
}

impl Weight {
    /// Of a value. `turn` is asked if that is larger than what every record has the room for.
    pub(super) fn of(value: &[u8], turn: impl FnOnce() -> Option<u64>) -> Self {
        Self { length: value.len(), turn: if value.len() > RESERVED { turn() } else { None } }
    }

    /// How many bytes are counted.
    pub(super) fn cost(self) -> usize {
        OVERHEAD + self.length.max(RESERVED) + self.turn.map_or(0, |_| TURN)
    }

    /// How many of them dropping the response gives back.
    pub(super) fn response(self) -> usize {
        self.turn.map_or(0, |_| self.cost() - OVERHEAD - RESERVED)
    }
}
