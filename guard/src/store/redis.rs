//! The store on Redis 7.0 or later: each verb is one command, or one script on one key, so that the same serves one server,
//! one that sentinels watch over, and a cluster.

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

/// A store that many processes share.
///
/// ```no_run
/// use onceward::store::Redis;
///
/// let store = Redis::open("redis://127.0.0.1:6379")?.prefix("shop");
/// # Ok::<(), onceward::store::BadAddress>(())
/// ```
///
/// Nothing is ever sent twice: a command whose answer was lost is reported as [`StoreError::Unknown`].
///
/// A Redis that restarts from an old snapshot, or is replaced by a replica that has not seen everything, has tokens again that
/// were used. So each token is bound to the life of the server that issued it, which that server's `master_replid` names, and is
/// stale in the next.
#[derive(Clone)]
pub struct Redis {
    transport: Arc<dyn Transport>,
    prefix: String,
    timeout: Duration,
    is_pinned: bool,
    /// The number of commands in flight.
    in_flight: Arc<AtomicUsize>,
    /// The most commands in flight at once.
    max_in_flight: usize,
    sending: SendMode,
}

/// How commands are sent. The benchmark measures what the others save.
#[derive(Clone, Copy)]
enum SendMode {
    /// In batches, over a connection of the calling thread.
    Batched,
    /// One by one, over a connection of the calling thread.
    OneByOne,
    /// One by one, over the shared connection.
    Shared,
}

/// The most commands in flight at once, so that a Redis that does not answer does not fill the memory.
const MAX_IN_FLIGHT: usize = 32_768;

impl Redis {
    /// How long a verb may take, unless [`timeout`](Self::timeout) says otherwise.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(250);

    /// A store at this address: one server (`redis://host:port`, with TLS `rediss://`), the master that sentinels know
    /// (`redis+sentinel://host,host/name`), or a cluster (`redis+cluster://host,host`, or the list `host:port;host:port`).
    ///
    /// The connection is made, driven and made again on a thread that runs nothing else, so
    /// that a handler that blocks its own thread does not stop it. This returns at once, also if nothing is there yet.
    /// A worker of actix, or whatever else drives a runtime alone, soon has a second one to itself, which is the shorter way.
    ///
    /// With TLS, whom the system trusts is trusted, or whoever is in the file that `SSL_CERT_FILE` names.
    ///
    /// # Errors
    /// If the address cannot be read.
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

    /// Whether this is an address, without going there.
    ///
    /// # Errors
    /// If it is none.
    pub fn check_address(address: &str) -> Result<(), BadAddress> {
        address::parse(address).map(drop)
    }

    /// The servers that have the records at the moment, each with its address: one, or every master of a cluster. For looking at
    /// them; the store finds them by itself.
    ///
    /// # Errors
    /// If the address cannot be read, or nobody says where they are.
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

    /// A store over a connection that the application already has: a `ConnectionManager`, or anything that is cloned
    /// cheaply and finds its way back by itself after the connection was lost. No second connection is made.
    ///
    /// It is driven by the runtime it was made in, or by that which has last reconnected it. A handler that blocks all of that runtime's threads stops it, and
    /// then the store does not answer in time: with [`open`](Self::open) that cannot happen. It must not send a
    /// command a second time by itself. For a cluster use [`open`](Self::open), which connects to every master and follows the slots.
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

    /// Binds no token to the life of the server: one that was used may be good again after a Redis has lost its memory, in a
    /// restart or a failover. For measuring what that costs, and for showing what it is good for.
    #[must_use]
    pub fn unpinned(mut self) -> Self {
        self.is_pinned = false;
        self
    }

    /// Sends commands one by one, for the benchmark.
    #[doc(hidden)]
    #[must_use]
    pub fn without_batches(mut self) -> Self {
        self.sending = SendMode::OneByOne;
        self
    }

    /// Sends every command over one connection, one by one, for the benchmark.
    #[doc(hidden)]
    #[must_use]
    pub fn on_one_connection(mut self) -> Self {
        self.sending = SendMode::Shared;
        self
    }

    /// What every key begins with: `onceward`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a verb may take, waiting for a connection and whatever it has to ask for first included; an hour at most. What
    /// was written in the very moment in which an epoch ended is taken away again, and that may take as long once more.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(Duration::from_secs(3600));
        self
    }
}

#[async_trait]
impl Store for Redis {
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        // What is claimed and can never be settled is better not begun.
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

    /// Reads the replication id behind the command, over the same connection.
    async fn take_under(&self, ticket: &Ticket, epoch: Epoch) -> Result<Taken, StoreError> {
        if !self.is_pinned {
            return Ok(Taken { found: self.take(ticket).await?, is_of_epoch: true });
        }
        let request = Request { command: self.command("GETDEL", ticket), key_at: 1, wants_replication_id: true };
        let Response { value, replication_id } = self.send(request, self.deadline()).await?;
        let is_of_epoch = self.is_of(epoch, replication_id, ticket);
        Ok(Taken { found: bytes(value)?, is_of_epoch })
    }

    /// Checks the replication id before the command, and again behind it over the same connection. A write that raced with a change
    /// of epoch is removed again.
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
            // If that fails, whoever has sent it takes it back.
            self.remove(ticket, value).await.map_err(StoreError::unknown)?;
        }
        Ok(None)
    }

    fn admission(&self, ticket: &Ticket) -> Admission {
        self.transport.admit(&KeyName(&|| ticket.name(&self.prefix)), self.timeout)
    }

    /// Takes a token that does not exist, as redeeming does, and writes a record that expires at once: a Redis that is full refuses that.
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

/// What TLS is made of, unless the application has chosen something else.
fn install_crypto() {
    if CryptoProvider::get_default().is_none() {
        // Somebody else may do so at the same moment, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("prefix", &self.prefix).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
