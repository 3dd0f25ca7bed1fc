//! What could not be written is tried again: in batches, and not before the store answers.
//!
//! As long as the store does not answer, a few claims at a time are looked up to find out, with exponential backoff and jitter, and the
//! others wait: retries add no load to a store that is slow. The claims whose look-up is answered are tried first, since another node of a
//! cluster may have theirs. Once all are answered, the rest is tried in batches, spread over a part of the lease.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{Renewable, RenewalQueue};
use crate::backoff::Backoff;

/// How many are tried at once at most: as many as a connection to Redis sends together.
const BATCH: usize = 64;
/// The first and the longest pause while the store does not answer.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));
/// The longest pause between two batches of a store that answers.
const BREATH: Duration = Duration::from_millis(100);
/// All that wait are tried once in this part of a lease.
const SWEEP: u32 = 8;
/// How long a batch is waited for: a step that takes longer goes on beside the next one. Every store of ours has a shorter deadline.
const ENOUGH: Duration = Duration::from_secs(10);
/// How many claims are looked up at once to find out whether the store answers.
const PROBES: usize = 4;

/// How many are tried at once, and how long to pause after them.
struct Pace {
    size: usize,
    /// Whether the store has answered the last batch.
    is_trusted: bool,
    backoff: Backoff,
}

/// What came of a batch.
#[derive(Debug, Clone, Copy)]
struct BatchResult {
    /// How many were tried, and how many the store has answered.
    count: usize,
    answered: usize,
    /// The shortest lease of them.
    lease: Duration,
    /// How many wait still.
    waiting: usize,
}

impl Pace {
    fn new() -> Self {
        Self { size: 1, is_trusted: false, backoff: Backoff::between(PAUSE.0, PAUSE.1) }
    }

    /// How long to pause after a batch. One that was answered is followed by twice as many, until all that wait are through in a part of
    /// their lease.
    fn after(&mut self, tried: BatchResult) -> Duration {
        if tried.answered == 0 {
            return self.unanswered();
        }
        self.backoff.reset();
        self.is_trusted = tried.answered == tried.count;
        self.size = (self.size * 2).min(BATCH);
        match tried.waiting {
            0 => Duration::ZERO,
            waiting => (tried.lease / SWEEP).mul_f64(tried.count as f64 / waiting as f64).min(BREATH),
        }
    }

    /// The store does not answer.
    fn unanswered(&mut self) -> Duration {
        (self.size, self.is_trusted) = (1, false);
        self.backoff.next()
    }
}

/// Tries again what is due, until the guard is gone and all are done.
pub(super) async fn keep_trying(queue: RenewalQueue, mut gone: watch::Receiver<()>) {
    let mut pace = Pace::new();
    let mut steps = JoinSet::new();
    loop {
        while steps.try_join_next().is_some() {}
        let now = queue.0.clock.steady();
        if !pace.is_trusted {
            let probes = queue.0.retries.some_due(now, PROBES);
            let answered = answered(&probes).await;
            if !probes.is_empty() && answered.len() < probes.len() {
                for claim in answered {
                    claim.step().await;
                }
                sleep(pace.unanswered()).await;
                continue;
            }
        }
        let (batch, wait) = queue.0.retries.due(now, pace.size.saturating_sub(steps.len()));
        if !batch.is_empty() {
            let tried = try_again(&queue, batch, &mut steps).await;
            sleep(pace.after(tried)).await;
            continue;
        }
        pace.is_trusted = false;
        // Steps that hang leave no room for others before one of them ends.
        let wait = if steps.is_empty() { wait } else { Some(wait.unwrap_or(BREATH).max(BREATH)) };
        if queue.0.idle(&queue.0.retries, wait, &mut gone).await.is_break() {
            return;
        }
    }
}

/// Those of whose record the store answers a look-up.
async fn answered(claims: &[Arc<dyn Renewable>]) -> Vec<Arc<dyn Renewable>> {
    let mut looks = JoinSet::new();
    for claim in claims.iter().cloned() {
        looks.spawn(async move { timeout(ENOUGH, claim.is_answered()).await.unwrap_or(false).then_some(claim) });
    }
    looks.join_all().await.into_iter().flatten().collect()
}

/// Takes a step of each, and waits for them for a while.
async fn try_again(queue: &RenewalQueue, batch: Vec<Arc<dyn Renewable>>, steps: &mut JoinSet<bool>) -> BatchResult {
    let lease = batch.iter().map(|claim| claim.lease()).min().unwrap_or_default();
    let count = batch.len();
    for claim in batch {
        steps.spawn(async move { claim.step().await });
    }
    let mut answered = 0;
    let all = async {
        while let Some(step) = steps.join_next().await {
            answered += usize::from(step.unwrap_or(false));
        }
    };
    let _ = timeout(ENOUGH, all).await;
    BatchResult { count, answered: answered.min(count), lease, waiting: queue.retrying() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    fn answered(count: usize, waiting: usize) -> BatchResult {
        BatchResult { count, answered: count, lease: LEASE, waiting }
    }

    #[test]
    fn while_nothing_is_answered_one_is_tried_at_a_time_with_backoff() {
        let mut pace = Pace::new();
        pace.after(answered(1, 100));
        pace.after(answered(2, 100));
        assert_eq!((pace.size, pace.is_trusted), (4, true));
        let mut longest = PAUSE.0;
        for _ in 0..20 {
            let pause = pace.after(BatchResult { answered: 0, ..answered(1, 100) });
            assert!((longest / 2..=longest).contains(&pause), "{pause:?} of {longest:?}");
            assert_eq!((pace.size, pace.is_trusted), (1, false));
            longest = (longest * 2).min(PAUSE.1);
        }
    }

    #[test]
    fn after_recovery_a_full_list_is_through_in_a_part_of_its_lease_and_not_all_at_once() {
        let mut pace = Pace::new();
        let (mut waiting, mut time, mut sizes) = (super::super::MOST, Duration::ZERO, Vec::new());
        while waiting > 0 {
            let count = pace.size.min(waiting);
            waiting -= count;
            sizes.push(count);
            time += pace.after(answered(count, waiting));
        }
        assert!(sizes.iter().all(|size| *size <= BATCH), "{sizes:?}");
        assert!((Duration::from_secs(2)..LEASE).contains(&time), "{time:?}");
    }

    #[test]
    fn what_is_answered_in_part_goes_on_and_is_asked_first() {
        let mut pace = Pace::new();
        pace.after(BatchResult { answered: 1, ..answered(8, 100) });
        assert!(!pace.is_trusted);
        assert_eq!(pace.size, 2);
    }

    #[test]
    fn the_last_batch_is_not_followed_by_a_pause() {
        assert_eq!(Pace::new().after(answered(3, 0)), Duration::ZERO);
    }
}
