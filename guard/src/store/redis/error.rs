//! Errors of commands, and whether a failed command certainly changed nothing.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onceward_api::duration::spaced;
use redis::{ErrorKind, RedisConnectionInfo, RedisError, ServerErrorKind};

use super::connection::CONNECT;
use crate::store::{StoreError, StoreFull};

/// The reason why a command has no response.
#[derive(Debug)]
pub(in crate::store) enum TransportError {
    /// There was no connection to send the command over.
    NoConnection(ConnectionFailure),
    /// Too many commands are in flight.
    TooMany,
    /// The server is a replica.
    Replica,
    /// The server, or the ACL of its user, allows neither scripts nor commands that compare and change a key in one step.
    Incapable,
    /// The user may not run scripts, and it is not known yet whether the server has commands that compare.
    Untried,
    /// No reply arrived within this time. The command may have been sent.
    TimedOut(Duration),
    /// The server returned an error, or the connection broke.
    Redis(RedisError),
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConnection(failure) => failure.fmt(f),
            Self::TooMany => f.write_str("too many commands in flight to Redis"),
            Self::Replica => f.write_str("this Redis is a replica, not a master"),
            Self::Incapable => f.write_str(
                "the Redis user may run neither scripts (EVAL, EVALSHA) nor commands that compare (SET IFEQ, DELEX, DELIFEQ); \
                 allow EVAL and EVALSHA with ACL SETUSER",
            ),
            Self::Untried => f.write_str(
                "the Redis user may not run scripts (EVAL, EVALSHA), and it is not known yet whether this Redis has commands that compare",
            ),
            Self::TimedOut(timeout) => write!(f, "no reply within {}", spaced(*timeout)),
            Self::Redis(error) if error.is_io_error() && !error.is_connection_refusal() => {
                write!(f, "connection lost before the reply: {error}")
            }
            Self::Redis(error) => f.write_str(&reply_text(error)),
        }
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NoConnection(failure) => failure.cause.as_ref().map(cause_of),
            Self::TooMany | Self::Replica | Self::Incapable | Self::Untried | Self::TimedOut(_) => None,
            Self::Redis(error) => Some(cause_of(error)),
        }
    }
}

impl From<RedisError> for TransportError {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

/// The reason why there is no connection, as a sentence that names the server.
#[derive(Debug, Clone)]
pub(in crate::store) struct ConnectionFailure {
    reason: Arc<str>,
    cause: Option<RedisError>,
}

impl ConnectionFailure {
    /// Describes why `server` cannot be used with this login.
    pub(super) fn of(server: &str, login: &RedisConnectionInfo, error: TransportError) -> Self {
        let reason = match &error {
            TransportError::NoConnection(_) => return error.into_failure(),
            TransportError::Redis(error) => match (error.kind(), error.code()) {
                (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS")) => match login.username() {
                    Some(_) => format!("{server} rejects the user name or the password"),
                    None => format!("{server} rejects the password"),
                },
                (_, Some("NOAUTH")) => format!("{server} requires a password"),
                _ if error.is_connection_refusal() => format!("{server} refuses connections"),
                _ if error.is_timeout() => {
                    format!("{server} cannot be reached: no connection within {}", spaced(CONNECT))
                }
                (ErrorKind::Io, _) => format!("{server} cannot be reached: {error}"),
                (ErrorKind::Parse, _) => format!("{server} does not reply like Redis"),
                _ => format!("{server} returned an error: {}", reply_text(error)),
            },
            TransportError::Replica => format!("{server} is a replica, not a master"),
            other => format!("{server}: {other}"),
        };
        Self::from(reason).caused_by(&error)
    }

    /// Adds the cause of another error.
    pub(super) fn caused_by(self, error: &TransportError) -> Self {
        let cause = match error {
            TransportError::NoConnection(failure) => failure.cause.clone(),
            TransportError::Redis(error) => Some(error.clone()),
            TransportError::TooMany
            | TransportError::Replica
            | TransportError::Incapable
            | TransportError::Untried
            | TransportError::TimedOut(_) => None,
        };
        Self { cause, ..self }
    }

    pub(super) fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for ConnectionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl<T: Into<Arc<str>>> From<T> for ConnectionFailure {
    fn from(reason: T) -> Self {
        Self { reason: reason.into(), cause: None }
    }
}

/// Returns an error reply as Redis sent it, such as `NOPERM User shop has no permissions`, without the code `ERR`.
pub(super) fn reply_text(error: &RedisError) -> String {
    match (error.code().filter(|code| *code != "ERR"), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (_, Some(detail)) => detail.to_owned(),
        (_, None) => error.to_string(),
    }
}

/// Returns the error inside a [`RedisError`], or the `RedisError` itself. `RedisError::source` returns the `Arc` that holds the inner
/// error, which hides its type.
fn cause_of(error: &RedisError) -> &(dyn Error + 'static) {
    match error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>()) {
        Some(inner) => &**inner,
        None => error,
    }
}

impl TransportError {
    /// Returns whether the server replied with exactly this error.
    pub(super) fn is(&self, kind: ServerErrorKind) -> bool {
        matches!(self, Self::Redis(error) if error.kind() == ErrorKind::Server(kind))
    }

    /// Returns whether this is an error reply of the server.
    pub(super) fn is_answer(&self) -> bool {
        matches!(self, Self::Redis(error) if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension))
    }

    /// Returns whether this error comes from a server's reply, or was derived from one.
    pub(super) fn is_conclusive(&self) -> bool {
        match self {
            Self::NoConnection(_) | Self::Replica | Self::Incapable | Self::Untried => true,
            Self::TooMany | Self::TimedOut(_) => false,
            Self::Redis(error) => self.is_answer() || error.kind() == ErrorKind::AuthenticationFailed,
        }
    }

    /// Returns whether the command was certainly not executed: the server replied with an error, or the command was never sent.
    fn is_certain(&self) -> bool {
        match self {
            Self::NoConnection(_) | Self::TooMany | Self::Replica | Self::Incapable | Self::Untried => true,
            Self::TimedOut(_) => false,
            Self::Redis(error) => {
                let carried_nothing =
                    error.kind() == ErrorKind::ClusterConnectionNotFound || error.is_connection_refusal();
                self.is_answer() || carried_nothing
            }
        }
    }

    fn into_failure(self) -> ConnectionFailure {
        match self {
            Self::NoConnection(failure) => failure,
            other => other.to_string().into(),
        }
    }

    /// Returns whether Redis did not reply.
    pub(in crate::store) fn is_away(&self) -> bool {
        match self {
            Self::NoConnection(_) | Self::TimedOut(_) => true,
            Self::TooMany | Self::Replica | Self::Incapable | Self::Untried => false,
            Self::Redis(_) => !self.is_answer(),
        }
    }

    /// Returns whether Redis has reached `maxmemory` and cannot evict.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Redis(error) if error.code() == Some("OOM"))
    }

    /// Returns whether the connection may be broken.
    pub(super) fn is_suspect(&self, was_hurried: bool) -> bool {
        match self {
            Self::NoConnection(_) | Self::TooMany | Self::Incapable | Self::Untried => false,
            Self::Replica => true,
            Self::TimedOut(_) => !was_hurried,
            Self::Redis(error) => error.is_unrecoverable_error() || self.is(ServerErrorKind::ReadOnly),
        }
    }
}

impl From<TransportError> for StoreError {
    fn from(error: TransportError) -> Self {
        match error {
            full if full.is_full() => Self::not_executed(StoreFull::because(full)),
            error if error.is_certain() => Self::not_executed(error),
            error => Self::unknown(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn reaches<E: Error + 'static>(error: &StoreError) -> bool {
        std::iter::successors(error.source(), |&cause| cause.source()).any(|cause| cause.is::<E>())
    }

    #[test]
    fn io_error_is_among_the_causes_of_a_store_error() {
        let broken = || RedisError::from(io::Error::from(io::ErrorKind::ConnectionReset));
        let sent = TransportError::from(broken());
        let unsent = TransportError::NoConnection(ConnectionFailure::from("no connection").caused_by(&broken().into()));
        for error in [sent, unsent] {
            let error = StoreError::from(error);
            assert!(reaches::<io::Error>(&error), "{error:?}");
        }
    }

    #[test]
    fn error_of_the_server_is_among_the_causes_of_a_store_error() {
        let full = RedisError::from((ErrorKind::Extension, "OOM", "command not allowed".to_owned()));
        let error = StoreError::from(TransportError::from(full));
        assert!(reaches::<RedisError>(&error), "{error:?}");
        assert!(!reaches::<RedisError>(&TransportError::TimedOut(CONNECT).into()));
    }

    fn says(error: impl Into<TransportError>) -> String {
        StoreError::from(error.into()).to_string()
    }

    #[test]
    fn text_tells_whether_the_command_may_have_been_executed() {
        let timeout = TransportError::TimedOut(Duration::from_millis(250));
        assert_eq!(says(timeout), "no reply within 250 ms; it may have been executed");
        let lost = RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(says(lost), "connection lost before the reply: broken pipe; it may have been executed");
        let refused = RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(says(refused.clone()), "not executed: connection refused");
        let failure = ConnectionFailure::of("Redis at h:1", &RedisConnectionInfo::default(), refused.into());
        assert_eq!(says(TransportError::NoConnection(failure)), "not executed: Redis at h:1 refuses connections");
        let looked = StoreError::from(TransportError::TimedOut(CONNECT)).certainly_not_executed();
        assert_eq!(looked.to_string(), "not executed: no reply within 2 s");
    }

    #[test]
    fn rejected_login_is_named_without_credentials() {
        let error = |code: &str| {
            let reply =
                redis::parse_redis_value(format!("-{code} because\r\n").as_bytes()).expect("an error is a reply");
            TransportError::from(reply.extract_error().expect_err("it is an error"))
        };
        let (login, user) = (RedisConnectionInfo::default(), RedisConnectionInfo::default().set_username("canary"));
        for (code, login, says) in [
            ("WRONGPASS", &login, "h:1 rejects the password"),
            ("WRONGPASS", &user, "h:1 rejects the user name or the password"),
            ("NOAUTH", &login, "h:1 requires a password"),
            ("ERR", &login, "h:1 returned an error: because"),
            ("NOPERM", &login, "h:1 returned an error: NOPERM because"),
        ] {
            assert_eq!(ConnectionFailure::of("h:1", login, error(code)).to_string(), says, "{code}");
        }
    }
}
