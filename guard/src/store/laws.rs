//! The contract of every store, as callable tests.
//!
//! ```
//! use onceward::store::Memory;
//! use onceward::store::laws::Laws;
//!
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! Laws::of(Memory::new()).hold().await;
//! # });
//! ```
//!
//! The tests need a multi-threaded runtime, since some of them race.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Bytes, Compared, Epoch, Room, Store, StoreError};
use crate::clock::ManualClock;
use crate::ticket::{Kind, Ticket};

/// The number of callers that race for one ticket.
const RACERS: usize = 32;
/// A time to live that does not expire during a test.
const LONG: Duration = Duration::from_secs(60);
/// Default time to live of a record whose expiry a test waits for.
const SHORT: Duration = Duration::from_millis(60);

type Pause = Box<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Checks the contract of one store.
pub struct Laws {
    store: Arc<dyn Store>,
    pause: Pause,
    rounds: usize,
    short: Duration,
}

/// Asserts one equality; the panic message names the law that was broken.
macro_rules! owe {
    ($law:literal, $left:expr, $right:expr) => {
        assert_eq!($left, $right, "a store owes this: {}", $law)
    };
}

impl Laws {
    /// Creates the tests for a store that uses real time.
    pub fn of(store: impl Store) -> Self {
        let pause: Pause = Box::new(|duration| Box::pin(tokio::time::sleep(duration)));
        Self { store: Arc::new(store), pause, rounds: 20, short: SHORT }
    }

    /// Creates the tests for a store that reads its time from `clock`.
    pub fn with_clock(store: impl Store, clock: &ManualClock) -> Self {
        let clock = clock.clone();
        Self {
            pause: Box::new(move |duration| {
                clock.advance(duration);
                Box::pin(std::future::ready(()))
            }),
            ..Self::of(store)
        }
    }

    /// Sets how often each race is repeated. Default: 20.
    #[must_use]
    pub fn rounds(mut self, rounds: usize) -> Self {
        self.rounds = rounds;
        self
    }

    /// Sets the time to live of records whose expiry is waited for. Default: 60 ms. A store that may need longer to execute a few verbs
    /// needs a longer one.
    #[must_use]
    pub fn short(mut self, short: Duration) -> Self {
        self.short = short;
        self
    }

    /// Runs all tests.
    ///
    /// # Panics
    /// If a law does not hold; the message names it.
    pub async fn hold(self) {
        self.one_insert_wins().await;
        self.one_remove_wins().await;
        self.one_swap_wins().await;
        self.one_of_remove_and_swap_wins().await;
        self.another_value_is_not_changed().await;
        self.expired_record_is_absent_for_every_verb().await;
        self.every_write_sets_its_own_expiry().await;
        self.tickets_are_independent().await;
        self.values_are_any_bytes().await;
        self.removed_record_can_be_inserted_again().await;
        self.nothing_is_changed_in_another_epoch().await;
    }

    /// Checks that exactly one of many concurrent inserts writes; all others receive its value.
    pub async fn one_insert_wins(&self) {
        for _ in 0..self.rounds {
            let ticket = fresh(Kind::Key);
            let insert = move |store: Arc<dyn Store>, racer: usize| async move {
                store.insert(&ticket, &racer.to_be_bytes(), LONG, Room::Free).await
            };
            let answers = self.race(insert).await;
            let winners: Vec<_> = (0..RACERS).filter(|racer| answers[*racer].is_none()).collect();
            owe!("exactly one of many inserts wins", winners.len(), 1);
            let written = Bytes::copy_from_slice(&winners[0].to_be_bytes());
            let told = answers.iter().flatten().filter(|told| **told == written).count();
            owe!("an insert that finds a record returns it", told, RACERS - 1);
            owe!("the winner's value is there", self.look(&ticket).await, Some(written));
        }
    }

    /// Checks that exactly one of many concurrent removes deletes the record; to all others it is gone.
    pub async fn one_remove_wins(&self) {
        for _ in 0..self.rounds {
            let ticket = self.with(b"it", LONG).await;
            let answers = self.race(move |store, _| async move { store.remove(&ticket, b"it", None).await }).await;
            owe!("exactly one of many removes wins", count(&answers, &Compared::Done), 1);
            owe!("the record is gone for all others", count(&answers, &Compared::Gone), RACERS - 1);
            owe!("a removed record is gone", self.look(&ticket).await, None);
        }
    }

    /// Checks that exactly one of many concurrent swaps with the same held value succeeds.
    pub async fn one_swap_wins(&self) {
        for _ in 0..self.rounds {
            let ticket = self.with(b"held", LONG).await;
            let swap = move |store: Arc<dyn Store>, racer: usize| async move {
                store.swap(&ticket, b"held", &racer.to_be_bytes(), LONG, Room::Free, None).await
            };
            owe!("exactly one of many swaps wins", count(&self.race(swap).await, &Compared::Done), 1);
            let remove = move |store: Arc<dyn Store>, racer: usize| async move {
                store.remove(&ticket, &racer.to_be_bytes(), None).await
            };
            owe!("exactly one held value is the right one", count(&self.race(remove).await, &Compared::Done), 1);
        }
    }

    /// Checks that of concurrent removes and swaps with the same held value exactly one succeeds, and that a remove leaves the value of
    /// a swap where it is.
    pub async fn one_of_remove_and_swap_wins(&self) {
        for _ in 0..self.rounds {
            let ticket = self.with(b"held", LONG).await;
            let verb = move |store: Arc<dyn Store>, racer: usize| async move {
                match racer % 2 {
                    0 => store.remove(&ticket, b"held", None).await,
                    _ => store.swap(&ticket, b"held", b"claim", LONG, Room::Reserved, None).await,
                }
            };
            let answers = self.race(verb).await;
            owe!("exactly one of removes and swaps wins", count(&answers, &Compared::Done), 1);
            let is_swapped = answers.iter().skip(1).step_by(2).any(|answer| *answer == Compared::Done);
            let there = is_swapped.then_some(Bytes::from_static(b"claim"));
            owe!("the value of a swap stays", self.look(&ticket).await, there);
        }
    }

    /// Checks that a caller with another held value receives the current value and changes nothing.
    pub async fn another_value_is_not_changed(&self) {
        let ticket = self.with(b"new", LONG).await;
        let found = Compared::Found(Bytes::from_static(b"new"));
        owe!("a swap finds another value", self.swap(&ticket, b"old", b"mine", LONG).await, found.clone());
        owe!("a remove finds another value", self.remove(&ticket, b"old").await, found.clone());
        owe!("a part of the value is another value", self.remove(&ticket, b"ne").await, found.clone());
        owe!("nothing is another value", self.remove(&ticket, b"").await, found);
        owe!("another value is not changed", self.look(&ticket).await, Some(Bytes::from_static(b"new")));
        let nothing = fresh(Kind::Key);
        owe!("a swap without a record writes nothing", self.swap(&nothing, b"", b"x", LONG).await, Compared::Gone);
        owe!("a remove without a record says so", self.remove(&nothing, b"").await, Compared::Gone);
        owe!("there is no record afterwards", self.look(&nothing).await, None);
    }

    /// Checks that an expired record is absent for every verb, and a new one can be inserted in its place.
    pub async fn expired_record_is_absent_for_every_verb(&self) {
        let mut tickets = Vec::new();
        for _ in 0..4 {
            tickets.push(self.with(b"over", self.short).await);
        }
        self.pass(self.short * 2).await;
        owe!("an expired record cannot be seen", self.look(&tickets[0]).await, None);
        owe!("nor swapped", self.swap(&tickets[1], b"over", b"x", LONG).await, Compared::Gone);
        owe!("nor removed", self.remove(&tickets[2], b"over").await, Compared::Gone);
        owe!("and its place is free", self.insert(&tickets[3], b"next", LONG).await, None);
    }

    /// Checks that insert, swap and renewal each set an expiry, and no other verb extends one.
    pub async fn every_write_sets_its_own_expiry(&self) {
        let shortened = self.with(b"a", LONG).await;
        owe!("a swap is done", self.swap(&shortened, b"a", b"b", self.short).await, Compared::Done);
        let renewed = self.with(b"a", self.short).await;
        owe!("the same bytes renew", self.swap(&renewed, b"a", b"a", LONG).await, Compared::Done);
        let cut = self.with(b"a", LONG).await;
        owe!("the same bytes may shorten", self.swap(&cut, b"a", b"a", self.short).await, Compared::Done);
        let found = self.with(b"a", self.short).await;
        owe!("an insert finds a record", self.insert(&found, b"b", LONG).await, Some(Bytes::from_static(b"a")));
        let other = self.with(b"a", self.short).await;
        let is = Compared::Found(Bytes::from_static(b"a"));
        owe!("a swap finds another value", self.swap(&other, b"b", b"c", LONG).await, is);
        let reserved = fresh(Kind::Token);
        let inserted = self.store.insert(&reserved, b"a", self.short, Room::Reserved).await;
        owe!("an insert into the reserve", answered(inserted), None);
        self.pass(self.short * 2).await;
        owe!("a swap sets its own expiry", self.look(&shortened).await, None);
        owe!("renewing extends the expiry", self.look(&renewed).await, Some(Bytes::from_static(b"a")));
        owe!("renewing may shorten the expiry", self.look(&cut).await, None);
        owe!("an insert that finds a record does not extend it", self.look(&found).await, None);
        owe!("a swap that finds another value does not extend it", self.look(&other).await, None);
        owe!("an insert into the reserve sets an expiry", self.look(&reserved).await, None);
    }

    /// Checks that a change to one ticket does not affect another, nor the same digest of another kind.
    pub async fn tickets_are_independent(&self) {
        let name = fresh(Kind::Token).digest().to_vec();
        for kind in Kind::ALL {
            let inserted = self.insert(&Ticket::of(kind, &name), kind.as_str().as_bytes(), LONG).await;
            owe!("kinds do not share a ticket", inserted, None);
        }
        let token = Ticket::of(Kind::Token, &name);
        owe!("one can be removed", self.remove(&token, Kind::Token.as_str().as_bytes()).await, Compared::Done);
        for kind in [Kind::Key, Kind::Interval, Kind::Secret] {
            let there = self.look(&Ticket::of(kind, &name)).await;
            owe!("the others stay", there, Some(Bytes::from_static(kind.as_str().as_bytes())));
        }
    }

    /// Checks that values are arbitrary bytes, and are compared and returned unchanged.
    pub async fn values_are_any_bytes(&self) {
        let every: Vec<u8> = (0..=u8::MAX).collect();
        let large = vec![0xA5; 256 * 1024];
        for value in [&b""[..], b"\0", b"\r\n$-1\r\n", "ü€".as_bytes(), &[0xFF, 0xFE], &every, &large] {
            let ticket = self.with(value, LONG).await;
            let value = Bytes::copy_from_slice(value);
            owe!("an inserted value can be seen", self.look(&ticket).await, Some(value.clone()));
            owe!("and swapped by its bytes", self.swap(&ticket, &value, b"x", LONG).await, Compared::Done);
            owe!("and back", self.swap(&ticket, b"x", &value, LONG).await, Compared::Done);
            let found = Compared::Found(value.clone());
            owe!("and is returned if another is expected", self.remove(&ticket, b"x").await, found);
            owe!("and removed by its bytes", self.remove(&ticket, &value).await, Compared::Done);
        }
    }

    /// Checks that a removed record can be inserted again, and that this never overwrites a record that was written in the meantime.
    pub async fn removed_record_can_be_inserted_again(&self) {
        let ticket = self.with(b"it", LONG).await;
        for room in [Room::Free, Room::Reserved] {
            owe!("it can be removed", self.remove(&ticket, b"it").await, Compared::Done);
            owe!("it can be inserted", answered(self.store.insert(&ticket, b"it", LONG, room).await), None);
            let found = answered(self.store.insert(&ticket, b"mine", LONG, room).await);
            owe!("an insert overwrites nothing", found, Some(Bytes::from_static(b"it")));
        }
    }

    /// Checks that a verb within the current epoch is an ordinary one, and that it changes nothing within another epoch. A store whose
    /// epoch is zero cannot tell epochs apart, and need not compare them.
    pub async fn nothing_is_changed_in_another_epoch(&self) {
        let held = Some(Bytes::from_static(b"held"));
        let ticket = self.with(b"held", LONG).await;
        let epoch = answered(self.store.ask_epoch(&ticket).await);
        owe!("an epoch that was asked for is known", self.store.epoch(&ticket), Some(epoch));
        let remove = async |held: &[u8], epoch| answered(self.store.remove(&ticket, held, Some(epoch)).await);
        let swap = async |held: &[u8], value: &[u8], epoch| {
            answered(self.store.swap(&ticket, held, value, LONG, Room::Free, Some(epoch)).await)
        };
        if epoch != Epoch::default() {
            let other = epoch.map(|byte| !byte);
            owe!("a swap in another epoch is stale", swap(b"held", b"new", other).await, Compared::Stale);
            owe!("a remove in another epoch is stale", remove(b"held", other).await, Compared::Stale);
            owe!("another value in another epoch is stale", remove(b"new", other).await, Compared::Stale);
            owe!("nothing is changed in another epoch", self.look(&ticket).await, held);
        }
        let new = Compared::Found(Bytes::from_static(b"new"));
        owe!("a swap in the current epoch is done", swap(b"held", b"new", epoch).await, Compared::Done);
        owe!("a swap in the current epoch finds another value", swap(b"held", b"more", epoch).await, new.clone());
        owe!("a remove in the current epoch finds another value", remove(b"held", epoch).await, new);
        owe!("a remove in the current epoch is done", remove(b"new", epoch).await, Compared::Done);
        owe!("a remove in the current epoch finds nothing", remove(b"new", epoch).await, Compared::Gone);
    }

    async fn pass(&self, time: Duration) {
        (self.pause)(time).await;
    }

    async fn with(&self, value: &[u8], ttl: Duration) -> Ticket {
        let ticket = fresh(Kind::Key);
        owe!("a new ticket is free", self.insert(&ticket, value, ttl).await, None);
        ticket
    }

    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Option<Bytes> {
        answered(self.store.insert(ticket, value, ttl, Room::Free).await)
    }

    async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration) -> Compared {
        answered(self.store.swap(ticket, held, value, ttl, Room::Free, None).await)
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8]) -> Compared {
        answered(self.store.remove(ticket, held, None).await)
    }

    async fn look(&self, ticket: &Ticket) -> Option<Bytes> {
        answered(self.store.look(ticket).await)
    }

    /// Runs the same verb from many callers at once, and returns each caller's result.
    async fn race<T, F>(&self, verb: impl Fn(Arc<dyn Store>, usize) -> F) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let start = Arc::new(tokio::sync::Barrier::new(RACERS));
        let racers: Vec<_> = (0..RACERS)
            .map(|racer| {
                let (start, run) = (Arc::clone(&start), verb(Arc::clone(&self.store), racer));
                tokio::spawn(async move {
                    start.wait().await;
                    run.await
                })
            })
            .collect();
        let mut answers = Vec::with_capacity(RACERS);
        for racer in racers {
            answers.push(answered(racer.await.expect("a racer does not panic")));
        }
        answers
    }
}

fn count(answers: &[Compared], wanted: &Compared) -> usize {
    answers.iter().filter(|answer| *answer == wanted).count()
}

fn answered<T>(answer: Result<T, StoreError>) -> T {
    answer.expect("the store answers")
}

fn fresh(kind: Kind) -> Ticket {
    Ticket::of(kind, uuid::Uuid::new_v4().as_bytes())
}

impl std::fmt::Debug for Laws {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Laws").field("rounds", &self.rounds).finish_non_exhaustive()
    }
}
