//! What goes on beside the handlers: claims are renewed, and what could not be written is tried again.
//!
//! It runs on the background thread, so that a handler that blocks its own thread does not lose its claim.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::background;
use crate::claim::Claim;
use crate::clock::Clock;

/// How often a clock that is moved by hand is looked at.
const BY_HAND: Duration = Duration::from_millis(5);

/// Claims that need a step at some time. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct Upkeep(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    wake: Notify,
    clock: Clock,
}

#[derive(Default)]
struct Queue {
    /// By the time at which they are due, and by a number of their own.
    claims: BTreeMap<Place, Arc<Claim>>,
    number: u64,
    /// When the loop looks again by itself; it needs to be woken only for what is due before.
    asleep_until: u64,
}

/// Where a claim stands in the queue.
pub(crate) type Place = (u64, u64);

impl Upkeep {
    /// Takes steps as they become due, until nobody is left to add any and all are done.
    pub(crate) fn begin(clock: Clock, gone: watch::Receiver<()>) -> Self {
        let upkeep = Self::by_hand(clock);
        background::spawn(keep_up(upkeep.clone(), gone));
        upkeep
    }

    /// Takes no step by itself.
    pub(crate) fn by_hand(clock: Clock) -> Self {
        Self(Arc::new(Shared { queue: Mutex::default(), wake: Notify::new(), clock }))
    }

    /// A step of this claim is due in a while.
    pub(crate) fn add(&self, claim: Arc<Claim>, after: Duration) -> Place {
        let due = self.0.clock.steady().saturating_add(after.as_millis() as u64);
        let mut queue = self.queue();
        queue.number += 1;
        let place = (due, queue.number);
        queue.claims.insert(place, claim);
        if due < queue.asleep_until {
            queue.asleep_until = due;
            self.0.wake.notify_one();
        }
        place
    }

    /// No step is due any more.
    pub(crate) fn remove(&self, place: Place) {
        self.queue().claims.remove(&place);
    }

    /// Takes what is due out of the queue, and says how long nothing else is.
    fn due(&self) -> (Vec<Arc<Claim>>, Option<Duration>) {
        let now = self.0.clock.steady();
        let mut queue = self.queue();
        let later = queue.claims.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut queue.claims, later).into_values().collect();
        queue.asleep_until = queue.claims.keys().next().map_or(u64::MAX, |(next, _)| *next);
        let wait = (queue.asleep_until != u64::MAX).then(|| Duration::from_millis(queue.asleep_until - now));
        (due, wait.map(|wait| if self.0.clock.is_manual() { wait.min(BY_HAND) } else { wait }))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one out, whenever it is due.
    #[cfg(test)]
    pub(crate) fn take(&self, choose: impl FnOnce(usize) -> usize) -> Option<Arc<Claim>> {
        let mut queue = self.queue();
        let place = match queue.claims.len() {
            0 => return None,
            count => *queue.claims.keys().nth(choose(count))?,
        };
        queue.claims.remove(&place)
    }
}

async fn keep_up(upkeep: Upkeep, mut gone: watch::Receiver<()>) {
    let mut is_gone = false;
    let mut steps = JoinSet::new();
    loop {
        // Asked before the queue is, since a step may put its claim back into it at its end.
        while steps.try_join_next().is_some() {}
        let is_still = steps.is_empty();
        let (due, wait) = upkeep.due();
        let was_idle = due.is_empty();
        for claim in due {
            steps.spawn(async move { claim.step().await });
        }
        if is_gone && is_still && was_idle && wait.is_none() {
            return;
        }
        // Once nobody is left to wake it, it looks by itself.
        let longest = if is_gone { Duration::from_millis(100) } else { Duration::MAX };
        tokio::select! {
            () = tokio::time::sleep(wait.unwrap_or(longest).min(longest)) => {}
            () = upkeep.0.wake.notified() => {}
            changed = gone.changed(), if !is_gone => is_gone = changed.is_err(),
        }
    }
}
