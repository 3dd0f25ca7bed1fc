//! Waiting for the first: a duplicate that comes while it runs may wait for its answer.
//!
//! However many wait for one ticket, one of them asks the store. Waiting ends in time, and never in a second run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use onceward_api::Code;
use tokio::sync::{Semaphore, watch};

use crate::background;
use crate::guard::{Guard, Verdict};
use crate::intent::Intent;
use crate::policy::Policy;
use crate::record::Record;
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
    most: usize,
    awaited: Mutex<HashMap<Ticket, watch::Receiver<Option<Found>>>>,
}

/// What is recorded once nothing runs any more.
type Found = Option<Bytes>;

impl Waiting {
    /// Room for this many.
    pub(crate) fn new(seats: usize) -> Self {
        let most = seats.min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Shared { seats: Semaphore::new(most), most, awaited: Mutex::default() }))
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.0.most.saturating_sub(self.0.seats.available_permits())
    }

    /// What is left of a run that was in progress; `None` if nothing is, or there is no seat, or it still runs when the time is
    /// over.
    async fn wait(&self, guard: &Guard, ticket: &Ticket, longest: Duration) -> Found {
        let _seat = self.0.seats.try_acquire().ok()?;
        let mut seen = self.join(guard, ticket);
        let ended = tokio::time::timeout(longest, seen.wait_for(Option::is_some)).await.ok()?.ok()?;
        ended.clone().flatten()
    }

    /// Joins those who wait for this ticket, or is the first of them.
    fn join(&self, guard: &Guard, ticket: &Ticket) -> watch::Receiver<Option<Found>> {
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
    fn is_awaited(&self, ticket: &Ticket, tell: &watch::Sender<Option<Found>>) -> bool {
        let mut awaited = self.awaited();
        let is_awaited = tell.receiver_count() > 1;
        if !is_awaited {
            awaited.remove(ticket);
        }
        is_awaited
    }

    fn awaited(&self) -> MutexGuard<'_, HashMap<Ticket, watch::Receiver<Option<Found>>>> {
        self.0.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask_until_it_ends(waiting: Waiting, guard: Guard, ticket: Ticket, tell: watch::Sender<Option<Found>>) {
    let mut pause = PAUSE.0;
    while waiting.is_awaited(&ticket, &tell) {
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(PAUSE.1);
        let Ok(found) = guard.store().look(&ticket).await else { continue };
        if !found.as_deref().is_some_and(|found| is_running(found, &guard)) {
            // Struck off first: whoever comes now asks anew.
            waiting.awaited().remove(&ticket);
            tell.send_replace(Some(found));
            return;
        }
    }
}

fn is_running(found: &[u8], guard: &Guard) -> bool {
    matches!(Record::decode(found), Ok(Record::Claimed(claimed)) if claimed.is_running(guard.clock().wall()))
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
        let verdict = match self.decide(policy, intent).await {
            Ok(Verdict::Refuse(refusal)) => self.wait_after(refusal, policy, intent, longest).await,
            verdict => verdict,
        };
        self.meter().verdict(policy, &verdict, intent);
        verdict
    }

    /// Waits if this is what a duplicate of a run in progress is told. It may be dropped in the middle.
    pub(crate) async fn wait_after(
        &self,
        refusal: Refusal,
        policy: &Policy,
        intent: &Intent<'_>,
        longest: Duration,
    ) -> Result<Verdict, StoreError> {
        let Some(claim) = self.waiting_claim(policy, intent).filter(|_| refusal.code() == Code::InProgress) else {
            return Ok(Verdict::Refuse(refusal));
        };
        // Its key may be somebody else's by now, for something else.
        let found = self.waiting().wait(self, claim.ticket(), longest).await;
        let ended = found.map(|found| claim.told(&found)).transpose()?.flatten();
        self.meter().waited(ended.is_some());
        Ok(ended.unwrap_or_else(|| Verdict::Refuse(Refusal::new(Code::InProgress))))
    }
}
