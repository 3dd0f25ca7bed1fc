//! Set if absent, in one command.

use std::time::Duration;

use super::Redis;
use super::command::{bytes, millis};
use super::request::{Argument, Request};
use super::scripts::{INSERT_RESERVED, ScriptCall};
use crate::store::{Bytes, Room, StoreError};
use crate::ticket::Ticket;

impl Redis {
    /// Writes a record if there is none, or returns the existing value. At `maxmemory`, a script writes a small record that may use the
    /// reserve.
    pub(super) async fn insert_if_absent(
        &self,
        ticket: &Ticket,
        value: &[u8],
        ttl: Duration,
        room: Room,
    ) -> Result<Option<Bytes>, StoreError> {
        let (deadline, key) = (self.deadline(), self.key(ticket));
        let required = self.require_comparing(key, deadline).await;
        let capabilities = required.map_err(|error| StoreError::from(error).certainly_not_executed())?;
        let (content, ttl) = (Argument::Text(value), millis(ttl));
        let [set, px, nx, get] = [&b"SET"[..], b"PX", b"NX", b"GET"].map(Argument::Text);
        match self.send(Request::new(key, false, [set, Argument::Key, content, px, ttl, nx, get]), deadline).await {
            Err(error)
                if error.is_full()
                    && room == Room::Reserved
                    && value.len() <= Room::SMALL
                    && capabilities.runs_scripts =>
            {
                let script = ScriptCall::Text(&INSERT_RESERVED);
                bytes(Box::pin(self.eval(script, key, [content, ttl], false, deadline)).await?.value)
            }
            answer => bytes(answer?.value),
        }
    }
}
