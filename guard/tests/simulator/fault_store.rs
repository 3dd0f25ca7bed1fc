//! A store with random faults of every kind.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::record::Record;
use crate::store::{Bytes, Compared, Epoch, Memory, Room, Store, StoreError, async_trait};
use crate::ticket::Ticket;

/// A memory store behind an unreliable network.
pub(super) struct FaultStore {
    memory: Arc<Memory>,
    dice: Mutex<fastrand::Rng>,
    /// Percentage of commands that meet a fault.
    faults: Mutex<u8>,
    duplicates: bool,
    /// Commands in flight that arrive later.
    late: Mutex<Vec<Command>>,
    flaw: Option<Flaw>,
}

/// A rule that this store breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// `insert` replaces an existing record and reports that there was none.
    InsertLooksFirst,
    /// `swap` overwrites any record.
    SwapDoesNotCompare,
    /// A held record expires after a lease.
    HoldLapses,
    /// `remove` reports success and does nothing.
    RemoveForgets,
    /// A lost reply is reported as the claim of another caller.
    UnknownIsDuplicate,
    /// `swap` reports success and does nothing.
    SwapForgetsReply,
    /// `remove` deletes any claim of the same attempt.
    RemoveGoesByAttempt,
    /// `remove` deletes any record.
    RemoveDoesNotCompare,
}

#[derive(Debug, Clone)]
enum Command {
    Insert(Ticket, Vec<u8>, Duration),
    Swap(Ticket, Vec<u8>, Vec<u8>, Duration, Option<Epoch>),
    Remove(Ticket, Vec<u8>, Option<Epoch>),
    Look(Ticket),
}

enum Answer {
    Found(Option<Bytes>),
    Compared(Compared),
}

/// The delivery of one command.
enum Delivery {
    Fine,
    Rejected,
    RequestLost,
    ReplyLost,
    /// It arrives later, when no caller waits for it any more.
    Late,
    /// It is executed, and arrives once more later.
    Twice,
}

impl FaultStore {
    pub(super) fn new(memory: Arc<Memory>, seed: u64, faults: u8, duplicates: bool, flaw: Option<Flaw>) -> Self {
        let dice = Mutex::new(fastrand::Rng::with_seed(seed));
        Self { memory, dice, faults: Mutex::new(faults), duplicates, late: Mutex::default(), flaw }
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        *self.faults.lock().unwrap() = 0;
    }

    /// Executes one random late command. Returns true if there was one.
    pub(super) fn deliver(&self) -> bool {
        let late = {
            let mut late = self.late.lock().unwrap();
            let count = late.len();
            if count == 0 {
                return false;
            }
            late.swap_remove(self.dice.lock().unwrap().usize(..count))
        };
        let mut done = Box::pin(self.execute(late));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(done.as_mut().poll(&mut context).is_ready(), "a memory store does not wait");
        true
    }

    async fn send(&self, command: Command) -> Result<Answer, StoreError> {
        self.wait_a_little().await;
        let answer = match self.draw_delivery() {
            Delivery::Fine => Ok(self.execute(command).await),
            Delivery::Rejected => Err(StoreError::not_executed("rejected")),
            Delivery::RequestLost => Err(StoreError::unknown("the request was lost")),
            Delivery::ReplyLost => {
                self.execute(command.clone()).await;
                Err(StoreError::unknown("the reply was lost"))
            }
            Delivery::Late => {
                self.late.lock().unwrap().push(command.clone());
                Err(StoreError::unknown("the request is late"))
            }
            Delivery::Twice => {
                self.late.lock().unwrap().push(command.clone());
                Ok(self.execute(command.clone()).await)
            }
        };
        self.wait_a_little().await;
        answer
    }

    fn draw_delivery(&self) -> Delivery {
        let mut dice = self.dice.lock().unwrap();
        if dice.u8(..100) >= *self.faults.lock().unwrap() {
            return Delivery::Fine;
        }
        match dice.u8(..5) {
            0 => Delivery::Rejected,
            1 => Delivery::RequestLost,
            2 => Delivery::ReplyLost,
            3 => Delivery::Late,
            _ if self.duplicates => Delivery::Twice,
            _ => Delivery::ReplyLost,
        }
    }

    /// Yields a random number of times, so that other tasks can run.
    async fn wait_a_little(&self) {
        let times = self.dice.lock().unwrap().u8(..3);
        super::pause(times).await;
    }

    async fn execute(&self, command: Command) -> Answer {
        let memory = &self.memory;
        let fine = "a memory store with room does not fail";
        match (command, self.flaw) {
            (Command::Insert(ticket, value, life), flaw) => {
                if flaw == Some(Flaw::InsertLooksFirst) {
                    self.erase(&ticket).await;
                }
                Answer::Found(memory.insert(&ticket, &value, life, Room::Free).await.expect(fine))
            }
            (Command::Swap(ticket, _, value, life, _), Some(Flaw::SwapDoesNotCompare)) => {
                self.erase(&ticket).await;
                memory.insert(&ticket, &value, life, Room::Free).await.expect(fine);
                Answer::Compared(Compared::Done)
            }
            (Command::Swap(..), Some(Flaw::SwapForgetsReply)) => Answer::Compared(Compared::Done),
            (Command::Swap(ticket, held, value, life, epoch), flaw) => {
                let life = if flaw == Some(Flaw::HoldLapses) { super::world::LEASE } else { life };
                Answer::Compared(memory.swap(&ticket, &held, &value, life, Room::Free, epoch).await.expect(fine))
            }
            (Command::Remove(..), Some(Flaw::RemoveForgets)) => Answer::Compared(Compared::Done),
            (Command::Remove(ticket, ..), Some(Flaw::RemoveDoesNotCompare)) => {
                Answer::Compared(if self.erase(&ticket).await { Compared::Done } else { Compared::Gone })
            }
            (Command::Remove(ticket, held, epoch), Some(Flaw::RemoveGoesByAttempt)) => {
                let there = memory.look(&ticket).await.expect(fine);
                let meant = there.filter(|there| attempt_of(there).is_some_and(|own| attempt_of(&held) == Some(own)));
                Answer::Compared(memory.remove(&ticket, meant.as_deref().unwrap_or(&held), epoch).await.expect(fine))
            }
            (Command::Remove(ticket, held, epoch), _) => {
                Answer::Compared(memory.remove(&ticket, &held, epoch).await.expect(fine))
            }
            (Command::Look(ticket), _) => Answer::Found(memory.look(&ticket).await.expect(fine)),
        }
    }

    /// Deletes the record. Returns true if there was one.
    async fn erase(&self, ticket: &Ticket) -> bool {
        let fine = "a memory store does not fail";
        let Some(there) = self.memory.look(ticket).await.expect(fine) else { return false };
        self.memory.remove(ticket, &there, None).await.expect(fine) == Compared::Done
    }

    async fn found(&self, command: Command) -> Result<Option<Bytes>, StoreError> {
        match self.send(command).await {
            Ok(Answer::Found(found)) => Ok(found),
            Ok(Answer::Compared(_)) => unreachable!("the command returns a record"),
            Err(StoreError::Unknown(_)) if self.flaw == Some(Flaw::UnknownIsDuplicate) => {
                Ok(Some(super::world::foreign_claim().into()))
            }
            Err(error) => Err(error),
        }
    }

    async fn compared(&self, command: Command) -> Result<Compared, StoreError> {
        match self.send(command).await? {
            Answer::Compared(compared) => Ok(compared),
            Answer::Found(_) => unreachable!("the command compares"),
        }
    }
}

/// Returns the attempt of a claim.
fn attempt_of(record: &[u8]) -> Option<[u8; 16]> {
    match Record::decode(record) {
        Ok(Record::Claimed(claimed)) => claimed.attempt,
        _ => None,
    }
}

#[async_trait]
impl Store for FaultStore {
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration, _: Room) -> Result<Option<Bytes>, StoreError> {
        self.found(Command::Insert(*ticket, value.to_vec(), ttl)).await
    }

    async fn swap(
        &self,
        ticket: &Ticket,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
        _: Room,
        epoch: Option<Epoch>,
    ) -> Result<Compared, StoreError> {
        self.compared(Command::Swap(*ticket, held.to_vec(), value.to_vec(), ttl, epoch)).await
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8], epoch: Option<Epoch>) -> Result<Compared, StoreError> {
        self.compared(Command::Remove(*ticket, held.to_vec(), epoch)).await
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        self.found(Command::Look(*ticket)).await
    }

    fn epoch(&self, ticket: &Ticket) -> Option<Epoch> {
        self.memory.epoch(ticket)
    }
}
