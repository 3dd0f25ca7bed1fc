//! Errors of commands, and whether a failed command certainly changed nothing.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

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
    /// The server, or the ACL of its user, has no way to compare and change a key in one step.
    Incapable,
    /// The user may not run scripts, and it is not known yet whether the server has commands that compare.
    Untried,
    /// The command was sent, and no response arrived in time.
    TimedOut,
    /// The server returned an error, or the connection broke.
    Redis(RedisError),
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConnection(failure) => write!(f, "Redis is out of reach: {failure}"),
            Self::TooMany => f.write_str("too many commands wait for Redis"),
            Self::Replica => f.write_str("this Redis is a replica, and not a master"),
            Self::Incapable => {
                f.write_str("this Redis lets its user run neither scripts (EVAL, EVALSHA) nor commands that compare; \
                 allow EVAL and EVALSHA with ACL SETUSER")
            }
            Self::Untried => f.write_str(
                "this Redis lets its user run no scripts (EVAL, EVALSHA), and has not said yet whether it has commands that compare",
            ),
            Self::TimedOut => f.write_str("Redis did not answer in time"),
            Self::Redis(error) => error.fmt(f),
        }
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NoConnection(failure) => failure.cause.as_ref().map(cause_of),
            Self::TooMany | Self::Replica | Self::Incapable | Self::Untried | Self::TimedOut => None,
            Self::Redis(error) => Some(cause_of(error)),
        }
    }
}

impl From<RedisError> for TransportError {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

/// The reason why there is no connection.
#[derive(Debug, Clone)]
pub(in crate::store) struct ConnectionFailure {
    reason: Arc<str>,
    cause: Option<RedisError>,
}

impl ConnectionFailure {
    /// Adds the cause of another error.
    pub(super) fn caused_by(self, error: &TransportError) -> Self {
        let cause = match error {
            TransportError::NoConnection(failure) => failure.cause.clone(),
            TransportError::Redis(error) => Some(error.clone()),
            TransportError::TooMany
            | TransportError::Replica
            | TransportError::Incapable
            | TransportError::Untried
            | TransportError::TimedOut => None,
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
            Self::TooMany | Self::TimedOut => false,
            Self::Redis(error) => self.is_answer() || error.kind() == ErrorKind::AuthenticationFailed,
        }
    }

    /// Returns whether the command was certainly not executed: the server replied with an error, or the command was never sent.
    fn is_certain(&self) -> bool {
        match self {
            Self::NoConnection(_) | Self::TooMany | Self::Replica | Self::Incapable | Self::Untried => true,
            Self::TimedOut => false,
            Self::Redis(error) => {
                let carried_nothing =
                    error.kind() == ErrorKind::ClusterConnectionNotFound || error.is_connection_refusal();
                self.is_answer() || carried_nothing
            }
        }
    }

    /// Returns whether Redis did not answer.
    pub(in crate::store) fn is_away(&self) -> bool {
        match self {
            Self::NoConnection(_) | Self::TimedOut => true,
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
            Self::TimedOut => !was_hurried,
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
        assert!(!reaches::<RedisError>(&TransportError::TimedOut.into()));
    }
}
