//! The commands of one thread's connection, from the caller to the reply.
//!
//! A worker that has read thirty HTTP requests sends thirty commands before it polls its sockets again. A command is written into one
//! buffer, which the [driver](super::driver) hands to the socket as one batch; replies arrive in the order of the commands. Each command
//! is sent at most once, has its own deadline and receives its own response or error. Commands that need the server's epoch share one
//! `INFO replication` after them.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redis::{ErrorKind, RedisError, RedisResult, Value};
use tokio::time::Instant;

use super::breaker::Breaker;
use super::deadline::Deadline;
use super::error::TransportError;
use super::queue_entry::{EntryId, EntryState, QueueEntries, QueueEntry};
use super::replication_id::ReplicationIdReader;
use super::reply::{is_push, parse, reply_length};
use super::request::Request;
use super::transport::Response;

/// The maximum number of commands that share one `INFO replication`: the first receives its response only when the last one does.
const MOST: usize = 64;
/// `INFO replication` as it is sent.
const INFO: &[u8] = b"*2\r\n$4\r\nINFO\r\n$11\r\nreplication\r\n";
/// A buffer that has grown beyond this size for a long value is released after it.
const LARGE: usize = 1024 * 1024;

/// Commands that wait to be sent or answered.
#[derive(Default)]
pub(super) struct CommandQueue(Mutex<QueueContents>);

#[derive(Default)]
struct QueueContents {
    entries: QueueEntries,
    /// The commands that have not been sent.
    unsent: Vec<u8>,
    /// What the next replies answer, in this order.
    expected: VecDeque<Expected>,
    /// How many of the last `expected` have not been sent.
    queued: usize,
    /// How many commands since the last `INFO replication` need the epoch.
    without_info: usize,
    /// The commands that have been replied to, and wait for the epoch.
    replied: Vec<EntryId>,
    /// No command has an earlier deadline.
    soonest: Option<Instant>,
    /// The driver, if it waits.
    driver: Option<Waker>,
    /// Accepts no more commands.
    is_closed: bool,
    /// Commands are sent one by one, for the benchmark.
    is_one_by_one: bool,
}

/// What a reply answers.
#[derive(Clone, Copy)]
enum Expected {
    Command(EntryId),
    Info,
}

/// What a driver needs to know to decide what to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueStatus {
    /// Commands wait to be sent.
    pub(super) is_queued: bool,
    /// Commands have been sent and not answered.
    pub(super) is_in_flight: bool,
    /// No command has an earlier deadline.
    pub(super) soonest: Option<Instant>,
    /// Commands may wait to be sent with others.
    pub(super) may_wait: bool,
    /// The queue is closed, and no caller waits for a response.
    pub(super) is_over: bool,
}

/// The replies that were found in some bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// The length of the replies.
    pub(super) length: usize,
    /// A reply makes the connection suspect.
    pub(super) is_suspect: bool,
}

impl CommandQueue {
    /// Adds a command, and wakes the driver. Returns `None` if the queue is closed.
    pub(super) fn ask(self: &Arc<Self>, request: &Request<'_>, deadline: Deadline) -> Option<PendingResponse> {
        let mut contents = self.contents();
        if contents.is_closed {
            return None;
        }
        let id = contents.add(request, deadline);
        let driver = contents.driver.take();
        drop(contents);
        driver.into_iter().for_each(Waker::wake);
        Some(PendingResponse { queue: Arc::clone(self), id, is_done: false })
    }

    /// Accepts no more commands. Those that were accepted are still sent and answered.
    pub(super) fn close(&self) {
        let mut contents = self.contents();
        contents.is_closed = true;
        let driver = contents.driver.take();
        drop(contents);
        driver.into_iter().for_each(Waker::wake);
    }

    /// Closes the queue, and fails every command. Whether a command was executed is unknown.
    pub(super) fn fail(&self, error: &RedisError) {
        let mut contents = self.contents();
        contents.is_closed = true;
        contents.expected.clear();
        contents.queued = 0;
        let mut wakers = Vec::new();
        for (_, entry) in contents.entries.waiting() {
            entry.answer(Err(error.clone().into()), &mut wakers);
        }
        drop(contents);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns the status, and wakes the driver when a command is added or the queue is closed.
    pub(super) fn watch(&self, driver: &Waker) -> QueueStatus {
        let mut contents = self.contents();
        contents.driver.get_or_insert_with(|| driver.clone());
        QueueStatus {
            is_queued: contents.queued > 0,
            is_in_flight: contents.expected.len() > contents.queued,
            soonest: contents.soonest,
            may_wait: !contents.is_one_by_one,
            is_over: contents.is_closed && contents.entries.waiting().next().is_none(),
        }
    }

    /// Moves commands that have not been sent into an empty buffer: all of them, or only the first if they are sent one by one. Returns
    /// whether some are left.
    pub(super) fn take_unsent(&self, buffer: &mut Vec<u8>, now: Instant) -> bool {
        let mut contents = self.contents();
        contents.complete();
        if contents.is_one_by_one {
            let (count, length) = contents.first();
            buffer.extend(contents.unsent.drain(..length));
            contents.mark_sent(count, now);
        } else {
            std::mem::swap(&mut contents.unsent, buffer);
            if contents.unsent.capacity() > LARGE {
                contents.unsent = Vec::new();
            }
            let count = contents.queued;
            contents.mark_sent(count, now);
        }
        contents.queued > 0
    }

    /// Passes the replies in these bytes to their callers, whose wakers it adds to `wakers`.
    pub(super) fn receive(
        &self,
        bytes: &[u8],
        ids: &mut ReplicationIdReader,
        breaker: &Breaker,
        wakers: &mut Vec<Waker>,
    ) -> RedisResult<Received> {
        let (mut contents, mut received) = (self.contents(), Received::default());
        while let Some(length) = reply_length(&bytes[received.length..])? {
            let reply = &bytes[received.length..received.length + length];
            received.length += length;
            if !is_push(reply) {
                received.is_suspect |= contents.receive(reply, ids, breaker, wakers)?;
            }
        }
        Ok(received)
    }

    /// Returns the earliest deadline of a command without a response; `None` if there is none.
    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let mut contents = self.contents();
        let next = contents.entries.waiting().map(|(_, entry)| entry.deadline).min_by_key(|deadline| deadline.at);
        contents.soonest = next.map(|deadline| deadline.at);
        next
    }

    /// Fails the commands whose deadline had passed at `then`. Returns whether the connection is suspect.
    pub(super) fn give_up(&self, then: Instant, breaker: &Breaker, wakers: &mut Vec<Waker>) -> bool {
        let mut contents = self.contents();
        let (mut is_suspect, mut unsent) = (false, Vec::new());
        for (id, late) in contents.entries.waiting().filter(|(_, entry)| entry.deadline.at <= then) {
            match late.sent {
                None => unsent.push(id),
                Some(sent) if !late.deadline.was_hurried(sent) => {
                    breaker.timed_out();
                    is_suspect |= late.deadline.timed_out().is_suspect(false);
                }
                Some(_) => {}
            }
            late.answer(Err(late.deadline.timed_out()), wakers);
        }
        unsent.into_iter().for_each(|id| contents.withdraw(id));
        is_suspect
    }

    /// Removes the command of a caller that waits no longer. If it has not been sent, it never is.
    fn abandon(&self, id: EntryId) {
        let mut contents = self.contents();
        if contents.entries.get(id).is_some_and(|entry| entry.sent.is_none()) {
            contents.withdraw(id);
        }
        contents.entries.remove(id);
    }

    fn contents(&self) -> MutexGuard<'_, QueueContents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueContents {
    fn add(&mut self, request: &Request<'_>, deadline: Deadline) -> EntryId {
        let before = self.unsent.len();
        request.write_to(&mut self.unsent);
        let length = self.unsent.len() - before;
        let id = self.entries.add(QueueEntry::new(deadline, request.wants_epoch, length));
        self.expected.push_back(Expected::Command(id));
        self.queued += 1;
        self.without_info += usize::from(request.wants_epoch);
        self.is_one_by_one = request.is_alone;
        if self.without_info >= MOST || self.is_one_by_one {
            self.complete();
        }
        self.soonest = Some(self.soonest.map_or(deadline.at, |soonest| soonest.min(deadline.at)));
        id
    }

    /// Adds an `INFO replication` if a command needs it.
    fn complete(&mut self) {
        if self.without_info > 0 {
            self.without_info = 0;
            self.unsent.extend_from_slice(INFO);
            self.expected.push_back(Expected::Info);
            self.queued += 1;
        }
    }

    /// Returns how many commands the first one and its `INFO replication` are, and their length.
    fn first(&mut self) -> (usize, usize) {
        let sent = self.expected.len() - self.queued;
        let command = self.expected.get(sent).map_or(0, |first| length_of(*first, &mut self.entries));
        match self.expected.get(sent + 1) {
            Some(Expected::Info) => (2, command + INFO.len()),
            _ => (self.queued.min(1), command),
        }
    }

    /// Records that the next `count` commands have been sent.
    fn mark_sent(&mut self, count: usize, now: Instant) {
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
    fn withdraw(&mut self, id: EntryId) {
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

    /// Passes one reply on. Returns whether the connection is suspect.
    fn receive(
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
                    let Some(entry) = self.entries.get(id) else { continue };
                    if let EntryState::Replied(value) = std::mem::replace(&mut entry.state, EntryState::Done) {
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

/// The error of a command whose outcome is unknown.
pub(super) fn lost() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

/// The future response to one request. If it is dropped before the command is sent, the command is not sent.
pub(super) struct PendingResponse {
    queue: Arc<CommandQueue>,
    id: EntryId,
    is_done: bool,
}

impl Future for PendingResponse {
    type Output = Result<Response, TransportError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut contents = this.queue.contents();
        let Some(entry) = contents.entries.get(this.id) else { return Poll::Ready(Err(lost().into())) };
        if entry.is_waiting() {
            match &mut entry.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        let state = std::mem::replace(&mut entry.state, EntryState::Done);
        contents.entries.remove(this.id);
        this.is_done = true;
        match state {
            EntryState::Answered(answer) => Poll::Ready(answer),
            _ => Poll::Ready(Err(lost().into())),
        }
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        if !self.is_done {
            self.queue.abandon(self.id);
        }
    }
}
