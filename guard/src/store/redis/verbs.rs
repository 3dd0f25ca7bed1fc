//! How each verb is asked: one command, or one script, on one key, with one deadline.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metrics::gauge;
use onceward_api::metric;
use redis::{Cmd, FromRedisValue as _, ServerErrorKind, Value};

use super::Redis;
use super::deadline::Deadline;
use super::life::Life;
use super::link::{Failure, Key, Question, Said};
use super::step::{REMOVE, SWAP, Step};
use crate::store::{Admission, Bytes, Compared, Epoch, Store, StoreError, Taken, async_trait};
use crate::ticket::{Kind, Ticket};

impl Redis {
    fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    /// A command on one ticket's key.
    fn command(&self, verb: &str, ticket: &Ticket) -> Cmd {
        let name = ticket.name(&self.prefix);
        // Room for the longest of them, and for a small value.
        let mut command = Cmd::with_capacity(7, verb.len() + name.len() + 64);
        command.arg(verb).arg(name);
        command
    }

    async fn ask(&self, command: Cmd, deadline: Deadline) -> Result<Option<Bytes>, StoreError> {
        let question = Question { command, key_at: 1, wants_life: false };
        bytes(self.send(question, deadline).await?.value)
    }

    async fn send(&self, question: Question, deadline: Deadline) -> Result<Said, Failure> {
        let _asked = self.one_more()?;
        match self.link.ask(question, deadline) {
            Ok(answer) => answer.await,
            Err(question) => self.link.send(question, deadline).await,
        }
    }

    /// Counts somebody who waits, unless there are enough.
    fn one_more(&self) -> Result<Asked<'_>, Failure> {
        let asked = Asked(&self.asked);
        let before = self.asked.fetch_add(1, Ordering::Relaxed);
        if before < self.most_asked { Ok(asked) } else { Err(Failure::TooMany) }
    }

    /// Runs a step by its digest, and by its text where the server has not seen it: that one was not executed.
    async fn step(
        &self,
        step: &Step,
        ticket: &Ticket,
        arguments: &[&[u8]],
        wants_life: bool,
        deadline: Deadline,
    ) -> Result<Said, StoreError> {
        let call = |verb: &str, body: &str| {
            let name = ticket.name(&self.prefix);
            let length = arguments.iter().map(|argument| argument.len()).sum::<usize>();
            let mut command =
                Cmd::with_capacity(4 + arguments.len(), verb.len() + body.len() + name.len() + length + 1);
            command.arg(verb).arg(body).arg(1).arg(name).arg(arguments);
            Question { command, key_at: 3, wants_life }
        };
        match self.send(call("EVALSHA", step.digest()), deadline).await {
            Err(failure) if failure.is(ServerErrorKind::NoScript) => {
                Ok(self.send(call("EVAL", step.text), deadline).await?)
            }
            other => Ok(other?),
        }
    }

    async fn swap_asking(
        &self,
        ticket: &Ticket,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
        wants_life: bool,
        deadline: Deadline,
    ) -> Result<Said, StoreError> {
        self.step(&SWAP, ticket, &[held, value, millis(ttl).to_string().as_bytes()], wants_life, deadline).await
    }

    /// Whether the life that was seen behind a command is this epoch. Had it been another one when the command was done, it
    /// could not be this one now. If it is another, what is known of it is forgotten.
    fn is_of(&self, epoch: Epoch, life: Option<Life>, ticket: &Ticket) -> bool {
        // As a rule it is the known one, and need not be made into an epoch again.
        let is_of_epoch = match self.link.known(&Key(&|| ticket.name(&self.prefix))) {
            Some((known, of)) if life == Some(known) => of == epoch,
            _ => life.and_then(|life| life.epoch()) == Some(epoch),
        };
        if !is_of_epoch {
            self.link.forget(&Key(&|| ticket.name(&self.prefix)));
        }
        is_of_epoch
    }

    /// The life of the server that has this ticket; asked for, if it is not the expected one.
    async fn life(
        &self,
        ticket: &Ticket,
        expected: Option<Epoch>,
        deadline: Deadline,
    ) -> Result<(Life, Epoch), Failure> {
        let name = || ticket.name(&self.prefix);
        match self.link.known(&Key(&name)) {
            Some((life, epoch)) if expected == Some(epoch) => Ok((life, epoch)),
            _ => {
                let _asked = self.one_more()?;
                self.link.learn(&Key(&name), deadline).await
            }
        }
    }

    async fn refuses_scripts(&self, ticket: &Ticket, deadline: Deadline) -> Result<bool, Failure> {
        match self.link.refuses_scripts() {
            Some(refuses) => Ok(refuses),
            None => {
                let _asked = self.one_more()?;
                self.link.learn_scripts(&Key(&|| ticket.name(&self.prefix)), deadline).await
            }
        }
    }
}

/// One of those who wait.
struct Asked<'a>(&'a AtomicUsize);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a step that compares has done.
fn compared(answer: Value) -> Result<Compared, StoreError> {
    match answer {
        Value::Int(1) => Ok(Compared::Done),
        other => Ok(bytes(other)?.map_or(Compared::Gone, Compared::Found)),
    }
}

#[async_trait]
impl Store for Redis {
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        // What is claimed and can never be settled is better not begun.
        let deadline = self.deadline();
        if ticket.kind() == Kind::Key {
            let asked = self.refuses_scripts(ticket, deadline).await;
            if asked.map_err(|failure| StoreError::from(failure).certainly_not_executed())? {
                return Err(StoreError::not_executed("this Redis lets its user run no scripts, which keys need"));
            }
        }
        let mut command = self.command("SET", ticket);
        command.arg(value).arg("PX").arg(millis(ttl)).arg("NX").arg("GET");
        self.ask(command, deadline).await
    }

    async fn take(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        self.ask(self.command("GETDEL", ticket), self.deadline()).await
    }

    async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration) -> Result<Compared, StoreError> {
        compared(self.swap_asking(ticket, held, value, ttl, false, self.deadline()).await?.value)
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8]) -> Result<Compared, StoreError> {
        compared(self.step(&REMOVE, ticket, &[held], false, self.deadline()).await?.value)
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        self.ask(self.command("GET", ticket), self.deadline()).await
    }

    fn epoch(&self, ticket: &Ticket) -> Option<Epoch> {
        if !self.is_pinned {
            return Some(Epoch::default());
        }
        self.link.known(&Key(&|| ticket.name(&self.prefix))).map(|(_, epoch)| epoch)
    }

    async fn ask_epoch(&self, ticket: &Ticket) -> Result<Epoch, StoreError> {
        if !self.is_pinned {
            return Ok(Epoch::default());
        }
        Ok(self.life(ticket, None, self.deadline()).await?.1)
    }

    /// The life is looked at behind the command and over the same connection.
    async fn take_under(&self, ticket: &Ticket, epoch: Epoch) -> Result<Taken, StoreError> {
        if !self.is_pinned {
            return Ok(Taken { found: self.take(ticket).await?, is_of_epoch: true });
        }
        let question = Question { command: self.command("GETDEL", ticket), key_at: 1, wants_life: true };
        let Said { value, life } = self.send(question, self.deadline()).await?;
        let is_of_epoch = self.is_of(epoch, life, ticket);
        Ok(Taken { found: bytes(value)?, is_of_epoch })
    }

    /// The life is looked at before, and again behind the command and over the same connection. What was written in the moment
    /// in which an epoch ended is taken away again.
    async fn swap_under(
        &self,
        ticket: &Ticket,
        epoch: Epoch,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<Compared>, StoreError> {
        if !self.is_pinned {
            return self.swap(ticket, held, value, ttl).await.map(Some);
        }
        let deadline = self.deadline();
        let asked = self.life(ticket, Some(epoch), deadline).await;
        let (_, known) = asked.map_err(|failure| StoreError::from(failure).certainly_not_executed())?;
        if known != epoch {
            return Ok(None);
        }
        let Said { value: answer, life } = self.swap_asking(ticket, held, value, ttl, true, deadline).await?;
        let compared = compared(answer)?;
        if self.is_of(epoch, life, ticket) {
            return Ok(Some(compared));
        }
        if compared == Compared::Done {
            // If that fails, whoever has sent it takes it back.
            self.remove(ticket, value).await.map_err(StoreError::unknown)?;
        }
        Ok(None)
    }

    fn admission(&self, ticket: &Ticket) -> Admission {
        self.link.admit(&Key(&|| ticket.name(&self.prefix)), self.timeout)
    }

    /// Takes a token that does not exist, as redeeming does, and writes a record that expires at once: a Redis that is full refuses that.
    async fn ping(&self) -> Result<(), StoreError> {
        let nobodys = Ticket::of(Kind::Token, b"nobody's");
        self.take(&nobodys).await?;
        self.insert(&nobodys, b"-", Duration::from_millis(1)).await.map(drop)
    }

    async fn reconnected(&self) {
        self.link.reconnected().await;
    }

    fn report(&self) {
        gauge!(metric::SLOW_NODES.name).set(self.link.slow() as f64);
    }
}

/// `PX 0` is an error to Redis, and so is more than it can count.
fn millis(ttl: Duration) -> u64 {
    const CENTURY: u64 = 100 * 365 * 24 * 60 * 60 * 1000;
    u64::try_from(ttl.as_millis()).unwrap_or(CENTURY).clamp(1, CENTURY)
}

fn bytes(value: Value) -> Result<Option<Bytes>, StoreError> {
    let bytes = Option::<Vec<u8>>::from_redis_value(value).map_err(StoreError::unknown)?;
    Ok(bytes.map(Bytes::from))
}
