//! The transport of commands to Redis: a request is sent at most once, and has one response.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};
use tokio::time::{timeout, timeout_at};

use super::breaker::Breaker;
use super::capabilities::{NativeCell, NativeCommands};
use super::connection::CONNECT;
use super::deadline::Deadline;
use super::error::TransportError;
use super::queue::PendingResponse;
use super::replication_id::{FRESH, ReplicationId, ReplicationIdCache};
use super::request::{KeyName, Request};
use crate::store::{Admission, Epoch, async_trait};

/// The server's response to a request.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) value: Value,
    /// The epoch of the server after the command; `None` for a replica, and if it was not wanted.
    pub(super) epoch: Option<Epoch>,
}

/// Facts about the server that holds a key, known without a command.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ServerFacts {
    pub(super) epoch: Option<Epoch>,
    /// Whether the user may run scripts.
    pub(super) runs_scripts: Option<bool>,
    pub(super) native: NativeCommands,
}

/// Sends a request at most once, and returns the server's response.
#[async_trait]
pub(super) trait Transport: Send + Sync + 'static {
    /// Sends over the calling thread's connection. Returns `None` if the thread has none.
    fn ask(&self, _request: &Request<'_>, _deadline: Deadline) -> Option<PendingResponse> {
        None
    }

    async fn send(&self, request: Request<'_>, deadline: Deadline) -> Result<Response, TransportError>;

    /// Returns what is known about the server that holds this key. If its native commands are not known, tries them in the background
    /// on a key of the same slot.
    fn facts(&self, key: KeyName<'_>) -> ServerFacts;

    /// Returns the epoch of the server that holds this key, as far as it is known without a command.
    fn epoch(&self, key: KeyName<'_>) -> Option<Epoch>;

    /// Reads the epoch from the server.
    async fn learn_epoch(&self, key: KeyName<'_>, deadline: Deadline) -> Result<Epoch, TransportError>;

    /// Drops the cached epoch.
    fn forget(&self, key: KeyName<'_>);

    /// Asks the server that holds this key whether the user may run scripts.
    async fn learn_scripts(&self, key: KeyName<'_>, deadline: Deadline) -> Result<bool, TransportError>;

    /// Waits until the native commands of the server that holds this key have been tried.
    async fn native_tried(&self, key: KeyName<'_>, deadline: Deadline);

    /// Records that the server has rejected a native command: scripts run instead over this connection.
    fn reject_native(&self, key: KeyName<'_>);

    /// Decides whether new work may begin on this key, for a caller with this timeout.
    fn admit(&self, key: KeyName<'_>, timeout: Duration) -> Admission;

    /// Returns the number of servers whose breaker is open.
    fn slow(&self) -> usize;

    /// Completes when the server has been reconnected.
    async fn reconnected(&self);

    /// Logs no warning about a server that may evict records. A connection of the application is not asked.
    fn allow_eviction(&self) {}
}

/// A connection that the application has opened.
pub(super) struct ApplicationConnection<C> {
    connection: C,
    known: ReplicationIdCache,
    runs_scripts: OnceLock<bool>,
    native: Arc<NativeCell>,
    breaker: Breaker,
}

impl<C> ApplicationConnection<C> {
    pub(super) fn new(connection: C) -> Self {
        Self {
            connection,
            known: ReplicationIdCache::default(),
            runs_scripts: OnceLock::new(),
            native: Arc::default(),
            breaker: Breaker::new("the application's connection"),
        }
    }
}

#[async_trait]
impl<C: ConnectionLike + Clone + Send + Sync + 'static> Transport for ApplicationConnection<C> {
    async fn send(&self, request: Request<'_>, deadline: Deadline) -> Result<Response, TransportError> {
        let mut connection = self.connection.clone();
        self.breaker.note(deadline, send_over(&mut connection, &request, &self.known, deadline)).await
    }

    fn facts(&self, key: KeyName<'_>) -> ServerFacts {
        let probe = || NativeCommands::probe(self.connection.clone(), key.probe(), Deadline::after(CONNECT));
        ServerFacts {
            epoch: self.epoch(key),
            runs_scripts: self.runs_scripts.get().copied(),
            native: self.native.get_or_probe(probe),
        }
    }

    /// Uses only a recent epoch: the application's connection does not report when it reconnects.
    fn epoch(&self, _key: KeyName<'_>) -> Option<Epoch> {
        self.known.fresh(FRESH)
    }

    async fn learn_epoch(&self, _key: KeyName<'_>, deadline: Deadline) -> Result<Epoch, TransportError> {
        let replication_id = fetch_replication_id(&mut self.connection.clone(), deadline).await?;
        self.known.note(replication_id).ok_or(TransportError::Replica)
    }

    fn forget(&self, _key: KeyName<'_>) {
        self.known.forget();
    }

    async fn learn_scripts(&self, _key: KeyName<'_>, deadline: Deadline) -> Result<bool, TransportError> {
        let may = may_run_scripts(&mut self.connection.clone(), deadline).await?;
        Ok(*self.runs_scripts.get_or_init(|| may))
    }

    async fn native_tried(&self, _key: KeyName<'_>, deadline: Deadline) {
        self.native.tried(deadline).await;
    }

    fn reject_native(&self, _key: KeyName<'_>) {
        self.native.reject();
    }

    fn admit(&self, _key: KeyName<'_>, timeout: Duration) -> Admission {
        self.breaker.admit(timeout)
    }

    fn slow(&self) -> usize {
        usize::from(self.breaker.is_open())
    }

    async fn reconnected(&self) {
        std::future::pending().await
    }
}

/// Sends a request over this connection in one pipeline, so that the command and the epoch come from the same server.
pub(super) async fn send_over(
    connection: &mut (impl ConnectionLike + Send),
    request: &Request<'_>,
    known: &ReplicationIdCache,
    deadline: Deadline,
) -> Result<Response, TransportError> {
    if !request.wants_epoch {
        let value = in_time(deadline, request.command().query_async(connection)).await?;
        return Ok(Response { value, epoch: None });
    }
    let mut commands = Pipeline::with_capacity(2);
    commands.add_command(request.command()).add_command(ReplicationId::command());
    let values = in_time(deadline, connection.req_packed_commands(&commands, 0, 2)).await?;
    read(values, known)
}

/// Reads a command's response, and the epoch after it.
pub(super) fn read(values: Vec<Value>, known: &ReplicationIdCache) -> Result<Response, TransportError> {
    let epoch = values.get(1).and_then(|answer| known.epoch_of(ReplicationId::read(answer)));
    let value = values.into_iter().next().unwrap_or(Value::Nil).extract_error()?;
    Ok(Response { value, epoch })
}

/// Reads the replication id of the server at the other end.
pub(super) async fn fetch_replication_id(
    connection: &mut (impl ConnectionLike + Send),
    deadline: Deadline,
) -> Result<ReplicationId, TransportError> {
    match in_time(deadline, ReplicationId::command().query_async(connection)).await {
        Ok(answer) => Ok(ReplicationId::read(&answer)),
        Err(TransportError::Redis(error)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => {
            Ok(ReplicationId::Hidden)
        }
        Err(error) => Err(error),
    }
}

/// Returns whether the user may run scripts.
pub(super) async fn may_run_scripts(
    connection: &mut (impl ConnectionLike + Send),
    deadline: Deadline,
) -> Result<bool, TransportError> {
    let mut nothing = Cmd::with_capacity(3, 13);
    nothing.arg("EVAL").arg("return 1").arg(0);
    match in_time(deadline, nothing.query_async::<Value>(connection)).await {
        Err(error) if error.is(ServerErrorKind::NoPerm) => {
            tracing::warn!(
                "the Redis user may not run scripts (EVAL): this Redis can be used only if it has commands that compare (SET with IFEQ, \
                 and DELEX or DELIFEQ); otherwise allow EVAL and EVALSHA with ACL SETUSER"
            );
            Ok(false)
        }
        // Any other error of the server surfaces where it matters.
        Err(error) if !error.is_answer() => Err(error),
        _ => Ok(true),
    }
}

/// Waits for a response until the deadline and its extra time.
pub(super) async fn in_time<T>(
    deadline: Deadline,
    answer: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, TransportError> {
    let mut answer = pin!(answer);
    match timeout_at(deadline.at, &mut answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => {
            timeout(deadline.beyond(), answer).await.map_err(|_| deadline.timed_out())?.map_err(TransportError::from)
        }
    }
}
