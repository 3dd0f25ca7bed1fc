//! The limit in bytes: the quota of each kind of record, and the order in which stored responses are evicted.
//!
//! A record of a completed run is never evicted: a duplicate would run again. A response may be, since the duplicate still learns that
//! the request was executed. So new records evict the oldest responses. There is no quota per subject: all anonymous requests share one
//! subject, and retries come soon, so the oldest response is the one least likely to be requested.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::entry::EntryWeight;
use crate::store::Room;
use crate::ticket::Kind;

/// The limit, and the bytes that count towards it.
pub(super) struct Quotas {
    pub(super) limit: usize,
    kinds: [KindUsage; Kind::ALL.len()],
    last_eviction_seq: AtomicU64,
}

/// The bytes that records of one kind use.
#[derive(Default)]
struct KindUsage {
    used: AtomicUsize,
    /// The part of `used` that belongs to responses.
    responses: AtomicUsize,
    /// The number of responses that were not stored, or were evicted.
    dropped: AtomicU64,
    /// The records with a response that can be evicted, oldest first.
    eviction_queue: Mutex<BTreeMap<NonZeroU64, RecordAddress>>,
}

/// Where a record is stored: the number of its shard, and its slot. Another record may use the slot later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordAddress {
    pub(super) shard: u32,
    pub(super) slot: u32,
}

/// The number of bytes missing.
#[derive(Clone, Copy)]
pub(super) struct Shortage(pub(super) usize);

impl Quotas {
    pub(super) fn of(limit: usize) -> Self {
        Self { limit, kinds: Default::default(), last_eviction_seq: AtomicU64::new(0) }
    }

    /// Returns the quota of a kind in bytes.
    pub(super) fn quota(&self, kind: Kind) -> usize {
        match kind {
            Kind::Token => self.limit / 2,
            Kind::Key => self.limit / 8 * 3,
            Kind::Interval => self.limit / 8,
            Kind::Secret => usize::MAX,
        }
    }

    /// Returns the bytes up to which a kind may grow for a record. The reserve is a quarter of the quota: another record may have used the
    /// room of the one that is written again.
    pub(super) fn most(&self, kind: Kind, value: &[u8], room: Room) -> usize {
        let quota = self.quota(kind);
        match room {
            Room::Reserved if value.len() <= Room::SMALL => quota.saturating_add(quota / 4),
            Room::Reserved | Room::Free => quota,
        }
    }

    pub(super) fn used(&self, kind: Kind) -> usize {
        self.usage(kind).used.load(Ordering::Relaxed)
    }

    pub(super) fn responses(&self, kind: Kind) -> usize {
        self.usage(kind).responses.load(Ordering::Relaxed)
    }

    pub(super) fn dropped(&self, kind: Kind) -> u64 {
        self.usage(kind).dropped.load(Ordering::Relaxed)
    }

    pub(super) fn count_dropped(&self, kind: Kind) {
        self.usage(kind).dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the position of a new response in the eviction queue: the last.
    pub(super) fn next_eviction_seq(&self) -> NonZeroU64 {
        NonZeroU64::MIN.saturating_add(self.last_eviction_seq.fetch_add(1, Ordering::Relaxed))
    }

    /// Counts a record that is written to `address` in place of another, unless the kind would thereby grow beyond `most`.
    pub(super) fn exchange(
        &self,
        kind: Kind,
        address: RecordAddress,
        out: Option<EntryWeight>,
        new: EntryWeight,
        most: usize,
    ) -> Result<(), Shortage> {
        let usage = self.usage(kind);
        let (more, less) = (new.cost(), out.map_or(0, EntryWeight::cost));
        let counted = usage.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            let after = used + more - less;
            (more <= less || after <= most).then_some(after)
        });
        counted.map_err(|used| Shortage((used + more - less).saturating_sub(most)))?;
        out.into_iter().for_each(|out| usage.forget_response(out));
        if let Some(eviction_seq) = new.eviction_seq {
            usage.responses.fetch_add(new.response(), Ordering::Relaxed);
            usage.eviction_queue().insert(eviction_seq, address);
        }
        Ok(())
    }

    /// Stops counting a record.
    pub(super) fn release(&self, kind: Kind, record: EntryWeight) {
        let usage = self.usage(kind);
        usage.used.fetch_sub(record.cost(), Ordering::Relaxed);
        usage.forget_response(record);
    }

    /// Stops counting the response of a record.
    pub(super) fn release_response(&self, kind: Kind, record: EntryWeight) {
        let usage = self.usage(kind);
        usage.used.fetch_sub(record.response(), Ordering::Relaxed);
        usage.forget_response(record);
    }

    /// Removes the oldest response from the eviction queue.
    pub(super) fn oldest(&self, kind: Kind) -> Option<(NonZeroU64, RecordAddress)> {
        self.usage(kind).eviction_queue().pop_first()
    }

    fn usage(&self, kind: Kind) -> &KindUsage {
        &self.kinds[kind as usize]
    }
}

impl KindUsage {
    fn forget_response(&self, record: EntryWeight) {
        if let Some(eviction_seq) = record.eviction_seq {
            self.responses.fetch_sub(record.response(), Ordering::Relaxed);
            self.eviction_queue().remove(&eviction_seq);
        }
    }

    fn eviction_queue(&self) -> MutexGuard<'_, BTreeMap<NonZeroU64, RecordAddress>> {
        self.eviction_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
