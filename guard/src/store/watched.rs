//! The store as a guard uses it: measures each command, and detects outages.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::metered::{StoreMetrics, Verb};
use super::outage::Outage;
use super::{Admission, Bytes, Compared, Epoch, Room, Store, StoreError};
use crate::clock::Clock;
use crate::metrics;
use crate::ticket::Ticket;

/// The store of one guard. It has the verbs of [`Store`] without being one: a wrapper behind the trait would allocate a future for each
/// command. Its verbs are plain functions: an async one would keep its arguments a second time in the future of every request.
pub(crate) struct WatchedStore {
    store: Arc<dyn Store>,
    /// `None` without a recorder: measuring would waste two clock readings per command.
    metrics: Option<StoreMetrics>,
    outage: Outage,
}

impl WatchedStore {
    /// Watches a store, by this clock.
    pub(crate) fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        let metrics = metrics::is_recorded().then(StoreMetrics::new);
        Self { store, metrics, outage: Outage::new(clock) }
    }

    /// Counts a request that failed because of the store. Logs its error, at most once every ten seconds.
    pub(crate) fn request_failed(&self, error: &StoreError) {
        self.outage.request_failed(error);
    }

    /// Logs an error of background work, at most once every ten seconds.
    pub(crate) fn step_failed(&self, error: &StoreError) {
        self.outage.step_failed(error);
    }

    /// See [`Store::insert`].
    pub(crate) fn insert<'a>(
        &'a self,
        ticket: &'a Ticket,
        value: &'a [u8],
        ttl: Duration,
        room: Room,
    ) -> impl Future<Output = Result<Option<Bytes>, StoreError>> {
        self.watch(Verb::Insert, self.store.insert(ticket, value, ttl, room))
    }

    /// See [`Store::swap`].
    pub(crate) fn swap<'a>(
        &'a self,
        ticket: &'a Ticket,
        held: &'a [u8],
        value: &'a [u8],
        ttl: Duration,
        room: Room,
        epoch: Option<Epoch>,
    ) -> impl Future<Output = Result<Compared, StoreError>> {
        self.watch(Verb::Swap, self.store.swap(ticket, held, value, ttl, room, epoch))
    }

    /// See [`Store::remove`].
    pub(crate) fn remove<'a>(
        &'a self,
        ticket: &'a Ticket,
        held: &'a [u8],
        epoch: Option<Epoch>,
    ) -> impl Future<Output = Result<Compared, StoreError>> {
        self.watch(Verb::Remove, self.store.remove(ticket, held, epoch))
    }

    /// See [`Store::look`].
    pub(crate) fn look<'a>(&'a self, ticket: &'a Ticket) -> impl Future<Output = Result<Option<Bytes>, StoreError>> {
        self.watch(Verb::Look, self.store.look(ticket))
    }

    /// See [`Store::epoch`].
    pub(crate) fn epoch(&self, ticket: &Ticket) -> Option<Epoch> {
        self.store.epoch(ticket)
    }

    /// See [`Store::ask_epoch`].
    pub(crate) async fn ask_epoch(&self, ticket: &Ticket) -> Result<Epoch, StoreError> {
        self.watch(Verb::Epoch, self.store.ask_epoch(ticket)).await
    }

    /// See [`Store::admission`].
    pub(crate) fn admission(&self, ticket: &Ticket) -> Admission {
        self.store.admission(ticket)
    }

    /// See [`Store::ping`].
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        self.watch(Verb::Ping, self.store.ping()).await
    }

    /// See [`Store::reconnected`].
    pub(crate) async fn reconnected(&self) {
        self.store.reconnected().await;
    }

    /// See [`Store::report`].
    pub(crate) fn report(&self) {
        self.store.report();
    }

    async fn watch<T>(
        &self,
        verb: Verb,
        command: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let done = match &self.metrics {
            Some(metrics) => metrics.time(verb, command).await,
            None => command.await,
        };
        match &done {
            Ok(_) => self.outage.answered(),
            Err(error) => self.outage.failed(error),
        }
        done
    }
}

#[cfg(test)]
impl WatchedStore {
    /// Watches a store, by the system clock.
    pub(crate) fn of(store: impl Store) -> Self {
        Self::new(Arc::new(store), Clock::system())
    }
}
