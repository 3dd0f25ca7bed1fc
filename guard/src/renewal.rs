//! Renews claims while their handlers run, and retries failed writes.
//!
//! All loops run on the background thread, so a handler that blocks its own thread does not lose its claim.

mod queue;
mod retries;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::queue::{DueQueue, DueTime};
use self::retries::keep_trying;
use crate::clock::Clock;
use crate::runtime;
use crate::thread_number;

/// Polling interval with a manual clock.
const BY_HAND: Duration = Duration::from_millis(5);
/// Maximum number of claims in the retry queue; beyond it, new claims are rejected. Once the store replies again, the whole queue is
/// retried within a lease. The queue takes a few megabytes, plus the responses to write.
const MOST: usize = 4_096;

/// Number of queues for renewals, each with its own lock: every claim enters one of them and leaves it again.
const STEP_QUEUES: usize = 8;

/// A claim, as the background loops see it.
#[async_trait]
pub(crate) trait Renewable: Send + Sync {
    /// Renews the claim, or retries a failed write. Returns whether the store has replied.
    async fn step(self: Arc<Self>) -> bool;

    /// Returns whether the store replies to a lookup of this claim.
    async fn is_answered(&self) -> bool;

    fn lease(&self) -> Duration;
}

/// Claims with a scheduled step. Cheap to clone; clones share the same queues.
#[derive(Clone)]
pub(crate) struct RenewalQueue(Arc<Queues>);

struct Queues {
    /// Renewals and first tries. Each thread adds to one of the queues.
    steps: [DueQueue; STEP_QUEUES],
    /// Retries of failed writes.
    retries: DueQueue,
    clock: Clock,
}

/// Position of a claim in one of the queues.
pub(crate) enum QueuePosition {
    /// In the queue with this number.
    Step(usize, DueTime),
    Retry(DueTime),
}

impl RenewalQueue {
    /// Starts the background loops, which run until the guard and all its claims are dropped.
    pub(crate) fn begin(clock: Clock, gone: watch::Receiver<()>) -> Self {
        let queue = Self::by_hand(clock);
        for number in 0..STEP_QUEUES {
            runtime::spawn(keep_up(queue.clone(), number, gone.clone()));
        }
        runtime::spawn(keep_trying(queue.clone(), gone));
        queue
    }

    /// Creates queues without background loops.
    pub(crate) fn by_hand(clock: Clock) -> Self {
        Self(Arc::new(Queues { steps: Default::default(), retries: DueQueue::default(), clock }))
    }

    /// Schedules a step of this claim.
    pub(crate) fn add(&self, claim: Arc<dyn Renewable>, after: Duration) -> QueuePosition {
        let number = thread_number::current() % STEP_QUEUES;
        QueuePosition::Step(number, self.0.steps[number].add(claim, self.after(after)))
    }

    /// Schedules a retry of this claim's failed step, after `after` and once the store replies again.
    pub(crate) fn retry(&self, claim: Arc<dyn Renewable>, after: Duration) -> QueuePosition {
        QueuePosition::Retry(self.0.retries.add(claim, self.after(after)))
    }

    /// Removes a scheduled step.
    pub(crate) fn remove(&self, place: QueuePosition) {
        match place {
            QueuePosition::Step(number, due) => self.0.steps[number].remove(due),
            QueuePosition::Retry(due) => self.0.retries.remove(due),
        }
    }

    /// Returns the number of claims in the retry queue.
    pub(crate) fn retrying(&self) -> usize {
        self.0.retries.len()
    }

    /// Returns whether the retry queue is full, so that new claims are rejected.
    pub(crate) fn is_full(&self) -> bool {
        self.retrying() >= MOST
    }

    fn after(&self, time: Duration) -> u64 {
        self.0.clock.steady().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns the number of scheduled steps.
    #[cfg(test)]
    pub(crate) fn scheduled(&self) -> usize {
        self.0.steps.iter().map(DueQueue::len).sum()
    }

    /// Removes one claim, whether it is due or not.
    #[cfg(test)]
    pub(crate) fn take(&self, choose: impl FnOnce(usize) -> usize) -> Option<Arc<dyn Renewable>> {
        let mut at = match self.scheduled() + self.retrying() {
            0 => return None,
            count => choose(count),
        };
        for queue in self.0.steps.iter().chain([&self.0.retries]) {
            match at.checked_sub(queue.len()) {
                Some(rest) => at = rest,
                None => return queue.take(at),
            }
        }
        None
    }

    /// Removes all due claims.
    #[cfg(test)]
    pub(crate) fn take_due(&self) -> Vec<Arc<dyn Renewable>> {
        let now = self.0.clock.steady();
        let queues = self.0.steps.iter().chain([&self.0.retries]);
        queues.flat_map(|queue| queue.due(now, usize::MAX).0).collect()
    }
}

async fn keep_up(queue: RenewalQueue, number: usize, mut gone: watch::Receiver<()>) {
    let mut steps = JoinSet::new();
    loop {
        while steps.try_join_next().is_some() {}
        let (due, wait) = queue.0.steps[number].due(queue.0.clock.steady(), usize::MAX);
        for claim in due {
            steps.spawn(async move { claim.step().await });
        }
        if queue.0.idle(&queue.0.steps[number], wait, &mut gone).await.is_break() {
            return;
        }
    }
}

impl Queues {
    /// Waits until a claim in this queue is due, or until the guard and all its claims are dropped.
    async fn idle(&self, queue: &DueQueue, wait: Option<Duration>, gone: &mut watch::Receiver<()>) -> ControlFlow<()> {
        let wait = wait.map(|wait| if self.clock.is_manual() { wait.min(BY_HAND) } else { wait });
        tokio::select! {
            () = tokio::time::sleep(wait.unwrap_or(Duration::MAX)) => ControlFlow::Continue(()),
            () = queue.woken() => ControlFlow::Continue(()),
            _ = gone.changed() => ControlFlow::Break(()),
        }
    }
}
