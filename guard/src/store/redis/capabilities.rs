//! The commands of a server that compare before they change a key, found out by sending them.
//!
//! Redis 8.4 and Valkey 8.1 have a `SET` that compares, Redis 8.4 and Valkey 9.0 a `DEL` that compares. Other servers, and servers that
//! speak the protocol without being either, run a script instead. A version number would say little: a fork or a proxy may report any,
//! and an ACL may deny each command.
//!
//! The commands are tried in the background, once for each connection. Until the answer is known, scripts run: no verb waits for it,
//! unless the user may not run scripts.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{ErrorKind, Pipeline, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::deadline::Deadline;
use super::error::TransportError;
use super::request::{Argument, KeyName, Request};
use super::transport::in_time;
use crate::runtime;

/// The time after which commands are tried again if the server was full, was loading its data, or had moved the key.
const AGAIN: Duration = Duration::from_secs(5);

/// The ways in which a verb may compare and change a key in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capabilities {
    pub(super) native: NativeCommands,
    /// True if the user may run scripts.
    pub(super) runs_scripts: bool,
}

/// The commands of a server that compare, as far as they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NativeCommands {
    /// True if `SET` supports `IFEQ`.
    pub(super) has_set_ifeq: bool,
    /// The command that deletes a key if its value is as expected.
    pub(super) delete: Option<DeleteCommand>,
    /// True if the reply to each command shows that the server supports it, does not know it, or denies it.
    pub(super) is_conclusive: bool,
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
    /// Returns the error of a verb that this user cannot execute.
    pub(super) fn lacking(self) -> TransportError {
        if self.native.is_conclusive { TransportError::Incapable } else { TransportError::Untried }
    }

    /// Returns whether every verb of the store can be executed.
    pub(super) fn is_enough(self) -> bool {
        self.runs_scripts || self.native.is_enough()
    }
}

impl NativeCommands {
    /// A server without native commands.
    pub(super) const NONE: Self = Self { has_set_ifeq: false, delete: None, is_conclusive: true };

    /// Returns whether every verb of the store can be executed without scripts.
    pub(super) fn is_enough(self) -> bool {
        self.has_set_ifeq && self.delete.is_some()
    }

    /// Sends each command on `name`, a key that does not exist.
    pub(super) async fn probe(
        mut connection: impl ConnectionLike + Send,
        name: String,
        deadline: Deadline,
    ) -> Result<Self, TransportError> {
        let answers = in_time(deadline, connection.req_packed_commands(&probes(&name), 0, 4)).await?;
        Ok(Self::read(&answers))
    }

    /// Reads the replies to [`probes`].
    fn read(answers: &[Value]) -> Self {
        let [set, get, delex, delifeq] = answers else { return Self::default() };
        // A server that ignored `IFEQ` would have created the key.
        let has_set_ifeq = matches!((set, get), (Value::Nil, Value::Nil));
        let delete = match (delex, delifeq) {
            (Value::Int(0), _) => Some(DeleteCommand::Delex),
            (_, Value::Int(0)) => Some(DeleteCommand::Delifeq),
            _ => None,
        };
        let knows_delete = delete.is_some() || (is_no(delex) && is_no(delifeq));
        Self { has_set_ifeq, delete, is_conclusive: (is_no(set) || *set == Value::Nil) && knows_delete }
    }
}

/// Returns whether a reply says that the server does not know the command or the option, or denies it. Any other error says nothing
/// about the command: the server is full, loads its data, or has moved the key.
fn is_no(reply: &Value) -> bool {
    let is_denied = |kind| matches!(kind, Some(ServerErrorKind::ResponseError | ServerErrorKind::NoPerm));
    matches!(reply, Value::ServerError(error) if is_denied(error.kind()))
}

/// Returns the commands that show what a server has.
fn probes(name: &str) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(4);
    pipeline.cmd("SET").arg(name).arg("1").arg("IFEQ").arg("0").arg("GET").arg("PX").arg(10_000);
    pipeline.cmd("GET").arg(name);
    pipeline.cmd("DELEX").arg(name).arg("IFEQ").arg("0");
    pipeline.cmd("DELIFEQ").arg(name).arg("0");
    pipeline
}

impl DeleteCommand {
    /// Returns the request for this key and value.
    pub(super) fn request<'a>(self, key: KeyName<'a>, held: &'a [u8], wants_epoch: bool) -> Request<'a> {
        let held = Argument::Text(held);
        match self {
            Self::Delex => {
                let arguments = [Argument::Text(b"DELEX"), Argument::Key, Argument::Text(b"IFEQ"), held];
                Request::new(key, wants_epoch, arguments)
            }
            Self::Delifeq => Request::new(key, wants_epoch, [Argument::Text(b"DELIFEQ"), Argument::Key, held]),
        }
    }
}

/// The native commands of one connection, as far as they are known.
#[derive(Default)]
pub(super) struct NativeCell {
    /// The conclusive answer of the server.
    known: OnceLock<NativeCommands>,
    /// The server has rejected a native command although the probe had found it.
    is_rejected: AtomicBool,
    progress: Mutex<ProbeProgress>,
    finished: Notify,
}

#[derive(Default)]
struct ProbeProgress {
    is_running: bool,
    /// The last answer, and when it arrived.
    last: Option<(NativeCommands, Instant)>,
}

impl NativeCell {
    /// Returns what is known. If that is not conclusive, tries the commands in the background, unless that was just done.
    pub(super) fn get_or_probe<F>(self: &Arc<Self>, probe: impl FnOnce() -> F) -> NativeCommands
    where
        F: Future<Output = Result<NativeCommands, TransportError>> + Send + 'static,
    {
        if let Some(known) = self.known() {
            return known;
        }
        let mut progress = self.progress();
        let is_due = progress.last.is_none_or(|(_, at)| at.elapsed() >= AGAIN);
        if is_due && !progress.is_running {
            progress.is_running = true;
            let (cell, probe) = (Arc::clone(self), probe());
            runtime::spawn(async move { cell.finish(probe.await.unwrap_or_default()) });
        }
        progress.last.map_or_else(NativeCommands::default, |(last, _)| last)
    }

    /// Returns the conclusive answer, if there is one.
    pub(super) fn known(&self) -> Option<NativeCommands> {
        if self.is_rejected.load(Ordering::Relaxed) { Some(NativeCommands::NONE) } else { self.known.get().copied() }
    }

    /// Waits until the commands have been tried, for a user that may not run scripts.
    pub(super) async fn tried(&self, deadline: Deadline) {
        // Created before the check, so that it misses no notification.
        let finished = self.finished.notified();
        let is_tried = self.known.get().is_some() || self.progress().last.is_some();
        if !is_tried {
            // If nothing is known by then, the verb fails with that reason.
            let _ = timeout_at(deadline.at, finished).await;
        }
    }

    /// Records that the server has rejected a native command.
    pub(super) fn reject(&self) {
        self.is_rejected.store(true, Ordering::Relaxed);
    }

    fn finish(&self, found: NativeCommands) {
        if found.is_conclusive {
            // Only one probe runs at a time, so nothing is set yet.
            let _ = self.known.set(found);
        }
        *self.progress() = ProbeProgress { is_running: false, last: Some((found, Instant::now())) };
        self.finished.notify_waiters();
    }

    fn progress(&self) -> MutexGuard<'_, ProbeProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
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
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

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

    fn none(is_conclusive: bool) -> NativeCommands {
        NativeCommands { is_conclusive, ..NativeCommands::default() }
    }

    #[test]
    fn each_native_command_is_known_by_its_own_reply() {
        let denied = || error("NOPERM User shop has no permissions to run the 'delifeq' command");
        for (delex, delifeq, delete) in [
            (Value::Int(0), unknown(), Some(DeleteCommand::Delex)),
            (unknown(), Value::Int(0), Some(DeleteCommand::Delifeq)),
            (unknown(), unknown(), None),
            (unknown(), denied(), None),
        ] {
            let read = NativeCommands::read(&[Value::Nil, Value::Nil, delex, delifeq]);
            assert_eq!(read, NativeCommands { has_set_ifeq: true, delete, is_conclusive: true });
            assert_eq!(read.is_enough(), delete.is_some());
        }
        assert_eq!(NativeCommands::read(&[syntax(), Value::Nil, unknown(), unknown()]), none(true));
    }

    #[test]
    fn server_that_ignores_the_comparison_counts_as_one_without_it() {
        let created = Value::BulkString(b"1".to_vec());
        assert_eq!(NativeCommands::read(&[Value::Nil, created, unknown(), unknown()]), none(true));
    }

    #[test]
    fn full_loading_or_moved_server_makes_the_probe_inconclusive() {
        for text in
            [OOM, "LOADING Redis is loading the dataset in memory", "MOVED 1 127.0.0.1:7000", "ASK 1 127.0.0.1:7000"]
        {
            assert_eq!(NativeCommands::read(&[error(text), Value::Nil, unknown(), error(text)]), none(false), "{text}");
        }
        let full = NativeCommands::read(&[error(OOM), Value::Nil, unknown(), Value::Int(0)]);
        assert_eq!((full.has_set_ifeq, full.delete), (false, Some(DeleteCommand::Delifeq)), "a full server deletes");
        assert!(!full.is_conclusive);
    }

    fn native() -> NativeCommands {
        NativeCommands { has_set_ifeq: true, delete: Some(DeleteCommand::Delex), is_conclusive: true }
    }

    #[tokio::test]
    async fn native_commands_are_probed_once_without_blocking_callers() {
        let (cell, tries) = (Arc::new(NativeCell::default()), Arc::new(AtomicUsize::new(0)));
        let (answer, wait) = tokio::sync::oneshot::channel();
        let wait = Arc::new(tokio::sync::Mutex::new(Some(wait)));
        let probe = || {
            tries.fetch_add(1, Ordering::SeqCst);
            let wait = Arc::clone(&wait);
            async move { wait.lock().await.take().expect("one probe").await.map_err(|_| TransportError::TooMany) }
        };
        for _ in 0..10 {
            assert_eq!(cell.get_or_probe(probe), none(false), "scripts run meanwhile");
        }
        // A user without scripts waits until its deadline, and no longer.
        let begun = Instant::now();
        cell.tried(Deadline::after(Duration::from_millis(30))).await;
        assert!(begun.elapsed() >= Duration::from_millis(30));
        answer.send(native()).expect("the probe waits");
        cell.tried(Deadline::after(Duration::from_secs(60))).await;
        assert_eq!((cell.get_or_probe(probe), tries.load(Ordering::SeqCst)), (native(), 1));
        cell.reject();
        assert_eq!(cell.get_or_probe(probe), none(true), "a rejected command is not sent again");
    }

    #[tokio::test]
    async fn inconclusive_probe_is_used_and_repeated_later() {
        let cell = Arc::new(NativeCell::default());
        let partly = NativeCommands { is_conclusive: false, ..native() };
        cell.get_or_probe(|| async move { Ok(partly) });
        cell.tried(Deadline::after(Duration::from_secs(60))).await;
        assert_eq!(cell.get_or_probe(|| async { panic!("it was just tried") }), partly);
        cell.progress().last = Some((partly, Instant::now() - AGAIN));
        cell.get_or_probe(|| async { Ok(native()) });
        let is_known = || async { cell.known.get().is_some() };
        while !is_known().await {
            tokio::task::yield_now().await;
        }
        assert_eq!(cell.get_or_probe(|| async { panic!("it is known") }), native());
    }
}
