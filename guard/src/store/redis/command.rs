//! The translation of verbs into one command, or one script, on one key with one deadline.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{FromRedisValue as _, ServerErrorKind, Value};

use super::capabilities::{Capabilities, NativeCommands};
use super::deadline::Deadline;
use super::error::TransportError;
use super::request::{Argument, KeyName, Request};
use super::scripts::ScriptCall;
use super::transport::{Response, ServerFacts};
use super::{Redis, SendMode};
use crate::store::{Bytes, Epoch, StoreError};
use crate::ticket::Ticket;

impl Redis {
    pub(super) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    /// Returns the name of one ticket's key.
    pub(super) fn key<'a>(&'a self, ticket: &'a Ticket) -> KeyName<'a> {
        KeyName { prefix: &self.prefix, ticket }
    }

    /// Sends a request over this thread's connection, or over the shared one if it has none. The request is in the thread's queue before
    /// this returns, so the future does not hold it.
    pub(super) fn send<'a>(
        &'a self,
        mut request: Request<'a>,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Response, TransportError>> + Send + 'a {
        request.is_alone = matches!(self.sending, SendMode::OneByOne);
        let sent = self.permit().map(|permit| {
            let pending = match self.sending {
                SendMode::Batched | SendMode::OneByOne => self.transport.ask(&request, deadline),
                SendMode::Shared => None,
            };
            (permit, pending.ok_or_else(|| self.transport.send(request, deadline)))
        });
        async move {
            let (_permit, sent) = sent?;
            match sent {
                Ok(pending) => pending.await,
                Err(shared) => shared.await,
            }
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
    pub(super) async fn eval<const COUNT: usize>(
        &self,
        call: ScriptCall<'_>,
        key: KeyName<'_>,
        arguments: [Argument<'_>; COUNT],
        wants_epoch: bool,
        deadline: Deadline,
    ) -> Result<Response, TransportError> {
        let (ScriptCall::Digest(script) | ScriptCall::Text(script)) = call;
        if let ScriptCall::Digest(_) = call {
            match self.send(Request::script(key, wants_epoch, "EVALSHA", script.digest(), arguments), deadline).await {
                Err(error) if error.is(ServerErrorKind::NoScript) || error.is(ServerErrorKind::NoPerm) => {}
                other => return other,
            }
        }
        // Boxed to keep the future of the common path small.
        Box::pin(self.send(Request::script(key, wants_epoch, "EVAL", script.text, arguments), deadline)).await
    }

    /// Returns whether the server was in this epoch after a command. An epoch never recurs, so the command was executed in it too. Drops
    /// the cached epoch on a mismatch.
    pub(super) fn is_of(&self, epoch: Epoch, response: &Response, key: KeyName<'_>) -> bool {
        let is_of_epoch = response.epoch == Some(epoch);
        if !is_of_epoch {
            self.transport.forget(key);
        }
        is_of_epoch
    }

    /// Returns whether the store is certainly in another epoch. Asks the server if the cached epoch is another one: the token may be from
    /// a newer epoch than the one known here. An unknown epoch is checked after the command.
    pub(super) async fn has_left(
        &self,
        epoch: Epoch,
        facts: ServerFacts,
        key: KeyName<'_>,
        deadline: Deadline,
    ) -> Result<bool, TransportError> {
        match facts.epoch {
            // Boxed to keep the future of the common path small.
            Some(known) if known != epoch => Ok(Box::pin(self.learn_epoch(key, deadline)).await? != epoch),
            _ => Ok(false),
        }
    }

    /// Reads the epoch from the server that holds this key.
    pub(super) async fn learn_epoch(&self, key: KeyName<'_>, deadline: Deadline) -> Result<Epoch, TransportError> {
        let _permit = self.permit()?;
        self.transport.learn_epoch(key, deadline).await
    }

    /// Returns what is known about the server that holds this key.
    pub(super) fn facts(&self, key: KeyName<'_>) -> ServerFacts {
        let facts = self.transport.facts(key);
        let native = if self.is_native { facts.native } else { NativeCommands::NONE };
        ServerFacts { native, ..facts }
    }

    /// Returns how a verb on this key may compare. A user that may run scripts does not wait: as long as the native commands are not
    /// known, scripts run.
    pub(super) async fn capabilities(&self, facts: ServerFacts, key: KeyName<'_>, deadline: Deadline) -> Capabilities {
        if facts.runs_scripts != Some(false) {
            return Capabilities { native: facts.native, runs_scripts: true };
        }
        if !facts.native.is_enough() {
            // Boxed to keep the future of the common path small.
            Box::pin(self.transport.native_tried(key, deadline)).await;
        }
        Capabilities { native: self.facts(key).native, runs_scripts: false }
    }

    /// Fails if this user could not settle a claim, so that nothing is claimed and no handler runs.
    pub(super) async fn require_comparing(
        &self,
        key: KeyName<'_>,
        deadline: Deadline,
    ) -> Result<Capabilities, TransportError> {
        let mut facts = self.facts(key);
        if facts.runs_scripts.is_none() {
            let _permit = self.permit()?;
            // Boxed to keep the future of the common path small.
            Box::pin(self.transport.learn_scripts(key, deadline)).await?;
            facts = self.facts(key);
        }
        let capabilities = self.capabilities(facts, key, deadline).await;
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
pub(super) fn millis(ttl: Duration) -> Argument<'static> {
    const CENTURY: u64 = 100 * 365 * 24 * 60 * 60 * 1000;
    Argument::Number(u64::try_from(ttl.as_millis()).unwrap_or(CENTURY).clamp(1, CENTURY))
}

pub(super) fn bytes(value: Value) -> Result<Option<Bytes>, StoreError> {
    let bytes = Option::<Vec<u8>>::from_redis_value(value).map_err(StoreError::unknown)?;
    Ok(bytes.map(Bytes::from))
}
