//! What goes on beside the handlers: claims are renewed, and what could not be written is tried again.
//!
//! It runs on the background thread, so that a handler that blocks its own thread does not lose its claim.

mod queue;
mod retries;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use self::queue::{Due, DueQueue};
use self::retries::keep_trying;
use crate::claim::Claim;
use crate::clock::Clock;
use crate::runtime;

/// How often a clock that is moved by hand is looked at.
const BY_HAND: Duration = Duration::from_millis(5);
/// How many claims may wait to be tried again before new ones are rejected. They are retried within a lease once the store answers, and take
/// a few megabytes beside the responses that are to be written.
const MOST: usize = 4_096;

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
    Step(Due),
    Retry(Due),
}

impl RenewalQueue {
    /// Takes steps as they become due, until nobody is left to add any and all are done.
    pub(crate) fn begin(clock: Clock, gone: watch::Receiver<()>) -> Self {
        let upkeep = Self::by_hand(clock);
        runtime::spawn(keep_up(upkeep.clone(), gone.clone()));
        runtime::spawn(keep_trying(upkeep.clone(), gone));
        upkeep
    }

    /// Takes no step by itself.
    pub(crate) fn by_hand(clock: Clock) -> Self {
        Self(Arc::new(Queues { steps: DueQueue::default(), retries: DueQueue::default(), clock }))
    }

    /// A step of this claim is due in a while.
    pub(crate) fn add(&self, claim: Arc<Claim>, after: Duration) -> QueuePosition {
        QueuePosition::Step(self.0.steps.add(claim, self.after(after)))
    }

    /// The last step of this claim has failed, and is tried again after a while, and when the store answers.
    pub(crate) fn retry(&self, claim: Arc<Claim>, after: Duration) -> QueuePosition {
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

    /// Whether no claim is left: each has its own clone, and each of the two loops.
    fn is_over(&self) -> bool {
        Arc::strong_count(&self.0) <= 2
    }

    fn after(&self, time: Duration) -> u64 {
        self.0.clock.steady().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// Takes one out, whenever it is due.
    #[cfg(test)]
    pub(crate) fn take(&self, choose: impl FnOnce(usize) -> usize) -> Option<Arc<Claim>> {
        let steps = self.0.steps.len();
        let at = match steps + self.retrying() {
            0 => return None,
            count => choose(count),
        };
        if at < steps { self.0.steps.take(at) } else { self.0.retries.take(at - steps) }
    }

    /// Takes out all that are due.
    #[cfg(test)]
    pub(crate) fn take_due(&self) -> Vec<Arc<Claim>> {
        let now = self.0.clock.steady();
        let (mut due, _) = self.0.steps.due(now, usize::MAX);
        due.extend(self.0.retries.due(now, usize::MAX).0);
        due
    }
}

async fn keep_up(upkeep: RenewalQueue, mut gone: watch::Receiver<()>) {
    let mut is_gone = false;
    let mut steps = JoinSet::new();
    loop {
        while steps.try_join_next().is_some() {}
        let (due, wait) = upkeep.0.steps.due(upkeep.0.clock.steady(), usize::MAX);
        for claim in due {
            steps.spawn(async move { claim.step().await });
        }
        if is_gone && upkeep.is_over() {
            return;
        }
        is_gone |= idle(&upkeep, &upkeep.0.steps, wait, &mut gone, is_gone).await;
    }
}

/// Waits until something in this queue is due, and says whether the guard is gone.
async fn idle(
    upkeep: &RenewalQueue,
    queue: &DueQueue,
    wait: Option<Duration>,
    gone: &mut watch::Receiver<()>,
    is_gone: bool,
) -> bool {
    let wait = wait.map(|wait| if upkeep.0.clock.is_manual() { wait.min(BY_HAND) } else { wait });
    // Once the guard is gone, it looks by itself.
    let longest = if is_gone { Duration::from_millis(100) } else { Duration::MAX };
    tokio::select! {
        () = tokio::time::sleep(wait.unwrap_or(longest).min(longest)) => false,
        () = queue.woken() => false,
        changed = gone.changed(), if !is_gone => changed.is_err(),
    }
}
