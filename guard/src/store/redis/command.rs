//! The translation of verbs into one command, or one script, on one key with one deadline.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{Cmd, FromRedisValue as _, ServerErrorKind, Value};

use super::deadline::Deadline;
use super::error::TransportError;
use super::replication_id::ReplicationId;
use super::scripts::{LuaScript, SWAP};
use super::transport::{KeyName, Request, Response};
use super::{Redis, SendMode};
use crate::store::{Bytes, Compared, Epoch, StoreError};
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

    pub(super) async fn ask(&self, command: Cmd, deadline: Deadline) -> Result<Option<Bytes>, StoreError> {
        let request = Request { command, key_at: 1, wants_replication_id: false };
        bytes(self.send(request, deadline).await?.value)
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

    /// Runs a script by its digest. A server that does not know the digest has not executed the script, and receives its text.
    pub(super) async fn eval(
        &self,
        script: &LuaScript,
        ticket: &Ticket,
        arguments: &[&[u8]],
        wants_replication_id: bool,
        deadline: Deadline,
    ) -> Result<Response, StoreError> {
        let call = |verb: &str, body: &str| {
            let name = ticket.name(&self.prefix);
            let length = arguments.iter().map(|argument| argument.len()).sum::<usize>();
            let mut command =
                Cmd::with_capacity(4 + arguments.len(), verb.len() + body.len() + name.len() + length + 1);
            command.arg(verb).arg(body).arg(1).arg(name).arg(arguments);
            Request { command, key_at: 3, wants_replication_id }
        };
        match self.send(call("EVALSHA", script.digest()), deadline).await {
            Err(error) if error.is(ServerErrorKind::NoScript) => {
                Ok(self.send(call("EVAL", script.text), deadline).await?)
            }
            other => Ok(other?),
        }
    }

    pub(super) async fn eval_swap(
        &self,
        ticket: &Ticket,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
        wants_replication_id: bool,
        deadline: Deadline,
    ) -> Result<Response, StoreError> {
        self.eval(&SWAP, ticket, &[held, value, millis(ttl).to_string().as_bytes()], wants_replication_id, deadline)
            .await
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

    /// Returns the replication id of the server that holds this ticket. Reads it from the server unless the cached one is of the
    /// expected epoch.
    pub(super) async fn replication_id(
        &self,
        ticket: &Ticket,
        expected: Option<Epoch>,
        deadline: Deadline,
    ) -> Result<(ReplicationId, Epoch), TransportError> {
        let name = || ticket.name(&self.prefix);
        match self.transport.known(&KeyName(&name)) {
            Some((replication_id, epoch)) if expected == Some(epoch) => Ok((replication_id, epoch)),
            _ => {
                let _permit = self.permit()?;
                self.transport.learn(&KeyName(&name), deadline).await
            }
        }
    }

    pub(super) async fn refuses_scripts(&self, ticket: &Ticket, deadline: Deadline) -> Result<bool, TransportError> {
        match self.transport.refuses_scripts() {
            Some(refuses) => Ok(refuses),
            None => {
                let _permit = self.permit()?;
                self.transport.learn_scripts(&KeyName(&|| ticket.name(&self.prefix)), deadline).await
            }
        }
    }
}

/// Counts one command in flight until it is dropped.
struct InFlightPermit<'a>(&'a AtomicUsize);

impl Drop for InFlightPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads the result of a script that compares.
pub(super) fn compared(answer: Value) -> Result<Compared, StoreError> {
    match answer {
        Value::Int(1) => Ok(Compared::Done),
        other => Ok(bytes(other)?.map_or(Compared::Gone, Compared::Found)),
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
