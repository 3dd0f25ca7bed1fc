//! The store in this process's memory: nothing to install, and nothing survives a restart.

mod home;
mod record;
mod room;
mod shares;

use std::collections::HashMap;
use std::collections::hash_map::{Entry, OccupiedEntry};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{counter, gauge};
use onceward_api::metric;

pub(crate) use self::home::Home;
use self::record::{Record, Weight};
use self::shares::{Missing, Shares};
use super::{Bytes, Compared, Epoch, Store, StoreError, Taken, async_trait};
use crate::clock::Clock;
use crate::random::random;
use crate::record::DoneRecord;
use crate::ticket::{Kind, Ticket};

/// How many parts the map has. Each has a lock of its own, held for one verb or for sweeping that one part.
const SHARDS: usize = 256;
/// How many old records each new one looks at, on average, to clear away what is over.
const SWEEP_PER_INSERT: usize = 8;
/// How often, at most, a full store is swept from end to end before it refuses.
const FULL_SWEEP_EVERY: u64 = 1_000;

/// A store that is gone when the process ends. Its [`epoch`](Store::epoch) changes with every instance, so that tokens
/// of an earlier one are told apart from used ones.
///
/// Each instance is a store of its own. Build the guard before `HttpServer::new` and move a clone into the closure: the closure runs
/// once in every worker, and a store that is built there knows nothing of what the other workers have accepted. `Protect` and
/// `token_route` panic where they find that, and the server does not start.
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    shares: Shares,
    /// What is left of a value without its response: a value of that form can make room. The store knows no more of values.
    stub: fn(&[u8]) -> Option<Vec<u8>>,
    clock: Clock,
    epoch: Epoch,
    last_full_sweep: AtomicU64,
    home: std::sync::Arc<Home>,
}

/// One part of the map.
#[derive(Default)]
struct Shard {
    records: HashMap<Ticket, Record>,
    /// How many records the new ones since the last sweep have paid for looking at.
    paid: usize,
}

impl Memory {
    /// The limit that [`new`](Self::new) sets: 256 MiB.
    pub const DEFAULT_LIMIT: usize = 256 * 1024 * 1024;

    /// An empty store with the default limit.
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// An empty store that gets the time from `clock`.
    pub fn with_clock(clock: Clock) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shares: Shares::of(Self::DEFAULT_LIMIT),
            stub: DoneRecord::without_reply,
            clock,
            epoch: random(),
            last_full_sweep: AtomicU64::new(0),
            home: Home::here(),
        }
    }

    /// Sets the limit in bytes. Tokens may fill one half of it, keys three eighths and intervals one eighth.
    ///
    /// Everything that is stored counts, a record with at least 256 bytes, so that a token or a claim always has the room for the record
    /// of its run. Stored responses take what is left of a share: when it is full, the oldest responses are dropped first, and a
    /// response that does not fit is not stored. A duplicate of such a run receives `reply_not_kept` with that reason, and does not
    /// run. Records themselves are never dropped before they expire: a share that is full of them rejects new ones.
    ///
    /// The process needs more than that: for requests and responses in flight, and for what its allocator does not return at once.
    /// Plan with twice the limit and 64 MiB.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.shares.limit = bytes;
        self
    }

    /// How many records are held, those included whose time is over and which have not been cleared away yet.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).records.len()).sum()
    }

    /// Whether no record is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes out what is there.
    fn pick(&self, ticket: &Ticket) -> Option<Bytes> {
        let mut shard = self.shard(ticket);
        let place = self.live(&mut shard, ticket)?;
        Some(self.evacuate(place).value.into())
    }

    fn shard(&self, ticket: &Ticket) -> MutexGuard<'_, Shard> {
        lock(&self.shards[usize::from(ticket.digest()[0]) % SHARDS])
    }

    /// Clears away a record.
    fn evacuate(&self, place: OccupiedEntry<'_, Ticket, Record>) -> Record {
        let (ticket, record) = place.remove_entry();
        self.shares.release(ticket.kind(), record.weight());
        record
    }

    /// Gives the place of what is live under a ticket, having cleared away what is not.
    fn live<'a>(&self, shard: &'a mut Shard, ticket: &Ticket) -> Option<OccupiedEntry<'a, Ticket, Record>> {
        let Entry::Occupied(place) = shard.records.entry(*ticket) else { return None };
        if place.get().is_live(self.clock.steady()) {
            return Some(place);
        }
        self.evacuate(place);
        None
    }

    /// Writes where nothing live is, and otherwise gives what is there.
    fn write(&self, ticket: &Ticket, value: &[u8], ttl: Duration, most: usize) -> Result<Option<Bytes>, Missing> {
        let now = self.clock.steady();
        let mut shard = self.shard(ticket);
        self.sweep_a_slice(&mut shard, now);
        let place = shard.records.entry(*ticket);
        // A record that is over makes room for the one that comes in its place.
        let out = match &place {
            Entry::Occupied(there) if there.get().is_live(now) => {
                return Ok(Some(Bytes::copy_from_slice(&there.get().value)));
            }
            Entry::Occupied(there) => Some(there.get()),
            Entry::Vacant(_) => None,
        };
        let weight = self.weigh(value);
        self.shares.exchange(ticket, out.map(Record::weight), weight, most)?;
        place.insert_entry(Record::new(value, weight.turn, now, ttl));
        Ok(None)
    }

    fn compare_and_write(
        &self,
        ticket: &Ticket,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
    ) -> Result<Compared, Missing> {
        let mut shard = self.shard(ticket);
        let Some(mut place) = self.live(&mut shard, ticket) else { return Ok(Compared::Gone) };
        let there = place.get_mut();
        if *there.value != *held {
            return Ok(Compared::Found(Bytes::copy_from_slice(&there.value)));
        }
        let weight = self.weigh(value);
        self.shares.exchange(ticket, Some(there.weight()), weight, self.shares.share(ticket.kind()))?;
        *there = Record::new(value, weight.turn, self.clock.steady(), ttl);
        Ok(Compared::Done)
    }

    fn weigh(&self, value: &[u8]) -> Weight {
        Weight::of(value, || (self.stub)(value).map(|_| self.shares.next_turn()))
    }

    /// Sweeps one part as soon as its new records have paid for it, so that what is over never piles up.
    fn sweep_a_slice(&self, shard: &mut Shard, now: u64) {
        shard.paid += SWEEP_PER_INSERT;
        if shard.paid >= shard.records.len() {
            self.sweep(shard, now);
        }
    }

    /// Sweeps every part, one after the other, unless that was done a moment ago.
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
                self.shares.release(ticket.kind(), record.weight());
            }
            keep
        });
    }
}

#[async_trait]
impl Store for Memory {
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        let most = self.shares.share(ticket.kind());
        self.fit(ticket.kind(), value, &|value| self.write(ticket, value, ttl, most))
    }

    async fn take(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        Ok(self.pick(ticket))
    }

    async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration) -> Result<Compared, StoreError> {
        self.fit(ticket.kind(), value, &|value| self.compare_and_write(ticket, held, value, ttl))
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8]) -> Result<Compared, StoreError> {
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

    async fn put_back(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        let kind = ticket.kind();
        let most = |value: &[u8]| match (self.stub)(value) {
            Some(_) => self.shares.share(kind),
            None => self.shares.share_to_put_back(kind),
        };
        self.fit(kind, value, &|value| self.write(ticket, value, ttl, most(value)))
    }

    fn epoch(&self, _ticket: &Ticket) -> Option<Epoch> {
        Some(self.epoch)
    }

    async fn take_under(&self, ticket: &Ticket, epoch: Epoch) -> Result<Taken, StoreError> {
        Ok(Taken { found: self.pick(ticket), is_of_epoch: epoch == self.epoch })
    }

    fn report(&self) {
        gauge!(metric::MEMORY_RECORDS.name).set(self.len() as f64);
        for kind in [Kind::Token, Kind::Key, Kind::Interval] {
            let name = kind.as_str();
            gauge!(metric::MEMORY_BYTES.name, "kind" => name).set(self.shares.used(kind) as f64);
            gauge!(metric::MEMORY_RESPONSES.name, "kind" => name).set(self.shares.responses(kind) as f64);
            counter!(metric::MEMORY_DROPPED.name, "kind" => name).absolute(self.shares.dropped(kind));
            gauge!(metric::MEMORY_LIMIT.name, "kind" => name).set(self.shares.share(kind) as f64);
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
        f.debug_struct("Memory").field("limit", &self.shares.limit).finish_non_exhaustive()
    }
}

/// A verb that panicked has changed nothing halfway, so its lock is as good as any.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
