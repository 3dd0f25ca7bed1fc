//! Waiting for the first: a duplicate that comes while it runs may wait for its answer.
//!
//! However many wait for one ticket, one of them asks the store. Waiting ends in time, and never in a second run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_api::Code;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::background;
use crate::guard::{Guard, Seen, Verdict};
use crate::intent::Intent;
use crate::policy::Policy;
use crate::refusal::Refusal;
use crate::store::StoreError;
use crate::ticket::Ticket;

/// The first and the longest pause between two questions to the store.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// Everybody who waits.
#[derive(Clone)]
pub(crate) struct Waiting(Arc<Shared>);

struct Shared {
    seats: Semaphore,
    awaited: Mutex<HashMap<Ticket, watch::Receiver<Option<Seen>>>>,
}

impl Waiting {
    /// Room for this many.
    pub(crate) fn new(seats: usize) -> Self {
        let seats = Semaphore::new(seats.min(Semaphore::MAX_PERMITS));
        Self(Arc::new(Shared { seats, awaited: Mutex::default() }))
    }

    /// What became of a run that was in progress; `None` if there is no seat, or if it still runs when the time is over.
    async fn wait(&self, guard: &Guard, ticket: &Ticket, longest: Duration) -> Option<Seen> {
        let _seat = self.0.seats.try_acquire().ok()?;
        let mut seen = self.join(guard, ticket);
        let ended = tokio::time::timeout(longest, seen.wait_for(Option::is_some)).await.ok()?.ok()?;
        ended.clone()
    }

    /// Joins those who wait for this ticket, or is the first of them.
    fn join(&self, guard: &Guard, ticket: &Ticket) -> watch::Receiver<Option<Seen>> {
        let mut awaited = self.awaited();
        if let Some(seen) = awaited.get(ticket) {
            return seen.clone();
        }
        let (tell, seen) = watch::channel(None);
        awaited.insert(*ticket, seen.clone());
        background::spawn(ask_until_it_ends(self.clone(), guard.clone(), *ticket, tell));
        seen
    }

    /// Whether somebody beside this list still waits; if not, it is struck off.
    fn is_awaited(&self, ticket: &Ticket, tell: &watch::Sender<Option<Seen>>) -> bool {
        let mut awaited = self.awaited();
        let is_awaited = tell.receiver_count() > 1;
        if !is_awaited {
            awaited.remove(ticket);
        }
        is_awaited
    }

    fn awaited(&self) -> MutexGuard<'_, HashMap<Ticket, watch::Receiver<Option<Seen>>>> {
        self.0.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask_until_it_ends(waiting: Waiting, guard: Guard, ticket: Ticket, tell: watch::Sender<Option<Seen>>) {
    let mut pause = PAUSE.0;
    while waiting.is_awaited(&ticket, &tell) {
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(PAUSE.1);
        match guard.look_up(&ticket).await {
            Ok(Seen::Running(_)) | Err(_) => {}
            Ok(seen) => {
                // Struck off first: whoever comes now asks anew.
                waiting.awaited().remove(&ticket);
                tell.send_replace(Some(seen));
                return;
            }
        }
    }
}

impl Guard {
    /// As [`check`](Self::check), but a duplicate of a run in progress waits for its reply, for this long at most. If the first
    /// did not happen after all, or the time is over, or too many wait already, it is told *in progress*: waiting never ends
    /// in a run.
    ///
    /// # Errors
    /// As `check` does.
    pub async fn check_and_wait(
        &self,
        policy: &Policy,
        intent: &Intent<'_>,
        longest: Duration,
    ) -> Result<Verdict, StoreError> {
        let until = Instant::now() + longest;
        let verdict = self.check(policy, intent).await?;
        let Verdict::Refuse(refusal) = &verdict else { return Ok(verdict) };
        let Some(ticket) = self.awaited_ticket(policy, intent).filter(|_| refusal.code() == Code::InProgress) else {
            return Ok(verdict);
        };
        let longest = until.saturating_duration_since(Instant::now());
        Ok(match self.waiting().wait(self, &ticket, longest).await {
            Some(Seen::Done(Some(reply))) => Verdict::Replay(reply),
            Some(Seen::Done(None)) => Verdict::Refuse(Code::ReplyNotKept.into()),
            Some(Seen::Unknown(_)) => Verdict::Refuse(Code::OutcomeUnknown.into()),
            _ => Verdict::Refuse(Refusal::new(Code::InProgress)),
        })
    }
}
