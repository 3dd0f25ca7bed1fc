//! The commands of one thread's connection, from the caller to the reply.
//!
//! A worker that has read thirty HTTP requests sends thirty commands before it polls its sockets again. A command is written into one
//! buffer, which the [driver](super::driver) hands to the socket as one batch; replies arrive in the order of the commands. Each command
//! is sent at most once, has its own deadline and receives its own response or error. Commands that need the server's epoch share one
//! `INFO replication` after them.

mod contents;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redis::{RedisError, RedisResult};
use tokio::time::Instant;

use self::contents::QueueContents;
use super::breaker::Breaker;
use super::deadline::Deadline;
use super::error::TransportError;
use super::queue_entry::{EntryId, EntryState};
use super::replication_id::ReplicationIdReader;
use super::reply::{is_push, reply_length};
use super::request::Request;
use super::transport::Response;

/// A buffer that has grown beyond this size for a long value is released after it.
pub(super) const LARGE: usize = 1024 * 1024;

/// Commands that wait to be sent or answered.
#[derive(Default)]
pub(super) struct CommandQueue(Mutex<QueueContents>);

/// The state of a queue, as its driver sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueStatus {
    /// Commands wait to be sent.
    pub(super) is_queued: bool,
    /// No command is due earlier.
    pub(super) soonest: Option<Instant>,
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

/// The result of [`CommandQueue::expire`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Expiry {
    /// When the next command is due.
    pub(super) next: Option<Instant>,
    /// A timeout makes the connection suspect.
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
            soonest: contents.soonest,
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

    /// Fails the commands whose deadline and extra time have passed, and gives extra time to those whose deadline has just passed. A
    /// command that has not been sent tells against the connection only if the socket accepts nothing (`is_blocked`).
    pub(super) fn expire(&self, now: Instant, is_blocked: bool, breaker: &Breaker, wakers: &mut Vec<Waker>) -> Expiry {
        let mut contents = self.contents();
        let (mut expiry, mut is_any_unsent) = (Expiry::default(), false);
        for (_, entry) in contents.entries.waiting() {
            if let Some(due) = entry.due_after(now) {
                expiry.next = Some(expiry.next.map_or(due, |next| next.min(due)));
                continue;
            }
            is_any_unsent |= entry.sent.is_none();
            if entry.sent.map_or(is_blocked, |sent| !entry.deadline.was_hurried(sent)) {
                breaker.timed_out();
                expiry.is_suspect = true;
            }
            entry.answer(Err(entry.deadline.timed_out()), wakers);
        }
        if is_any_unsent {
            contents.withdraw_expired();
        }
        contents.soonest = expiry.next;
        expiry
    }

    /// Removes the command of a caller that waits no longer. If it has not been sent, it never is.
    fn abandon(&self, id: EntryId) {
        let mut contents = self.contents();
        if contents.entries.get(id).is_some_and(|entry| entry.sent.is_none() && entry.is_waiting()) {
            contents.withdraw(id);
        }
        contents.entries.remove(id);
    }

    fn contents(&self) -> MutexGuard<'_, QueueContents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
