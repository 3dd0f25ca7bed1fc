//! The translation of verbs into one command, or one script, on one key with one deadline.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{Cmd, FromRedisValue as _, ServerErrorKind, Value};

use super::capabilities::{Capabilities, NativeCommands};
use super::deadline::Deadline;
use super::error::TransportError;
use super::replication_id::ReplicationId;
use super::scripts::ScriptCall;
use super::transport::{KeyName, Request, Response};
use super::{Redis, SendMode};
use crate::store::{Bytes, Epoch, StoreError};
use crate::ticket::Ticket;

impl Redis {
    pub(super) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    /// Creates a command on one ticket's key.
    pub(super) fn command(&self, verb: &str, ticket: &Ticket) -> Cmd {
        let name = ticket.name(&self.prefix);
        // Capacity for the longest command with a small value.
        let mut command = Cmd::with_capacity(7, verb.len() + name.len() + 64);
        command.arg(verb).arg(name);
        command
    }

    pub(super) async fn send(&self, request: Request, deadline: Deadline) -> Result<Response, TransportError> {
        let _permit = self.permit()?;
        match self.sending {
            SendMode::Batched => match self.transport.ask(request, deadline) {
                Ok(response) => response.await,
                Err(request) => self.transport.send(request, deadline).await,
            },
            SendMode::OneByOne => self.transport.send_by_thread(request, deadline).await,
            SendMode::Shared => self.transport.send(request, deadline).await,
        }
    }

    /// Counts a command in flight, or rejects it if there are too many.
    fn permit(&self) -> Result<InFlightPermit<'_>, TransportError> {
        let permit = InFlightPermit(&self.in_flight);
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        if before < self.max_in_flight { Ok(permit) } else { Err(TransportError::TooMany) }
    }

    /// Runs a script by its digest, or by its text where the server may not know it. A server that does not know the digest, or lets its user
    /// run scripts by their text only, has not executed the script, and receives its text.
    pub(super) async fn eval(
        &self,
        script: ScriptCall<'_>,
        name: &str,
        arguments: &[&[u8]],
        wants_replication_id: bool,
        deadline: Deadline,
    ) -> Result<Response, TransportError> {
        let call = |verb: &str, body: &str| {
            let length = arguments.iter().map(|argument| argument.len()).sum::<usize>();
            let mut command =
                Cmd::with_capacity(4 + arguments.len(), verb.len() + body.len() + name.len() + length + 1);
            command.arg(verb).arg(body).arg(1).arg(name).arg(arguments);
            Request { command, key_at: 3, wants_replication_id }
        };
        if let ScriptCall::Digest(script) = script {
            match self.send(call("EVALSHA", script.digest()), deadline).await {
                Err(error) if error.is(ServerErrorKind::NoScript) || error.is(ServerErrorKind::NoPerm) => {}
                other => return other,
            }
        }
        let (ScriptCall::Digest(script) | ScriptCall::Text(script)) = script;
        self.send(call("EVAL", script.text), deadline).await
    }

    /// Returns whether a replication id that was read after a command stands for this epoch. An epoch never recurs, so the command was
    /// executed in it too. Drops the cached replication id on a mismatch.
    pub(super) fn is_of(&self, epoch: Epoch, replication_id: Option<ReplicationId>, ticket: &Ticket) -> bool {
        // Usually the id is the cached one, and its epoch need not be computed again.
        let is_of_epoch = match self.transport.known(&KeyName(&|| ticket.name(&self.prefix))) {
            Some((known, of)) if replication_id == Some(known) => of == epoch,
            _ => replication_id.and_then(|replication_id| replication_id.epoch()) == Some(epoch),
        };
        if !is_of_epoch {
            self.transport.forget(&KeyName(&|| ticket.name(&self.prefix)));
        }
        is_of_epoch
    }

    /// Returns whether the store is certainly in another epoch. Asks the server if the cached epoch is another one: the token may be from
    /// a newer epoch than the one known here. An unknown epoch is checked after the command.
    pub(super) async fn has_left(
        &self,
        epoch: Epoch,
        ticket: &Ticket,
        deadline: Deadline,
    ) -> Result<bool, TransportError> {
        match self.transport.known(&KeyName(&|| ticket.name(&self.prefix))) {
            Some((_, known)) if known != epoch => Ok(self.learn_epoch(ticket, deadline).await? != epoch),
            _ => Ok(false),
        }
    }

    /// Reads the epoch from the server that holds this ticket.
    pub(super) async fn learn_epoch(&self, ticket: &Ticket, deadline: Deadline) -> Result<Epoch, TransportError> {
        let _permit = self.permit()?;
        let (_, epoch) = self.transport.learn(&KeyName(&|| ticket.name(&self.prefix)), deadline).await?;
        Ok(epoch)
    }

    /// Returns how a verb on this ticket may compare. A user that may run scripts does not wait: as long as the native commands are not
    /// known, scripts run.
    pub(super) async fn capabilities(&self, ticket: &Ticket, deadline: Deadline) -> Capabilities {
        let name = || ticket.name(&self.prefix);
        let key = KeyName(&name);
        let native = || match self.is_native {
            true => self.transport.native(&key, &self.prefix),
            false => NativeCommands::NONE,
        };
        let known = native();
        if self.transport.runs_scripts(&key) != Some(false) {
            return Capabilities { native: known, runs_scripts: true };
        }
        if !known.is_enough() {
            // Boxed to keep the future of the common path small.
            Box::pin(self.transport.native_tried(&key, deadline)).await;
        }
        Capabilities { native: native(), runs_scripts: false }
    }

    /// Fails if this user could not settle a claim, so that nothing is claimed and no handler runs.
    pub(super) async fn require_comparing(
        &self,
        ticket: &Ticket,
        deadline: Deadline,
    ) -> Result<Capabilities, TransportError> {
        let name = || ticket.name(&self.prefix);
        if self.transport.runs_scripts(&KeyName(&name)).is_none() {
            let _permit = self.permit()?;
            // Boxed to keep the future of the common path small.
            Box::pin(self.transport.learn_scripts(&KeyName(&name), deadline)).await?;
        }
        let capabilities = self.capabilities(ticket, deadline).await;
        if capabilities.is_enough() { Ok(capabilities) } else { Err(capabilities.lacking()) }
    }
}

/// Counts one command in flight until it is dropped.
struct InFlightPermit<'a>(&'a AtomicUsize);

impl Drop for InFlightPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Converts to milliseconds within the range that Redis accepts: `PX 0` is an error, and so is an overflow.
pub(super) fn millis(ttl: Duration) -> u64 {
    const CENTURY: u64 = 100 * 365 * 24 * 60 * 60 * 1000;
    u64::try_from(ttl.as_millis()).unwrap_or(CENTURY).clamp(1, CENTURY)
}

pub(super) fn bytes(value: Value) -> Result<Option<Bytes>, StoreError> {
    let bytes = Option::<Vec<u8>>::from_redis_value(value).map_err(StoreError::unknown)?;
    Ok(bytes.map(Bytes::from))
}
