//! The way to a Redis server: a connection that is made anew when it breaks, and no command sent twice.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError,
    RedisResult, ServerErrorKind, Value,
};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::near::Way;
use super::turn::Answer;
use crate::background;
use crate::store::{StoreError, async_trait};

/// How long a new connection may take until it can be used.
const CONNECT: Duration = Duration::from_secs(2);
/// The first and the longest pause between two tries to connect.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// What an answer gets beyond its time, at least and at most. A thread that was held up, and drives its own connection, finds
/// that the time is over before it has sent what it asks, or read what has long been there: it gets as long as it was late.
const BEYOND: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A connection that broke sooner than this is made anew only after a pause: a server that takes connections and refuses
/// commands is not to be stormed.
const SHORT_LIVED: Duration = Duration::from_secs(1);

/// Sends a command, once, and gives the server's answer.
#[async_trait]
pub(super) trait Link: Send + Sync + 'static {
    /// Asks over the asking thread's own connection; gives the command back if it has none.
    fn ask(&self, command: Cmd, _deadline: Instant) -> Result<Answer, Cmd> {
        Err(command)
    }

    async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, Failure>;

    /// Comes back when the server has been reached anew.
    async fn reconnected(&self);
}

/// Why a command has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// There was no connection to send it over.
    #[error("Redis is out of reach: {0}")]
    NoConnection(Arc<str>),
    /// It was sent, and no answer came in time.
    #[error("Redis did not answer in time")]
    TimedOut,
    /// The server said no, or the connection broke.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

impl Failure {
    /// Whether the server gave exactly this answer.
    pub(super) fn is(&self, kind: ServerErrorKind) -> bool {
        matches!(self, Self::Redis(error) if error.kind() == ErrorKind::Server(kind))
    }

    /// A server that says no has not done it. A connection that was refused has carried nothing.
    fn is_certain(&self) -> bool {
        match self {
            Self::NoConnection(_) => true,
            Self::TimedOut => false,
            Self::Redis(error) => {
                matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) || error.is_connection_refusal()
            }
        }
    }

    /// Whether the connection is not to be trusted any longer.
    pub(super) fn is_suspect(&self, was_hurried: bool) -> bool {
        match self {
            Self::NoConnection(_) => false,
            Self::TimedOut => !was_hurried,
            Self::Redis(error) => error.is_unrecoverable_error() || self.is(ServerErrorKind::ReadOnly),
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        if failure.is_certain() { Self::not_executed(failure) } else { Self::unknown(failure) }
    }
}

/// A connection of our own.
pub(super) struct Own {
    state: watch::Receiver<State>,
    /// Its `broken` is the number of the newest connection that somebody has found broken.
    way: Way,
}

#[derive(Clone)]
enum State {
    Up(MultiplexedConnection, u64),
    Down(Arc<str>),
}

impl Own {
    /// Begins to connect.
    pub(super) fn open(info: ConnectionInfo) -> RedisResult<Self> {
        // RESP3 tells us at once when the connection breaks, not only when the next command fails.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let tcp = TcpSettings::default().set_nodelay(true);
        let client = Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp))?;
        let (publish, state) = watch::channel(State::Down("not connected yet".into()));
        let (broken, _) = watch::channel(0);
        background::spawn(keep_connected(client.clone(), publish, broken.clone()));
        Ok(Self { state, way: Way { client, broken, wanted: watch::Sender::new(()) } })
    }

    /// Waits for a connection.
    async fn up(&self, deadline: Instant) -> Result<(MultiplexedConnection, u64), Failure> {
        if let State::Up(connection, number) = &*self.state.borrow() {
            return Ok((connection.clone(), *number));
        }
        let mut state = self.state.clone();
        let _ = timeout_at(deadline, state.wait_for(|state| matches!(state, State::Up(..)))).await;
        match state.borrow().clone() {
            State::Up(connection, number) => Ok((connection, number)),
            State::Down(reason) => Err(Failure::NoConnection(reason)),
        }
    }
}

#[async_trait]
impl Link for Own {
    fn ask(&self, command: Cmd, deadline: Instant) -> Result<Answer, Cmd> {
        match &*self.state.borrow() {
            State::Up(_, number) => self.way.ask(*number, command, deadline),
            State::Down(_) => Err(command),
        }
    }

    async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        let asked = Instant::now();
        let (mut connection, number) = self.up(deadline).await?;
        let sent = Instant::now();
        let answer = query(&mut connection, command, deadline).await;
        // Whoever has waited long for the connection leaves it little time to answer, which says nothing against it.
        let was_hurried = sent - asked > deadline.saturating_duration_since(sent);
        if answer.as_ref().is_err_and(|failure| failure.is_suspect(was_hurried)) {
            report(&self.way.broken, number);
        }
        answer
    }

    async fn reconnected(&self) {
        let now = match &*self.state.borrow() {
            State::Up(_, number) => *number,
            State::Down(_) => 0,
        };
        let anew = |state: &State| matches!(state, State::Up(_, number) if *number != now);
        if self.state.clone().wait_for(anew).await.is_err() {
            std::future::pending().await
        }
    }
}

/// The application's own connection.
pub(super) struct Handed<C>(C);

impl<C> Handed<C> {
    pub(super) fn new(connection: C) -> Self {
        Self(connection)
    }
}

#[async_trait]
impl<C: ConnectionLike + Clone + Send + Sync + 'static> Link for Handed<C> {
    async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        query(&mut self.0.clone(), command, deadline).await
    }

    /// Nobody tells us.
    async fn reconnected(&self) {
        std::future::pending().await
    }
}

async fn query(
    connection: &mut (impl ConnectionLike + Send),
    command: &Cmd,
    deadline: Instant,
) -> Result<Value, Failure> {
    let mut answer = pin!(command.query_async(connection));
    match timeout_at(deadline, &mut answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => timeout(beyond(deadline), answer).await.map_err(|_| Failure::TimedOut)?.map_err(Failure::from),
    }
}

/// How much longer than this an answer may take.
pub(super) fn beyond(deadline: Instant) -> Duration {
    deadline.elapsed().clamp(BEYOND.0, BEYOND.1)
}

/// Connects, waits until the connection breaks, and connects again, until the last link is dropped.
async fn keep_connected(client: Client, publish: watch::Sender<State>, broken: watch::Sender<u64>) {
    static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
    let mut pause = PAUSE.0;
    loop {
        let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        match connect(&client, number, &broken).await {
            Ok(connection) => {
                publish.send_replace(State::Up(connection, number));
                let mut reports = broken.subscribe();
                tokio::select! {
                    _ = reports.wait_for(|broken| *broken >= number) => {}
                    () = publish.closed() => return,
                }
                tracing::warn!("the connection to Redis is broken; connecting again");
                publish.send_replace(State::Down("the connection broke".into()));
                if begun.elapsed() > SHORT_LIVED {
                    pause = PAUSE.0;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "Redis is out of reach");
                publish.send_replace(State::Down(error.to_string().into()));
            }
        }
        let jitter = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        tokio::select! {
            () = tokio::time::sleep(jitter) => {}
            () = publish.closed() => return,
        }
        pause = (pause * 2).min(PAUSE.1);
    }
}

pub(super) async fn connect(
    client: &Client,
    number: u64,
    broken: &watch::Sender<u64>,
) -> RedisResult<MultiplexedConnection> {
    let broken = broken.clone();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT))
        .set_response_timeout(None)
        .set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                report(&broken, number);
            }
            Ok::<(), ()>(())
        });
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Says that this connection is broken, unless a newer one is known to be.
pub(super) fn report(broken: &watch::Sender<u64>, number: u64) {
    broken.send_if_modified(|newest| {
        let newer = *newest < number;
        *newest = (*newest).max(number);
        newer
    });
}
