//! One shard of the map.

use std::ops::Range;

use hashbrown::HashTable;
use slab::Slab;

use super::entry::MemoryEntry;
use super::ticket_hasher::TicketHash;
use crate::ticket::Ticket;

/// The deadline of an empty slot.
const EMPTY: u64 = u64::MAX;

/// The minimum number of slots that a shard adds.
const LEAST_GROWTH: usize = 8;

/// A part of the records. Each record has a slot, which it keeps until it is removed.
///
/// The index holds only the hash and the slot of a record, so that it stays small and grows without reading the records. The deadlines are
/// kept a second time, next to each other: eight of them are one cache line for the sweep.
#[derive(Default)]
pub(super) struct Shard {
    index: HashTable<Indexed>,
    entries: Slab<MemoryEntry>,
    /// The deadline of each slot.
    deadlines: Vec<u64>,
    /// The slot that the sweep examines next.
    swept: usize,
}

/// A record in the index.
struct Indexed {
    hash: u32,
    slot: u32,
}

/// The place of a record, until the next change of the shard.
#[derive(Clone, Copy)]
pub(super) struct Place {
    bucket: usize,
    pub(super) slot: u32,
}

impl Indexed {
    /// Returns the hash in the form that the index expects, which uses the lowest and the highest bits.
    fn spread(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the place of a ticket.
    pub(super) fn find(&self, hash: TicketHash, ticket: &Ticket) -> Option<Place> {
        let hash = hash.in_shard();
        let is_same = |indexed: &Indexed| indexed.hash == hash && self.entries[indexed.slot as usize].ticket == *ticket;
        self.place(hash, is_same)
    }

    /// Returns the place of a slot.
    pub(super) fn find_slot(&self, hash: TicketHash, slot: u32) -> Option<Place> {
        self.place(hash.in_shard(), |indexed| indexed.slot == slot)
    }

    fn place(&self, hash: u32, is_same: impl Fn(&Indexed) -> bool) -> Option<Place> {
        let bucket = self.index.find_bucket_index(Indexed::spread(hash), is_same)?;
        Some(Place { bucket, slot: self.index.get_bucket(bucket)?.slot })
    }

    pub(super) fn entry(&self, slot: u32) -> Option<&MemoryEntry> {
        self.entries.get(slot as usize)
    }

    /// Returns an entry whose value may be replaced. Its deadline is changed with [`replace`](Self::replace).
    pub(super) fn entry_mut(&mut self, slot: u32) -> Option<&mut MemoryEntry> {
        self.entries.get_mut(slot as usize)
    }

    /// Returns the slot that [`insert`](Self::insert) uses next.
    pub(super) fn next_slot(&self) -> u32 {
        self.entries.vacant_key() as u32
    }

    /// Adds the entry of a ticket that has none.
    pub(super) fn insert(&mut self, hash: TicketHash, entry: MemoryEntry) {
        if self.entries.len() == self.entries.capacity() {
            self.grow();
        }
        let (hash, deadline) = (hash.in_shard(), entry.deadline);
        let slot = self.entries.insert(entry) as u32;
        match self.deadlines.get_mut(slot as usize) {
            Some(there) => *there = deadline,
            None => self.deadlines.push(deadline),
        }
        self.index.insert_unique(Indexed::spread(hash), Indexed { hash, slot }, |other| Indexed::spread(other.hash));
    }

    /// Adds a quarter of the slots. Doubling would waste more memory; a record is still moved only four times on average.
    fn grow(&mut self) {
        let more = (self.entries.len() / 4).max(LEAST_GROWTH);
        self.entries.reserve_exact(more);
        self.deadlines.reserve_exact(self.entries.capacity() - self.deadlines.len());
    }

    /// Replaces the entry in a slot by another of the same ticket.
    pub(super) fn replace(&mut self, slot: u32, entry: MemoryEntry) {
        self.deadlines[slot as usize] = entry.deadline;
        self.entries[slot as usize] = entry;
    }

    pub(super) fn remove(&mut self, place: Place) -> MemoryEntry {
        if let Ok(indexed) = self.index.get_bucket_entry(place.bucket) {
            indexed.remove();
        }
        self.deadlines[place.slot as usize] = EMPTY;
        self.entries.remove(place.slot as usize)
    }

    /// Returns all slots, including empty ones.
    pub(super) fn slots(&self) -> Range<usize> {
        0..self.deadlines.len()
    }

    /// Returns the next `count` slots to sweep. After the last slot it begins again with the first.
    pub(super) fn next_slots(&mut self, count: usize) -> Range<usize> {
        let first = if self.swept < self.deadlines.len() { self.swept } else { 0 };
        self.swept = self.deadlines.len().min(first + count);
        first..self.swept
    }

    /// Returns the first of these slots whose record is expired at `now`.
    pub(super) fn first_expired(&self, slots: Range<usize>, now: u64) -> Option<usize> {
        let offset = self.deadlines.get(slots.clone())?.iter().position(|deadline| *deadline <= now)?;
        Some(slots.start + offset)
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> impl Iterator<Item = &MemoryEntry> {
        self.entries.iter().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::ticket_hasher::TicketHasher;
    use super::*;
    use crate::ticket::Kind;

    fn entry(ticket: Ticket, deadline: u64) -> MemoryEntry {
        MemoryEntry::new(ticket, &deadline.to_be_bytes(), None, 0, Duration::from_millis(deadline))
    }

    #[test]
    fn entry_takes_eighty_bytes() {
        assert_eq!(size_of::<Slab<MemoryEntry>>(), 40);
        assert_eq!(size_of::<MemoryEntry>(), 80);
        assert_eq!(size_of::<Option<MemoryEntry>>(), 80, "an empty slot needs no byte of its own");
    }

    #[test]
    fn sweep_examines_every_slot_in_turn() {
        let (hasher, mut shard) = (TicketHasher::new(), Shard::default());
        assert_eq!(shard.next_slots(4), 0..0);
        for number in 0..10 {
            let ticket = Ticket::of(Kind::Key, &[number]);
            shard.insert(hasher.hash(&ticket), entry(ticket, 5));
        }
        let turns: Vec<_> = (0..4).map(|_| shard.next_slots(4)).collect();
        assert_eq!(turns, [0..4, 4..8, 8..10, 0..4]);
        assert_eq!((shard.first_expired(4..8, 4), shard.first_expired(4..8, 5)), (None, Some(4)));
    }

    proptest! {
        #[test]
        fn shard_holds_what_a_map_would_hold(
            is_colliding in any::<bool>(),
            changes in proptest::collection::vec((0_u8..60, 1_u64..100, 0_u8..3), 1..300),
        ) {
            let hasher = if is_colliding { TicketHasher::colliding() } else { TicketHasher::new() };
            let (mut shard, mut model) = (Shard::default(), BTreeMap::new());
            for (number, deadline, change) in changes {
                let ticket = Ticket::of(Kind::Key, &[number]);
                let hash = hasher.hash(&ticket);
                match (shard.find(hash, &ticket), change) {
                    (None, _) => {
                        shard.insert(hash, entry(ticket, deadline));
                        model.insert(number, deadline);
                    }
                    (Some(place), 0) => {
                        prop_assert_eq!(shard.find_slot(hash, place.slot).map(|found| found.bucket), Some(place.bucket));
                        prop_assert_eq!(shard.remove(place).ticket, ticket);
                        model.remove(&number);
                    }
                    (Some(place), _) => {
                        shard.replace(place.slot, entry(ticket, deadline));
                        model.insert(number, deadline);
                    }
                }
                prop_assert_eq!(shard.len(), model.len());
                let earliest = model.values().copied().min().unwrap_or(EMPTY - 1);
                prop_assert_eq!(shard.first_expired(shard.slots(), earliest - 1), None);
                let first = shard.first_expired(shard.slots(), earliest).map(|slot| &shard.entries[slot]);
                prop_assert_eq!(first.map(|first| first.deadline), model.values().copied().min());
            }
            for (number, deadline) in model {
                let ticket = Ticket::of(Kind::Key, &[number]);
                let place = shard.find(hasher.hash(&ticket), &ticket).unwrap();
                prop_assert_eq!(shard.entry(place.slot).unwrap().deadline, deadline);
            }
        }
    }
}
