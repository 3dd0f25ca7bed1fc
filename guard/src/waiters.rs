//! Duplicates that wait for the reply of a run in flight.
//!
//! One task per ticket polls the store, however many duplicates wait. If the run was not applied, each waiter decides again, once: one of
//! them runs, and the others wait for that run with their remaining time.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::record::Record;
use crate::runtime;
use crate::store::WatchedStore;
use crate::ticket::Ticket;

/// First and longest pause between two lookups.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));
/// Divisor of the seats: one ticket gets at most this part of them, so that one submission does not take them all.
const SHARE: usize = 4;

/// All waiters of a guard. Cheap to clone; clones share the same state.
#[derive(Clone)]
pub(crate) struct Waiters(Arc<WaiterPool>);

struct WaiterPool {
    seats: usize,
    awaited: Mutex<SeatMap>,
}

#[derive(Default)]
struct SeatMap {
    taken: usize,
    tickets: HashMap<Ticket, TicketWaiters>,
}

/// The waiters of one ticket.
#[derive(Default)]
struct TicketWaiters {
    taken: usize,
    /// Notifies the waiters of the end of the run; `None` while none of them waits for one.
    tell: Option<EndSender>,
}

type EndSender = Arc<watch::Sender<Option<RunEnd>>>;

impl TicketWaiters {
    fn is_told_by(&self, tell: &EndSender) -> bool {
        self.tell.as_ref().is_some_and(|current| Arc::ptr_eq(current, tell))
    }
}

/// The end of a run, as a waiter observes it.
#[derive(Debug, Clone)]
pub(crate) enum RunEnd {
    /// The run was not applied: this process has released its claim.
    Released,
    /// The record after the run; no run is in flight. If there is none, another process released the claim, or the claim expired, or the
    /// store lost it.
    Found(Option<Bytes>),
}

impl RunEnd {
    /// Returns whether it is unknown if the run was applied. A token that is there again was released.
    pub(crate) fn is_doubtful(&self) -> bool {
        matches!(self, Self::Found(None))
    }
}

/// The seat of one waiter, freed on drop.
pub(crate) struct Seat {
    waiters: Waiters,
    ticket: Ticket,
}

impl Waiters {
    /// Creates a pool with this many seats.
    pub(crate) fn new(seats: usize) -> Self {
        Self(Arc::new(WaiterPool { seats, awaited: Mutex::default() }))
    }

    /// Returns the number of waiters.
    pub(crate) fn count(&self) -> usize {
        self.awaited().taken
    }

    /// Notifies the waiters of a run that was not applied and whose record is gone, so that they need not wait for the next lookup.
    pub(crate) fn released(&self, ticket: &Ticket) {
        let tell = self.awaited().tickets.get_mut(ticket).and_then(|queue| queue.tell.take());
        if let Some(tell) = tell {
            tell.send_replace(Some(RunEnd::Released));
        }
    }

    /// Takes a seat for this ticket. Returns `None` if no seat is free.
    pub(crate) fn seat(&self, ticket: &Ticket) -> Option<Seat> {
        let mut awaited = self.awaited();
        let taken = awaited.tickets.get(ticket).map_or(0, |queue| queue.taken);
        if awaited.taken >= self.0.seats || taken >= self.0.seats.div_ceil(SHARE) {
            return None;
        }
        awaited.taken += 1;
        awaited.tickets.entry(*ticket).or_default().taken += 1;
        Some(Seat { waiters: self.clone(), ticket: *ticket })
    }

    /// Returns whether a waiter still listens to `tell`. Removes `tell` if none does.
    fn keep_if_awaited(&self, ticket: &Ticket, tell: &EndSender) -> bool {
        let mut awaited = self.awaited();
        let Some(queue) = awaited.tickets.get_mut(ticket).filter(|queue| queue.is_told_by(tell)) else { return false };
        let is_awaited = tell.receiver_count() > 0;
        if !is_awaited {
            queue.tell = None;
        }
        is_awaited
    }

    /// Removes `tell`, so that the next waiter starts a new polling task.
    fn strike_off(&self, ticket: &Ticket, tell: &EndSender) {
        let mut awaited = self.awaited();
        if let Some(queue) = awaited.tickets.get_mut(ticket).filter(|queue| queue.is_told_by(tell)) {
            queue.tell = None;
        }
    }

    fn awaited(&self) -> MutexGuard<'_, SeatMap> {
        self.0.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Waits for the end of the run in flight. Returns `None` if `enough` completes first.
    pub(crate) async fn ended(
        &self,
        store: &Arc<WatchedStore>,
        clock: &Clock,
        enough: Pin<&mut impl Future<Output = ()>>,
    ) -> Option<RunEnd> {
        let mut told = self.join(store, clock);
        tokio::select! {
            biased;
            ended = told.wait_for(Option::is_some) => ended.ok()?.clone(),
            () = enough => None,
        }
    }

    /// Joins the waiters of this ticket. The first of them starts the polling task.
    fn join(&self, store: &Arc<WatchedStore>, clock: &Clock) -> watch::Receiver<Option<RunEnd>> {
        let mut awaited = self.waiters.awaited();
        let queue = awaited.tickets.entry(self.ticket).or_default();
        if let Some(tell) = &queue.tell {
            return tell.subscribe();
        }
        let (tell, told) = watch::channel(None);
        let tell = Arc::new(tell);
        queue.tell = Some(Arc::clone(&tell));
        let end = poll_until_it_ends(self.waiters.clone(), Arc::clone(store), clock.clone(), self.ticket, tell);
        runtime::spawn(end);
        told
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut awaited = self.waiters.awaited();
        awaited.taken -= 1;
        if let Some(queue) = awaited.tickets.get_mut(&self.ticket) {
            queue.taken -= 1;
            if queue.taken == 0 {
                awaited.tickets.remove(&self.ticket);
            }
        }
    }
}

async fn poll_until_it_ends(waiters: Waiters, store: Arc<WatchedStore>, clock: Clock, ticket: Ticket, tell: EndSender) {
    let mut backoff = Backoff::between(PAUSE.0, PAUSE.1);
    while waiters.keep_if_awaited(&ticket, &tell) {
        tokio::time::sleep(backoff.next()).await;
        let Ok(found) = store.look(&ticket).await else { continue };
        if !found.as_deref().is_some_and(|found| is_running(found, &clock)) {
            waiters.strike_off(&ticket, &tell);
            // Does not replace the end that the run itself has reported.
            tell.send_if_modified(|told| {
                let is_first = told.is_none();
                told.get_or_insert(RunEnd::Found(found));
                is_first
            });
            return;
        }
    }
}

fn is_running(found: &[u8], clock: &Clock) -> bool {
    matches!(Record::decode(found), Ok(Record::Claimed(claimed)) if claimed.is_running(clock.wall()))
}
