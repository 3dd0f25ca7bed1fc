//! Compare-and-set and compare-and-delete: by a native command where the server has one, and by a script otherwise.
//!
//! A native command says less than a script. `SET … IFEQ … GET` returns the value from before, which is the held one if the new one was
//! written; nil means that nothing was written. A compare-and-delete returns how many keys it deleted. Where nothing was changed, a lookup
//! finds out why; it never counts as a change, so a held value that the lookup finds again is compared once more.

use std::time::Duration;

use redis::Value;

use super::Redis;
use super::capabilities::{Capabilities, NativeCommands, is_unsupported};
use super::command::{bytes, millis};
use super::deadline::Deadline;
use super::request::{Argument, KeyName, Request};
use super::scripts::{REMOVE, SWAP, SWAP_RESERVED, ScriptCall};
use super::transport::Response;
use crate::store::{Bytes, Compared, Epoch, Room, StoreError};
use crate::ticket::Ticket;

/// The maximum number of attempts if other callers change the record between a command that changed nothing and the lookup that finds out
/// why.
const TRIES: usize = 4;

/// A change of one record whose value is as expected.
pub(super) struct Comparison<'a> {
    pub(super) ticket: &'a Ticket,
    pub(super) held: &'a [u8],
    pub(super) change: KeyChange<'a>,
    /// The expected epoch; `None` if any will do.
    pub(super) epoch: Option<Epoch>,
}

#[derive(Clone, Copy)]
pub(super) enum KeyChange<'a> {
    /// Writes this value for this time.
    Write(&'a [u8], Duration, Room),
    Delete,
}

impl Comparison<'_> {
    /// Returns whether the new value is written even to a full server.
    fn is_reserved(&self) -> bool {
        matches!(self.change, KeyChange::Write(value, _, Room::Reserved) if value.len() <= Room::SMALL)
    }

    /// Returns a request for the server's own command for this change, if it has one.
    fn native<'a>(&'a self, commands: NativeCommands, key: KeyName<'a>) -> Option<Request<'a>> {
        let wants_epoch = self.epoch.is_some();
        match self.change {
            KeyChange::Delete => commands.delete.map(|delete| delete.request(key, self.held, wants_epoch)),
            KeyChange::Write(value, ttl, _) => commands.has_set_ifeq.then(|| {
                let [set, ifeq, get, px] = [&b"SET"[..], b"IFEQ", b"GET", b"PX"].map(Argument::Text);
                let (value, held, ttl) = (Argument::Text(value), Argument::Text(self.held), millis(ttl));
                Request::new(key, wants_epoch, [set, Argument::Key, value, ifeq, held, get, px, ttl])
            }),
        }
    }

    /// Reads the reply to a native command. Returns `None` if nothing was changed and the reply does not say why.
    fn read_native(&self, reply: Value) -> Result<Option<Compared>, StoreError> {
        match (self.change, reply) {
            (KeyChange::Delete, Value::Int(1)) => Ok(Some(Compared::Done)),
            (KeyChange::Delete, Value::Int(0)) => Ok(None),
            (KeyChange::Delete, other) => Err(StoreError::unknown(format!("an unexpected reply: {other:?}"))),
            (KeyChange::Write(..), reply) => Ok(bytes(reply)?.map(|before| match before == self.held {
                true => Compared::Done,
                false => Compared::Found(before),
            })),
        }
    }

    /// Reads the reply to a lookup after a native command that changed nothing. Returns `None` if the held value is there again.
    fn read_look(&self, found: Option<Bytes>) -> Option<Compared> {
        match found {
            Some(found) if found == self.held => None,
            Some(found) => Some(Compared::Found(found)),
            None => Some(Compared::Gone),
        }
    }
}

impl Redis {
    /// Returns the epoch to check, unless tokens are not bound to epochs.
    pub(super) fn checked(&self, epoch: Option<Epoch>) -> Option<Epoch> {
        epoch.filter(|_| self.is_pinned)
    }

    /// Compares and changes a record. The replication id is read after each command over the same connection. A write that raced with a
    /// change of epoch is removed again.
    pub(super) async fn compare(&self, comparison: &Comparison<'_>) -> Result<Compared, StoreError> {
        let (deadline, key) = (self.deadline(), self.key(comparison.ticket));
        let facts = self.facts(key);
        if let Some(epoch) = comparison.epoch {
            let has_left = self.has_left(epoch, facts, key, deadline).await;
            if has_left.map_err(|error| StoreError::from(error).certainly_not_executed())? {
                return Ok(Compared::Stale);
            }
        }
        let capabilities = self.capabilities(facts, key, deadline).await;
        for _ in 0..TRIES {
            let step = match comparison.native(capabilities.native, key) {
                Some(request) => self.compare_natively(comparison, request, capabilities, deadline).await?,
                None if !capabilities.runs_scripts => return Err(capabilities.lacking().into()),
                None => self.compare_by_script(comparison, capabilities, false, deadline).await?,
            };
            match step {
                Step { compared: Some(compared), is_of_epoch: true } => return Ok(compared),
                Step { compared: None, is_of_epoch: true } => {}
                Step { compared, is_of_epoch: false } => {
                    if let (Some(Compared::Done), KeyChange::Write(value, ..)) = (compared, comparison.change) {
                        // If the removal fails, the caller receives `Unknown` and rolls the write back itself.
                        let undo = Comparison { held: value, change: KeyChange::Delete, epoch: None, ..*comparison };
                        Box::pin(self.compare(&undo)).await.map_err(StoreError::unknown)?;
                    }
                    return Ok(Compared::Stale);
                }
            }
        }
        Err(StoreError::not_executed(format!("gave up after {TRIES} conflicts with other changes of the same key")))
    }

    /// Sends the server's own command, and a lookup if that changed nothing and does not say why.
    async fn compare_natively(
        &self,
        comparison: &Comparison<'_>,
        request: Request<'_>,
        capabilities: Capabilities,
        deadline: Deadline,
    ) -> Result<Step, StoreError> {
        let key = request.key;
        let response = match self.send(request, deadline).await {
            Err(error) if capabilities.runs_scripts && is_unsupported(&error) => {
                self.transport.reject_native(key);
                return Box::pin(self.compare_by_script(comparison, capabilities, false, deadline)).await;
            }
            Err(error) if capabilities.runs_scripts && comparison.is_reserved() && error.is_full() => {
                return Box::pin(self.compare_by_script(comparison, capabilities, true, deadline)).await;
            }
            response => response?,
        };
        let is_of_epoch = self.is_of_epoch(comparison, &response);
        let compared = comparison.read_native(response.value)?;
        if compared.is_some() || !is_of_epoch {
            return Ok(Step { compared, is_of_epoch });
        }
        let look = Box::pin(self.send(Request::look(key, comparison.epoch.is_some()), deadline)).await;
        let found = look.map_err(|error| StoreError::from(error).certainly_not_executed())?;
        let is_of_epoch = self.is_of_epoch(comparison, &found);
        Ok(Step { compared: comparison.read_look(bytes(found.value)?), is_of_epoch })
    }

    /// Runs a script, which returns 1, or the value that it found. A full server receives a script that may write at `maxmemory`.
    ///
    /// A new connection may lead to a server that has not run the script yet. Until its native commands are known, it receives the text.
    async fn compare_by_script(
        &self,
        comparison: &Comparison<'_>,
        capabilities: Capabilities,
        mut is_full: bool,
        deadline: Deadline,
    ) -> Result<Step, StoreError> {
        let (held, wants_epoch) = (Argument::Text(comparison.held), comparison.epoch.is_some());
        let key = self.key(comparison.ticket);
        let call = if capabilities.native.is_conclusive { ScriptCall::Digest } else { ScriptCall::Text };
        loop {
            let sent = match comparison.change {
                KeyChange::Delete => self.eval(call(&REMOVE), key, [held], wants_epoch, deadline).await,
                KeyChange::Write(value, ttl, _) => {
                    let script = if is_full { ScriptCall::Text(&SWAP_RESERVED) } else { call(&SWAP) };
                    let arguments = [held, Argument::Text(value), millis(ttl)];
                    self.eval(script, key, arguments, wants_epoch, deadline).await
                }
            };
            match sent {
                Err(error) if !is_full && comparison.is_reserved() && error.is_full() => is_full = true,
                response => return self.read_script(comparison, response?),
            }
        }
    }

    fn read_script(&self, comparison: &Comparison<'_>, response: Response) -> Result<Step, StoreError> {
        let is_of_epoch = self.is_of_epoch(comparison, &response);
        let compared = match response.value {
            Value::Int(1) => Compared::Done,
            other => bytes(other)?.map_or(Compared::Gone, Compared::Found),
        };
        Ok(Step { compared: Some(compared), is_of_epoch })
    }

    fn is_of_epoch(&self, comparison: &Comparison<'_>, response: &Response) -> bool {
        comparison.epoch.is_none_or(|epoch| self.is_of(epoch, response, self.key(comparison.ticket)))
    }
}

/// The result of the commands of one try.
struct Step {
    /// `None` if nothing was changed, and either the held value was there again afterwards or the epoch had ended.
    compared: Option<Compared>,
    /// True if the server was in the expected epoch afterwards.
    is_of_epoch: bool,
}
