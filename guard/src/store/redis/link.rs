//! The way to a Redis: a question is sent, once, and answered.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};
use tokio::time::{timeout, timeout_at};

use super::breaker::Breaker;
use super::deadline::Deadline;
use super::life::{FRESH, Known, Life};
use super::turn::Answer;
use crate::store::{Admission, Epoch, Full, StoreError, async_trait};

/// A command on one key.
#[derive(Clone)]
pub(super) struct Question {
    pub(super) command: Cmd,
    /// Which of its arguments the key is.
    pub(super) key_at: usize,
    /// Whether it is asked in which life of the server it was done.
    pub(super) wants_life: bool,
}

/// The answer to it.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) value: Value,
    pub(super) life: Option<Life>,
}

/// Sends a command, once, and gives the server's answer.
#[async_trait]
pub(super) trait Link: Send + Sync + 'static {
    /// Asks over the asking thread's own connection; gives the question back if it has none.
    fn ask(&self, question: Question, _deadline: Deadline) -> Result<Answer, Question> {
        Err(question)
    }

    async fn send(&self, question: Question, deadline: Deadline) -> Result<Said, Failure>;

    /// The life of the server that has this key, as far as is known without asking.
    fn known(&self, key: &Key<'_>) -> Option<(Life, Epoch)>;

    /// Asks for it.
    async fn learn(&self, key: &Key<'_>, deadline: Deadline) -> Result<(Life, Epoch), Failure>;

    /// What is known of it is wrong.
    fn forget(&self, key: &Key<'_>);

    /// Whether the server lets us run no scripts, as far as is known without asking.
    fn refuses_scripts(&self) -> Option<bool>;

    /// Asks for that.
    async fn learn_scripts(&self, key: &Key<'_>, deadline: Deadline) -> Result<bool, Failure>;

    /// Whether new work may begin on this key, for a caller with this timeout.
    fn admit(&self, key: &Key<'_>, timeout: Duration) -> Admission;

    /// Before how many servers the breaker is open.
    fn slow(&self) -> usize;

    /// Comes back when the server has been reached anew.
    async fn reconnected(&self);
}

/// The name of a key, made if somebody needs it.
pub(super) struct Key<'a>(pub(super) &'a (dyn Fn() -> String + Sync));

/// Why a command has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// There was no connection to send it over.
    #[error("Redis is out of reach: {0}")]
    NoConnection(Arc<str>),
    /// More than enough is asked already.
    #[error("too many commands wait for Redis")]
    TooMany,
    /// Whoever has the connection is no master.
    #[error("this Redis is a replica, and not a master")]
    Replica,
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

    /// Whether this is an answer of the server's.
    pub(super) fn is_answer(&self) -> bool {
        matches!(self, Self::Redis(error) if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension))
    }

    /// Whether a server has said so, or something was learnt from what it said.
    pub(super) fn is_said(&self) -> bool {
        match self {
            Self::NoConnection(_) | Self::Replica => true,
            Self::TooMany | Self::TimedOut => false,
            Self::Redis(error) => self.is_answer() || error.kind() == ErrorKind::AuthenticationFailed,
        }
    }

    /// A server that says no has not done it. A connection that was refused has carried nothing.
    fn is_certain(&self) -> bool {
        match self {
            Self::NoConnection(_) | Self::TooMany | Self::Replica => true,
            Self::TimedOut => false,
            Self::Redis(error) => {
                let carried_nothing =
                    error.kind() == ErrorKind::ClusterConnectionNotFound || error.is_connection_refusal();
                self.is_answer() || carried_nothing
            }
        }
    }

    /// Whether Redis has reached `maxmemory` and evicts nothing.
    fn is_full(&self) -> bool {
        matches!(self, Self::Redis(error) if error.code() == Some("OOM"))
    }

    /// Whether the connection is not to be trusted any longer.
    pub(super) fn is_suspect(&self, was_hurried: bool) -> bool {
        match self {
            Self::NoConnection(_) | Self::TooMany => false,
            Self::Replica => true,
            Self::TimedOut => !was_hurried,
            Self::Redis(error) => error.is_unrecoverable_error() || self.is(ServerErrorKind::ReadOnly),
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            full if full.is_full() => Self::not_executed(Full(full.to_string())),
            failure if failure.is_certain() => Self::not_executed(failure),
            failure => Self::unknown(failure),
        }
    }
}

/// The application's own connection.
pub(super) struct Handed<C> {
    connection: C,
    known: Known,
    refuses_scripts: OnceLock<bool>,
    breaker: Breaker,
}

impl<C> Handed<C> {
    pub(super) fn new(connection: C) -> Self {
        Self {
            connection,
            known: Known::default(),
            refuses_scripts: OnceLock::new(),
            breaker: Breaker::new("the application's connection"),
        }
    }
}

#[async_trait]
impl<C: ConnectionLike + Clone + Send + Sync + 'static> Link for Handed<C> {
    async fn send(&self, question: Question, deadline: Deadline) -> Result<Said, Failure> {
        self.breaker.note(deadline, carry(&mut self.connection.clone(), &question, deadline)).await
    }

    /// Nobody tells us when it is connected anew.
    fn known(&self, _key: &Key<'_>) -> Option<(Life, Epoch)> {
        self.known.fresh(FRESH)
    }

    async fn learn(&self, _key: &Key<'_>, deadline: Deadline) -> Result<(Life, Epoch), Failure> {
        let said = ask_life(&mut self.connection.clone(), deadline).await?;
        self.known.note(said).map(|epoch| (said, epoch)).ok_or(Failure::Replica)
    }

    fn forget(&self, _key: &Key<'_>) {
        self.known.forget();
    }

    fn refuses_scripts(&self) -> Option<bool> {
        self.refuses_scripts.get().copied()
    }

    async fn learn_scripts(&self, _key: &Key<'_>, deadline: Deadline) -> Result<bool, Failure> {
        let refuses = refuses_scripts(&mut self.connection.clone(), deadline).await?;
        Ok(*self.refuses_scripts.get_or_init(|| refuses))
    }

    fn admit(&self, _key: &Key<'_>, timeout: Duration) -> Admission {
        self.breaker.admit(timeout)
    }

    fn slow(&self) -> usize {
        usize::from(self.breaker.is_open())
    }

    async fn reconnected(&self) {
        std::future::pending().await
    }
}

/// Asks over this connection, in one go, so that nothing but the same connection can have carried all of it.
pub(super) async fn carry(
    connection: &mut (impl ConnectionLike + Send),
    question: &Question,
    deadline: Deadline,
) -> Result<Said, Failure> {
    if !question.wants_life {
        let value = in_time(deadline, question.command.query_async(connection)).await?;
        return Ok(Said { value, life: None });
    }
    let mut commands = Pipeline::with_capacity(2);
    commands.add_command(question.command.clone()).add_command(Life::command());
    let values = in_time(deadline, connection.req_packed_commands(&commands, 0, 2)).await?;
    read(values)
}

/// Reads a command's answer, and behind it the server's life.
pub(super) fn read(values: Vec<Value>) -> Result<Said, Failure> {
    let life = values.get(1).map(Life::read);
    let value = values.into_iter().next().unwrap_or(Value::Nil).extract_error()?;
    Ok(Said { value, life })
}

/// Asks for the life of whatever is at the other end.
pub(super) async fn ask_life(
    connection: &mut (impl ConnectionLike + Send),
    deadline: Deadline,
) -> Result<Life, Failure> {
    match in_time(deadline, Life::command().query_async(connection)).await {
        Ok(answer) => Ok(Life::read(&answer)),
        Err(Failure::Redis(error)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => Ok(Life::Hidden),
        Err(failure) => Err(failure),
    }
}

/// Whether whatever is at the other end lets us run no scripts.
pub(super) async fn refuses_scripts(
    connection: &mut (impl ConnectionLike + Send),
    deadline: Deadline,
) -> Result<bool, Failure> {
    are_refused(in_time(deadline, nothing().query_async::<Value>(connection)).await)
}

/// A script that does nothing.
pub(super) fn nothing() -> Cmd {
    let mut nothing = Cmd::with_capacity(3, 13);
    nothing.arg("EVAL").arg("return 1").arg(0);
    nothing
}

/// Whether the answer to that means that none may be run.
pub(super) fn are_refused<T>(answer: Result<T, Failure>) -> Result<bool, Failure> {
    match answer {
        Ok(_) => Ok(false),
        Err(failure) if failure.is(ServerErrorKind::NoPerm) => {
            tracing::warn!(
                "this Redis lets its user run no scripts (EVAL, EVALSHA): plain tokens and intervals work; keys, \
                 remembered tokens and attempts are refused"
            );
            Ok(true)
        }
        // Whatever else is wrong shows itself where it matters.
        Err(Failure::Redis(error)) if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// What is asked, unless it takes too long.
pub(super) async fn in_time<T>(
    deadline: Deadline,
    answer: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, Failure> {
    let mut answer = pin!(answer);
    match timeout_at(deadline.at, &mut answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => timeout(deadline.beyond(), answer).await.map_err(|_| Failure::TimedOut)?.map_err(Failure::from),
    }
}
