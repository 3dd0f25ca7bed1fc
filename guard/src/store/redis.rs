//! The store on Redis 7.0 or later: each verb is one command, or one script on one key.

mod link;
mod near;
mod turn;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::redis::aio::ConnectionLike;
use ::redis::{Cmd, FromRedisValue as _, IntoConnectionInfo as _, Script, ServerErrorKind, Value};

use tokio::time::Instant;

use self::link::{Failure, Handed, Link, Own};
use super::{Bytes, Compared, Store, StoreError, async_trait};
use crate::ticket::Ticket;

/// Writes or renews if what is there is what is held. Done is 1; otherwise what is there, or nil.
static SWAP: Step = Step::new(
    "local there = redis.call('GET', KEYS[1])
    if there ~= ARGV[1] then return there end
    if ARGV[1] == ARGV[2] then redis.call('PEXPIRE', KEYS[1], ARGV[3])
    else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
    return 1",
);

/// Deletes if what is there is what is held. Done is 1; otherwise what is there, or nil.
static REMOVE: Step = Step::new(
    "local there = redis.call('GET', KEYS[1])
    if there ~= ARGV[1] then return there end
    redis.call('DEL', KEYS[1])
    return 1",
);

/// A script on one key, known to the server by its digest once it has been run.
struct Step {
    text: &'static str,
    digest: OnceLock<String>,
}

impl Step {
    const fn new(text: &'static str) -> Self {
        Self { text, digest: OnceLock::new() }
    }

    fn digest(&self) -> &str {
        self.digest.get_or_init(|| Script::new(self.text).get_hash().to_owned())
    }
}

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
#[derive(Clone)]
pub struct Redis {
    link: Arc<dyn Link>,
    prefix: String,
    timeout: Duration,
}

impl Redis {
    /// How long a verb may take, unless [`timeout`](Self::timeout) says otherwise.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(250);

    /// A store at this address. The connection is made, driven and made again on a thread that runs nothing else, so
    /// that a handler that blocks its own thread does not stop it. This returns at once, also if nothing is there yet.
    /// A worker of actix, or whatever else drives a runtime alone, soon has a second one to itself, which is the shorter way.
    ///
    /// # Errors
    /// If the address cannot be read.
    pub fn open(address: &str) -> Result<Self, BadAddress> {
        let info = address.into_connection_info().map_err(|error| BadAddress(error.to_string()))?;
        Ok(Self::on(Own::open(info).map_err(|error| BadAddress(error.to_string()))?))
    }

    /// Whether this is an address, without going there.
    ///
    /// # Errors
    /// If it is none.
    pub fn check_address(address: &str) -> Result<(), BadAddress> {
        address.into_connection_info().map(drop).map_err(|error| BadAddress(error.to_string()))
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

    fn on(link: impl Link) -> Self {
        Self { link: Arc::new(link), prefix: "onceward".to_owned(), timeout: Self::DEFAULT_TIMEOUT }
    }

    /// What every key begins with: `onceward`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a verb may take, waiting for a connection included; an hour at most.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(Duration::from_secs(3600));
        self
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// A command on one ticket's key.
    fn command(&self, verb: &str, ticket: &Ticket) -> Cmd {
        let name = ticket.name(&self.prefix);
        // Room for the longest of them, and for a small value.
        let mut command = Cmd::with_capacity(7, verb.len() + name.len() + 64);
        command.arg(verb).arg(name);
        command
    }

    async fn ask(&self, command: Cmd) -> Result<Option<Bytes>, StoreError> {
        bytes(self.send(command, self.deadline()).await?)
    }

    async fn send(&self, command: Cmd, deadline: Instant) -> Result<Value, Failure> {
        match self.link.ask(command, deadline) {
            Ok(answer) => answer.await,
            Err(command) => self.link.send(&command, deadline).await,
        }
    }

    /// Runs a step by its digest, and by its text where the server has not seen it: that one was not executed.
    async fn compare(&self, step: &Step, ticket: &Ticket, arguments: &[&[u8]]) -> Result<Compared, StoreError> {
        let call = |verb: &str, body: &str| {
            let name = ticket.name(&self.prefix);
            let length = arguments.iter().map(|argument| argument.len()).sum::<usize>();
            let mut command =
                Cmd::with_capacity(4 + arguments.len(), verb.len() + body.len() + name.len() + length + 1);
            command.arg(verb).arg(body).arg(1).arg(name).arg(arguments);
            command
        };
        let deadline = self.deadline();
        let answer = match self.send(call("EVALSHA", step.digest()), deadline).await {
            Err(failure) if failure.is(ServerErrorKind::NoScript) => {
                self.send(call("EVAL", step.text), deadline).await?
            }
            other => other?,
        };
        match answer {
            Value::Int(1) => Ok(Compared::Done),
            other => Ok(bytes(other)?.map_or(Compared::Gone, Compared::Found)),
        }
    }
}

#[async_trait]
impl Store for Redis {
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        let mut command = self.command("SET", ticket);
        command.arg(value).arg("PX").arg(millis(ttl)).arg("NX").arg("GET");
        self.ask(command).await
    }

    async fn take(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        self.ask(self.command("GETDEL", ticket)).await
    }

    async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration) -> Result<Compared, StoreError> {
        self.compare(&SWAP, ticket, &[held, value, millis(ttl).to_string().as_bytes()]).await
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8]) -> Result<Compared, StoreError> {
        self.compare(&REMOVE, ticket, &[held]).await
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        self.ask(self.command("GET", ticket)).await
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

/// An address that is not one of a Redis.
#[derive(Debug, thiserror::Error)]
#[error("this is not the address of a Redis, as in redis://127.0.0.1:6379: {0}")]
pub struct BadAddress(String);

/// `PX 0` is an error to Redis, and so is more than it can count.
fn millis(ttl: Duration) -> u64 {
    const CENTURY: u64 = 100 * 365 * 24 * 60 * 60 * 1000;
    u64::try_from(ttl.as_millis()).unwrap_or(CENTURY).clamp(1, CENTURY)
}

fn bytes(value: Value) -> Result<Option<Bytes>, StoreError> {
    let bytes = Option::<Vec<u8>>::from_redis_value(value).map_err(StoreError::unknown)?;
    Ok(bytes.map(Bytes::from))
}
