//! The store: a map with expiry and four atomic verbs. It knows nothing about tokens, keys or HTTP.

mod memory;
mod metered;
mod outage;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sql")]
pub(crate) mod sql;
mod watched;

#[cfg(feature = "laws")]
pub mod laws;

use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

pub use self::memory::Memory;
pub(crate) use self::memory::OriginThread;
#[cfg(all(feature = "redis", any(test, feature = "fuzzing")))]
pub(crate) use self::redis::check_replies;
#[cfg(feature = "redis")]
pub use self::redis::{BadAddress, Redis};
#[cfg(feature = "sql")]
pub use self::sql::{MigrationOutcome, Sql, SqlError};
pub(crate) use self::watched::WatchedStore;
pub use crate::epoch::Epoch;
use crate::record::UnknownRecord;
use crate::ticket::Ticket;

/// A map of records with expiry, and four atomic verbs.
///
/// Each verb is one atomic step on one record. A record is absent for every verb from the moment it expires. A time to live below a
/// millisecond counts as one millisecond. A store never retries a verb unless the verb was certainly not executed.
///
/// `onceward::store::laws` (feature `laws`) checks your own store against this contract, except for times below a millisecond and retries:
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use std::time::{Duration, Instant};
///
/// use onceward::Ticket;
/// use onceward::store::{Bytes, Compared, Epoch, Room, Store, StoreError, async_trait};
///
/// /// Everything in one map behind one lock.
/// #[derive(Default)]
/// struct Plain(Mutex<HashMap<Ticket, (Bytes, Instant)>>);
///
/// impl Plain {
///     /// Returns the live value, and puts `new` in its place if it is the expected one.
///     fn exchange(&self, ticket: &Ticket, expected: Option<&[u8]>, new: Option<(&[u8], Duration)>) -> Option<Bytes> {
///         let mut records = self.0.lock().unwrap();
///         records.retain(|_, (_, deadline)| *deadline > Instant::now());
///         let found = records.get(ticket).map(|(value, _)| value.clone());
///         if found.as_deref() == expected {
///             records.remove(ticket);
///             let new = new.map(|(value, ttl)| (Bytes::copy_from_slice(value), Instant::now() + ttl));
///             records.extend(new.map(|new| (*ticket, new)));
///         }
///         found
///     }
/// }
///
/// #[async_trait]
/// impl Store for Plain {
///     async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration, _: Room) -> Result<Option<Bytes>, StoreError> {
///         Ok(self.exchange(ticket, None, Some((value, ttl))))
///     }
///
///     async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration, _: Room, _: Option<Epoch>) -> Result<Compared, StoreError> {
///         Ok(Compared::of(self.exchange(ticket, Some(held), Some((value, ttl))), held))
///     }
///
///     async fn remove(&self, ticket: &Ticket, held: &[u8], _: Option<Epoch>) -> Result<Compared, StoreError> {
///         Ok(Compared::of(self.exchange(ticket, Some(held), None), held))
///     }
///
///     async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
///         Ok(self.exchange(ticket, None, None))
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
    async fn insert(
        &self,
        ticket: &Ticket,
        value: &[u8],
        ttl: Duration,
        room: Room,
    ) -> Result<Option<Bytes>, StoreError>;

    /// Writes `value` for `ttl` if the current value equals `held`. Writing the same bytes renews the expiry.
    async fn swap(
        &self,
        ticket: &Ticket,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
        room: Room,
        epoch: Option<Epoch>,
    ) -> Result<Compared, StoreError>;

    /// Deletes the record if its value equals `held`. Of any number of concurrent callers, one is [`Done`](Compared::Done).
    async fn remove(&self, ticket: &Ticket, held: &[u8], epoch: Option<Epoch>) -> Result<Compared, StoreError>;

    /// Returns the value without changing it. Never used to decide whether a handler runs.
    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError>;

    /// Returns the epoch of the store that holds this ticket, as far as it is known without a command. A store that may lose records
    /// has another epoch afterwards, and compares it in `swap` and `remove`. Zero, the default, means that it cannot tell epochs apart.
    fn epoch(&self, _ticket: &Ticket) -> Option<Epoch> {
        Some(Epoch::default())
    }

    /// Reads the epoch from the store, because it is not known or may have changed.
    async fn ask_epoch(&self, ticket: &Ticket) -> Result<Epoch, StoreError> {
        Ok(self.epoch(ticket).unwrap_or_default())
    }

    /// Decides whether new work may begin on this ticket. Settlements and renewals bypass this.
    fn admission(&self, _ticket: &Ticket) -> Admission {
        Admission::Accept
    }

    /// Checks that the store replies and accepts writes.
    async fn ping(&self) -> Result<(), StoreError> {
        // Removes a record that does not exist: a read-only replica replies to a read, but rejects this.
        self.remove(&Ticket::of_ping(), b"", None).await.map(drop)
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
    async fn insert(
        &self,
        ticket: &Ticket,
        value: &[u8],
        ttl: Duration,
        room: Room,
    ) -> Result<Option<Bytes>, StoreError> {
        (**self).insert(ticket, value, ttl, room).await
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
        (**self).swap(ticket, held, value, ttl, room, epoch).await
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8], epoch: Option<Epoch>) -> Result<Compared, StoreError> {
        (**self).remove(ticket, held, epoch).await
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        (**self).look(ticket).await
    }

    fn epoch(&self, ticket: &Ticket) -> Option<Epoch> {
        (**self).epoch(ticket)
    }

    async fn ask_epoch(&self, ticket: &Ticket) -> Result<Epoch, StoreError> {
        (**self).ask_epoch(ticket).await
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

/// The part of a store that a record may use. A store without a limit need not tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Only free room, for new work and for stored responses: a full store rejects the record.
    Free,
    /// Also the reserve of the store, for small records that continue accepted work: a token that is redeemed or given back, or the
    /// claim of a run in flight. A full store rejects larger ones.
    Reserved,
}

impl Room {
    /// The maximum length of a small record, in bytes.
    pub const SMALL: usize = 256;
}

/// The decision whether new work may begin. While most commands time out, new work is rejected at once instead of after a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// New work may begin.
    Accept,
    /// New work may begin if the store replies to a [`look`](Store::look) first. The store timed out recently, and one caller at a time
    /// probes whether it replies again.
    Probe,
    /// New work is rejected: the store does not reply in time.
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
    /// The store is not in the expected epoch: nothing was changed, or the record is gone. Never the result without an epoch.
    Stale,
}

impl Compared {
    /// Returns the result of a change that was made if the value that was found equals `held`.
    pub fn of(found: Option<Bytes>, held: &[u8]) -> Self {
        match found {
            Some(found) if found == held => Self::Done,
            Some(found) => Self::Found(found),
            None => Self::Gone,
        }
    }
}

/// A verb that failed: either it was certainly not executed, or its outcome is unknown. The text says which.
///
/// [`source`](Error::source) is the error that was passed to [`not_executed`](Self::not_executed) or [`unknown`](Self::unknown). If
/// Redis cannot be reached, the chain ends in the [`io::Error`](std::io::Error) of the connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Nothing was changed, for certain.
    #[error("not executed: {0}")]
    NotExecuted(#[source] Box<dyn Error + Send + Sync>),
    /// The outcome is unknown: the verb may have been executed, may still be executed, or neither.
    #[error("{0}; it may have been executed")]
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

    /// Returns whether the store did not reply. False for an error reply of the store, and for an unreadable record. True for every error
    /// of a store outside of this crate, whose kind is not known.
    pub(crate) fn is_away(&self) -> bool {
        let (Self::NotExecuted(reason) | Self::Unknown(reason)) = self;
        #[cfg(feature = "redis")]
        if let Some(error) = reason.downcast_ref::<redis::TransportError>() {
            return error.is_away();
        }
        #[cfg(feature = "sql")]
        if let Some(error) = reason.downcast_ref::<sql::StatementError>() {
            return error.is_away();
        }
        !reason.is::<StoreFull>() && !reason.is::<UnknownRecord>()
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
