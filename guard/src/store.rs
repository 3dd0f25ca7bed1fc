//! The store: a map with expiry and five atomic verbs. It knows nothing of tokens, keys or HTTP.

mod memory;
mod metered;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sql")]
pub(crate) mod sql;

#[cfg(feature = "laws")]
pub mod laws;

use std::error::Error;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

pub use self::memory::Memory;
#[cfg(feature = "actix")]
pub(crate) use self::memory::OriginThread;
pub(crate) use self::metered::MeteredStore;
#[cfg(feature = "redis")]
pub use self::redis::{BadAddress, Redis};
#[cfg(feature = "sql")]
pub use self::sql::{MigrationOutcome, Sql, SqlError};
use crate::ticket::{Kind, Ticket};

/// A place that keeps records for a while.
///
/// Each verb is one atomic step: nothing that another caller does may fall in the middle of it. A record whose time is
/// over is absent from that moment on, for every verb, whether or not it has been cleared away. A time to live below a
/// millisecond counts as one millisecond. No verb may be repeated behind the caller's back unless the store knows for
/// certain that it was not executed.
///
/// `onceward::store::laws` (feature `laws`) checks all of this against a store of your own:
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
    /// Writes `value` for `ttl` if nothing is there; otherwise changes nothing and gives what is there.
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError>;

    /// Deletes what is there and gives it: of any number of callers, one gets it.
    async fn take(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError>;

    /// Writes `value` for `ttl` if exactly `held` is there. The same bytes again renew the time.
    async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration) -> Result<Compared, StoreError>;

    /// Deletes what is there if it is exactly `held`.
    async fn remove(&self, ticket: &Ticket, held: &[u8]) -> Result<Compared, StoreError>;

    /// Gives what is there. Never used to decide whether something runs.
    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError>;

    /// `insert`, of what was there a moment ago: a store with a limit of its own keeps some room for it that `insert` does not get.
    async fn put_back(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        self.insert(ticket, value, ttl).await
    }

    /// In which uninterrupted life of the store this ticket is kept, as far as is known without asking. A store that
    /// forgets everything when it ends has another one each time it begins. Zero means that it cannot tell.
    fn epoch(&self, _ticket: &Ticket) -> Option<Epoch> {
        Some(Epoch::default())
    }

    /// Asks for the same, because it is not known, or may be over.
    async fn ask_epoch(&self, ticket: &Ticket) -> Result<Epoch, StoreError> {
        Ok(self.epoch(ticket).unwrap_or_default())
    }

    /// `take`, and whether this epoch still lasted when it was done. Where it did not, what was taken may have been taken
    /// before, by somebody whom the store has forgotten.
    async fn take_under(&self, ticket: &Ticket, epoch: Epoch) -> Result<Taken, StoreError> {
        let found = self.take(ticket).await?;
        Ok(Taken { found, is_of_epoch: self.epoch(ticket) == Some(epoch) })
    }

    /// `swap`, if this epoch lasts; `None` if it is over, and then nothing was changed, or, in the moment of its end, what was
    /// written has been taken away again.
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

    /// Whether new work may begin on this ticket: while most commands time out, it is rejected at once and not after a timeout.
    /// Settlements and renewals do not ask.
    fn admission(&self, _ticket: &Ticket) -> Admission {
        Admission::Accept
    }

    /// Asks whether the store answers, and takes commands that write. A store that can be full overrides this and tries to insert.
    async fn ping(&self) -> Result<(), StoreError> {
        // What nobody has is taken: a replica could be looked into, and refuses this.
        self.take(&Ticket::of(Kind::Token, b"nobody's")).await.map(drop)
    }

    /// Comes back when the store has been reached anew, since what is in it may have changed meanwhile.
    async fn reconnected(&self) {
        pending().await
    }

    /// Tells the recorder of metrics how full it is, if it knows.
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

/// One uninterrupted life of a store.
pub type Epoch = [u8; 8];

/// What was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// What was there.
    pub found: Option<Bytes>,
    /// Whether the epoch in question lasted at that time.
    pub is_of_epoch: bool,
}

/// Whether new work may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Accept,
    /// It may if the store answers a [`look`](Store::look) first: it did not answer in time of late, and one caller at a time finds out
    /// whether it does again.
    Probe,
    /// It may not: the store does not answer in time.
    Reject,
}

/// What a verb that compares first has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compared {
    /// It was as expected, and the change was made.
    Done,
    /// Something else is there, and nothing was changed.
    Found(Bytes),
    /// Nothing is there, and nothing was changed.
    Gone,
}

/// The store could not be asked, or its answer did not arrive. Which of the two is all that matters.
///
/// [`source`](Error::source) is the error that was given to [`not_executed`](Self::not_executed) or [`unknown`](Self::unknown). Of a Redis that
/// is out of reach, the chain ends in the [`io::Error`](std::io::Error) of the connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// Certainly nothing was changed.
    NotExecuted(Reason),
    /// It may have been done, may be done yet, or neither.
    Unknown(Reason),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotExecuted(reason) => write!(f, "the store did not do it: {reason}"),
            Self::Unknown(reason) => write!(f, "the store's answer was lost: {reason}"),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let (Self::NotExecuted(Reason(reason)) | Self::Unknown(Reason(reason))) = self;
        Some(&**reason)
    }
}

impl StoreError {
    /// Certainly nothing was changed, because of this.
    pub fn not_executed(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::NotExecuted(Reason(reason.into()))
    }

    /// Nobody can tell whether it was done, because of this.
    pub fn unknown(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unknown(Reason(reason.into()))
    }

    /// Whether the store refused it for want of room.
    pub fn is_full(&self) -> bool {
        self.is_because_of::<StoreFull>()
    }

    /// The same failure, of something on the way to a change that was then not asked for.
    pub(crate) fn certainly_not_executed(self) -> Self {
        let (Self::NotExecuted(reason) | Self::Unknown(reason)) = self;
        Self::NotExecuted(reason)
    }

    /// Whether this was the reason.
    pub(crate) fn is_because_of<E: Error + 'static>(&self) -> bool {
        let (Self::NotExecuted(Reason(reason)) | Self::Unknown(Reason(reason))) = self;
        reason.is::<E>()
    }
}

/// The store has no room for what is new, in its own words.
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

    /// As a server says.
    #[cfg(feature = "redis")]
    pub(crate) fn because(error: impl Error + Send + Sync + 'static) -> Self {
        Self { message: error.to_string(), cause: Some(Box::new(error)) }
    }
}

/// Why a store failed, for the log of whoever runs it.
#[derive(Debug)]
pub struct Reason(Box<dyn Error + Send + Sync>);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[doc(no_inline)]
pub use async_trait::async_trait;
#[doc(no_inline)]
pub use bytes::Bytes;
