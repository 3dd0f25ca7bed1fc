//! Renews claims while their handlers run, and retries what could not be written.
//!
//! Both loops run on the background thread, so that a handler that blocks its own thread does not lose its claim.

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

/// How often a clock that is moved by hand is looked at.
const BY_HAND: Duration = Duration::from_millis(5);
/// How many claims may wait to be tried again before new ones are rejected. They are retried within a lease once the store answers, and take
/// a few megabytes beside the responses that are to be written.
const MOST: usize = 4_096;

/// A claim, as far as its renewal is concerned.
#[async_trait]
pub(crate) trait Renewable: Send + Sync {
    /// Takes the next step: renews, or tries again what failed. Returns whether the store has answered.
    async fn step(self: Arc<Self>) -> bool;

    /// Whether the store answers a look at this claim.
    async fn is_answered(&self) -> bool;

    fn lease(&self) -> Duration;
}

/// Claims that need a step at some time. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct RenewalQueue(Arc<Queues>);

struct Queues {
    /// What is due when it was meant to be.
    steps: DueQueue,
    /// What has failed before.
    retries: DueQueue,
    clock: Clock,
}

/// Where a claim waits for its next step.
pub(crate) enum QueuePosition {
    Step(DueTime),
    Retry(DueTime),
}

impl RenewalQueue {
    /// Takes steps as they become due, until the guard and all its claims are gone.
    pub(crate) fn begin(clock: Clock, gone: watch::Receiver<()>) -> Self {
        let queue = Self::by_hand(clock);
        runtime::spawn(keep_up(queue.clone(), gone.clone()));
        runtime::spawn(keep_trying(queue.clone(), gone));
        queue
    }

    /// Takes no step by itself.
    pub(crate) fn by_hand(clock: Clock) -> Self {
        Self(Arc::new(Queues { steps: DueQueue::default(), retries: DueQueue::default(), clock }))
    }

    /// A step of this claim is due in a while.
    pub(crate) fn add(&self, claim: Arc<dyn Renewable>, after: Duration) -> QueuePosition {
        QueuePosition::Step(self.0.steps.add(claim, self.after(after)))
    }

    /// The last step of this claim has failed, and is tried again after a while, and when the store answers.
    pub(crate) fn retry(&self, claim: Arc<dyn Renewable>, after: Duration) -> QueuePosition {
        QueuePosition::Retry(self.0.retries.add(claim, self.after(after)))
    }

    /// No step is due any more.
    pub(crate) fn remove(&self, place: QueuePosition) {
        match place {
            QueuePosition::Step(due) => self.0.steps.remove(due),
            QueuePosition::Retry(due) => self.0.retries.remove(due),
        }
    }

    /// How many wait to be tried again.
    pub(crate) fn retrying(&self) -> usize {
        self.0.retries.len()
    }

    /// Whether so many wait to be tried again that nothing new may begin.
    pub(crate) fn is_full(&self) -> bool {
        self.retrying() >= MOST
    }

    fn after(&self, time: Duration) -> u64 {
        self.0.clock.steady().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// Takes one out, whenever it is due.
    #[cfg(test)]
    pub(crate) fn take(&self, choose: impl FnOnce(usize) -> usize) -> Option<Arc<dyn Renewable>> {
        let steps = self.0.steps.len();
        let at = match steps + self.retrying() {
            0 => return None,
            count => choose(count),
        };
        if at < steps { self.0.steps.take(at) } else { self.0.retries.take(at - steps) }
    }

    /// Takes out all that are due.
    #[cfg(test)]
    pub(crate) fn take_due(&self) -> Vec<Arc<dyn Renewable>> {
        let now = self.0.clock.steady();
        let (mut due, _) = self.0.steps.due(now, usize::MAX);
        due.extend(self.0.retries.due(now, usize::MAX).0);
        due
    }
}

async fn keep_up(queue: RenewalQueue, mut gone: watch::Receiver<()>) {
    let mut steps = JoinSet::new();
    loop {
        while steps.try_join_next().is_some() {}
        let (due, wait) = queue.0.steps.due(queue.0.clock.steady(), usize::MAX);
        for claim in due {
            steps.spawn(async move { claim.step().await });
        }
        if queue.0.idle(&queue.0.steps, wait, &mut gone).await.is_break() {
            return;
        }
    }
}

impl Queues {
    /// Waits until something in this queue is due, or until the guard and all its claims are gone.
    async fn idle(&self, queue: &DueQueue, wait: Option<Duration>, gone: &mut watch::Receiver<()>) -> ControlFlow<()> {
        let wait = wait.map(|wait| if self.clock.is_manual() { wait.min(BY_HAND) } else { wait });
        tokio::select! {
            () = tokio::time::sleep(wait.unwrap_or(Duration::MAX)) => ControlFlow::Continue(()),
            () = queue.woken() => ControlFlow::Continue(()),
            _ = gone.changed() => ControlFlow::Break(()),
        }
    }
}
