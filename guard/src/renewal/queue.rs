//! Claims by the time at which a step of theirs is due.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::Renewable;

/// Claims that wait for a step, and the loop that takes it.
#[derive(Default)]
pub(super) struct DueQueue {
    waiting: Mutex<DueClaims>,
    wake: Notify,
}

#[derive(Default)]
struct DueClaims {
    /// By the time at which they are due, and by a number of their own.
    claims: BTreeMap<DueTime, Arc<dyn Renewable>>,
    number: u64,
    /// When the loop looks again by itself; it needs to be woken only for what is due before.
    asleep_until: u64,
}

/// When a claim is due, and its number.
pub(super) type DueTime = (u64, u64);

impl DueQueue {
    /// A step of this claim is due at this time.
    pub(super) fn add(&self, claim: Arc<dyn Renewable>, at: u64) -> DueTime {
        let mut waiting = self.waiting();
        waiting.number += 1;
        let due = (at, waiting.number);
        waiting.claims.insert(due, claim);
        if at < waiting.asleep_until {
            waiting.asleep_until = at;
            self.wake.notify_one();
        }
        due
    }

    pub(super) fn remove(&self, due: DueTime) {
        self.waiting().claims.remove(&due);
    }

    pub(super) fn len(&self) -> usize {
        self.waiting().claims.len()
    }

    /// Takes out what is due, so many at most, and says how long nothing else is.
    pub(super) fn due(&self, now: u64, most: usize) -> (Vec<Arc<dyn Renewable>>, Option<Duration>) {
        let mut waiting = self.waiting();
        let mut due = Vec::new();
        while due.len() < most
            && let Some(first) = waiting.claims.first_entry().filter(|first| first.key().0 <= now)
        {
            due.push(first.remove());
        }
        waiting.asleep_until = waiting.claims.keys().next().map_or(u64::MAX, |(next, _)| *next);
        let wait =
            (waiting.asleep_until != u64::MAX).then(|| Duration::from_millis(waiting.asleep_until.saturating_sub(now)));
        (due, wait)
    }

    /// Some of those that are due, chosen at random, which stay where they are.
    pub(super) fn some_due(&self, now: u64, most: usize) -> Vec<Arc<dyn Renewable>> {
        let waiting = self.waiting();
        let due = waiting.claims.range(..=(now, u64::MAX)).map(|(_, claim)| Arc::clone(claim));
        fastrand::choose_multiple(due, most)
    }

    /// Comes back when something is due before the loop would have looked.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    fn waiting(&self) -> MutexGuard<'_, DueClaims> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one out, whenever it is due.
    #[cfg(test)]
    pub(super) fn take(&self, at: usize) -> Option<Arc<dyn Renewable>> {
        let mut waiting = self.waiting();
        let due = *waiting.claims.keys().nth(at)?;
        waiting.claims.remove(&due)
    }
}
