//! The commands of a queue: those to be sent, and those that wait for a reply.

use std::collections::VecDeque;
use std::task::Waker;

use redis::{ErrorKind, RedisResult, Value};
use tokio::time::Instant;

use crate::store::redis::breaker::Breaker;
use crate::store::redis::deadline::Deadline;
use crate::store::redis::error::TransportError;
use crate::store::redis::queue_entry::{EntryId, EntryState, QueueEntries, QueueEntry};
use crate::store::redis::replication_id::ReplicationIdReader;
use crate::store::redis::reply::parse;
use crate::store::redis::request::Request;
use crate::store::redis::transport::Response;

/// The maximum number of commands that share one `INFO replication`: the first receives its response only when the last one does.
pub(super) const MAX_PER_INFO: usize = 64;
/// `INFO replication` as it is sent.
const INFO: &[u8] = b"*2\r\n$4\r\nINFO\r\n$11\r\nreplication\r\n";
/// The commands of a queue, behind its lock.
#[derive(Default)]
pub(super) struct QueueContents {
    pub(super) entries: QueueEntries,
    /// The commands that have not been sent.
    pub(super) unsent: Vec<u8>,
    /// The commands that the next replies answer, in this order.
    pub(super) expected: VecDeque<Expected>,
    /// How many of the last `expected` have not been sent.
    pub(super) queued: usize,
    /// How many commands since the last `INFO replication` need the epoch.
    without_info: usize,
    /// The commands that have been replied to, and wait for the epoch.
    replied: Vec<EntryId>,
    /// No command is due earlier.
    pub(super) soonest: Option<Instant>,
    /// The driver, if it waits.
    pub(super) driver: Option<Waker>,
    /// Accepts no more commands.
    pub(super) is_closed: bool,
    /// Commands are sent one by one, for the benchmark.
    pub(super) is_one_by_one: bool,
}

/// The command that a reply answers.
#[derive(Clone, Copy)]
pub(super) enum Expected {
    Command(EntryId),
    Info,
}

impl QueueContents {
    pub(super) fn add(&mut self, request: &Request<'_>, deadline: Deadline) -> EntryId {
        let before = self.unsent.len();
        request.write_to(&mut self.unsent);
        let length = self.unsent.len() - before;
        let id = self.entries.add(QueueEntry::new(deadline, request.wants_epoch, length));
        self.expected.push_back(Expected::Command(id));
        self.queued += 1;
        self.without_info += usize::from(request.wants_epoch);
        self.is_one_by_one = request.is_alone;
        if self.without_info >= MAX_PER_INFO || self.is_one_by_one {
            self.complete();
        }
        self.soonest = Some(self.soonest.map_or(deadline.at, |soonest| soonest.min(deadline.at)));
        id
    }

    /// Adds an `INFO replication` if a command needs it.
    pub(super) fn complete(&mut self) {
        if self.without_info > 0 {
            self.without_info = 0;
            self.unsent.extend_from_slice(INFO);
            self.expected.push_back(Expected::Info);
            self.queued += 1;
        }
    }

    /// Returns the number and the length in bytes of the commands to send next: one, or one and its `INFO replication`.
    pub(super) fn first(&mut self) -> (usize, usize) {
        let sent = self.expected.len() - self.queued;
        let command = self.expected.get(sent).map_or(0, |first| length_of(*first, &mut self.entries));
        match self.expected.get(sent + 1) {
            Some(Expected::Info) => (2, command + INFO.len()),
            _ => (self.queued.min(1), command),
        }
    }

    /// Records that the next `count` commands have been sent.
    pub(super) fn mark_sent(&mut self, count: usize, now: Instant) {
        let sent = self.expected.len() - self.queued;
        for expected in self.expected.range(sent..sent + count) {
            if let Expected::Command(id) = expected
                && let Some(entry) = self.entries.get(*id)
            {
                entry.sent = Some(now);
            }
        }
        self.queued -= count;
    }

    /// Removes a command that has not been sent.
    pub(super) fn withdraw(&mut self, id: EntryId) {
        let sent = self.expected.len() - self.queued;
        let mut at = 0;
        for index in sent..self.expected.len() {
            let length = length_of(self.expected[index], &mut self.entries);
            if matches!(self.expected[index], Expected::Command(other) if other == id) {
                self.unsent.drain(at..at + length);
                self.expected.remove(index);
                self.queued -= 1;
                return;
            }
            at += length;
        }
    }

    /// Removes the commands that have not been sent, and have been answered by a timeout.
    pub(super) fn withdraw_expired(&mut self) {
        let sent = self.expected.len() - self.queued;
        let unsent = std::mem::take(&mut self.unsent);
        let mut at = 0;
        for expected in self.expected.split_off(sent) {
            let length = length_of(expected, &mut self.entries);
            let is_kept = match expected {
                Expected::Command(id) => self.entries.get(id).is_some_and(|entry| entry.is_waiting()),
                Expected::Info => true,
            };
            if is_kept {
                self.unsent.extend_from_slice(&unsent[at..at + length]);
                self.expected.push_back(expected);
            }
            at += length;
        }
        self.queued = self.expected.len() - sent;
    }

    /// Passes one reply on. Returns whether the connection is suspect.
    pub(super) fn receive(
        &mut self,
        reply: &[u8],
        ids: &mut ReplicationIdReader,
        breaker: &Breaker,
        wakers: &mut Vec<Waker>,
    ) -> RedisResult<bool> {
        if self.expected.len() == self.queued {
            return Err((ErrorKind::Parse, "a reply to no command").into());
        }
        match self.expected.pop_front() {
            Some(Expected::Command(id)) => Ok(self.receive_answer(id, parse(reply), breaker, wakers)),
            Some(Expected::Info) | None => {
                let epoch = ids.epoch(reply);
                for id in self.replied.drain(..) {
                    if let Some(entry) = self.entries.get(id)
                        && let Some(value) = entry.take_reply()
                    {
                        breaker.answered();
                        entry.answer(Ok(Response { value, epoch }), wakers);
                    }
                }
                Ok(false)
            }
        }
    }

    /// Passes the reply to a command on, unless its caller has left. Returns whether the connection is suspect.
    fn receive_answer(
        &mut self,
        id: EntryId,
        answer: RedisResult<Value>,
        breaker: &Breaker,
        wakers: &mut Vec<Waker>,
    ) -> bool {
        let answer = answer.map_err(TransportError::from);
        let is_suspect = answer.as_ref().is_err_and(|error| error.is_suspect(false));
        let Some(entry) = self.entries.get(id) else { return is_suspect };
        if !matches!(entry.state, EntryState::Waiting) {
            return is_suspect;
        }
        match answer {
            Ok(value) if entry.wants_epoch => {
                entry.state = EntryState::Replied(value);
                self.replied.push(id);
            }
            answer => {
                if answer.as_ref().map_or_else(TransportError::is_answer, |_| true) {
                    breaker.answered();
                }
                entry.answer(answer.map(|value| Response { value, epoch: None }), wakers);
            }
        }
        is_suspect
    }
}

/// Returns the length of a command that has not been sent.
fn length_of(expected: Expected, entries: &mut QueueEntries) -> usize {
    match expected {
        Expected::Info => INFO.len(),
        Expected::Command(id) => entries.get(id).map_or(0, |entry| entry.length),
    }
}
