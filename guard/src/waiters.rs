//! Duplicates that wait for the response of a run in flight.
//!
//! However many wait for one ticket, one task looks at the store for all of them. If the run was not applied, each waiter decides again,
//! once: one of them runs, and the others wait for that run in what is left of their time.

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
use crate::store::Store;
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
    /// Tells them how the run has ended; `None` while none of them waits for one.
    tell: Option<EndSender>,
}

type EndSender = Arc<watch::Sender<Option<RunEnd>>>;

impl TicketWaiters {
    fn is_told_by(&self, tell: &EndSender) -> bool {
        self.tell.as_ref().is_some_and(|current| Arc::ptr_eq(current, tell))
    }
}

/// How a run has ended, as far as a waiter can see.
#[derive(Debug, Clone)]
pub(crate) enum RunEnd {
    /// It was not applied: this process has given back what it had claimed.
    Released,
    /// This is on record, and nothing runs any more. What is not there was released elsewhere, or its claim has lapsed, or the
    /// store has lost it.
    Found(Option<Bytes>),
}

impl RunEnd {
    /// Whether nobody can tell if the run was applied. A token that is there again was given back.
    pub(crate) fn is_doubtful(&self) -> bool {
        matches!(self, Self::Found(None))
    }
}

/// The place of one waiter, until it is dropped.
pub(crate) struct Seat {
    waiters: Waiters,
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

    /// Whether anybody still waits for what this would tell; if not, it is struck off.
    fn keep_if_awaited(&self, ticket: &Ticket, tell: &EndSender) -> bool {
        let mut awaited = self.awaited();
        let Some(queue) = awaited.tickets.get_mut(ticket).filter(|queue| queue.is_told_by(tell)) else { return false };
        let is_awaited = tell.receiver_count() > 0;
        if !is_awaited {
            queue.tell = None;
        }
        is_awaited
    }

    /// Strikes it off: whoever comes now asks anew.
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
    /// How the run ends that is in progress; `None` if it still runs when this is enough.
    pub(crate) async fn ended(
        &self,
        store: &Arc<dyn Store>,
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

    /// Joins those that wait for this ticket, or is the first of them.
    fn join(&self, store: &Arc<dyn Store>, clock: &Clock) -> watch::Receiver<Option<RunEnd>> {
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

async fn poll_until_it_ends(waiters: Waiters, store: Arc<dyn Store>, clock: Clock, ticket: Ticket, tell: EndSender) {
    let mut backoff = Backoff::between(PAUSE.0, PAUSE.1);
    while waiters.keep_if_awaited(&ticket, &tell) {
        tokio::time::sleep(backoff.next()).await;
        let Ok(found) = store.look(&ticket).await else { continue };
        if !found.as_deref().is_some_and(|found| is_running(found, &clock)) {
            waiters.strike_off(&ticket, &tell);
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

fn is_running(found: &[u8], clock: &Clock) -> bool {
    matches!(Record::decode(found), Ok(Record::Claimed(claimed)) if claimed.is_running(clock.wall()))
}
