//! The store on Redis 7.0 or later: each verb is one command, or one script on one key, so that the same serves one server,
//! one that sentinels watch over, and a cluster.

mod address;
mod breaker;
mod cluster;
mod deadline;
mod handed_cluster;
mod life;
mod link;
mod near;
mod own;
mod redirect;
mod sentinel;
mod slot;
mod step;
#[cfg(test)]
mod tests;
mod topology;
mod turn;
mod verbs;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use ::redis::aio::ConnectionLike;
use ::redis::cluster_async::ClusterConnection;
use ::redis::{Client, ErrorKind, RedisResult};
use rustls::crypto::CryptoProvider;

use self::address::Address;
pub use self::address::BadAddress;
use self::cluster::Cluster;
use self::handed_cluster::HandedCluster;
use self::link::{Failure, Handed, Link};
use self::own::{Own, Source, client};
use self::sentinel::Sentinels;

/// A store that many processes share.
///
/// ```no_run
/// use onceward::store::Redis;
///
/// let store = Redis::open("redis://127.0.0.1:6379")?.prefix("shop");
/// # Ok::<(), onceward::store::BadAddress>(())
/// ```
///
/// Nothing is ever sent twice: a command whose answer was lost is reported as [`StoreError::Unknown`](crate::store::StoreError::Unknown).
///
/// A Redis that restarts from an old snapshot, or is replaced by a replica that has not seen everything, has tokens again that
/// were used. So each token is bound to the life of the server that issued it, which that server's `master_replid` names, and is
/// stale in the next.
#[derive(Clone)]
pub struct Redis {
    link: Arc<dyn Link>,
    prefix: String,
    timeout: Duration,
    is_pinned: bool,
    /// How many commands wait for an answer.
    asked: Arc<AtomicUsize>,
    /// How many of them there may be at once.
    most_asked: usize,
}

/// How many commands may wait for an answer at once. A Redis that does not answer is not to fill the memory.
const MOST_ASKED: usize = 32_768;

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
            Address::One(info) => Self::on(Own::open(Source::At(client(*info).map_err(unusable)?))),
            Address::Sentinel { sentinels, name, node } => {
                Self::on(Own::open(Source::Named(Sentinels::new(sentinels, name, *node))))
            }
            Address::Cluster(nodes) => Self::on(Cluster::open(nodes).map_err(unusable)?),
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
        let unfound = |failure| match failure {
            Failure::Redis(error) => error,
            other => (ErrorKind::Io, "nobody says where it is", other.to_string()).into(),
        };
        let masters = match address::parse(address).map_err(unreadable)? {
            Address::One(info) => vec![client(*info)?],
            Address::Sentinel { sentinels, name, node } => {
                vec![Sentinels::new(sentinels, name, *node).master().await.map_err(unfound)?]
            }
            Address::Cluster(nodes) => topology::masters(nodes).await.map_err(unfound)?,
        };
        Ok(masters.into_iter().map(|client| (client.get_connection_info().addr().to_string(), client)).collect())
    }

    /// A store over a connection that the application already has: a `ConnectionManager`, or anything that is cloned
    /// cheaply and finds its way back by itself after the connection was lost. No second connection is made.
    ///
    /// It is driven by the runtime it was made in, or by that which has last reconnected it. A handler that blocks all of that runtime's threads stops it, and
    /// then the store does not answer in time: with [`open`](Self::open) that cannot happen. It must not send a
    /// command a second time by itself.
    pub fn over(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Self {
        Self::on(Handed::new(connection))
    }

    /// The same over a connection to a cluster. It has to be one that repeats nothing: `ClusterClientBuilder::retries(0)`. What
    /// it would repeat otherwise is also what was done and whose answer was lost.
    ///
    /// Such a connection knows those nodes only that have slots. A record that is on its way to one that has none yet cannot be reached
    /// until the first of them is there, and is told as not executed: give a new node a slot before others are moved.
    pub fn over_cluster(connection: ClusterConnection) -> Self {
        Self::on(HandedCluster::new(connection))
    }

    fn on(link: impl Link) -> Self {
        Self {
            link: Arc::new(link),
            prefix: "onceward".to_owned(),
            timeout: Self::DEFAULT_TIMEOUT,
            is_pinned: true,
            asked: Arc::default(),
            most_asked: MOST_ASKED,
        }
    }

    /// Binds no token to the life of the server: one that was used may be good again after a Redis has lost its memory, in a
    /// restart or a failover. For measuring what that costs, and for showing what it is good for.
    #[must_use]
    pub fn unpinned(mut self) -> Self {
        self.is_pinned = false;
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
