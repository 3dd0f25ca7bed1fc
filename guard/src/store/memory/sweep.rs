//! Removal of expired records, a few at a time.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Memory;
use super::entry::EntryWeight;
use super::shard::Shard;
use crate::ticket::Kind;

/// The number of slots that each insert examines, to remove expired records. One cache line of deadlines.
const SWEEP_PER_INSERT: usize = 8;
/// The maximum number of slots that a write to a full store examines, and of expired records that it removes: a few milliseconds.
const SEARCHED_SLOTS: usize = 2_000_000;
const SEARCHED_RECORDS: usize = 2_000;
/// The minimum interval in milliseconds between searches of a full store, after one that has found all expired records.
const SEARCH_EVERY: u64 = 1_000;

/// What a search of a full store has found.
#[derive(Default)]
struct Search {
    slots: usize,
    records: usize,
    /// The bytes of records of one kind.
    freed: usize,
}

impl Search {
    fn is_long_enough(&self) -> bool {
        self.slots >= SEARCHED_SLOTS || self.records >= SEARCHED_RECORDS
    }
}

impl Memory {
    /// Examines a few slots of a shard, so that expired records never pile up.
    pub(super) fn sweep(&self, shard: &mut Shard, now: u64) {
        let mut slots = shard.next_slots(SWEEP_PER_INSERT);
        while self.remove_expired(shard, &mut slots, now).is_some() {}
    }

    /// Removes expired records of any kind until this many bytes of one kind are freed. Returns whether another attempt to write is
    /// worthwhile. A long search ends early, and the next one continues with the next shard.
    pub(super) fn reclaim(&self, kind: Kind, shortage: usize) -> bool {
        let (now, last) = (self.clock.steady(), self.last_search.load(Ordering::Relaxed));
        if last != 0 && now.saturating_sub(last) < SEARCH_EVERY {
            return false;
        }
        let mut search = Search::default();
        for _ in 0..self.shards.len() {
            let number = self.searched_shard.load(Ordering::Relaxed) % self.shards.len();
            if self.search(number, kind, shortage, now, &mut search) || search.is_long_enough() {
                return search.freed > 0;
            }
            self.searched_shard.store(number + 1, Ordering::Relaxed);
        }
        self.last_search.store(now.max(1), Ordering::Relaxed);
        true
    }

    /// Searches one shard. Returns whether enough bytes are freed.
    fn search(&self, number: usize, kind: Kind, shortage: usize, now: u64, search: &mut Search) -> bool {
        let mut shard = self.lock_shard(number);
        let mut slots = shard.slots();
        search.slots += slots.len();
        while search.freed < shortage
            && search.records < SEARCHED_RECORDS
            && let Some((expired, weight)) = self.remove_expired(&mut shard, &mut slots, now)
        {
            search.records += 1;
            search.freed += if expired == kind { weight.cost() } else { 0 };
        }
        search.freed >= shortage
    }

    /// Removes the first of these slots whose record is expired, and continues after it.
    fn remove_expired(&self, shard: &mut Shard, slots: &mut Range<usize>, now: u64) -> Option<(Kind, EntryWeight)> {
        let slot = shard.first_expired(slots.clone(), now)?;
        slots.start = slot + 1;
        let kind = shard.entry(slot as u32)?.ticket.kind();
        Some((kind, self.remove_slot(shard, slot as u32)?))
    }
}
