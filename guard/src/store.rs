//! The store: a map with expiry and five atomic verbs. It knows nothing about tokens, keys or HTTP.

mod memory;
mod metered;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sql")]
pub(crate) mod sql;

#[cfg(feature = "laws")]
pub mod laws;

use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

pub use self::memory::Memory;
pub(crate) use self::memory::OriginThread;
pub(crate) use self::metered::MeteredStore;
#[cfg(feature = "redis")]
pub use self::redis::{BadAddress, Redis};
#[cfg(feature = "sql")]
pub use self::sql::{MigrationOutcome, Sql, SqlError};
pub use crate::epoch::Epoch;
use crate::ticket::{Kind, Ticket};

/// A map of records with expiry.
///
/// Each verb is one atomic step: no other caller's verb takes effect in the middle of it. A record is absent for every verb from the
/// moment it expires, whether or not the store has removed it. A time to live below a millisecond counts as one millisecond. A store
/// must not retry a verb by itself unless it knows for certain that the verb was not executed.
///
/// `onceward::store::laws` (feature `laws`) checks your own store against this contract, except for times below a millisecond and retries:
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use std::time::{Duration, Instant};
///
/// use onceward::store::{Bytes, Compared, Store, StoreError, async_trait};
/// use onceward::Ticket;
///
/// /// Everything in one map behind one lock.
/// #[derive(Default)]
/// struct Plain(Mutex<HashMap<Ticket, (Bytes, Instant)>>);
///
/// impl Plain {
///     fn with<T>(&self, verb: impl FnOnce(&mut HashMap<Ticket, (Bytes, Instant)>) -> T) -> T {
///         let mut map = self.0.lock().unwrap();
///         map.retain(|_, (_, deadline)| *deadline > Instant::now());
///         verb(&mut map)
///     }
/// }
///
/// #[async_trait]
/// impl Store for Plain {
///     async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
///         Ok(self.with(|map| {
///             let existing = map.get(ticket).map(|(value, _)| value.clone());
///             if existing.is_none() {
///                 map.insert(*ticket, (Bytes::copy_from_slice(value), Instant::now() + ttl));
///             }
///             existing
///         }))
///     }
///
///     async fn take(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
///         Ok(self.with(|map| map.remove(ticket)).map(|(value, _)| value))
///     }
///
///     async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration) -> Result<Compared, StoreError> {
///         Ok(self.with(|map| match map.get_mut(ticket) {
///             Some(record) if record.0 == held => {
///                 *record = (Bytes::copy_from_slice(value), Instant::now() + ttl);
///                 Compared::Done
///             }
///             Some((other, _)) => Compared::Found(other.clone()),
///             None => Compared::Gone,
///         }))
///     }
///
///     async fn remove(&self, ticket: &Ticket, held: &[u8]) -> Result<Compared, StoreError> {
///         Ok(self.with(|map| match map.get(ticket) {
///             Some((value, _)) if value == held => {
///                 map.remove(ticket);
///                 Compared::Done
///             }
///             Some((other, _)) => Compared::Found(other.clone()),
///             None => Compared::Gone,
///         }))
///     }
///
///     async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
///         Ok(self.with(|map| map.get(ticket).map(|(value, _)| value.clone())))
///     }
/// }
/// # #[cfg(feature = "laws")]
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
/// use onceward::store::laws::Laws;
/// Laws::of(Plain::default()).hold().await;
/// # });
/// ```
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Writes `value` for `ttl` if there is no record; otherwise changes nothing and returns the existing value.
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError>;

    /// Deletes the record and returns its value. Of any number of concurrent callers, exactly one receives it.
    async fn take(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError>;

    /// Writes `value` for `ttl` if the current value equals `held`. Writing the same bytes renews the expiry.
    async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration) -> Result<Compared, StoreError>;

    /// Deletes the record if its value equals `held`.
    async fn remove(&self, ticket: &Ticket, held: &[u8]) -> Result<Compared, StoreError>;

    /// Returns the value without changing it. Never used to decide whether a handler runs.
    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError>;

    /// Like `insert`, for a record that was taken a moment ago. A store with its own limit keeps some room for it that `insert` does
    /// not use.
    async fn put_back(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        self.insert(ticket, value, ttl).await
    }

    /// Returns the epoch of the store that holds this ticket, as far as it is known without a command. A store that loses its data when
    /// it stops has a different epoch after each start. Zero means that the store cannot tell epochs apart.
    fn epoch(&self, _ticket: &Ticket) -> Option<Epoch> {
        Some(Epoch::default())
    }

    /// Reads the epoch from the store, because it is not known or may have changed.
    async fn ask_epoch(&self, ticket: &Ticket) -> Result<Epoch, StoreError> {
        Ok(self.epoch(ticket).unwrap_or_default())
    }

    /// Like `take`, and reports whether `epoch` was still current when the record was taken. If it was not, another caller may have
    /// taken the same record before, and the store may have lost that change.
    async fn take_under(&self, ticket: &Ticket, epoch: Epoch) -> Result<Taken, StoreError> {
        let found = self.take(ticket).await?;
        Ok(Taken { found, is_of_epoch: self.epoch(ticket) == Some(epoch) })
    }

    /// Like `swap`, but only within `epoch`. Returns `None` if the epoch has ended: nothing was changed, or a write that raced with the
    /// end of the epoch was rolled back.
    async fn swap_under(
        &self,
        ticket: &Ticket,
        epoch: Epoch,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<Compared>, StoreError> {
        if self.epoch(ticket) != Some(epoch) {
            return Ok(None);
        }
        self.swap(ticket, held, value, ttl).await.map(Some)
    }

    /// Returns whether new work may begin on this ticket. While most commands time out, new work is rejected at once instead of after a
    /// timeout. Settlements and renewals do not check this.
    fn admission(&self, _ticket: &Ticket) -> Admission {
        Admission::Accept
    }

    /// Checks that the store answers and accepts writes. A store that can be full overrides this and tries to insert.
    async fn ping(&self) -> Result<(), StoreError> {
        // Takes a record that does not exist: a replica would answer a read, but rejects this.
        self.take(&Ticket::of(Kind::Token, b"nobody's")).await.map(drop)
    }

    /// Completes when the store has reconnected, since its data may have changed in the meantime.
    async fn reconnected(&self) {
        pending().await
    }

    /// Reports how full the store is to the metrics recorder, if the store knows.
    fn report(&self) {}
}

#[async_trait]
impl<S: Store> Store for Arc<S> {
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        (**self).insert(ticket, value, ttl).await
    }

    async fn take(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        (**self).take(ticket).await
    }

    async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration) -> Result<Compared, StoreError> {
        (**self).swap(ticket, held, value, ttl).await
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8]) -> Result<Compared, StoreError> {
        (**self).remove(ticket, held).await
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        (**self).look(ticket).await
    }

    async fn put_back(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        (**self).put_back(ticket, value, ttl).await
    }

    fn epoch(&self, ticket: &Ticket) -> Option<Epoch> {
        (**self).epoch(ticket)
    }

    async fn ask_epoch(&self, ticket: &Ticket) -> Result<Epoch, StoreError> {
        (**self).ask_epoch(ticket).await
    }

    async fn take_under(&self, ticket: &Ticket, epoch: Epoch) -> Result<Taken, StoreError> {
        (**self).take_under(ticket, epoch).await
    }

    async fn swap_under(
        &self,
        ticket: &Ticket,
        epoch: Epoch,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<Compared>, StoreError> {
        (**self).swap_under(ticket, epoch, held, value, ttl).await
    }

    fn admission(&self, ticket: &Ticket) -> Admission {
        (**self).admission(ticket)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        (**self).ping().await
    }

    async fn reconnected(&self) {
        (**self).reconnected().await;
    }

    fn report(&self) {
        (**self).report();
    }
}

/// The result of [`take_under`](Store::take_under).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The value of the record, if there was one.
    pub found: Option<Bytes>,
    /// Whether the requested epoch was current when the record was taken.
    pub is_of_epoch: bool,
}

/// The decision whether new work may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// New work may begin.
    Accept,
    /// New work may begin if the store answers a [`look`](Store::look) first. The store timed out recently, and one caller at a time
    /// probes whether it answers again.
    Probe,
    /// New work is rejected: the store does not answer in time.
    Reject,
}

/// The result of a verb that compares before it changes a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compared {
    /// The value was equal, and the change was made.
    Done,
    /// Another value was found, and nothing was changed.
    Found(Bytes),
    /// There is no record, and nothing was changed.
    Gone,
}

/// A verb that failed: either it was certainly not executed, or its outcome is unknown.
///
/// [`source`](Error::source) is the error that was passed to [`not_executed`](Self::not_executed) or [`unknown`](Self::unknown). If
/// Redis cannot be reached, the chain ends in the [`io::Error`](std::io::Error) of the connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Nothing was changed, for certain.
    #[error("the store did not do it: {0}")]
    NotExecuted(#[source] Box<dyn Error + Send + Sync>),
    /// The outcome is unknown: the verb may have been executed, may still be executed, or neither.
    #[error("the store's answer was lost: {0}")]
    Unknown(#[source] Box<dyn Error + Send + Sync>),
}

impl StoreError {
    /// Creates an error for a verb that certainly changed nothing.
    pub fn not_executed(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::NotExecuted(reason.into())
    }

    /// Creates an error for a verb whose outcome is unknown.
    pub fn unknown(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unknown(reason.into())
    }

    /// Returns whether the store rejected the write because it is full.
    pub fn is_full(&self) -> bool {
        self.is_because_of::<StoreFull>()
    }

    /// Converts a failure of a preparatory step into one of a change that was therefore never sent.
    pub(crate) fn certainly_not_executed(self) -> Self {
        let (Self::NotExecuted(reason) | Self::Unknown(reason)) = self;
        Self::NotExecuted(reason)
    }

    /// Returns whether the reason is an error of type `E`.
    pub(crate) fn is_because_of<E: Error + 'static>(&self) -> bool {
        let (Self::NotExecuted(reason) | Self::Unknown(reason)) = self;
        reason.is::<E>()
    }
}

/// The store has no room for a new record, with the store's own message.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct StoreFull {
    message: String,
    #[source]
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreFull {
    pub(crate) fn new(message: String) -> Self {
        Self { message, cause: None }
    }

    /// Wraps the error of a server.
    #[cfg(feature = "redis")]
    pub(crate) fn because(error: impl Error + Send + Sync + 'static) -> Self {
        Self { message: error.to_string(), cause: Some(Box::new(error)) }
    }
}

#[doc(no_inline)]
pub use async_trait::async_trait;
#[doc(no_inline)]
pub use bytes::Bytes;
