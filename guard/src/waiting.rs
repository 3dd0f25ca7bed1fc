//! Waiters for the first: a duplicate that comes while it runs may wait for its answer.
//!
//! However many wait for one ticket, one of them asks the store. Waiters ends in time. If the first was not applied, each waiter
//! decides again, once: one of them runs, and the others wait on for that run in what is left of their time.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use onceward_api::Code;
use tokio::sync::watch;

use crate::backoff::Backoff;
use crate::claim::Claim;
use crate::guard::{Guard, Verdict};
use crate::intent::Intent;
use crate::metrics::WaitResult;
use crate::policy::Policy;
use crate::record::Record;
use crate::rejection::Rejection;
use crate::runtime;
use crate::store::StoreError;
use crate::ticket::Ticket;

/// The first and the longest pause between two questions to the store.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));
/// A ticket gets at most this part of all seats, so that one submission does not take them all.
const SHARE: usize = 4;

/// All waiters of a guard. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct Waiters(Arc<WaiterPool>);

struct WaiterPool {
    seats: usize,
    awaited: Mutex<Awaited>,
}

#[derive(Default)]
struct Awaited {
    taken: usize,
    tickets: HashMap<Ticket, TicketWaiters>,
}

/// The waiters of one ticket.
#[derive(Default)]
struct TicketWaiters {
    taken: usize,
    /// Tells them how the run has ended; `None` while none of them waits for one.
    tell: Option<Tell>,
}

type Tell = Arc<watch::Sender<Option<RunEnd>>>;

impl TicketWaiters {
    fn is_told_by(&self, tell: &Tell) -> bool {
        self.tell.as_ref().is_some_and(|current| Arc::ptr_eq(current, tell))
    }
}

/// How a run has ended, as far as a waiter can see.
#[derive(Debug, Clone)]
enum RunEnd {
    /// It was not applied: this process has given back what it had claimed.
    Released,
    /// This is on record, and nothing runs any more. What is not there was released elsewhere, or its claim has lapsed, or the
    /// store has lost it.
    Found(Option<Bytes>),
}

impl RunEnd {
    /// Whether nobody can tell if the run was applied. A token that is there again was given back.
    fn is_doubtful(&self) -> bool {
        matches!(self, Self::Found(None))
    }
}

/// The place of one waiter, until it is dropped.
struct Seat {
    waiting: Waiters,
    ticket: Ticket,
}

impl Waiters {
    /// Room for this many.
    pub(crate) fn new(seats: usize) -> Self {
        Self(Arc::new(WaiterPool { seats, awaited: Mutex::default() }))
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.awaited().taken
    }

    /// A run was not applied, and its record is gone: its waiters need not find that out by themselves.
    pub(crate) fn released(&self, ticket: &Ticket) {
        let tell = self.awaited().tickets.get_mut(ticket).and_then(|queue| queue.tell.take());
        if let Some(tell) = tell {
            tell.send_replace(Some(RunEnd::Released));
        }
    }

    /// A place among those that wait for this ticket, if there is one left.
    fn seat(&self, ticket: &Ticket) -> Option<Seat> {
        let mut awaited = self.awaited();
        let taken = awaited.tickets.get(ticket).map_or(0, |queue| queue.taken);
        if awaited.taken >= self.0.seats || taken >= self.0.seats.div_ceil(SHARE) {
            return None;
        }
        awaited.taken += 1;
        awaited.tickets.entry(*ticket).or_default().taken += 1;
        Some(Seat { waiting: self.clone(), ticket: *ticket })
    }

    /// Whether anybody still waits for what this would tell; if not, it is struck off.
    fn is_awaited(&self, ticket: &Ticket, tell: &Tell) -> bool {
        let mut awaited = self.awaited();
        let Some(queue) = awaited.tickets.get_mut(ticket).filter(|queue| queue.is_told_by(tell)) else { return false };
        let is_awaited = tell.receiver_count() > 0;
        if !is_awaited {
            queue.tell = None;
        }
        is_awaited
    }

    /// Strikes it off: whoever comes now asks anew.
    fn strike_off(&self, ticket: &Ticket, tell: &Tell) {
        let mut awaited = self.awaited();
        if let Some(queue) = awaited.tickets.get_mut(ticket).filter(|queue| queue.is_told_by(tell)) {
            queue.tell = None;
        }
    }

    fn awaited(&self) -> MutexGuard<'_, Awaited> {
        self.0.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// How the run ends that is in progress; `None` if it still runs when this is enough.
    async fn ended(&self, guard: &Guard, enough: Pin<&mut impl Future<Output = ()>>) -> Option<RunEnd> {
        let mut told = self.join(guard);
        tokio::select! {
            biased;
            ended = told.wait_for(Option::is_some) => ended.ok()?.clone(),
            () = enough => None,
        }
    }

    /// Joins those that wait for this ticket, or is the first of them.
    fn join(&self, guard: &Guard) -> watch::Receiver<Option<RunEnd>> {
        let mut awaited = self.waiting.awaited();
        let queue = awaited.tickets.entry(self.ticket).or_default();
        if let Some(tell) = &queue.tell {
            return tell.subscribe();
        }
        let (tell, told) = watch::channel(None);
        let tell = Arc::new(tell);
        queue.tell = Some(Arc::clone(&tell));
        runtime::spawn(ask_until_it_ends(self.waiting.clone(), guard.clone(), self.ticket, tell));
        told
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut awaited = self.waiting.awaited();
        awaited.taken -= 1;
        if let Some(queue) = awaited.tickets.get_mut(&self.ticket) {
            queue.taken -= 1;
            if queue.taken == 0 {
                awaited.tickets.remove(&self.ticket);
            }
        }
    }
}

async fn ask_until_it_ends(waiting: Waiters, guard: Guard, ticket: Ticket, tell: Tell) {
    let mut backoff = Backoff::between(PAUSE.0, PAUSE.1);
    while waiting.is_awaited(&ticket, &tell) {
        tokio::time::sleep(backoff.next()).await;
        let Ok(found) = guard.store().look(&ticket).await else { continue };
        if !found.as_deref().is_some_and(|found| is_running(found, &guard)) {
            waiting.strike_off(&ticket, &tell);
            // Nothing takes the place of what was told by the run itself.
            tell.send_if_modified(|told| {
                let is_first = told.is_none();
                told.get_or_insert(RunEnd::Found(found));
                is_first
            });
            return;
        }
    }
}

fn is_running(found: &[u8], guard: &Guard) -> bool {
    matches!(Record::decode(found), Ok(Record::Claimed(claimed)) if claimed.is_running(guard.clock().wall()))
}

impl Guard {
    /// As [`check`](Self::check), but a duplicate of a run in progress waits for its reply, for this long at most.
    ///
    /// If the first was not applied, the duplicates that wait decide again, once: one of them gets the verdict to run, and the
    /// others wait on for that run. A waiter is told *in progress* if the time is over, if too many wait already, or if the second
    /// run was not applied either. A run whose outcome is unknown is never decided again. Under a key it is the process whose run
    /// was not applied, and no other, that knows of it: waiters elsewhere cannot tell a key that was released from a claim that has
    /// lapsed, and are told *in progress*.
    ///
    /// # Errors
    /// As `check` does.
    pub async fn check_and_wait(
        &self,
        policy: &Policy,
        intent: &Intent<'_>,
        longest: Duration,
    ) -> Result<Verdict, StoreError> {
        self.check_and_wait_until(policy, intent, tokio::time::sleep(longest)).await
    }

    /// As [`check_and_wait`](Self::check_and_wait), but until this future completes: a timeout, or a client that has closed its
    /// connection. It is polled only while the duplicate waits.
    ///
    /// # Errors
    /// As `check` does.
    pub async fn check_and_wait_until(
        &self,
        policy: &Policy,
        intent: &Intent<'_>,
        enough: impl Future<Output = ()>,
    ) -> Result<Verdict, StoreError> {
        let verdict = match self.decide(policy, intent).await {
            Ok(Verdict::Reject(rejection)) => self.wait_after(rejection, policy, intent, enough, |_| {}).await,
            verdict => verdict,
        };
        self.meter().verdict(policy, &verdict, intent);
        verdict
    }

    /// Waits if this is what a duplicate of a run in progress is told. It may be dropped while `idle` was last called with `true`:
    /// at every other moment it may hold a claim.
    pub(crate) async fn wait_after(
        &self,
        rejection: Rejection,
        policy: &Policy,
        intent: &Intent<'_>,
        enough: impl Future<Output = ()>,
        idle: impl Fn(bool),
    ) -> Result<Verdict, StoreError> {
        let Some(claim) = self.waiting_claim(policy, intent).filter(|_| rejection.code() == Code::InProgress) else {
            return Ok(Verdict::Reject(rejection));
        };
        let waited = match self.waiting().seat(claim.ticket()) {
            Some(seat) => self.wait_in(&seat, &claim, policy, intent, pin!(enough), idle).await?,
            None => None,
        };
        self.meter().waited(match &waited {
            Some(Verdict::Run(_)) => WaitResult::Ran,
            Some(Verdict::Replay(_) | Verdict::Reject(_)) => WaitResult::Answered,
            None => WaitResult::InVain,
        });
        Ok(waited.unwrap_or_else(|| Verdict::Reject(Rejection::new(Code::InProgress))))
    }

    /// What came of waiting; `None` if nothing did.
    async fn wait_in(
        &self,
        seat: &Seat,
        claim: &Claim,
        policy: &Policy,
        intent: &Intent<'_>,
        mut enough: Pin<&mut impl Future<Output = ()>>,
        idle: impl Fn(bool),
    ) -> Result<Option<Verdict>, StoreError> {
        let mut end = async || {
            idle(true);
            let ended = seat.ended(self, enough.as_mut()).await;
            idle(false);
            ended
        };
        let Some(first) = end().await else { return Ok(None) };
        // Its key may be somebody else's by now, for something else.
        if let Some(told) = claim.told_at_end(&first)? {
            return Ok(Some(told));
        }
        if first.is_doubtful() {
            return Ok(None);
        }
        match self.decide(policy, intent).await? {
            Verdict::Reject(rejection) if rejection.code() == Code::InProgress => match end().await {
                Some(second) => claim.told_at_end(&second),
                None => Ok(None),
            },
            verdict => Ok(Some(verdict)),
        }
    }
}

impl Claim {
    /// What a waiter is told of a run that has ended so; `None` if that tells of no use.
    fn told_at_end(&self, ended: &RunEnd) -> Result<Option<Verdict>, StoreError> {
        match ended {
            RunEnd::Found(Some(found)) => self.told(found),
            RunEnd::Found(None) | RunEnd::Released => Ok(None),
        }
    }
}
