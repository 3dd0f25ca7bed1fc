//! The store in this process's memory: nothing to install, and nothing survives a restart.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, OccupiedEntry};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
#[cfg(feature = "actix")]
use std::{
    any::Any,
    sync::Arc,
    thread::{self, Thread, ThreadId},
};

use metrics::gauge;
use onceward_api::metric;

use super::{Bytes, Compared, Reign, Store, StoreError, Taken, async_trait};
use crate::clock::Clock;
use crate::random::random;
use crate::ticket::{Kind, Ticket};

/// How many parts the map has. Each has a lock of its own, held for one verb or for sweeping that one part.
const SHARDS: usize = 256;
/// What a record costs beside its bytes: its place in the table at the usual load, and the allocation of the value.
const OVERHEAD: usize = 144;
/// How many old records each new one looks at, on average, to clear away what is over.
const SWEEP_PER_INSERT: usize = 8;
/// How often, at most, a full store is swept from end to end before it refuses.
const FULL_SWEEP_EVERY: u64 = 1_000;

/// A store that is gone when the process ends. Its [`reign`](Store::reign) changes with every instance, so that tokens
/// of an earlier one are told apart from used ones.
///
/// Each instance is a store of its own. Build the guard before `HttpServer::new` and move a clone into the closure: the closure runs
/// once in every worker, and a store that is built there knows nothing of what the other workers have accepted. `Protect` and
/// `token_route` panic where they find that, and the server does not start.
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    limit: usize,
    used: [AtomicUsize; Kind::ALL.len()],
    clock: Clock,
    reign: Reign,
    last_full_sweep: AtomicU64,
    #[cfg(feature = "actix")]
    home: Arc<Home>,
}

/// The thread that has made a memory store. Each store has one of its own.
#[cfg(feature = "actix")]
#[derive(Debug)]
pub(crate) struct Home(ThreadId);

#[cfg(feature = "actix")]
impl Home {
    /// The home of a store, if that is in memory.
    pub(crate) fn of(store: &dyn Any) -> Option<Arc<Self>> {
        let shared = || store.downcast_ref::<Arc<Memory>>().map(Arc::as_ref);
        store.downcast_ref::<Memory>().or_else(shared).map(|memory| Arc::clone(&memory.home))
    }

    /// Whether this thread has made the store.
    pub(crate) fn is_on(&self, thread: &Thread) -> bool {
        self.0 == thread.id()
    }
}

/// One part of the map.
#[derive(Default)]
struct Shard {
    records: HashMap<Ticket, Record>,
    /// How many records the new ones since the last sweep have paid for looking at.
    paid: usize,
}

struct Record {
    value: Box<[u8]>,
    deadline: u64,
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
            limit: Self::DEFAULT_LIMIT,
            used: Default::default(),
            clock,
            reign: random(),
            last_full_sweep: AtomicU64::new(0),
            #[cfg(feature = "actix")]
            home: Arc::new(Home(thread::current().id())),
        }
    }

    /// Sets the limit in bytes. Tokens may fill one half of it, keys three eighths and intervals one eighth. A kind
    /// that is full refuses what is new; nothing that is there is ever dropped before its time.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
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
        let Entry::Occupied(place) = shard.records.entry(*ticket) else { return None };
        self.evacuate(place).map(|record| record.value.into())
    }

    fn shard(&self, ticket: &Ticket) -> MutexGuard<'_, Shard> {
        lock(&self.shards[usize::from(ticket.digest()[0]) % SHARDS])
    }

    /// Clears away a record, and gives it if its time was not over.
    fn evacuate(&self, place: OccupiedEntry<'_, Ticket, Record>) -> Option<Record> {
        let (ticket, record) = place.remove_entry();
        self.count(ticket.kind()).fetch_sub(cost(&record.value), Ordering::Relaxed);
        (record.deadline > self.clock.steady()).then_some(record)
    }

    /// Gives the place of what is live under a ticket, having cleared away what is not.
    fn live<'a>(&self, shard: &'a mut Shard, ticket: &Ticket) -> Option<OccupiedEntry<'a, Ticket, Record>> {
        let Entry::Occupied(place) = shard.records.entry(*ticket) else { return None };
        if place.get().deadline > self.clock.steady() {
            return Some(place);
        }
        self.evacuate(place);
        None
    }

    fn write(
        &self,
        ticket: &Ticket,
        value: &[u8],
        ttl: Duration,
        refuse_if_full: bool,
    ) -> Result<Option<Bytes>, StoreError> {
        let now = self.clock.steady();
        let mut shard = self.shard(ticket);
        self.sweep_a_slice(&mut shard, now);
        let place = shard.records.entry(*ticket);
        let over = match &place {
            Entry::Occupied(there) if there.get().deadline > now => {
                return Ok(Some(Bytes::copy_from_slice(&there.get().value)));
            }
            // It makes room for what comes in its place.
            Entry::Occupied(there) => cost(&there.get().value),
            Entry::Vacant(_) => 0,
        };
        let (used, cost) = (self.count(ticket.kind()), cost(value));
        let before = used.fetch_add(cost, Ordering::Relaxed);
        if before + cost - over > self.share(ticket.kind()) && refuse_if_full {
            used.fetch_sub(cost, Ordering::Relaxed);
            return Err(StoreError::not_executed(Full(ticket.kind())));
        }
        used.fetch_sub(over, Ordering::Relaxed);
        place.insert_entry(Record { value: value.into(), deadline: deadline(now, ttl) });
        Ok(None)
    }

    fn count(&self, kind: Kind) -> &AtomicUsize {
        &self.used[kind as usize]
    }

    fn share(&self, kind: Kind) -> usize {
        match kind {
            Kind::Token => self.limit / 2,
            Kind::Key => self.limit / 8 * 3,
            Kind::Interval => self.limit / 8,
            Kind::Secret => usize::MAX,
        }
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
            let keep = record.deadline > now;
            if !keep {
                self.count(ticket.kind()).fetch_sub(cost(&record.value), Ordering::Relaxed);
            }
            keep
        });
    }
}

#[async_trait]
impl Store for Memory {
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        match self.write(ticket, value, ttl, true) {
            Err(_) if self.sweep_all() => self.write(ticket, value, ttl, true),
            other => other,
        }
    }

    async fn take(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        Ok(self.pick(ticket))
    }

    async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration) -> Result<Compared, StoreError> {
        let mut shard = self.shard(ticket);
        let Some(mut place) = self.live(&mut shard, ticket) else { return Ok(Compared::Gone) };
        let there = place.get_mut();
        if *there.value != *held {
            return Ok(Compared::Found(Bytes::copy_from_slice(&there.value)));
        }
        let used = self.count(ticket.kind());
        used.fetch_add(cost(value), Ordering::Relaxed);
        used.fetch_sub(cost(&there.value), Ordering::Relaxed);
        *there = Record { value: value.into(), deadline: deadline(self.clock.steady(), ttl) };
        Ok(Compared::Done)
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
        self.write(ticket, value, ttl, false)
    }

    fn reign(&self, _ticket: &Ticket) -> Option<Reign> {
        Some(self.reign)
    }

    async fn take_under(&self, ticket: &Ticket, reign: Reign) -> Result<Taken, StoreError> {
        Ok(Taken { found: self.pick(ticket), is_of_reign: reign == self.reign })
    }

    fn report(&self) {
        gauge!(metric::MEMORY_RECORDS.name).set(self.len() as f64);
        for kind in [Kind::Token, Kind::Key, Kind::Interval] {
            let used = self.count(kind).load(Ordering::Relaxed);
            gauge!(metric::MEMORY_BYTES.name, "kind" => kind.as_str()).set(used as f64);
            gauge!(metric::MEMORY_LIMIT.name, "kind" => kind.as_str()).set(self.share(kind) as f64);
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
        f.debug_struct("Memory").field("limit", &self.limit).field("used", &self.used).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the memory store has no room for another {}: raise its limit or shorten their life", .0.as_str())]
struct Full(Kind);

fn cost(value: &[u8]) -> usize {
    OVERHEAD + value.len()
}

/// When a record that is written now is over.
fn deadline(now: u64, ttl: Duration) -> u64 {
    now.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1))
}

/// A verb that panicked has changed nothing halfway, so its lock is as good as any.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    #[cfg(feature = "laws")]
    use crate::store::laws::Laws;

    const MINUTE: Duration = Duration::from_secs(60);

    fn numbered(kind: Kind, number: usize) -> Ticket {
        Ticket::of(kind, &number.to_be_bytes())
    }

    /// Inserts until the store refuses, and says how many it took.
    async fn fill(store: &Memory, kind: Kind) -> usize {
        for number in 0.. {
            if store.insert(&numbered(kind, number), b"xy", MINUTE).await.is_err() {
                return number;
            }
        }
        unreachable!("a store with a limit refuses in the end")
    }

    #[cfg(feature = "laws")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn the_laws_hold_by_the_clock_on_the_wall() {
        Laws::of(Memory::new()).rounds(200).hold().await;
    }

    #[cfg(feature = "laws")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn the_laws_hold_by_a_clock_moved_by_hand() {
        let clock = ManualClock::new();
        Laws::with_clock(Memory::with_clock((&clock).into()), &clock).hold().await;
    }

    #[tokio::test]
    async fn a_full_store_refuses_what_is_new_and_forgets_nothing() {
        let store = Memory::new().limit(1024 * 1024);
        let taken = fill(&store, Kind::Token).await;
        assert!(taken > 1000, "{taken}");
        let error = store.insert(&numbered(Kind::Token, taken), b"xy", MINUTE).await.unwrap_err();
        assert!(matches!(error, StoreError::NotExecuted(_)), "{error}");
        for number in 0..taken {
            assert!(store.take(&numbered(Kind::Token, number)).await.unwrap().is_some(), "{number}");
        }
        assert_eq!(fill(&store, Kind::Token).await, taken, "what was taken has made room again");
    }

    #[tokio::test]
    async fn a_kind_that_is_full_leaves_the_others_their_share() {
        let store = Memory::new().limit(1024 * 1024);
        let taken = [Kind::Token, Kind::Key, Kind::Interval];
        let mut shares = Vec::new();
        for kind in taken {
            shares.push(fill(&store, kind).await);
        }
        assert!(shares[0] > shares[1] && shares[1] > shares[2] && shares[2] > 100, "{shares:?}");
        assert!(store.insert(&Ticket::of_secret(), b"secret", MINUTE).await.is_ok());
    }

    #[tokio::test]
    async fn putting_back_and_settling_are_never_refused() {
        let store = Memory::new().limit(64 * 1024);
        let ticket = numbered(Kind::Token, usize::MAX);
        store.insert(&ticket, b"xy", MINUTE).await.unwrap();
        store.take(&ticket).await.unwrap();
        fill(&store, Kind::Token).await;
        assert_eq!(store.put_back(&ticket, b"xy", MINUTE).await.unwrap(), None);
        let large = vec![0; 64 * 1024];
        assert_eq!(store.swap(&ticket, b"xy", &large, MINUTE).await.unwrap(), Compared::Done);
        assert_eq!(store.remove(&ticket, &large).await.unwrap(), Compared::Done);
    }

    #[tokio::test]
    async fn what_is_over_makes_room_at_once() {
        let clock = ManualClock::new();
        let store = Memory::with_clock((&clock).into()).limit(1024 * 1024);
        let taken = fill(&store, Kind::Token).await;
        clock.advance(MINUTE);
        assert_eq!(fill(&store, Kind::Token).await, taken);
    }

    #[tokio::test]
    async fn what_is_over_is_swept_away_in_passing() {
        let clock = ManualClock::new();
        let store = Memory::with_clock((&clock).into());
        // A steady stream, each of which lives for as long as it takes to insert a thousand.
        for number in 0..50_000 {
            store.insert(&numbered(Kind::Token, number), b"xy", Duration::from_millis(1000)).await.unwrap();
            clock.advance(Duration::from_millis(1));
        }
        assert!(store.len() < 4_000, "{} records are held, a thousand live", store.len());
        let used = store.count(Kind::Token).load(Ordering::Relaxed);
        assert_eq!(used, store.len() * (OVERHEAD + 2), "the account agrees with what is there");
    }

    #[tokio::test]
    async fn every_instance_is_a_reign_of_its_own() {
        let ticket = Ticket::of(Kind::Token, b"any");
        assert_ne!(Memory::new().reign(&ticket), Memory::new().reign(&ticket));
    }
}
