//! Claims, ordered by the time at which their next step is due.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::Renewable;

/// Claims with a scheduled step, and the signal that wakes the loop.
#[derive(Default)]
pub(super) struct DueQueue {
    waiting: Mutex<DueClaims>,
    /// The number of claims, which every new claim reads.
    count: AtomicUsize,
    wake: Notify,
}

#[derive(Default)]
struct DueClaims {
    /// Keyed by due time, and by a sequence number that makes the key unique.
    claims: BTreeMap<DueTime, Arc<dyn Renewable>>,
    number: u64,
    /// The time at which the loop wakes up on its own. Only a claim that is due earlier needs to wake it.
    asleep_until: u64,
}

/// Due time and sequence number of a claim.
pub(super) type DueTime = (u64, u64);

impl DueQueue {
    /// Schedules a step of this claim at the time `at`.
    pub(super) fn add(&self, claim: Arc<dyn Renewable>, at: u64) -> DueTime {
        let mut waiting = self.waiting();
        waiting.number += 1;
        let due = (at, waiting.number);
        waiting.claims.insert(due, claim);
        self.count(&waiting);
        if at < waiting.asleep_until {
            waiting.asleep_until = at;
            self.wake.notify_one();
        }
        due
    }

    pub(super) fn remove(&self, due: DueTime) {
        let mut waiting = self.waiting();
        waiting.claims.remove(&due);
        self.count(&waiting);
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn count(&self, waiting: &DueClaims) {
        self.count.store(waiting.claims.len(), Ordering::Relaxed);
    }

    /// Removes and returns at most `most` due claims, and returns the time until the next one is due.
    pub(super) fn due(&self, now: u64, most: usize) -> (Vec<Arc<dyn Renewable>>, Option<Duration>) {
        let mut waiting = self.waiting();
        let mut due = Vec::new();
        while due.len() < most
            && let Some(first) = waiting.claims.first_entry().filter(|first| first.key().0 <= now)
        {
            due.push(first.remove());
        }
        self.count(&waiting);
        waiting.asleep_until = waiting.claims.keys().next().map_or(u64::MAX, |(next, _)| *next);
        let wait =
            (waiting.asleep_until != u64::MAX).then(|| Duration::from_millis(waiting.asleep_until.saturating_sub(now)));
        (due, wait)
    }

    /// Returns a random sample of at most `most` due claims, which stay in the queue.
    pub(super) fn some_due(&self, now: u64, most: usize) -> Vec<Arc<dyn Renewable>> {
        let waiting = self.waiting();
        let due = waiting.claims.range(..=(now, u64::MAX)).map(|(_, claim)| Arc::clone(claim));
        fastrand::choose_multiple(due, most)
    }

    /// Completes when a claim is added that is due before the loop would wake up.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    fn waiting(&self) -> MutexGuard<'_, DueClaims> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes one claim, whether it is due or not.
    #[cfg(test)]
    pub(super) fn take(&self, at: usize) -> Option<Arc<dyn Renewable>> {
        let mut waiting = self.waiting();
        let due = *waiting.claims.keys().nth(at)?;
        let taken = waiting.claims.remove(&due);
        self.count(&waiting);
        taken
    }
}
