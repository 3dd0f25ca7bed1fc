//! Removal of expired records, a few at a time.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Memory;
use super::entry::EntryWeight;
use super::shard::Shard;
use crate::ticket::Kind;

/// The number of slots that each insert examines, to remove expired records. One cache line of deadlines.
const SWEEP_PER_INSERT: usize = 8;

/// How long a write to a full store searches for expired records.
pub(super) struct SearchLimits {
    /// The maximum number of slots that one search examines.
    pub(super) slots: usize,
    /// The number of expired records after which a search ends that has freed anything.
    pub(super) records: usize,
    /// The minimum interval in milliseconds after a search that has freed nothing, or has examined every slot.
    pub(super) interval: u64,
}

impl Default for SearchLimits {
    /// Limits a search to a few milliseconds, and fruitless ones to a few percent of the CPU time.
    fn default() -> Self {
        Self { slots: 2_000_000, records: 2_000, interval: 100 }
    }
}

/// The findings of a search of a full store.
#[derive(Default)]
struct Search {
    slots: usize,
    records: usize,
    /// The bytes of records of one kind.
    freed: usize,
}

impl Search {
    /// Returns whether the search ends before it has freed enough. Expired records of other kinds do not end it: a write must not be
    /// rejected because of them.
    fn is_long_enough(&self, limits: &SearchLimits) -> bool {
        self.slots >= limits.slots || self.records >= limits.records && self.freed > 0
    }
}

impl Memory {
    /// Examines a few slots of a shard, so that expired records never pile up.
    pub(super) fn sweep(&self, shard: &mut Shard, now: u64) {
        let mut slots = shard.next_slots(SWEEP_PER_INSERT);
        while self.remove_expired(shard, &mut slots, now).is_some() {}
    }

    /// Removes expired records of any kind until this many bytes of one kind are freed. Returns whether another attempt to write is
    /// worthwhile. A long search ends early, and the next one continues there.
    pub(super) fn reclaim(&self, kind: Kind, shortage: usize) -> bool {
        let (now, last) = (self.clock.steady(), self.last_search.load(Ordering::Relaxed));
        if last != 0 && now.saturating_sub(last) < self.search_limits.interval {
            return false;
        }
        let first = self.next_searched_shard.load(Ordering::Relaxed);
        let (mut search, mut count) = (Search::default(), 0);
        while count < self.shards.len() && search.freed < shortage && !search.is_long_enough(&self.search_limits) {
            self.search((first + count) % self.shards.len(), kind, shortage, now, &mut search);
            count += 1;
        }
        // A shard with records of this kind may have more of them.
        let next = if search.freed > 0 { first + count - 1 } else { first + count };
        self.next_searched_shard.store(next % self.shards.len(), Ordering::Relaxed);
        if search.freed == 0 || count == self.shards.len() {
            self.last_search.store(now.max(1), Ordering::Relaxed);
        }
        search.freed > 0
    }

    /// Searches one shard.
    fn search(&self, number: usize, kind: Kind, shortage: usize, now: u64, search: &mut Search) {
        let mut shard = self.lock_shard(number);
        let mut slots = shard.slots();
        search.slots += slots.len();
        while search.freed < shortage
            && (search.records < self.search_limits.records || search.freed == 0)
            && let Some((expired, weight)) = self.remove_expired(&mut shard, &mut slots, now)
        {
            search.records += 1;
            search.freed += if expired == kind { weight.cost() } else { 0 };
        }
    }

    /// Removes the first of these slots whose record is expired, and continues after it.
    fn remove_expired(&self, shard: &mut Shard, slots: &mut Range<usize>, now: u64) -> Option<(Kind, EntryWeight)> {
        let slot = shard.first_expired(slots.clone(), now)?;
        slots.start = slot + 1;
        let kind = shard.entry(slot as u32)?.ticket.kind();
        Some((kind, self.remove_slot(shard, slot as u32)?))
    }
}
