//! A wrapper that measures the duration and the failures of each verb. It forwards every method, including those with a default
//! implementation.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};
use onceward_api::metric;
use tokio::time::Instant;

use super::{Admission, Bytes, Compared, Epoch, Room, Store, StoreError, async_trait};
use crate::ticket::Ticket;

/// A store with metrics.
pub(crate) struct MeteredStore {
    store: Arc<dyn Store>,
    insert: VerbMetrics,
    swap: VerbMetrics,
    remove: VerbMetrics,
    look: VerbMetrics,
    epoch: VerbMetrics,
    ping: VerbMetrics,
}

/// The metrics of one verb.
struct VerbMetrics {
    duration: Histogram,
    not_executed: Counter,
    unknown: Counter,
}

impl MeteredStore {
    /// Wraps a store.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            insert: VerbMetrics::new("insert"),
            swap: VerbMetrics::new("swap"),
            remove: VerbMetrics::new("remove"),
            look: VerbMetrics::new("look"),
            epoch: VerbMetrics::new("epoch"),
            ping: VerbMetrics::new("ping"),
        }
    }
}

impl VerbMetrics {
    fn new(verb: &'static str) -> Self {
        let failed = |kind: &'static str| counter!(metric::STORE_ERRORS.name, "verb" => verb, "kind" => kind);
        Self {
            duration: histogram!(metric::STORE_DURATION.name, "verb" => verb),
            not_executed: failed("not_executed"),
            unknown: failed("unknown"),
        }
    }

    async fn time<T>(&self, step: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let begun = Instant::now();
        let done = step.await;
        self.duration.record(begun.elapsed());
        match &done {
            Ok(_) => {}
            Err(StoreError::NotExecuted(_)) => self.not_executed.increment(1),
            Err(StoreError::Unknown(_)) => self.unknown.increment(1),
        }
        done
    }
}

#[async_trait]
impl Store for MeteredStore {
    async fn insert(
        &self,
        ticket: &Ticket,
        value: &[u8],
        ttl: Duration,
        room: Room,
    ) -> Result<Option<Bytes>, StoreError> {
        self.insert.time(self.store.insert(ticket, value, ttl, room)).await
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
        self.swap.time(self.store.swap(ticket, held, value, ttl, room, epoch)).await
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8], epoch: Option<Epoch>) -> Result<Compared, StoreError> {
        self.remove.time(self.store.remove(ticket, held, epoch)).await
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        self.look.time(self.store.look(ticket)).await
    }

    fn epoch(&self, ticket: &Ticket) -> Option<Epoch> {
        self.store.epoch(ticket)
    }

    async fn ask_epoch(&self, ticket: &Ticket) -> Result<Epoch, StoreError> {
        self.epoch.time(self.store.ask_epoch(ticket)).await
    }

    fn admission(&self, ticket: &Ticket) -> Admission {
        self.store.admission(ticket)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.ping.time(self.store.ping()).await
    }

    async fn reconnected(&self) {
        self.store.reconnected().await;
    }

    fn report(&self) {
        self.store.report();
    }
}
