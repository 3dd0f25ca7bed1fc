//! The store on Redis 7.0 or later. Each verb is one command, or one script on one key, so the same code works with a single server,
//! with Sentinel and with a cluster.

mod address;
mod batch;
mod breaker;
mod cluster;
mod command;
mod connection;
mod deadline;
mod error;
mod redirect;
mod replication_id;
mod scripts;
mod sentinel;
mod slot;
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
use self::command::{bytes, compared, millis};
use self::connection::{Endpoint, ManagedConnection, client};
use self::error::TransportError;
use self::scripts::REMOVE;
use self::sentinel::Sentinels;
use self::transport::{ApplicationConnection, KeyName, Request, Response, Transport};
use super::{Admission, Bytes, Compared, Epoch, Store, StoreError, Taken, async_trait};
use crate::ticket::{Kind, Ticket};

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
    /// The number of commands in flight.
    in_flight: Arc<AtomicUsize>,
    /// The limit for commands in flight.
    max_in_flight: usize,
    sending: SendMode,
}

/// How commands are sent. The modes other than `Batched` exist for the benchmark.
#[derive(Clone, Copy)]
enum SendMode {
    /// In batches, over the calling thread's connection.
    Batched,
    /// One by one, over the calling thread's connection.
    OneByOne,
    /// One by one, over the shared connection.
    Shared,
}

/// The limit for commands in flight, so that a Redis that does not answer cannot exhaust the memory.
const MAX_IN_FLIGHT: usize = 32_768;

impl Redis {
    /// The default timeout of a verb; change it with [`timeout`](Self::timeout).
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(250);

    /// Opens a store at this address: one server (`redis://host:port`, with TLS `rediss://`), the master that Sentinel names
    /// (`redis+sentinel://host,host/name`), or a cluster (`redis+cluster://host,host`, or the list `host:port;host:port`).
    ///
    /// A background thread that runs nothing else opens the connection, drives it and reconnects it, so a handler that blocks its own
    /// thread does not stall it. This returns at once, even if no server is reachable yet. An actix worker, or any other thread that
    /// drives a single-threaded runtime, soon gets its own connection, which saves the switch to the background thread.
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
                Self::on(ManagedConnection::open(Endpoint::Fixed(client(*info).map_err(unusable)?)))
            }
            RedisAddress::Sentinel { sentinels, name, node } => {
                Self::on(ManagedConnection::open(Endpoint::Sentinels(Sentinels::new(sentinels, name, *node))))
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
            other => (ErrorKind::Io, "nobody says where it is", other.to_string()).into(),
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
            in_flight: Arc::default(),
            max_in_flight: MAX_IN_FLIGHT,
            sending: SendMode::Batched,
        }
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
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        // Without scripts a claim could never be settled, so it is rejected before the handler runs.
        let deadline = self.deadline();
        if ticket.kind() == Kind::Key {
            let asked = self.refuses_scripts(ticket, deadline).await;
            if asked.map_err(|error| StoreError::from(error).certainly_not_executed())? {
                return Err(StoreError::not_executed("this Redis lets its user run no scripts, which keys need"));
            }
        }
        let mut command = self.command("SET", ticket);
        command.arg(value).arg("PX").arg(millis(ttl)).arg("NX").arg("GET");
        self.ask(command, deadline).await
    }

    async fn take(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        self.ask(self.command("GETDEL", ticket), self.deadline()).await
    }

    async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration) -> Result<Compared, StoreError> {
        compared(self.eval_swap(ticket, held, value, ttl, false, self.deadline()).await?.value)
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8]) -> Result<Compared, StoreError> {
        compared(self.eval(&REMOVE, ticket, &[held], false, self.deadline()).await?.value)
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        self.ask(self.command("GET", ticket), self.deadline()).await
    }

    fn epoch(&self, ticket: &Ticket) -> Option<Epoch> {
        if !self.is_pinned {
            return Some(Epoch::default());
        }
        self.transport.known(&KeyName(&|| ticket.name(&self.prefix))).map(|(_, epoch)| epoch)
    }

    async fn ask_epoch(&self, ticket: &Ticket) -> Result<Epoch, StoreError> {
        if !self.is_pinned {
            return Ok(Epoch::default());
        }
        Ok(self.replication_id(ticket, None, self.deadline()).await?.1)
    }

    /// Reads the replication id after the command, over the same connection.
    async fn take_under(&self, ticket: &Ticket, epoch: Epoch) -> Result<Taken, StoreError> {
        if !self.is_pinned {
            return Ok(Taken { found: self.take(ticket).await?, is_of_epoch: true });
        }
        let request = Request { command: self.command("GETDEL", ticket), key_at: 1, wants_replication_id: true };
        let Response { value, replication_id } = self.send(request, self.deadline()).await?;
        let is_of_epoch = self.is_of(epoch, replication_id, ticket);
        Ok(Taken { found: bytes(value)?, is_of_epoch })
    }

    /// Checks the replication id before the command, and again after it over the same connection. A write that raced with a change of
    /// epoch is removed again.
    async fn swap_under(
        &self,
        ticket: &Ticket,
        epoch: Epoch,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<Compared>, StoreError> {
        if !self.is_pinned {
            return self.swap(ticket, held, value, ttl).await.map(Some);
        }
        let deadline = self.deadline();
        let asked = self.replication_id(ticket, Some(epoch), deadline).await;
        let (_, known) = asked.map_err(|error| StoreError::from(error).certainly_not_executed())?;
        if known != epoch {
            return Ok(None);
        }
        let Response { value: answer, replication_id } =
            self.eval_swap(ticket, held, value, ttl, true, deadline).await?;
        let compared = compared(answer)?;
        if self.is_of(epoch, replication_id, ticket) {
            return Ok(Some(compared));
        }
        if compared == Compared::Done {
            // If the removal fails, the caller receives `Unknown` and rolls the write back itself.
            self.remove(ticket, value).await.map_err(StoreError::unknown)?;
        }
        Ok(None)
    }

    fn admission(&self, ticket: &Ticket) -> Admission {
        self.transport.admit(&KeyName(&|| ticket.name(&self.prefix)), self.timeout)
    }

    /// Takes a token that does not exist, as redeeming does, and writes a record that expires at once: a full Redis rejects that write.
    async fn ping(&self) -> Result<(), StoreError> {
        let nobodys = Ticket::of(Kind::Token, b"nobody's");
        self.take(&nobodys).await?;
        self.insert(&nobodys, b"-", Duration::from_millis(1)).await.map(drop)
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
