//! A connection of our own to one server, which is made anew when it breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisResult};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::breaker::Breaker;
use super::deadline::Deadline;
use super::life::{FRESH, Known, Life};
use super::link::{Failure, Key, Link, Question, Said, ask_life, carry, refuses_scripts};
use super::near::Way;
use super::sentinel::Sentinels;
use super::turn::Answer;
use crate::backoff::Backoff;
use crate::runtime;
use crate::store::{Admission, Epoch, async_trait};

/// How long a new connection may take until it can be used.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// How long nothing is said before the other end is asked whether it is still there. A connection that only one worker has may be
/// unused for hours, and whatever is in between forgets it sooner.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// A connection that broke sooner than this is made anew only after a pause: a server that takes connections and refuses
/// commands is not to be stormed.
const SHORT_LIVED: Duration = Duration::from_secs(1);

/// How long to wait before a connection is made again, or a cluster is looked up again.
pub(super) fn reconnecting() -> Backoff {
    Backoff::between(Duration::from_millis(10), Duration::from_millis(500))
}

/// Where the server is.
pub(super) enum Source {
    /// Always here.
    At(Client),
    /// Where these say that it is at the moment.
    Named(Sentinels),
}

impl Source {
    /// For the log.
    fn name(&self) -> String {
        match self {
            Self::At(client) => client.get_connection_info().addr().to_string(),
            Self::Named(sentinels) => sentinels.name.clone(),
        }
    }
}

/// A connection of our own.
pub(super) struct Own {
    state: watch::Receiver<State>,
    known: Arc<Known>,
    refuses_scripts: Arc<AtomicBool>,
    way: Way,
    breaker: Arc<Breaker>,
}

#[derive(Clone)]
enum State {
    Up(Arc<Up>),
    Down(Arc<str>),
}

/// A connection that works.
struct Up {
    connection: MultiplexedConnection,
    client: Client,
    /// No other connection of this process has it.
    number: u64,
    /// It was a replica from the beginning.
    is_replica: bool,
}

/// As we connect to every server.
pub(super) fn client(info: ConnectionInfo) -> RedisResult<Client> {
    // RESP3 tells us at once when the connection breaks, not only when the next command fails.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = TcpSettings::default().set_nodelay(true);
    let tcp = tcp.set_keepalive(TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE / 3));
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(KEEP_ALIVE);
    Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp))
}

impl Own {
    /// Begins to connect.
    pub(super) fn open(source: Source) -> Self {
        let breaker = Arc::new(Breaker::new(source.name()));
        let (publish, state) = watch::channel(State::Down("not connected yet".into()));
        let (broken, _) = watch::channel(0);
        let known = Arc::new(Known::default());
        let refuses_scripts = Arc::new(AtomicBool::new(false));
        let keeper = Keeper {
            source,
            publish,
            broken: broken.clone(),
            known: Arc::clone(&known),
            refuses_scripts: Arc::clone(&refuses_scripts),
        };
        runtime::spawn(keeper.keep_connected());
        let way = Way { broken, wanted: watch::Sender::new(()), breaker: Arc::clone(&breaker) };
        Self { state, known, refuses_scripts, way, breaker }
    }

    /// Whether there is a connection.
    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(_))
    }

    /// Waits until there is one.
    pub(super) async fn reached(&self, deadline: Deadline) -> Result<(), Failure> {
        self.up(deadline).await.map(drop)
    }

    /// Waits for a connection.
    async fn up(&self, deadline: Deadline) -> Result<Arc<Up>, Failure> {
        if let State::Up(up) = &*self.state.borrow() {
            return Ok(Arc::clone(up));
        }
        let mut state = self.state.clone();
        let _ = timeout_at(deadline.at, state.wait_for(|state| matches!(state, State::Up(..)))).await;
        match state.borrow().clone() {
            State::Up(up) => Ok(up),
            State::Down(reason) => Err(Failure::NoConnection(reason)),
        }
    }

    /// Does something over the connection, and reports it if it is not to be trusted any longer.
    pub(super) async fn over<T>(
        &self,
        deadline: Deadline,
        ask: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let up = self.up(deadline).await?;
        let sent = Instant::now();
        let answer = ask(&mut up.connection.clone()).await;
        if answer.as_ref().is_err_and(|failure| failure.is_suspect(deadline.was_hurried(sent))) {
            report(&self.way.broken, up.number);
        }
        answer
    }

    /// The life of the server, as far as is known.
    pub(super) fn known(&self) -> Option<(Life, Epoch)> {
        self.known.fresh(Duration::MAX)
    }

    /// Asks for it. A connection that has ended on a replica is reported: the address may lead to a master by now.
    pub(super) async fn learn(&self, deadline: Deadline) -> Result<(Life, Epoch), Failure> {
        let learn = async |connection: &mut MultiplexedConnection| {
            let life = ask_life(connection, deadline).await?;
            self.known.note(life).map(|epoch| (life, epoch)).ok_or(Failure::Replica)
        };
        self.over(deadline, learn).await
    }

    pub(super) fn forget(&self) {
        self.known.forget();
    }
}

#[async_trait]
impl Link for Own {
    fn ask(&self, question: Question, deadline: Deadline) -> Result<Answer, Question> {
        match &*self.state.borrow() {
            State::Up(up) => self.way.ask(up.number, &up.client, question, deadline),
            State::Down(_) => Err(question),
        }
    }

    async fn send(&self, question: Question, deadline: Deadline) -> Result<Said, Failure> {
        let counted =
            async |connection: &mut _| self.breaker.note(deadline, carry(connection, &question, deadline)).await;
        self.over(deadline, counted).await
    }

    fn known(&self, _key: &Key<'_>) -> Option<(Life, Epoch)> {
        self.known()
    }

    async fn learn(&self, _key: &Key<'_>, deadline: Deadline) -> Result<(Life, Epoch), Failure> {
        self.learn(deadline).await
    }

    fn forget(&self, _key: &Key<'_>) {
        self.forget();
    }

    fn refuses_scripts(&self) -> Option<bool> {
        self.is_up().then(|| self.refuses_scripts.load(Ordering::Relaxed))
    }

    async fn learn_scripts(&self, _key: &Key<'_>, deadline: Deadline) -> Result<bool, Failure> {
        self.up(deadline).await?;
        Ok(self.refuses_scripts.load(Ordering::Relaxed))
    }

    fn admit(&self, _key: &Key<'_>, timeout: Duration) -> Admission {
        self.breaker.admit(timeout)
    }

    fn slow(&self) -> usize {
        usize::from(self.breaker.is_open())
    }

    async fn reconnected(&self) {
        let now = match &*self.state.borrow() {
            State::Up(up) => up.number,
            State::Down(_) => 0,
        };
        let anew = |state: &State| matches!(state, State::Up(up) if up.number != now);
        if self.state.clone().wait_for(anew).await.is_err() {
            std::future::pending().await
        }
    }
}

/// Keeps it connected.
struct Keeper {
    source: Source,
    publish: watch::Sender<State>,
    broken: watch::Sender<u64>,
    known: Arc<Known>,
    refuses_scripts: Arc<AtomicBool>,
}

impl Keeper {
    /// Connects, waits until the connection breaks, and connects again, until the last link is dropped.
    async fn keep_connected(self) {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
        let mut pause = reconnecting();
        loop {
            let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
            let begun = Instant::now();
            match self.connect(number).await {
                Ok(up) => {
                    let (connection, was_replica) = (up.connection.clone(), up.is_replica);
                    self.publish.send_replace(State::Up(up));
                    tokio::select! {
                        () = self.is_broken(number) => {}
                        () = self.watch(connection) => {}
                        () = self.publish.closed() => return,
                    }
                    if was_replica {
                        tracing::debug!("this Redis is still a replica; connecting again");
                    } else {
                        tracing::warn!("the connection to Redis is broken; connecting again");
                    }
                    self.known.forget();
                    self.publish.send_replace(State::Down("the connection broke".into()));
                    report(&self.broken, number);
                    if begun.elapsed() > SHORT_LIVED && !was_replica {
                        pause.reset();
                    }
                }
                Err(failure) => {
                    tracing::debug!(%failure, "Redis is out of reach");
                    let reason = match failure {
                        Failure::NoConnection(reason) => reason,
                        other => other.to_string().into(),
                    };
                    self.publish.send_replace(State::Down(reason));
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause.next()) => {}
                () = self.publish.closed() => return,
            }
        }
    }

    /// A connection to the server, whose life is known from then on.
    async fn connect(&self, number: u64) -> Result<Arc<Up>, Failure> {
        let client = match &self.source {
            Source::At(client) => client.clone(),
            Source::Named(sentinels) => sentinels.master().await?,
        };
        let Source::Named(sentinels) = &self.source else { return self.reach(client, number).await };
        // A master that hangs takes connections and says nothing: nobody waits for it once there is another.
        tokio::select! {
            reached = self.reach(client, number) => reached,
            () = sentinels.moved() => Err(Failure::NoConnection("the sentinels name another master by now".into())),
        }
    }

    async fn reach(&self, client: Client, number: u64) -> Result<Arc<Up>, Failure> {
        let mut connection = connect(&client, number, &self.broken).await?;
        if let Source::Named(_) = self.source {
            Sentinels::verify(&mut connection).await?;
        }
        let deadline = Deadline::after(CONNECT);
        let mut other = connection.clone();
        let (life, refuses) =
            tokio::try_join!(ask_life(&mut connection, deadline), refuses_scripts(&mut other, deadline))?;
        self.known.note(life);
        self.refuses_scripts.store(refuses, Ordering::Relaxed);
        Ok(Arc::new(Up { connection, client, number, is_replica: life == Life::Replica }))
    }

    async fn is_broken(&self, number: u64) {
        let mut reports = self.broken.subscribe();
        let _ = reports.wait_for(|broken| *broken >= number).await;
    }

    /// Looks every second whether the server still lives the same life, and comes back when it does not answer that, is a replica, or
    /// is not the one to ask any more.
    async fn watch(&self, mut connection: MultiplexedConnection) {
        let mut seconds = interval(FRESH);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        seconds.tick().await;
        loop {
            seconds.tick().await;
            match ask_life(&mut connection, Deadline::after(CONNECT)).await {
                Ok(life) => {
                    self.known.note(life);
                    if life == Life::Replica {
                        return;
                    }
                }
                Err(failure) => {
                    tracing::debug!(%failure, "Redis does not say who it is");
                    return;
                }
            }
            if let Source::Named(sentinels) = &self.source
                && sentinels.have_moved().await
            {
                tracing::warn!("the sentinels name another master");
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

/// Says that this connection is broken, unless a newer one is known to be.
pub(super) fn report(broken: &watch::Sender<u64>, number: u64) {
    broken.send_if_modified(|newest| {
        let newer = *newest < number;
        *newest = (*newest).max(number);
        newer
    });
}
