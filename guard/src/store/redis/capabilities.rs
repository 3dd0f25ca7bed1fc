//! The commands of a server that compare before they change a key, found out by sending them.
//!
//! Redis 8.4 and Valkey 8.1 have a `SET` that compares, Redis 8.4 and Valkey 9.0 a `DEL` that compares. Other servers, and servers that
//! speak the protocol without being either, run a script instead. A version number would say little: a fork or a proxy may report any,
//! and an ACL may deny each command.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, Pipeline, ServerErrorKind, Value};
use tokio::sync::OnceCell;

use super::deadline::Deadline;
use super::error::TransportError;
use super::transport::in_time;

/// The ways in which a server, and the ACL of its user, allow to compare and change a key in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capabilities {
    /// Whether `SET` knows `IFEQ`.
    pub(super) has_set_ifeq: bool,
    /// The command that deletes a key if its value is as expected.
    pub(super) delete: Option<DeleteCommand>,
    /// Whether the user may run scripts.
    pub(super) runs_scripts: bool,
}

/// A command that deletes a key if its value is as expected, and returns how many keys it deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeleteCommand {
    /// `DELEX key IFEQ value`
    Delex,
    /// `DELIFEQ key value`
    Delifeq,
}

impl Capabilities {
    /// Returns whether every verb of the store can be executed.
    fn is_enough(self) -> bool {
        self.runs_scripts || (self.has_set_ifeq && self.delete.is_some())
    }

    /// Returns the same server without its native commands.
    pub(super) fn without_native(self) -> Self {
        Self { has_set_ifeq: false, delete: None, ..self }
    }

    /// Sends each command on `name`, a key that does not exist.
    pub(super) async fn probe(
        connection: &mut (impl ConnectionLike + Send),
        name: &str,
        deadline: Deadline,
    ) -> Result<Self, TransportError> {
        let answers = in_time(deadline, connection.req_packed_commands(&probes(name), 0, 5)).await?;
        let capabilities = Self::read(&answers);
        if !capabilities.is_enough() {
            tracing::error!(
                "this Redis lets its user run neither scripts (EVAL, EVALSHA) nor commands that compare (SET with IFEQ, and DELEX or \
                 DELIFEQ): no token and no key is accepted; allow them with ACL SETUSER"
            );
            return Err(TransportError::Incapable);
        }
        Ok(capabilities)
    }

    /// Reads the replies to [`probes`]. An error means that the command was not executed.
    fn read(answers: &[Value]) -> Self {
        // A server that ignored `IFEQ` would have created the key.
        let has_set_ifeq = matches!(answers, [Value::Nil, Value::Nil, ..]);
        let delete = match answers {
            [_, _, Value::Int(0), ..] => Some(DeleteCommand::Delex),
            [_, _, _, Value::Int(0), ..] => Some(DeleteCommand::Delifeq),
            _ => None,
        };
        // Any other error surfaces where it matters.
        let is_denied = |error: &redis::ServerError| error.kind() == Some(ServerErrorKind::NoPerm);
        let runs_scripts = !matches!(answers.get(4), Some(Value::ServerError(error)) if is_denied(error));
        Self { has_set_ifeq, delete, runs_scripts }
    }
}

/// Returns the commands that show the capabilities of a server.
fn probes(name: &str) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(5);
    pipeline.cmd("SET").arg(name).arg("1").arg("IFEQ").arg("0").arg("GET").arg("PX").arg(10_000);
    pipeline.cmd("GET").arg(name);
    pipeline.cmd("DELEX").arg(name).arg("IFEQ").arg("0");
    pipeline.cmd("DELIFEQ").arg(name).arg("0");
    pipeline.cmd("EVAL").arg("return 1").arg(0);
    pipeline
}

impl DeleteCommand {
    /// Returns the command for this key and value.
    pub(super) fn command(self, name: &str, held: &[u8]) -> Cmd {
        let mut command = Cmd::with_capacity(4, name.len() + held.len() + 16);
        match self {
            Self::Delex => command.arg("DELEX").arg(name).arg("IFEQ").arg(held),
            Self::Delifeq => command.arg("DELIFEQ").arg(name).arg(held),
        };
        command
    }
}

/// The capabilities of one connection, once they are known.
#[derive(Default)]
pub(super) struct CapabilityCell {
    known: OnceCell<Capabilities>,
    /// A native command was rejected after all.
    lacks_native: AtomicBool,
}

impl CapabilityCell {
    pub(super) fn get(&self) -> Option<Capabilities> {
        let known = *self.known.get()?;
        Some(if self.lacks_native.load(Ordering::Relaxed) { known.without_native() } else { known })
    }

    /// Returns the capabilities. Of concurrent callers that do not know them, one sends the probe.
    pub(super) async fn get_or_learn(
        &self,
        probe: impl Future<Output = Result<Capabilities, TransportError>>,
    ) -> Result<Capabilities, TransportError> {
        let known = self.known.get_or_try_init(|| probe).await?;
        Ok(self.get().unwrap_or(*known))
    }

    pub(super) fn forget_native(&self) {
        self.lacks_native.store(true, Ordering::Relaxed);
    }
}

/// Returns whether an error says that the server does not know a native command, or denies it. The command was not executed, and a script
/// may do the same.
pub(super) fn is_unsupported(error: &TransportError) -> bool {
    let TransportError::Redis(error) = error else { return false };
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ResponseError | ServerErrorKind::NoPerm))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Value {
        let reply = format!("-{text}\r\n");
        redis::parse_redis_value(reply.as_bytes()).expect("an error is a reply")
    }

    fn syntax() -> Value {
        error("ERR syntax error")
    }

    fn unknown() -> Value {
        error("ERR unknown command 'DELEX', with args beginning with: 'x' 'IFEQ' '0' ")
    }

    #[test]
    fn server_without_native_commands_runs_scripts() {
        let read = Capabilities::read(&[syntax(), Value::Nil, unknown(), unknown(), Value::Int(1)]);
        assert_eq!(read, Capabilities { has_set_ifeq: false, delete: None, runs_scripts: true });
        assert!(read.is_enough());
    }

    #[test]
    fn each_native_command_is_known_by_its_own_reply() {
        let denied = error("NOPERM User shop has no permissions to run the 'eval' command");
        let redis = Capabilities::read(&[Value::Nil, Value::Nil, Value::Int(0), unknown(), denied.clone()]);
        let valkey = Capabilities::read(&[Value::Nil, Value::Nil, unknown(), Value::Int(0), denied.clone()]);
        let half = Capabilities::read(&[Value::Nil, Value::Nil, unknown(), unknown(), denied]);
        assert_eq!(redis.delete, Some(DeleteCommand::Delex));
        assert_eq!(valkey.delete, Some(DeleteCommand::Delifeq));
        assert!(redis.is_enough() && valkey.is_enough() && !half.is_enough());
        assert!(redis.has_set_ifeq && !redis.runs_scripts);
    }

    #[test]
    fn server_that_ignores_the_comparison_counts_as_one_without_it() {
        let created = Value::BulkString(b"1".to_vec());
        assert!(!Capabilities::read(&[Value::Nil, created, unknown(), unknown(), Value::Int(1)]).has_set_ifeq);
    }

    #[test]
    fn full_or_moved_server_counts_as_one_without_native_commands() {
        for text in ["OOM command not allowed when used memory > 'maxmemory'.", "MOVED 1 127.0.0.1:7000"] {
            let read = Capabilities::read(&[error(text), Value::Nil, unknown(), error(text), error(text)]);
            assert_eq!(read, Capabilities { has_set_ifeq: false, delete: None, runs_scripts: true }, "{text}");
        }
    }
}
