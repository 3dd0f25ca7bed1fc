//! The store on Redis 7.0 or later, or Valkey. Each verb is one command, or one script, on one key, so the same code works with a single
//! server, with Sentinel and with a cluster.

mod address;
mod breaker;
mod capabilities;
mod cluster;
mod command;
mod compare;
mod connection;
mod deadline;
mod driver;
mod error;
mod eviction;
mod input;
mod insert;
mod queue;
mod queue_entry;
mod redirect;
mod replication_id;
mod reply;
mod request;
mod scripts;
mod sentinel;
mod slot;
mod socket;
#[cfg(test)]
mod tests;
mod thread_local;
mod topology;
mod transport;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use ::redis::aio::ConnectionLike;
use ::redis::{Client, ErrorKind, RedisResult};
use metrics::gauge;
use onceward_api::metric;
use rustls::crypto::CryptoProvider;

pub use self::address::BadAddress;
use self::address::RedisAddress;
use self::cluster::Cluster;
use self::command::bytes;
use self::compare::{Comparison, KeyChange};
use self::connection::{Endpoint, ManagedConnection, client};
pub(super) use self::error::TransportError;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::reply::check_replies;
use self::request::Request;
use self::sentinel::Sentinels;
use self::transport::{ApplicationConnection, Transport};
use super::{Admission, Bytes, Compared, Epoch, Room, Store, StoreError, async_trait};
use crate::ticket::Ticket;

/// A store on Redis, shared by many processes.
///
/// ```no_run
/// use onceward::store::Redis;
///
/// let store = Redis::open("redis://127.0.0.1:6379")?.prefix("shop");
/// # Ok::<(), onceward::store::BadAddress>(())
/// ```
///
/// Commands are never retried once they may have been executed: a command whose reply was lost is reported as [`StoreError::Unknown`].
///
/// A Redis that restarts from an old snapshot, or is replaced by a replica that lags behind, may hold tokens again that were already
/// used. So each token is bound to the epoch of the server that issued it, which is derived from the server's `master_replid`, and is
/// stale in the next epoch.
#[derive(Clone)]
pub struct Redis {
    transport: Arc<dyn Transport>,
    prefix: String,
    timeout: Duration,
    is_pinned: bool,
    /// True if native compare-and-set commands are used, where the server has them.
    is_native: bool,
    /// The number of commands in flight.
    in_flight: Arc<AtomicUsize>,
    /// The limit for commands in flight.
    max_in_flight: usize,
    sending: SendMode,
}

/// The way commands are sent. The modes other than `Batched` exist for the benchmark.
#[derive(Clone, Copy)]
enum SendMode {
    /// In batches, over the connection of the calling thread, or of all threads of a multi-threaded runtime.
    Batched,
    /// One by one, over the same connection.
    OneByOne,
    /// One by one, over the shared connection.
    Shared,
}

/// The limit for commands in flight, so that a Redis that does not reply cannot exhaust the memory.
const MAX_IN_FLIGHT: usize = 32_768;

impl Redis {
    /// The default timeout of a verb; change it with [`timeout`](Self::timeout).
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(250);

    /// Opens a store at this address: one server (`redis://host:port`, with TLS `rediss://`), the master that Sentinel names
    /// (`redis+sentinel://host,host/name`), or a cluster (`redis+cluster://host,host`, or the list `host:port;host:port`). `valkey` may
    /// stand in place of `redis`.
    ///
    /// A background thread that runs nothing else opens the connection, drives it and reconnects it, so a handler that blocks its own
    /// thread does not stall it. This returns at once, even if no server is reachable yet. An actix worker, or any other thread that
    /// drives a single-threaded runtime, soon gets its own connection, which saves the switch to the background thread. The threads of
    /// multi-threaded runtimes soon get one in common, which the background thread drives.
    ///
    /// With TLS, the system's trusted certificates apply, or those in the file that `SSL_CERT_FILE` names.
    ///
    /// # Errors
    /// If the address cannot be parsed.
    pub fn open(address: &str) -> Result<Self, BadAddress> {
        let unusable = |error: ::redis::RedisError| BadAddress(error.to_string());
        install_crypto();
        Ok(match address::parse(address)? {
            RedisAddress::One(info) => {
                Self::on(ManagedConnection::open(Endpoint::Fixed(client(*info).map_err(unusable)?), Arc::default()))
            }
            RedisAddress::Sentinel { sentinels, name, node } => {
                let master = Endpoint::Sentinels(Sentinels::new(sentinels, name, *node));
                Self::on(ManagedConnection::open(master, Arc::default()))
            }
            RedisAddress::Cluster(nodes) => Self::on(Cluster::open(nodes).map_err(unusable)?),
        })
    }

    /// Checks that the address can be parsed, without connecting.
    ///
    /// # Errors
    /// If the address cannot be parsed.
    pub fn check_address(address: &str) -> Result<(), BadAddress> {
        address::parse(address).map(drop)
    }

    /// Returns the servers that currently hold the records, each with its address: one server, or every master of a cluster. Use it for
    /// inspection; the store finds its servers by itself.
    ///
    /// # Errors
    /// If the address cannot be parsed, or if no sentinel or cluster node names the masters.
    pub async fn masters(address: &str) -> RedisResult<Vec<(String, Client)>> {
        install_crypto();
        let unreadable = |error: BadAddress| (ErrorKind::InvalidClientConfig, "bad address", error.to_string());
        let unfound = |error| match error {
            TransportError::Redis(error) => error,
            other => (ErrorKind::Io, "no master found", other.to_string()).into(),
        };
        let masters = match address::parse(address).map_err(unreadable)? {
            RedisAddress::One(info) => vec![client(*info)?],
            RedisAddress::Sentinel { sentinels, name, node } => {
                vec![Sentinels::new(sentinels, name, *node).master().await.map_err(unfound)?]
            }
            RedisAddress::Cluster(nodes) => topology::masters(nodes).await.map_err(unfound)?,
        };
        Ok(masters.into_iter().map(|client| (client.get_connection_info().addr().to_string(), client)).collect())
    }

    /// Creates a store over a connection that the application already has: a `ConnectionManager`, or any connection that is cheap to
    /// clone and reconnects by itself. The store opens no second connection.
    ///
    /// The connection is driven by the runtime in which it was opened or last reconnected. A handler that blocks all threads of that
    /// runtime stalls the connection, and the store then times out; with [`open`](Self::open) that cannot happen. The connection must
    /// not retry commands by itself. For a cluster use [`open`](Self::open), which connects to every master and follows slot
    /// migrations.
    pub fn over(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Self {
        Self::on(ApplicationConnection::new(connection))
    }

    fn on(transport: impl Transport) -> Self {
        Self {
            transport: Arc::new(transport),
            prefix: "onceward".to_owned(),
            timeout: Self::DEFAULT_TIMEOUT,
            is_pinned: true,
            is_native: true,
            in_flight: Arc::default(),
            max_in_flight: MAX_IN_FLIGHT,
            sending: SendMode::Batched,
        }
    }

    /// Logs no warning if a server may evict records (`maxmemory-policy` is not `noeviction`): a key whose record is evicted runs again,
    /// and the application accepts that, or checks the policy itself. Call it before the store is used: the store reads the policy about a
    /// second after it has connected.
    #[must_use]
    pub fn allow_eviction(self) -> Self {
        self.transport.allow_eviction();
        self
    }

    /// Does not bind tokens to the server's epoch: a used token may become valid again after Redis lost data in a restart or a
    /// failover. Use it to measure the cost of the binding, or to demonstrate its purpose.
    #[must_use]
    pub fn unpinned(mut self) -> Self {
        self.is_pinned = false;
        self
    }

    /// Sends commands one by one; for the benchmark.
    #[doc(hidden)]
    #[must_use]
    pub fn without_batches(mut self) -> Self {
        self.sending = SendMode::OneByOne;
        self
    }

    /// Sends every command over one connection, one by one; for the benchmark.
    #[doc(hidden)]
    #[must_use]
    pub fn on_one_connection(mut self) -> Self {
        self.sending = SendMode::Shared;
        self
    }

    /// Compares by scripts on every server; for the benchmark.
    #[doc(hidden)]
    #[must_use]
    pub fn without_native_commands(mut self) -> Self {
        self.is_native = false;
        self
    }

    /// Sets the prefix of every key. Default: `onceward`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the timeout of a verb, at most one hour. It includes waiting for a connection and any lookup that the verb needs first. A
    /// write that raced with the end of an epoch is rolled back, which may take the same time once more.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(Duration::from_secs(3600));
        self
    }
}

#[async_trait]
impl Store for Redis {
    async fn insert(
        &self,
        ticket: &Ticket,
        value: &[u8],
        ttl: Duration,
        room: Room,
    ) -> Result<Option<Bytes>, StoreError> {
        self.insert_if_absent(ticket, value, ttl, room).await
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
        self.compare(&Comparison {
            ticket,
            held,
            change: KeyChange::Write(value, ttl, room),
            epoch: self.checked(epoch),
        })
        .await
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8], epoch: Option<Epoch>) -> Result<Compared, StoreError> {
        self.compare(&Comparison { ticket, held, change: KeyChange::Delete, epoch: self.checked(epoch) }).await
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        bytes(self.send(Request::look(self.key(ticket), false), self.deadline()).await?.value)
    }

    fn epoch(&self, ticket: &Ticket) -> Option<Epoch> {
        if !self.is_pinned {
            return Some(Epoch::default());
        }
        self.transport.epoch(self.key(ticket))
    }

    async fn ask_epoch(&self, ticket: &Ticket) -> Result<Epoch, StoreError> {
        if !self.is_pinned {
            return Ok(Epoch::default());
        }
        Ok(self.learn_epoch(self.key(ticket), self.deadline()).await?)
    }

    fn admission(&self, ticket: &Ticket) -> Admission {
        self.transport.admit(self.key(ticket), self.timeout)
    }

    /// Writes a record that expires at once: a replica rejects that write, and so does a full Redis.
    async fn ping(&self) -> Result<(), StoreError> {
        self.insert(&Ticket::of_ping(), b"-", Duration::from_millis(1), Room::Free).await.map(drop)
    }

    async fn reconnected(&self) {
        self.transport.reconnected().await;
    }

    fn report(&self) {
        gauge!(metric::SLOW_NODES.name).set(self.transport.slow() as f64);
    }
}

/// Installs the default TLS crypto provider, unless the application has installed one.
fn install_crypto() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may install one at the same moment; either is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("prefix", &self.prefix).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
