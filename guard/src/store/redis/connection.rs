//! A connection to one server that reconnects when it breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisResult};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::breaker::Breaker;
use super::capabilities::{NativeCell, NativeCommands};
use super::deadline::Deadline;
use super::error::{ConnectionFailure, TransportError};
use super::eviction::EvictionWarning;
use super::queue::PendingResponse;
use super::replication_id::{FRESH, ReplicationId, ReplicationIdCache};
use super::request::{KeyName, Request};
use super::sentinel::Sentinels;
use super::thread_local::{self, ThreadLocalConnector};
use super::transport::{Response, ServerFacts, Transport, fetch_replication_id, may_run_scripts, send_over};
use crate::backoff::Backoff;
use crate::runtime;
use crate::store::{Admission, Epoch, async_trait};

/// The timeout for opening a connection.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// Idle time before a TCP keepalive probe. A worker's connection may be idle for hours, and a firewall in between drops it sooner.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// A connection that broke sooner than this does not reset the backoff: a server that accepts connections and rejects commands must not
/// be flooded with attempts.
const SHORT_LIVED: Duration = Duration::from_secs(1);

/// Returns the backoff for reconnecting, and for looking up the slot map of a cluster.
pub(super) fn reconnecting() -> Backoff {
    Backoff::between(Duration::from_millis(10), Duration::from_millis(500))
}

/// The way to find the server.
pub(super) enum Endpoint {
    /// At a fixed address.
    Fixed(Client),
    /// At the address that these sentinels name.
    Sentinels(Sentinels),
}

impl Endpoint {
    /// Returns the name of the server in the log.
    fn name(&self) -> String {
        match self {
            Self::Fixed(client) => client.get_connection_info().addr().to_string(),
            Self::Sentinels(sentinels) => sentinels.name.clone(),
        }
    }

    /// Returns the name of the server in errors.
    fn server(&self) -> String {
        match self {
            Self::Fixed(_) => format!("Redis at {}", self.name()),
            Self::Sentinels(_) => format!("the Redis master `{}`", self.name()),
        }
    }

    /// Describes why the server cannot be used.
    fn failure(&self, error: TransportError) -> ConnectionFailure {
        let login = match self {
            Self::Fixed(client) => client.get_connection_info().redis_settings(),
            Self::Sentinels(sentinels) => sentinels.node.redis_settings(),
        };
        ConnectionFailure::of(&self.server(), login, error)
    }
}

/// A connection to one server that a background task keeps open.
pub(super) struct ManagedConnection {
    state: watch::Receiver<ConnectionState>,
    /// The number of the open connection; zero if there is none. Unlike `state`, workers read it without a lock.
    open: Arc<AtomicU64>,
    known: Arc<ReplicationIdCache>,
    thread_local: ThreadLocalConnector,
    breaker: Arc<Breaker>,
    eviction: Arc<EvictionWarning>,
}

#[derive(Clone)]
enum ConnectionState {
    Up(Arc<LiveConnection>),
    Down(ConnectionFailure),
}

/// An open connection.
pub(super) struct LiveConnection {
    connection: MultiplexedConnection,
    pub(super) client: Client,
    /// Unique in this process.
    pub(super) number: u64,
    /// The server was a replica when the connection was opened.
    is_replica: bool,
    pub(super) runs_scripts: bool,
    pub(super) native: Arc<NativeCell>,
}

/// Creates a client with the settings that apply to every server.
pub(super) fn client(info: ConnectionInfo) -> RedisResult<Client> {
    // With RESP3 the client learns at once that the connection broke, not only when the next command fails.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = TcpSettings::default().set_nodelay(true);
    let tcp = tcp.set_keepalive(TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE / 3));
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(KEEP_ALIVE);
    Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp))
}

impl ManagedConnection {
    /// Starts to connect in the background. All connections of one store share the warning.
    pub(super) fn open(source: Endpoint, eviction: Arc<EvictionWarning>) -> Self {
        let breaker = Arc::new(Breaker::new(source.name()));
        let connecting = format!("not connected to {} yet", source.server());
        let (publish, state) = watch::channel(ConnectionState::Down(connecting.into()));
        let (broken, _) = watch::channel(0);
        let (known, open) = (Arc::new(ReplicationIdCache::default()), Arc::<AtomicU64>::default());
        let keeper = ConnectionTask {
            source,
            publish,
            open: Arc::clone(&open),
            broken: broken.clone(),
            known: Arc::clone(&known),
            eviction: Arc::clone(&eviction),
        };
        runtime::spawn(keeper.keep_connected());
        let thread_local = ThreadLocalConnector::new(broken, Arc::clone(&breaker));
        Self { state, open, known, thread_local, breaker, eviction }
    }

    /// Returns whether the connection is open.
    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), ConnectionState::Up(_))
    }

    /// Waits until the connection is open.
    pub(super) async fn reached(&self, deadline: Deadline) -> Result<(), TransportError> {
        self.up(deadline).await.map(drop)
    }

    /// Waits until the connection is open, and returns it.
    async fn up(&self, deadline: Deadline) -> Result<Arc<LiveConnection>, TransportError> {
        if let ConnectionState::Up(up) = &*self.state.borrow() {
            return Ok(Arc::clone(up));
        }
        let mut state = self.state.clone();
        let _ = timeout_at(deadline.at, state.wait_for(|state| matches!(state, ConnectionState::Up(..)))).await;
        match state.borrow().clone() {
            ConnectionState::Up(up) => Ok(up),
            ConnectionState::Down(failure) => Err(TransportError::NoConnection(failure)),
        }
    }

    /// Runs `ask` over the connection, and reports the connection as broken if the error makes it suspect.
    pub(super) async fn over<T>(
        &self,
        deadline: Deadline,
        ask: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        let up = self.up(deadline).await?;
        let sent = Instant::now();
        let answer = ask(&mut up.connection.clone()).await;
        if answer.as_ref().is_err_and(|error| error.is_suspect(deadline.was_hurried(sent))) {
            report(&self.thread_local.broken, up.number);
        }
        answer
    }

    /// Returns the cache of the server's replication id.
    pub(super) fn known(&self) -> &ReplicationIdCache {
        &self.known
    }

    /// Reads the epoch from the server. Reports a connection to a replica as broken: the address may lead to a master by now.
    pub(super) async fn learn_epoch(&self, deadline: Deadline) -> Result<Epoch, TransportError> {
        let learn = async |connection: &mut MultiplexedConnection| {
            let replication_id = fetch_replication_id(connection, deadline).await?;
            self.known.note(replication_id).ok_or(TransportError::Replica)
        };
        self.over(deadline, learn).await
    }
}

#[async_trait]
impl Transport for ManagedConnection {
    fn ask(&self, request: &Request<'_>, deadline: Deadline) -> Option<PendingResponse> {
        let number = self.open.load(Ordering::Acquire);
        let live = || match &*self.state.borrow() {
            ConnectionState::Up(up) => Some(Arc::clone(up)),
            ConnectionState::Down(_) => None,
        };
        if number == 0 { None } else { self.thread_local.ask(number, live, request, deadline) }
    }

    async fn send(&self, request: Request<'_>, deadline: Deadline) -> Result<Response, TransportError> {
        let counted = async |connection: &mut _| {
            self.breaker.note(deadline, send_over(connection, &request, &self.known, deadline)).await
        };
        self.over(deadline, counted).await
    }

    fn facts(&self, key: KeyName<'_>) -> ServerFacts {
        let epoch = self.known.epoch();
        if let Some((runs_scripts, native)) = thread_local::capabilities(self.open.load(Ordering::Acquire)) {
            return ServerFacts { epoch, runs_scripts: Some(runs_scripts), native };
        }
        match &*self.state.borrow() {
            ConnectionState::Up(up) => {
                let probe = || NativeCommands::probe(up.connection.clone(), key.probe(), Deadline::after(CONNECT));
                let native = up.native.get_or_probe(probe);
                ServerFacts { epoch, runs_scripts: Some(up.runs_scripts), native }
            }
            ConnectionState::Down(_) => ServerFacts { epoch, ..ServerFacts::default() },
        }
    }

    fn epoch(&self, _key: KeyName<'_>) -> Option<Epoch> {
        self.known.epoch()
    }

    async fn learn_epoch(&self, _key: KeyName<'_>, deadline: Deadline) -> Result<Epoch, TransportError> {
        self.learn_epoch(deadline).await
    }

    fn forget(&self, _key: KeyName<'_>) {
        self.known.forget();
    }

    async fn learn_scripts(&self, _key: KeyName<'_>, deadline: Deadline) -> Result<bool, TransportError> {
        Ok(self.up(deadline).await?.runs_scripts)
    }

    async fn native_tried(&self, _key: KeyName<'_>, deadline: Deadline) {
        if let Ok(up) = self.up(deadline).await {
            up.native.tried(deadline).await;
        }
    }

    fn reject_native(&self, _key: KeyName<'_>) {
        if let ConnectionState::Up(up) = &*self.state.borrow() {
            up.native.reject();
        }
    }

    fn admit(&self, _key: KeyName<'_>, timeout: Duration) -> Admission {
        self.breaker.admit(timeout)
    }

    fn slow(&self) -> usize {
        usize::from(self.breaker.is_open())
    }

    async fn reconnected(&self) {
        let now = match &*self.state.borrow() {
            ConnectionState::Up(up) => up.number,
            ConnectionState::Down(_) => 0,
        };
        let is_new = |state: &ConnectionState| matches!(state, ConnectionState::Up(up) if up.number != now);
        if self.state.clone().wait_for(is_new).await.is_err() {
            std::future::pending().await
        }
    }

    fn allow_eviction(&self) {
        self.eviction.allow();
    }
}

/// The background task that keeps a connection open.
struct ConnectionTask {
    source: Endpoint,
    publish: watch::Sender<ConnectionState>,
    open: Arc<AtomicU64>,
    broken: watch::Sender<u64>,
    known: Arc<ReplicationIdCache>,
    eviction: Arc<EvictionWarning>,
}

impl ConnectionTask {
    /// Connects, waits until the connection breaks, and connects again, until the last transport is dropped.
    async fn keep_connected(self) {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
        let mut pause = reconnecting();
        loop {
            let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
            let begun = Instant::now();
            match self.connect(number).await {
                Ok(up) => {
                    let (connection, was_replica) = (up.connection.clone(), up.is_replica);
                    self.publish.send_replace(ConnectionState::Up(up));
                    self.open.store(number, Ordering::Release);
                    tokio::select! {
                        () = self.is_broken(number) => {}
                        () = self.watch(connection) => {}
                        () = self.publish.closed() => return,
                    }
                    if was_replica {
                        tracing::debug!(server = self.source.name(), "this Redis is still a replica; reconnecting");
                    } else {
                        tracing::info!(server = self.source.name(), "connection to Redis lost; reconnecting");
                    }
                    self.open.store(0, Ordering::Release);
                    self.known.forget();
                    let lost = format!("connection to {} lost", self.source.server());
                    self.publish.send_replace(ConnectionState::Down(lost.into()));
                    report(&self.broken, number);
                    if begun.elapsed() > SHORT_LIVED && !was_replica {
                        pause.reset();
                    }
                }
                Err(error) => {
                    let failure = self.source.failure(error);
                    tracing::debug!(reason = failure.reason(), "could not connect to Redis; retrying");
                    self.publish.send_replace(ConnectionState::Down(failure));
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause.next()) => {}
                () = self.publish.closed() => return,
            }
        }
    }

    /// Opens a connection, and caches the server's replication id.
    async fn connect(&self, number: u64) -> Result<Arc<LiveConnection>, TransportError> {
        let client = match &self.source {
            Endpoint::Fixed(client) => client.clone(),
            Endpoint::Sentinels(sentinels) => sentinels.master().await?,
        };
        let Endpoint::Sentinels(sentinels) = &self.source else { return self.reach(client, number).await };
        // A hung master accepts connections and does not reply: stop waiting for it once the sentinels name another.
        tokio::select! {
            reached = self.reach(client, number) => reached,
            () = sentinels.moved() => Err(TransportError::NoConnection("the sentinels name another master".into())),
        }
    }

    async fn reach(&self, client: Client, number: u64) -> Result<Arc<LiveConnection>, TransportError> {
        let mut connection = connect(&client, number, &self.broken).await?;
        if let Endpoint::Sentinels(_) = self.source {
            Sentinels::verify(&mut connection).await?;
        }
        let deadline = Deadline::after(CONNECT);
        let mut other = connection.clone();
        let (replication_id, runs_scripts) =
            tokio::try_join!(fetch_replication_id(&mut connection, deadline), may_run_scripts(&mut other, deadline))?;
        self.known.note(replication_id);
        Ok(Arc::new(LiveConnection {
            connection,
            client,
            number,
            is_replica: replication_id == ReplicationId::Replica,
            runs_scripts,
            native: Arc::default(),
        }))
    }

    async fn is_broken(&self, number: u64) {
        let mut reports = self.broken.subscribe();
        let _ = reports.wait_for(|broken| *broken >= number).await;
    }

    /// Reads the replication id every second, and after the first second also whether the server evicts records. Returns when the server
    /// does not reply, is a replica, or is no longer the master that the sentinels name.
    async fn watch(&self, mut connection: MultiplexedConnection) {
        let mut seconds = interval(FRESH);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        seconds.tick().await;
        let mut is_asked = false;
        loop {
            seconds.tick().await;
            if !std::mem::replace(&mut is_asked, true) {
                self.eviction.ask(&mut connection, &self.source.name(), Deadline::after(CONNECT)).await;
            }
            match fetch_replication_id(&mut connection, Deadline::after(CONNECT)).await {
                Ok(replication_id) => {
                    self.known.note(replication_id);
                    if replication_id == ReplicationId::Replica {
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "could not read the replication id; reconnecting");
                    return;
                }
            }
            if let Endpoint::Sentinels(sentinels) = &self.source
                && sentinels.have_moved().await
            {
                tracing::warn!(server = sentinels.name, "the sentinels name another master; reconnecting");
                return;
            }
        }
    }
}

/// Connects to a server.
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

/// Reports a connection as broken, unless the same or a newer one has been reported.
pub(super) fn report(broken: &watch::Sender<u64>, number: u64) {
    broken.send_if_modified(|newest| {
        let newer = *newest < number;
        *newest = (*newest).max(number);
        newer
    });
}
