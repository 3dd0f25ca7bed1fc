//! Waiters: duplicates that wait for the reply of a run in flight.
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

/// Backoff between two lookups: first and longest pause.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));
/// Divisor of the seats: the waiters of one ticket get at most this fraction, so that one submission does not occupy all seats.
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
    sender: Option<EndSender>,
}

type EndSender = Arc<watch::Sender<Option<RunEnd>>>;

impl TicketWaiters {
    fn uses(&self, sender: &EndSender) -> bool {
        self.sender.as_ref().is_some_and(|current| Arc::ptr_eq(current, sender))
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
    /// Returns whether the outcome of the run is unknown. If the record is that of an issued token, the run has released it.
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

    /// Notifies the waiters of a run that was not applied and whose record was removed, so that they do not wait for the next lookup.
    pub(crate) fn released(&self, ticket: &Ticket) {
        let sender = self.awaited().tickets.get_mut(ticket).and_then(|queue| queue.sender.take());
        if let Some(sender) = sender {
            sender.send_replace(Some(RunEnd::Released));
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

    /// Returns whether a waiter still listens to `sender`. Removes `sender` if none does.
    fn keep_if_awaited(&self, ticket: &Ticket, sender: &EndSender) -> bool {
        let mut awaited = self.awaited();
        let Some(queue) = awaited.tickets.get_mut(ticket).filter(|queue| queue.uses(sender)) else { return false };
        let is_awaited = sender.receiver_count() > 0;
        if !is_awaited {
            queue.sender = None;
        }
        is_awaited
    }

    /// Removes `sender`, so that the next waiter starts a new polling task.
    fn remove(&self, ticket: &Ticket, sender: &EndSender) {
        let mut awaited = self.awaited();
        if let Some(queue) = awaited.tickets.get_mut(ticket).filter(|queue| queue.uses(sender)) {
            queue.sender = None;
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
        let mut receiver = self.join(store, clock);
        tokio::select! {
            biased;
            ended = receiver.wait_for(Option::is_some) => ended.ok()?.clone(),
            () = enough => None,
        }
    }

    /// Joins the waiters of this ticket. The first of them starts the polling task.
    fn join(&self, store: &Arc<WatchedStore>, clock: &Clock) -> watch::Receiver<Option<RunEnd>> {
        let mut awaited = self.waiters.awaited();
        let queue = awaited.tickets.entry(self.ticket).or_default();
        if let Some(sender) = &queue.sender {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(None);
        let sender = Arc::new(sender);
        queue.sender = Some(Arc::clone(&sender));
        let end = poll_until_end(self.waiters.clone(), Arc::clone(store), clock.clone(), self.ticket, sender);
        runtime::spawn(end);
        receiver
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

async fn poll_until_end(waiters: Waiters, store: Arc<WatchedStore>, clock: Clock, ticket: Ticket, sender: EndSender) {
    let mut backoff = Backoff::between(PAUSE.0, PAUSE.1);
    while waiters.keep_if_awaited(&ticket, &sender) {
        tokio::time::sleep(backoff.next()).await;
        let Ok(found) = store.look(&ticket).await else { continue };
        if !found.as_deref().is_some_and(|found| is_running(found, &clock)) {
            waiters.remove(&ticket, &sender);
            // Does not replace the end that the run itself has reported.
            sender.send_if_modified(|end| {
                let is_first = end.is_none();
                end.get_or_insert(RunEnd::Found(found));
                is_first
            });
            return;
        }
    }
}

fn is_running(found: &[u8], clock: &Clock) -> bool {
    matches!(Record::decode(found), Ok(Record::Claimed(claimed)) if claimed.is_running(clock.wall()))
}
