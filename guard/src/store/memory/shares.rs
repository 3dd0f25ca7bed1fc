//! The limit in bytes: how much each kind of record takes of its share, and which stored responses give way first.
//!
//! A record that says that something has run is never dropped: that would run it again. A response may be, since its duplicate
//! still learns that it was carried out. So new records make the oldest responses give way. There is no share for each subject:
//! anonymous requests all have the same one, and a retry comes soon, so the oldest response is the one least likely to be asked for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::record::Weight;
use crate::ticket::{Kind, Ticket};

/// The limit, and what is counted against it.
pub(super) struct Shares {
    pub(super) limit: usize,
    kinds: [Account; Kind::ALL.len()],
    last_turn: AtomicU64,
}

/// What the records of one kind take.
#[derive(Default)]
struct Account {
    used: AtomicUsize,
    /// How much of that is responses.
    responses: AtomicUsize,
    /// How many responses were not stored, or dropped.
    dropped: AtomicU64,
    /// The records that have a response which can be dropped, the oldest first.
    turns: Mutex<BTreeMap<u64, Ticket>>,
}

/// So many bytes are missing.
#[derive(Clone, Copy)]
pub(super) struct Missing(pub(super) usize);

impl Shares {
    pub(super) fn of(limit: usize) -> Self {
        Self { limit, kinds: Default::default(), last_turn: AtomicU64::new(0) }
    }

    /// How much a kind may take.
    pub(super) fn share(&self, kind: Kind) -> usize {
        match kind {
            Kind::Token => self.limit / 2,
            Kind::Key => self.limit / 8 * 3,
            Kind::Interval => self.limit / 8,
            Kind::Secret => usize::MAX,
        }
    }

    /// How much it may take where what was there a moment ago is put back, whose room another may have taken meanwhile.
    pub(super) fn share_to_put_back(&self, kind: Kind) -> usize {
        let share = self.share(kind);
        share.saturating_add(share / 4)
    }

    pub(super) fn used(&self, kind: Kind) -> usize {
        self.account(kind).used.load(Ordering::Relaxed)
    }

    pub(super) fn responses(&self, kind: Kind) -> usize {
        self.account(kind).responses.load(Ordering::Relaxed)
    }

    pub(super) fn dropped(&self, kind: Kind) -> u64 {
        self.account(kind).dropped.load(Ordering::Relaxed)
    }

    pub(super) fn count_dropped(&self, kind: Kind) {
        self.account(kind).dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// The turn of a record whose response can be dropped: later than that of all before.
    pub(super) fn next_turn(&self) -> u64 {
        self.last_turn.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a record in the place of another, unless the kind grows by that beyond `most`.
    pub(super) fn exchange(
        &self,
        ticket: &Ticket,
        out: Option<Weight>,
        new: Weight,
        most: usize,
    ) -> Result<(), Missing> {
        let account = self.account(ticket.kind());
        let (more, less) = (new.cost(), out.map_or(0, Weight::cost));
        let counted = account.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            let after = used + more - less;
            (more <= less || after <= most).then_some(after)
        });
        counted.map_err(|used| Missing((used + more - less).saturating_sub(most)))?;
        out.into_iter().for_each(|out| account.forget_response(out));
        if let Some(turn) = new.turn {
            account.responses.fetch_add(new.response(), Ordering::Relaxed);
            account.turns().insert(turn, *ticket);
        }
        Ok(())
    }

    /// Counts a record no longer.
    pub(super) fn release(&self, kind: Kind, record: Weight) {
        let account = self.account(kind);
        account.used.fetch_sub(record.cost(), Ordering::Relaxed);
        account.forget_response(record);
    }

    /// Counts a record without its response.
    pub(super) fn release_response(&self, kind: Kind, record: Weight) {
        let account = self.account(kind);
        account.used.fetch_sub(record.response(), Ordering::Relaxed);
        account.forget_response(record);
    }

    /// The record whose response gives way next, and its turn.
    pub(super) fn oldest(&self, kind: Kind) -> Option<(u64, Ticket)> {
        self.account(kind).turns().pop_first()
    }

    fn account(&self, kind: Kind) -> &Account {
        &self.kinds[kind as usize]
    }
}

impl Account {
    fn forget_response(&self, record: Weight) {
        if let Some(turn) = record.turn {
            self.responses.fetch_sub(record.response(), Ordering::Relaxed);
            self.turns().remove(&turn);
        }
    }

    fn turns(&self) -> MutexGuard<'_, BTreeMap<u64, Ticket>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
