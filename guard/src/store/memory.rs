//! The store in this process's memory: no installation, and no data survives a restart.

mod entry;
mod eviction;
mod origin_thread;
mod quota;
mod shard;
mod sweep;
mod ticket_hasher;
mod value;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{counter, gauge};
use onceward_api::metric;

use self::entry::{EntryWeight, MemoryEntry};
pub(crate) use self::origin_thread::OriginThread;
use self::quota::{Quotas, RecordAddress, Shortage};
use self::shard::{Place, Shard};
use self::sweep::SearchLimits;
use self::ticket_hasher::{TicketHash, TicketHasher};
use super::{Bytes, Compared, Epoch, Room, Store, StoreError, async_trait};
use crate::clock::Clock;
use crate::random::random;
use crate::record::DoneRecord;
use crate::ticket::{Kind, Ticket};

/// The number of shards of the map. Each has its own lock, held for one verb, or while a full store searches
/// the shard. A shard that grows moves its records while its lock is held:
/// with ten million records, a shard has about ten thousand, which takes less than a millisecond.
const SHARDS: usize = 1_024;

/// A store in memory, which is lost when the process ends. Each instance has a different [`epoch`](Store::epoch), so tokens of an
/// earlier instance can be distinguished from used ones.
///
/// Instances do not share records. Build the guard before `HttpServer::new` and move a clone into the closure: the closure runs once in
/// every worker, and a store that is built there does not see what the other workers have accepted. `Protect` and `token_route` panic
/// if they detect that, and the server does not start.
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    hasher: TicketHasher,
    quotas: Quotas,
    /// Returns whether a value has a response that can be dropped to free memory. The store knows nothing else about values.
    has_response: fn(&[u8]) -> bool,
    /// Returns such a value without its response.
    stub: fn(&[u8]) -> Option<Vec<u8>>,
    clock: Clock,
    epoch: Epoch,
    search_limits: SearchLimits,
    /// When a search of the full store last freed nothing, or examined every slot. Zero if none has.
    last_search: AtomicU64,
    /// The shard with which the next search begins.
    next_searched_shard: AtomicUsize,
    origin: std::sync::Arc<OriginThread>,
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
            hasher: TicketHasher::new(),
            quotas: Quotas::of(Self::DEFAULT_LIMIT),
            has_response: DoneRecord::has_reply,
            stub: DoneRecord::without_reply,
            clock,
            epoch: random(),
            search_limits: SearchLimits::default(),
            last_search: AtomicU64::new(0),
            next_searched_shard: AtomicUsize::new(0),
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
        (0..self.shards.len()).map(|number| self.lock_shard(number).len()).sum()
    }

    /// Returns whether the store has no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Locks a shard, also after a panic: a verb that panicked left no partial change.
    fn lock_shard(&self, number: usize) -> MutexGuard<'_, Shard> {
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the hash of a ticket, and its locked shard.
    fn shard(&self, ticket: &Ticket) -> (TicketHash, MutexGuard<'_, Shard>) {
        let hash = self.hasher.hash(ticket);
        (hash, self.lock_shard(hash.shard(SHARDS)))
    }

    /// Removes a record and releases its bytes from the quota.
    fn evacuate(&self, shard: &mut Shard, place: Place) -> EntryWeight {
        let removed = shard.remove(place);
        self.quotas.release(removed.ticket.kind(), removed.weight());
        removed.weight()
    }

    /// Removes the record in a slot and releases its bytes from the quota.
    fn remove_slot(&self, shard: &mut Shard, slot: u32) -> Option<EntryWeight> {
        let hash = self.hasher.hash(&shard.entry(slot)?.ticket);
        let place = shard.find_slot(hash, slot)?;
        Some(self.evacuate(shard, place))
    }

    /// Returns the place of the live record of a ticket, and the record; removes an expired one.
    fn live<'a>(
        &self,
        shard: &'a mut Shard,
        hash: TicketHash,
        ticket: &Ticket,
        now: u64,
    ) -> Option<(Place, &'a MemoryEntry)> {
        let place = shard.find(hash, ticket)?;
        if !shard.entry(place.slot)?.is_live(now) {
            self.evacuate(shard, place);
            return None;
        }
        Some((place, shard.entry(place.slot)?))
    }

    /// Writes if there is no live record; otherwise returns the existing value.
    fn write(&self, ticket: &Ticket, value: &[u8], ttl: Duration, room: Room) -> Result<Option<Bytes>, Shortage> {
        let now = self.clock.steady();
        let (hash, mut shard) = self.shard(ticket);
        self.sweep(&mut shard, now);
        let place = shard.find(hash, ticket);
        let there = place.and_then(|place| shard.entry(place.slot));
        if let Some(there) = there.filter(|there| there.is_live(now)) {
            return Ok(Some(there.value.to_bytes()));
        }
        // The bytes of an expired record are released when the new one takes its place.
        let out = there.map(MemoryEntry::weight);
        let slot = place.map_or_else(|| shard.next_slot(), |place| place.slot);
        let weight = self.count(ticket.kind(), hash, slot, out, value, room)?;
        let entry = MemoryEntry::new(*ticket, value, weight.eviction_seq, now, ttl);
        match place {
            Some(place) => shard.replace(place.slot, entry),
            None => shard.insert(hash, entry),
        }
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
        let now = self.clock.steady();
        let (hash, mut shard) = self.shard(ticket);
        let Some((place, there)) = self.live(&mut shard, hash, ticket, now) else { return Ok(Compared::Gone) };
        if *there.value != *held {
            return Ok(Compared::Found(there.value.to_bytes()));
        }
        let weight = self.count(ticket.kind(), hash, place.slot, Some(there.weight()), value, room)?;
        shard.replace(place.slot, MemoryEntry::new(*ticket, value, weight.eviction_seq, now, ttl));
        Ok(Compared::Done)
    }

    /// Counts a value that is written in place of another, if it has room.
    fn count(
        &self,
        kind: Kind,
        hash: TicketHash,
        slot: u32,
        out: Option<EntryWeight>,
        value: &[u8],
        room: Room,
    ) -> Result<EntryWeight, Shortage> {
        let weight = EntryWeight::of(value, || (self.has_response)(value).then(|| self.quotas.next_eviction_seq()));
        let address = RecordAddress { shard: hash.shard(SHARDS) as u32, slot };
        self.quotas.exchange(kind, address, out, weight, self.quotas.most(kind, value, room))?;
        Ok(weight)
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
        let now = self.clock.steady();
        let (hash, mut shard) = self.shard(ticket);
        let Some((place, there)) = self.live(&mut shard, hash, ticket, now) else { return Ok(Compared::Gone) };
        if *there.value != *held {
            return Ok(Compared::Found(there.value.to_bytes()));
        }
        self.evacuate(&mut shard, place);
        Ok(Compared::Done)
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        let now = self.clock.steady();
        let (hash, mut shard) = self.shard(ticket);
        Ok(self.live(&mut shard, hash, ticket, now).map(|(_, there)| there.value.to_bytes()))
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

#[cfg(test)]
mod tests;
