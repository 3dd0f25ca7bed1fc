//! Commands that a thread sends in one iteration of its event loop, batched into one pipeline.
//!
//! A worker that has read thirty HTTP requests sends thirty commands before it polls its sockets again. Each command by itself needs an
//! entry in the connection's queue, a channel for its response and a timer, which together cost more than the command. A batch shares
//! one task, one pipeline and one timer. Each command is still sent at most once, has its own deadline and receives its own response or
//! error. Commands that need the server's replication id share one `INFO replication` at the end of the pipeline.
//!
//! Without batches, a token costs 15 % more processor time of server and Redis (13 to 19 % in four rounds), and a key 3 % (1 to 5 %),
//! as `make bench-sending` shows. The commands of a key are sent at two different moments, claim and settlement, and are seldom batched
//! with others: batches pay off for tokens.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, RedisResult, Value};
use tokio::time::{Instant, timeout, timeout_at};

use super::breaker::Breaker;
use super::deadline::Deadline;
use super::error::TransportError;
use super::replication_id::ReplicationId;
use super::transport::{Request, Response};

/// The maximum number of commands in one batch: the first command receives its response only when the last one does.
const MOST: usize = 64;

/// Commands that are sent in one pipeline.
pub(super) struct CommandBatch(Mutex<BatchContents>);

#[derive(Default)]
struct BatchContents {
    entries: Vec<BatchEntry>,
    /// The batch has been sent, and accepts no more commands.
    is_sent: bool,
}

/// One command of a batch.
struct BatchEntry {
    state: EntryState,
    wants_replication_id: bool,
    deadline: Deadline,
    waker: Option<Waker>,
}

enum EntryState {
    Queued(Request),
    Sent,
    Answered(Result<Response, TransportError>),
    /// The caller has dropped the request or has received its response.
    Done,
}

impl CommandBatch {
    /// Creates an empty batch.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// Returns the task that sends the batch.
    pub(super) fn task(self: &Arc<Self>, breaker: Arc<Breaker>) -> BatchTask {
        BatchTask { batch: Arc::clone(self), breaker }
    }

    /// Creates a batch that accepts no commands.
    pub(super) fn closed() -> Arc<Self> {
        Arc::new(Self(Mutex::new(BatchContents { entries: Vec::new(), is_sent: true })))
    }

    /// Adds a command. Returns the command if the batch has been sent or is full.
    pub(super) fn ask(self: &Arc<Self>, request: Request, deadline: Deadline) -> Result<PendingResponse, Request> {
        let mut contents = self.contents();
        if contents.is_sent || contents.entries.len() >= MOST {
            return Err(request);
        }
        let wants_replication_id = request.wants_replication_id;
        contents.entries.push(BatchEntry {
            state: EntryState::Queued(request),
            wants_replication_id,
            deadline,
            waker: None,
        });
        Ok(PendingResponse { batch: Arc::clone(self), index: contents.entries.len() - 1 })
    }

    /// Returns the pipeline of all commands whose callers still wait, their indices, and the number of expected responses.
    fn begin(&self) -> (Pipeline, Vec<usize>, usize) {
        let mut contents = self.contents();
        contents.is_sent = true;
        let mut commands = Pipeline::with_capacity(contents.entries.len() + 1);
        let mut indices = Vec::with_capacity(contents.entries.len());
        let mut wants_replication_id = false;
        for (index, entry) in contents.entries.iter_mut().enumerate() {
            if matches!(entry.state, EntryState::Queued(_))
                && let EntryState::Queued(request) = std::mem::replace(&mut entry.state, EntryState::Sent)
            {
                commands.add_command(request.command);
                indices.push(index);
                wants_replication_id |= entry.wants_replication_id;
            }
        }
        if wants_replication_id {
            commands.add_command(ReplicationId::command());
        }
        let answers = indices.len() + usize::from(wants_replication_id);
        (commands, indices, answers)
    }

    /// Returns the earliest deadline among the commands in flight; `None` if there are none.
    fn next_deadline(&self) -> Option<Deadline> {
        let contents = self.contents();
        let waiting = contents.entries.iter().filter(|entry| matches!(entry.state, EntryState::Sent));
        waiting.map(|entry| entry.deadline).min_by_key(|deadline| deadline.at)
    }

    /// Fails the commands whose deadline had passed at `then`. Returns whether the connection is suspect.
    fn give_up(&self, sent: Instant, then: Instant, breaker: &Breaker) -> bool {
        let mut is_suspect = false;
        self.settle(|entries| {
            for late in entries.iter_mut().filter(|entry| entry.deadline.at <= then) {
                let was_hurried = late.deadline.was_hurried(sent);
                if matches!(late.state, EntryState::Sent) && !was_hurried {
                    breaker.timed_out();
                    is_suspect |= late.deadline.timed_out().is_suspect(was_hurried);
                }
                late.answer(Err(late.deadline.timed_out()));
            }
        });
        is_suspect
    }

    /// Passes each response to its caller. Returns whether the connection is suspect.
    fn answer(&self, indices: &[usize], answered: RedisResult<Vec<Value>>, breaker: &Breaker) -> bool {
        let mut is_suspect = false;
        let replication_id =
            answered.as_ref().ok().and_then(|values| values.get(indices.len())).map(ReplicationId::read);
        self.settle(|entries| {
            let mut answer = |index: usize, answer: RedisResult<Value>| {
                let answer = answer.map_err(TransportError::from);
                is_suspect |= answer.as_ref().is_err_and(|error| error.is_suspect(false));
                if let Some(entry) = entries.get_mut(index) {
                    if matches!(entry.state, EntryState::Sent)
                        && answer.as_ref().map_or_else(TransportError::is_answer, |_| true)
                    {
                        breaker.answered();
                    }
                    let replication_id = replication_id.filter(|_| entry.wants_replication_id);
                    entry.answer(answer.map(|value| Response { value, replication_id }));
                }
            };
            match answered {
                Ok(values) if values.len() >= indices.len() => {
                    indices.iter().zip(values).for_each(|(index, value)| answer(*index, value.extract_error()));
                }
                Ok(_) => indices.iter().for_each(|index| answer(*index, Err(lost()))),
                Err(error) => indices.iter().for_each(|index| answer(*index, Err(error.clone()))),
            }
        });
        is_suspect
    }

    /// Settles some entries, and wakes their callers after the lock is released.
    fn settle(&self, answer: impl FnOnce(&mut [BatchEntry])) {
        let mut contents = self.contents();
        answer(&mut contents.entries);
        let answered = contents.entries.iter_mut().filter(|entry| matches!(entry.state, EntryState::Answered(_)));
        let wakers: Vec<_> = answered.filter_map(|entry| entry.waker.take()).collect();
        drop(contents);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn contents(&self) -> MutexGuard<'_, BatchContents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchEntry {
    fn answer(&mut self, answer: Result<Response, TransportError>) {
        if matches!(self.state, EntryState::Queued(_) | EntryState::Sent) {
            self.state = EntryState::Answered(answer);
        }
    }
}

/// Sends a batch. If the runtime drops the task before or while it runs, every caller receives an error.
pub(super) struct BatchTask {
    batch: Arc<CommandBatch>,
    breaker: Arc<Breaker>,
}

impl BatchTask {
    /// Sends the batch over a connection and distributes the responses. Calls `report` when the connection is suspect.
    pub(super) async fn run(self, mut connection: MultiplexedConnection, report: impl Fn()) {
        let batch = &self.batch;
        let (commands, indices, count) = batch.begin();
        let sent = Instant::now();
        let mut answers = pin!(connection.send_packed_commands(&commands, 0, count));
        while let Some(deadline) = batch.next_deadline() {
            let answered = match timeout_at(deadline.at, &mut answers).await {
                Ok(answered) => answered,
                Err(_) => {
                    let now = Instant::now();
                    let Ok(answered) = timeout(deadline.beyond(), &mut answers).await else {
                        if batch.give_up(sent, now, &self.breaker) {
                            report();
                        }
                        continue;
                    };
                    answered
                }
            };
            if batch.answer(&indices, answered, &self.breaker) {
                report();
            }
            return;
        }
    }
}

impl Drop for BatchTask {
    fn drop(&mut self) {
        self.batch.contents().is_sent = true;
        self.batch.settle(|entries| entries.iter_mut().for_each(|entry| entry.answer(Err(lost().into()))));
    }
}

/// The error of a command whose outcome is unknown.
fn lost() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

/// The future response to one request. If it is dropped before the batch is sent, the command is not sent.
pub(super) struct PendingResponse {
    batch: Arc<CommandBatch>,
    index: usize,
}

impl Future for PendingResponse {
    type Output = Result<Response, TransportError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut contents = self.batch.contents();
        let Some(entry) = contents.entries.get_mut(self.index) else { return Poll::Ready(Err(lost().into())) };
        if matches!(entry.state, EntryState::Queued(_) | EntryState::Sent) {
            match &mut entry.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut entry.state, EntryState::Done) {
            EntryState::Answered(answer) => Poll::Ready(answer),
            _ => Poll::Ready(Err(lost().into())),
        }
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        if let Some(entry) = self.batch.contents().entries.get_mut(self.index) {
            entry.state = EntryState::Done;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns whether a connection is suspect when a command that was sent after `waited` of its ten seconds has no response.
    fn is_suspect_after(waited: Duration) -> bool {
        let batch = CommandBatch::new();
        let deadline = Deadline::after(Duration::from_secs(10));
        let begun = Instant::now();
        let request = Request { command: ReplicationId::command(), key_at: 0, wants_replication_id: false };
        let answer = batch.ask(request, deadline);
        assert_eq!(batch.begin().1, [0]);
        let is_suspect = batch.give_up(begun + waited, begun + Duration::from_secs(11), &Breaker::new("a test"));
        drop(answer);
        is_suspect
    }

    #[test]
    fn connection_is_suspect_only_after_a_full_timeout() {
        assert!(is_suspect_after(Duration::from_secs(1)));
        assert!(!is_suspect_after(Duration::from_secs(8)));
    }
}
