//! The transport of commands to Redis: a request is sent at most once, and has one response.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};
use tokio::time::{timeout, timeout_at};

use super::batch::PendingResponse;
use super::breaker::Breaker;
use super::capabilities::{NativeCell, NativeCommands};
use super::connection::CONNECT;
use super::deadline::Deadline;
use super::error::TransportError;
use super::replication_id::{FRESH, ReplicationId, ReplicationIdCache};
use crate::store::{Admission, Epoch, async_trait};

/// A command on one key.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) command: Cmd,
    /// The index of the key among the command's arguments.
    pub(super) key_at: usize,
    /// True if the response carries the server's replication id.
    pub(super) wants_replication_id: bool,
}

impl Request {
    /// Creates a request whose key is the first argument after the name of the command.
    pub(super) fn new(command: Cmd, wants_replication_id: bool) -> Self {
        Self { command, key_at: 1, wants_replication_id }
    }
}

/// The server's response to a request.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) value: Value,
    pub(super) replication_id: Option<ReplicationId>,
}

/// Sends a request at most once, and returns the server's response.
#[async_trait]
pub(super) trait Transport: Send + Sync + 'static {
    /// Sends over the calling thread's connection. Returns the request if the thread has none.
    fn ask(&self, request: Request, _deadline: Deadline) -> Result<PendingResponse, Request> {
        Err(request)
    }

    async fn send(&self, request: Request, deadline: Deadline) -> Result<Response, TransportError>;

    /// Sends one request over the calling thread's connection, or over the shared one if the thread has none.
    async fn send_by_thread(&self, request: Request, deadline: Deadline) -> Result<Response, TransportError> {
        self.send(request, deadline).await
    }

    /// Returns the replication id of the server that holds this key, as far as it is known without a command.
    fn known(&self, key: &KeyName<'_>) -> Option<(ReplicationId, Epoch)>;

    /// Reads the replication id from the server.
    async fn learn(&self, key: &KeyName<'_>, deadline: Deadline) -> Result<(ReplicationId, Epoch), TransportError>;

    /// Drops the cached replication id.
    fn forget(&self, key: &KeyName<'_>);

    /// Returns whether the user may run scripts, as far as it is known without a command.
    fn runs_scripts(&self, key: &KeyName<'_>) -> Option<bool>;

    /// Asks the server that holds this key whether the user may run scripts.
    async fn learn_scripts(&self, key: &KeyName<'_>, deadline: Deadline) -> Result<bool, TransportError>;

    /// Returns the native commands of the server that holds this key, as far as they are known. If they are not, tries them in the
    /// background on a key of the same slot.
    fn native(&self, key: &KeyName<'_>, prefix: &str) -> NativeCommands;

    /// Waits until the native commands of the server that holds this key have been tried.
    async fn native_tried(&self, key: &KeyName<'_>, deadline: Deadline);

    /// Records that the server has rejected a native command: scripts run instead over this connection.
    fn reject_native(&self, key: &KeyName<'_>);

    /// Decides whether new work may begin on this key, for a caller with this timeout.
    fn admit(&self, key: &KeyName<'_>, timeout: Duration) -> Admission;

    /// Returns the number of servers whose breaker is open.
    fn slow(&self) -> usize;

    /// Completes when the server has been reconnected.
    async fn reconnected(&self);

    /// Logs no warning about a server that may evict records. A connection of the application is not asked.
    fn allow_eviction(&self) {}
}

/// The name of a key, formatted on demand.
pub(super) struct KeyName<'a>(pub(super) &'a (dyn Fn() -> String + Sync));

impl KeyName<'_> {
    /// Returns the name of a key that does not exist, in the same slot.
    pub(super) fn probe(&self, prefix: &str) -> String {
        format!("{prefix}:probe:{{{}}}", self.0())
    }
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
    async fn send(&self, request: Request, deadline: Deadline) -> Result<Response, TransportError> {
        self.breaker.note(deadline, send_over(&mut self.connection.clone(), &request, deadline)).await
    }

    /// Uses only a recent id: the application's connection does not report when it reconnects.
    fn known(&self, _key: &KeyName<'_>) -> Option<(ReplicationId, Epoch)> {
        self.known.fresh(FRESH)
    }

    async fn learn(&self, _key: &KeyName<'_>, deadline: Deadline) -> Result<(ReplicationId, Epoch), TransportError> {
        let replication_id = fetch_replication_id(&mut self.connection.clone(), deadline).await?;
        self.known.note(replication_id).map(|epoch| (replication_id, epoch)).ok_or(TransportError::Replica)
    }

    fn forget(&self, _key: &KeyName<'_>) {
        self.known.forget();
    }

    fn runs_scripts(&self, _key: &KeyName<'_>) -> Option<bool> {
        self.runs_scripts.get().copied()
    }

    async fn learn_scripts(&self, _key: &KeyName<'_>, deadline: Deadline) -> Result<bool, TransportError> {
        let may = may_run_scripts(&mut self.connection.clone(), deadline).await?;
        Ok(*self.runs_scripts.get_or_init(|| may))
    }

    fn native(&self, key: &KeyName<'_>, prefix: &str) -> NativeCommands {
        let probe = || NativeCommands::probe(self.connection.clone(), key.probe(prefix), Deadline::after(CONNECT));
        self.native.get_or_probe(probe)
    }

    async fn native_tried(&self, _key: &KeyName<'_>, deadline: Deadline) {
        self.native.tried(deadline).await;
    }

    fn reject_native(&self, _key: &KeyName<'_>) {
        self.native.reject();
    }

    fn admit(&self, _key: &KeyName<'_>, timeout: Duration) -> Admission {
        self.breaker.admit(timeout)
    }

    fn slow(&self) -> usize {
        usize::from(self.breaker.is_open())
    }

    async fn reconnected(&self) {
        std::future::pending().await
    }
}

/// Sends a request over this connection in one pipeline, so that the command and the replication id come from the same server.
pub(super) async fn send_over(
    connection: &mut (impl ConnectionLike + Send),
    request: &Request,
    deadline: Deadline,
) -> Result<Response, TransportError> {
    if !request.wants_replication_id {
        let value = in_time(deadline, request.command.query_async(connection)).await?;
        return Ok(Response { value, replication_id: None });
    }
    let mut commands = Pipeline::with_capacity(2);
    commands.add_command(request.command.clone()).add_command(ReplicationId::command());
    let values = in_time(deadline, connection.req_packed_commands(&commands, 0, 2)).await?;
    read(values)
}

/// Reads a command's response, and the replication id after it.
pub(super) fn read(values: Vec<Value>) -> Result<Response, TransportError> {
    let replication_id = values.get(1).map(ReplicationId::read);
    let value = values.into_iter().next().unwrap_or(Value::Nil).extract_error()?;
    Ok(Response { value, replication_id })
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
