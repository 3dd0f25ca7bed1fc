//! The store on Redis 7.0 or later: each verb is one command, or one script on one key, so that the same serves one server,
//! one that sentinels watch over, and a cluster.

mod address;
mod cluster;
mod deadline;
mod handed_cluster;
mod life;
mod link;
mod near;
mod own;
mod pause;
mod redirect;
mod sentinel;
mod slot;
mod step;
#[cfg(test)]
mod tests;
mod topology;
mod turn;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::redis::aio::ConnectionLike;
use ::redis::cluster_async::ClusterConnection;
use ::redis::{Client, Cmd, ErrorKind, FromRedisValue as _, RedisResult, ServerErrorKind, Value};
use rustls::crypto::CryptoProvider;

use self::address::Address;
pub use self::address::BadAddress;
use self::cluster::Cluster;
use self::deadline::Deadline;
use self::handed_cluster::HandedCluster;
use self::life::Life;
use self::link::{Failure, Handed, Key, Link, Question, Said};
use self::own::{Own, Source, client};
use self::sentinel::Sentinels;
use self::step::{REMOVE, SWAP, Step};
use super::{Bytes, Compared, Reign, Store, StoreError, Taken, async_trait};
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
    /// was written in the very moment in which a reign ended is taken away again, and that may take as long once more.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(Duration::from_secs(3600));
        self
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    /// A command on one ticket's key.
    fn command(&self, verb: &str, ticket: &Ticket) -> Cmd {
        let name = ticket.name(&self.prefix);
        // Room for the longest of them, and for a small value.
        let mut command = Cmd::with_capacity(7, verb.len() + name.len() + 64);
        command.arg(verb).arg(name);
        command
    }

    async fn ask(&self, command: Cmd, deadline: Deadline) -> Result<Option<Bytes>, StoreError> {
        let question = Question { command, key_at: 1, wants_life: false };
        bytes(self.send(question, deadline).await?.value)
    }

    async fn send(&self, question: Question, deadline: Deadline) -> Result<Said, Failure> {
        let _asked = self.one_more()?;
        match self.link.ask(question, deadline) {
            Ok(answer) => answer.await,
            Err(question) => self.link.send(question, deadline).await,
        }
    }

    /// Counts somebody who waits, unless there are enough.
    fn one_more(&self) -> Result<Asked<'_>, Failure> {
        let asked = Asked(&self.asked);
        let before = self.asked.fetch_add(1, Ordering::Relaxed);
        if before < self.most_asked { Ok(asked) } else { Err(Failure::TooMany) }
    }

    /// Runs a step by its digest, and by its text where the server has not seen it: that one was not executed.
    async fn step(
        &self,
        step: &Step,
        ticket: &Ticket,
        arguments: &[&[u8]],
        wants_life: bool,
        deadline: Deadline,
    ) -> Result<Said, StoreError> {
        let call = |verb: &str, body: &str| {
            let name = ticket.name(&self.prefix);
            let length = arguments.iter().map(|argument| argument.len()).sum::<usize>();
            let mut command =
                Cmd::with_capacity(4 + arguments.len(), verb.len() + body.len() + name.len() + length + 1);
            command.arg(verb).arg(body).arg(1).arg(name).arg(arguments);
            Question { command, key_at: 3, wants_life }
        };
        match self.send(call("EVALSHA", step.digest()), deadline).await {
            Err(failure) if failure.is(ServerErrorKind::NoScript) => {
                Ok(self.send(call("EVAL", step.text), deadline).await?)
            }
            other => Ok(other?),
        }
    }

    async fn swap_asking(
        &self,
        ticket: &Ticket,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
        wants_life: bool,
        deadline: Deadline,
    ) -> Result<Said, StoreError> {
        self.step(&SWAP, ticket, &[held, value, millis(ttl).to_string().as_bytes()], wants_life, deadline).await
    }

    /// Whether the life that was seen behind a command is this reign. Had it been another one when the command was done, it
    /// could not be this one now. If it is another, what is known of it is forgotten.
    fn is_of(&self, reign: Reign, life: Option<Life>, ticket: &Ticket) -> bool {
        // As a rule it is the known one, and need not be made into a reign again.
        let is_of_reign = match self.link.known(&Key(&|| ticket.name(&self.prefix))) {
            Some((known, of)) if life == Some(known) => of == reign,
            _ => life.and_then(|life| life.reign()) == Some(reign),
        };
        if !is_of_reign {
            self.link.forget(&Key(&|| ticket.name(&self.prefix)));
        }
        is_of_reign
    }

    /// The life of the server that has this ticket; asked for, if it is not the expected one.
    async fn life(
        &self,
        ticket: &Ticket,
        expected: Option<Reign>,
        deadline: Deadline,
    ) -> Result<(Life, Reign), Failure> {
        let name = || ticket.name(&self.prefix);
        match self.link.known(&Key(&name)) {
            Some((life, reign)) if expected == Some(reign) => Ok((life, reign)),
            _ => {
                let _asked = self.one_more()?;
                self.link.learn(&Key(&name), deadline).await
            }
        }
    }

    async fn refuses_scripts(&self, ticket: &Ticket, deadline: Deadline) -> Result<bool, Failure> {
        match self.link.refuses_scripts() {
            Some(refuses) => Ok(refuses),
            None => {
                let _asked = self.one_more()?;
                self.link.learn_scripts(&Key(&|| ticket.name(&self.prefix)), deadline).await
            }
        }
    }
}

/// What TLS is made of, unless the application has chosen something else.
fn install_crypto() {
    if CryptoProvider::get_default().is_none() {
        // Somebody else may do so at the same moment, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// One of those who wait.
struct Asked<'a>(&'a AtomicUsize);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a step that compares has done.
fn compared(answer: Value) -> Result<Compared, StoreError> {
    match answer {
        Value::Int(1) => Ok(Compared::Done),
        other => Ok(bytes(other)?.map_or(Compared::Gone, Compared::Found)),
    }
}

#[async_trait]
impl Store for Redis {
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        // What is claimed and can never be settled is better not begun.
        let deadline = self.deadline();
        if ticket.kind() == Kind::Key {
            let asked = self.refuses_scripts(ticket, deadline).await;
            if asked.map_err(|failure| StoreError::from(failure).certainly_not_executed())? {
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
        compared(self.swap_asking(ticket, held, value, ttl, false, self.deadline()).await?.value)
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8]) -> Result<Compared, StoreError> {
        compared(self.step(&REMOVE, ticket, &[held], false, self.deadline()).await?.value)
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        self.ask(self.command("GET", ticket), self.deadline()).await
    }

    fn reign(&self, ticket: &Ticket) -> Option<Reign> {
        if !self.is_pinned {
            return Some(Reign::default());
        }
        self.link.known(&Key(&|| ticket.name(&self.prefix))).map(|(_, reign)| reign)
    }

    async fn ask_reign(&self, ticket: &Ticket) -> Result<Reign, StoreError> {
        if !self.is_pinned {
            return Ok(Reign::default());
        }
        Ok(self.life(ticket, None, self.deadline()).await?.1)
    }

    /// The life is looked at behind the command and over the same connection.
    async fn take_under(&self, ticket: &Ticket, reign: Reign) -> Result<Taken, StoreError> {
        if !self.is_pinned {
            return Ok(Taken { found: self.take(ticket).await?, is_of_reign: true });
        }
        let question = Question { command: self.command("GETDEL", ticket), key_at: 1, wants_life: true };
        let Said { value, life } = self.send(question, self.deadline()).await?;
        let is_of_reign = self.is_of(reign, life, ticket);
        Ok(Taken { found: bytes(value)?, is_of_reign })
    }

    /// The life is looked at before, and again behind the command and over the same connection. What was written in the moment
    /// in which a reign ended is taken away again.
    async fn swap_under(
        &self,
        ticket: &Ticket,
        reign: Reign,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<Compared>, StoreError> {
        if !self.is_pinned {
            return self.swap(ticket, held, value, ttl).await.map(Some);
        }
        let deadline = self.deadline();
        let asked = self.life(ticket, Some(reign), deadline).await;
        let (_, known) = asked.map_err(|failure| StoreError::from(failure).certainly_not_executed())?;
        if known != reign {
            return Ok(None);
        }
        let Said { value: answer, life } = self.swap_asking(ticket, held, value, ttl, true, deadline).await?;
        let compared = compared(answer)?;
        if self.is_of(reign, life, ticket) {
            return Ok(Some(compared));
        }
        if compared == Compared::Done {
            // If that fails, whoever has sent it takes it back.
            self.remove(ticket, value).await.map_err(StoreError::unknown)?;
        }
        Ok(None)
    }

    async fn reconnected(&self) {
        self.link.reconnected().await;
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("prefix", &self.prefix).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// `PX 0` is an error to Redis, and so is more than it can count.
fn millis(ttl: Duration) -> u64 {
    const CENTURY: u64 = 100 * 365 * 24 * 60 * 60 * 1000;
    u64::try_from(ttl.as_millis()).unwrap_or(CENTURY).clamp(1, CENTURY)
}

fn bytes(value: Value) -> Result<Option<Bytes>, StoreError> {
    let bytes = Option::<Vec<u8>>::from_redis_value(value).map_err(StoreError::unknown)?;
    Ok(bytes.map(Bytes::from))
}
