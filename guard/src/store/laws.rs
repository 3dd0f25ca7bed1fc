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

use super::{Bytes, Compared, Epoch, Store, StoreError, Taken};
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
        self.one_take_gets_it().await;
        self.one_swap_wins().await;
        self.a_stale_hold_changes_nothing().await;
        self.what_is_over_is_absent_for_every_verb().await;
        self.every_write_has_an_expiry_of_its_own().await;
        self.tickets_are_independent().await;
        self.values_are_any_bytes().await;
        self.what_was_taken_can_be_put_back().await;
        self.nothing_is_swapped_under_an_epoch_that_is_over().await;
        self.whoever_takes_is_told_in_which_epoch().await;
    }

    /// Checks that a swap within the current epoch is an ordinary swap; within another epoch it changes nothing.
    pub async fn nothing_is_swapped_under_an_epoch_that_is_over(&self) {
        let ticket = self.with(b"held", LONG).await;
        let (epoch, other) = self.epochs(&ticket).await;
        let swapped = answered(self.store.swap_under(&ticket, other, b"held", b"new", LONG).await);
        owe!("a swap under another epoch is told so", swapped, None);
        owe!("a swap under another epoch changes nothing", self.look(&ticket).await, Some(Bytes::from_static(b"held")));
        let swapped = answered(self.store.swap_under(&ticket, epoch, b"held", b"new", LONG).await);
        owe!("a swap under the epoch that lasts is done", swapped, Some(Compared::Done));
        owe!("what was swapped is there", self.look(&ticket).await, Some(Bytes::from_static(b"new")));
        let swapped = answered(self.store.swap_under(&ticket, epoch, b"held", b"more", LONG).await);
        owe!("a swap gives what is there", swapped, Some(Compared::Found(Bytes::from_static(b"new"))));
    }

    /// Checks that a take reports whether the requested epoch is current.
    pub async fn whoever_takes_is_told_in_which_epoch(&self) {
        for is_of_epoch in [true, false] {
            let ticket = self.with(b"it", LONG).await;
            let (epoch, other) = self.epochs(&ticket).await;
            let asked = if is_of_epoch { epoch } else { other };
            for found in [Some(Bytes::from_static(b"it")), None] {
                let taken = answered(self.store.take_under(&ticket, asked).await);
                owe!("whoever takes is told in which epoch", taken, Taken { found, is_of_epoch });
            }
        }
    }

    /// Returns the current epoch, and another one.
    async fn epochs(&self, ticket: &Ticket) -> (Epoch, Epoch) {
        let epoch = answered(self.store.ask_epoch(ticket).await);
        owe!("an epoch that was asked for is known", self.store.epoch(ticket), Some(epoch));
        (epoch, epoch.map(|byte| !byte))
    }

    /// Checks that exactly one of many concurrent inserts writes; all others receive its value.
    pub async fn one_insert_wins(&self) {
        for _ in 0..self.rounds {
            let ticket = fresh(Kind::Key);
            let answers = self
                .race(move |store, racer| async move { store.insert(&ticket, &racer.to_be_bytes(), LONG).await })
                .await;
            let winners: Vec<_> = (0..RACERS).filter(|racer| answers[*racer].is_none()).collect();
            owe!("exactly one of many inserts wins", winners.len(), 1);
            let written = Bytes::copy_from_slice(&winners[0].to_be_bytes());
            let told = answers.iter().flatten().filter(|told| **told == written).count();
            owe!("an insert that finds something gives it", told, RACERS - 1);
            owe!("the winner's value is there", self.look(&ticket).await, Some(written));
        }
    }

    /// Checks that exactly one of many concurrent takes receives the value.
    pub async fn one_take_gets_it(&self) {
        for _ in 0..self.rounds {
            let ticket = self.with(b"it", LONG).await;
            let answers = self.race(move |store, _| async move { store.take(&ticket).await }).await;
            let got: Vec<_> = answers.into_iter().flatten().collect();
            owe!("exactly one of many takes gets it", got, vec![Bytes::from_static(b"it")]);
            owe!("what was taken is gone", self.look(&ticket).await, None);
        }
    }

    /// Checks that exactly one of many concurrent swaps with the same held value succeeds.
    pub async fn one_swap_wins(&self) {
        for _ in 0..self.rounds {
            let ticket = self.with(b"held", LONG).await;
            let answers = self
                .race(move |store, racer| async move { store.swap(&ticket, b"held", &racer.to_be_bytes(), LONG).await })
                .await;
            let done = answers.iter().filter(|answer| **answer == Compared::Done).count();
            owe!("exactly one of many swaps wins", done, 1);
            let answers =
                self.race(move |store, racer| async move { store.remove(&ticket, &racer.to_be_bytes()).await });
            let done = answers.await.iter().filter(|answer| **answer == Compared::Done).count();
            owe!("exactly one hold is the right one", done, 1);
        }
    }

    /// Checks that a caller with a stale held value receives the current value and changes nothing.
    pub async fn a_stale_hold_changes_nothing(&self) {
        let ticket = self.with(b"new", LONG).await;
        let found = Compared::Found(Bytes::from_static(b"new"));
        owe!("a stale swap finds", self.swap(&ticket, b"old", b"mine", LONG).await, found.clone());
        owe!("a stale remove finds", self.remove(&ticket, b"old").await, found.clone());
        owe!("part of what is there is not it", self.remove(&ticket, b"ne").await, found.clone());
        owe!("nothing is not what is there", self.remove(&ticket, b"").await, found);
        owe!("a stale hold changes nothing", self.look(&ticket).await, Some(Bytes::from_static(b"new")));
        let nothing = fresh(Kind::Key);
        owe!("where nothing is, a swap writes nothing", self.swap(&nothing, b"", b"x", LONG).await, Compared::Gone);
        owe!("where nothing is, a remove says so", self.remove(&nothing, b"").await, Compared::Gone);
        owe!("and nothing is there afterwards", self.look(&nothing).await, None);
    }

    /// Checks that an expired record is absent for every verb, and a new one can be inserted in its place.
    pub async fn what_is_over_is_absent_for_every_verb(&self) {
        let mut tickets = Vec::new();
        for _ in 0..5 {
            tickets.push(self.with(b"over", self.short).await);
        }
        self.pass(self.short * 2).await;
        owe!("what is over cannot be seen", self.look(&tickets[0]).await, None);
        owe!("what is over cannot be taken", self.store.take(&tickets[1]).await.ok(), Some(None));
        owe!("nor swapped", self.swap(&tickets[2], b"over", b"x", LONG).await, Compared::Gone);
        owe!("nor removed", self.remove(&tickets[3], b"over").await, Compared::Gone);
        owe!("and its place is free", self.insert(&tickets[4], b"next", LONG).await, None);
    }

    /// Checks that insert, swap, renewal and put-back each set an expiry, and no other verb extends one.
    pub async fn every_write_has_an_expiry_of_its_own(&self) {
        let shortened = self.with(b"a", LONG).await;
        owe!("a swap is done", self.swap(&shortened, b"a", b"b", self.short).await, Compared::Done);
        let renewed = self.with(b"a", self.short).await;
        owe!("the same bytes renew", self.swap(&renewed, b"a", b"a", LONG).await, Compared::Done);
        let cut = self.with(b"a", LONG).await;
        owe!("the same bytes may shorten", self.swap(&cut, b"a", b"a", self.short).await, Compared::Done);
        let found = self.with(b"a", self.short).await;
        owe!("an insert that finds", self.insert(&found, b"b", LONG).await, Some(Bytes::from_static(b"a")));
        let back = fresh(Kind::Token);
        owe!("putting back", self.store.put_back(&back, b"a", self.short).await.ok(), Some(None));
        self.pass(self.short * 2).await;
        owe!("a swap sets its own expiry", self.look(&shortened).await, None);
        owe!("renewing prolongs", self.look(&renewed).await, Some(Bytes::from_static(b"a")));
        owe!("renewing may shorten", self.look(&cut).await, None);
        owe!("an insert that finds something does not prolong it", self.look(&found).await, None);
        owe!("putting back sets an expiry", self.look(&back).await, None);
    }

    /// Checks that a change to one ticket does not affect another, nor the same digest of another kind.
    pub async fn tickets_are_independent(&self) {
        let name = fresh(Kind::Token).digest().to_vec();
        for kind in Kind::ALL {
            let inserted = self.insert(&Ticket::of(kind, &name), kind.as_str().as_bytes(), LONG).await;
            owe!("kinds do not share a ticket", inserted, None);
        }
        owe!("one can be taken", self.store.take(&Ticket::of(Kind::Token, &name)).await.is_ok(), true);
        for kind in [Kind::Key, Kind::Interval, Kind::Secret] {
            let there = self.look(&Ticket::of(kind, &name)).await;
            owe!("the others stay", there, Some(Bytes::from_static(kind.as_str().as_bytes())));
        }
    }

    /// Checks that values are arbitrary bytes, and are returned unchanged.
    pub async fn values_are_any_bytes(&self) {
        let every: Vec<u8> = (0..=u8::MAX).collect();
        let large = vec![0xA5; 256 * 1024];
        for value in [&b""[..], b"\0", b"\r\n$-1\r\n", "ü€".as_bytes(), &[0xFF, 0xFE], &every, &large] {
            let ticket = self.with(value, LONG).await;
            let value = Bytes::copy_from_slice(value);
            owe!("what is inserted can be seen", self.look(&ticket).await, Some(value.clone()));
            owe!("and swapped by its bytes", self.swap(&ticket, &value, b"x", LONG).await, Compared::Done);
            owe!("and back", self.swap(&ticket, b"x", &value, LONG).await, Compared::Done);
            owe!("and taken", self.store.take(&ticket).await.ok(), Some(Some(value)));
        }
    }

    /// Checks that a put-back is an insert: it never overwrites a record that was written in the meantime.
    pub async fn what_was_taken_can_be_put_back(&self) {
        let ticket = self.with(b"it", LONG).await;
        for _ in 0..2 {
            let taken = self.store.take(&ticket).await.ok().flatten();
            owe!("it can be taken", taken, Some(Bytes::from_static(b"it")));
            owe!("it can be put back", self.store.put_back(&ticket, b"it", LONG).await.ok(), Some(None));
        }
        let found = self.store.put_back(&ticket, b"mine", LONG).await.ok().flatten();
        owe!("putting back covers nothing", found, Some(Bytes::from_static(b"it")));
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
        answered(self.store.insert(ticket, value, ttl).await)
    }

    async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration) -> Compared {
        answered(self.store.swap(ticket, held, value, ttl).await)
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8]) -> Compared {
        answered(self.store.remove(ticket, held).await)
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
