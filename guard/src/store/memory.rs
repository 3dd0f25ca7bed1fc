//! The store in this process's memory: no installation, and no data survives a restart.

mod entry;
mod eviction;
mod origin_thread;
mod quota;

use std::collections::HashMap;
use std::collections::hash_map::{Entry, OccupiedEntry};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{counter, gauge};
use onceward_api::metric;

use self::entry::{EntryWeight, MemoryEntry};
pub(crate) use self::origin_thread::OriginThread;
use self::quota::{Quotas, Shortage};
use super::{Bytes, Compared, Epoch, Room, Store, StoreError, async_trait};
use crate::clock::Clock;
use crate::random::random;
use crate::record::DoneRecord;
use crate::ticket::{Kind, Ticket};

/// The number of shards of the map. Each has its own lock, held for one verb or for sweeping that one shard.
const SHARDS: usize = 256;
/// The average number of old records that each insert examines, to remove expired ones.
const SWEEP_PER_INSERT: usize = 8;
/// The minimum interval in milliseconds between full sweeps, one of which a full store tries before it rejects a record.
const FULL_SWEEP_EVERY: u64 = 1_000;

/// A store in memory, which is lost when the process ends. Each instance has a different [`epoch`](Store::epoch), so tokens of an
/// earlier instance can be distinguished from used ones.
///
/// Instances do not share records. Build the guard before `HttpServer::new` and move a clone into the closure: the closure runs once in
/// every worker, and a store that is built there does not see what the other workers have accepted. `Protect` and `token_route` panic
/// if they detect that, and the server does not start.
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    quotas: Quotas,
    /// Returns a value without its response, if it has one that can be dropped to free memory. The store knows nothing else about
    /// values.
    stub: fn(&[u8]) -> Option<Vec<u8>>,
    clock: Clock,
    epoch: Epoch,
    last_full_sweep: AtomicU64,
    origin: std::sync::Arc<OriginThread>,
}

/// One shard of the map.
#[derive(Default)]
struct Shard {
    records: HashMap<Ticket, MemoryEntry>,
    /// Number of records that the inserts since the last sweep have paid to examine.
    paid: usize,
}

impl Memory {
    /// The default limit: 256 MiB.
    pub const DEFAULT_LIMIT: usize = 256 * 1024 * 1024;

    /// Creates an empty store with the default limit.
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// Creates an empty store that reads the time from `clock`.
    pub fn with_clock(clock: Clock) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            quotas: Quotas::of(Self::DEFAULT_LIMIT),
            stub: DoneRecord::without_reply,
            clock,
            epoch: random(),
            last_full_sweep: AtomicU64::new(0),
            origin: OriginThread::here(),
        }
    }

    /// Sets the limit in bytes. Tokens may use one half of it, keys three eighths and intervals one eighth.
    ///
    /// Every record counts, with at least 256 bytes, so that a token or a claim always has room for the record of its run. Stored
    /// responses use the rest of a quota. When a quota is full, the oldest responses are evicted first, and a response that does not
    /// fit is not stored. A duplicate of such a run receives `reply_not_kept` with that reason, and does not run. Records themselves
    /// are never evicted before they expire: a quota that is full of records rejects new ones.
    ///
    /// The process needs more memory than the limit: for requests and responses in flight, and for memory that its allocator does not
    /// return at once. Plan for twice the limit plus 64 MiB.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.quotas.limit = bytes;
        self
    }

    /// Returns the number of records, including expired ones that have not been removed yet.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).records.len()).sum()
    }

    /// Returns whether the store has no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, ticket: &Ticket) -> MutexGuard<'_, Shard> {
        lock(&self.shards[usize::from(ticket.digest()[0]) % SHARDS])
    }

    /// Removes a record and releases its bytes from the quota.
    fn evacuate(&self, place: OccupiedEntry<'_, Ticket, MemoryEntry>) -> MemoryEntry {
        let (ticket, record) = place.remove_entry();
        self.quotas.release(ticket.kind(), record.weight());
        record
    }

    /// Returns the live record of a ticket; removes an expired one.
    fn live<'a>(&self, shard: &'a mut Shard, ticket: &Ticket) -> Option<OccupiedEntry<'a, Ticket, MemoryEntry>> {
        let Entry::Occupied(place) = shard.records.entry(*ticket) else { return None };
        if place.get().is_live(self.clock.steady()) {
            return Some(place);
        }
        self.evacuate(place);
        None
    }

    /// Writes if there is no live record; otherwise returns the existing value.
    fn write(&self, ticket: &Ticket, value: &[u8], ttl: Duration, room: Room) -> Result<Option<Bytes>, Shortage> {
        let now = self.clock.steady();
        let mut shard = self.shard(ticket);
        self.sweep_a_slice(&mut shard, now);
        let place = shard.records.entry(*ticket);
        // The bytes of an expired record are released when the new one takes its place.
        let out = match &place {
            Entry::Occupied(there) if there.get().is_live(now) => {
                return Ok(Some(Bytes::copy_from_slice(&there.get().value)));
            }
            Entry::Occupied(there) => Some(there.get()),
            Entry::Vacant(_) => None,
        };
        let weight = self.weigh(value);
        self.quotas.exchange(
            ticket,
            out.map(MemoryEntry::weight),
            weight,
            self.quotas.most(ticket.kind(), value, room),
        )?;
        place.insert_entry(MemoryEntry::new(value, weight.eviction_seq, now, ttl));
        Ok(None)
    }

    fn compare_and_write(
        &self,
        ticket: &Ticket,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
        room: Room,
    ) -> Result<Compared, Shortage> {
        let mut shard = self.shard(ticket);
        let Some(mut place) = self.live(&mut shard, ticket) else { return Ok(Compared::Gone) };
        let there = place.get_mut();
        if *there.value != *held {
            return Ok(Compared::Found(Bytes::copy_from_slice(&there.value)));
        }
        let weight = self.weigh(value);
        self.quotas.exchange(ticket, Some(there.weight()), weight, self.quotas.most(ticket.kind(), value, room))?;
        *there = MemoryEntry::new(value, weight.eviction_seq, self.clock.steady(), ttl);
        Ok(Compared::Done)
    }

    fn weigh(&self, value: &[u8]) -> EntryWeight {
        EntryWeight::of(value, || (self.stub)(value).map(|_| self.quotas.next_eviction_seq()))
    }

    /// Sweeps one shard as soon as its inserts have paid for it, so that expired records never pile up.
    fn sweep_a_slice(&self, shard: &mut Shard, now: u64) {
        shard.paid += SWEEP_PER_INSERT;
        if shard.paid >= shard.records.len() {
            self.sweep(shard, now);
        }
    }

    /// Sweeps all shards, one after the other, unless a full sweep was done recently. Returns whether it swept.
    fn sweep_all(&self) -> bool {
        let now = self.clock.steady();
        let last = self.last_full_sweep.load(Ordering::Relaxed);
        let due = last == 0 || now.saturating_sub(last) >= FULL_SWEEP_EVERY;
        let mine = due
            && self.last_full_sweep.compare_exchange(last, now.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if mine {
            self.shards.iter().for_each(|shard| self.sweep(&mut lock(shard), now));
        }
        mine
    }

    fn sweep(&self, shard: &mut Shard, now: u64) {
        shard.paid = 0;
        shard.records.retain(|ticket, record| {
            let keep = record.is_live(now);
            if !keep {
                self.quotas.release(ticket.kind(), record.weight());
            }
            keep
        });
    }
}

#[async_trait]
impl Store for Memory {
    async fn insert(
        &self,
        ticket: &Ticket,
        value: &[u8],
        ttl: Duration,
        room: Room,
    ) -> Result<Option<Bytes>, StoreError> {
        self.fit(ticket.kind(), value, &|value| self.write(ticket, value, ttl, room))
    }

    async fn swap(
        &self,
        ticket: &Ticket,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
        room: Room,
        epoch: Option<Epoch>,
    ) -> Result<Compared, StoreError> {
        if epoch.is_some_and(|epoch| epoch != self.epoch) {
            return Ok(Compared::Stale);
        }
        self.fit(ticket.kind(), value, &|value| self.compare_and_write(ticket, held, value, ttl, room))
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8], epoch: Option<Epoch>) -> Result<Compared, StoreError> {
        if epoch.is_some_and(|epoch| epoch != self.epoch) {
            return Ok(Compared::Stale);
        }
        let mut shard = self.shard(ticket);
        let Some(place) = self.live(&mut shard, ticket) else { return Ok(Compared::Gone) };
        if *place.get().value != *held {
            return Ok(Compared::Found(Bytes::copy_from_slice(&place.get().value)));
        }
        self.evacuate(place);
        Ok(Compared::Done)
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        let mut shard = self.shard(ticket);
        Ok(self.live(&mut shard, ticket).map(|place| Bytes::copy_from_slice(&place.get().value)))
    }

    fn epoch(&self, _ticket: &Ticket) -> Option<Epoch> {
        Some(self.epoch)
    }

    fn report(&self) {
        gauge!(metric::MEMORY_RECORDS.name).set(self.len() as f64);
        for kind in [Kind::Token, Kind::Key, Kind::Interval] {
            let name = kind.as_str();
            gauge!(metric::MEMORY_BYTES.name, "kind" => name).set(self.quotas.used(kind) as f64);
            gauge!(metric::MEMORY_RESPONSES.name, "kind" => name).set(self.quotas.responses(kind) as f64);
            counter!(metric::MEMORY_DROPPED.name, "kind" => name).absolute(self.quotas.dropped(kind));
            gauge!(metric::MEMORY_LIMIT.name, "kind" => name).set(self.quotas.quota(kind) as f64);
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("limit", &self.quotas.limit).finish_non_exhaustive()
    }
}

/// Locks a shard, also after a panic: a verb that panicked left no partial change.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
