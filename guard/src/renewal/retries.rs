//! Retries failed writes in batches, once the store answers.
//!
//! While the store does not answer, the loop looks up a few claims at a time, with exponential backoff and jitter, and the others wait:
//! retries add no load to a slow store. Claims whose lookup is answered are retried first, since they may be on another node of a cluster.
//! Once all lookups are answered, the remaining claims are retried in batches, spread over a part of the lease.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{Renewable, RenewalQueue};
use crate::backoff::Backoff;

/// Maximum batch size: as many commands as a Redis connection sends in one pipeline.
const BATCH: usize = 64;
/// First and longest pause while the store does not answer.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));
/// Longest pause between two batches while the store answers.
const BREATH: Duration = Duration::from_millis(100);
/// Divisor of the lease: the whole queue is retried once within this part of it.
const SWEEP: u32 = 8;
/// Timeout of a batch. A step that takes longer continues alongside the next batch. The stores of this crate have shorter deadlines.
const ENOUGH: Duration = Duration::from_secs(10);
/// Number of concurrent lookups that probe whether the store answers.
const PROBES: usize = 4;

/// Batch size, and pause between batches.
struct Pace {
    size: usize,
    /// True if the store answered all commands of the last batch.
    is_trusted: bool,
    backoff: Backoff,
}

/// The result of a batch.
#[derive(Debug, Clone, Copy)]
struct BatchResult {
    /// Number of claims tried; the store answered `answered` of them.
    count: usize,
    answered: usize,
    /// Shortest lease in the batch.
    lease: Duration,
    /// Number of claims still in the queue.
    waiting: usize,
}

impl Pace {
    fn new() -> Self {
        Self { size: 1, is_trusted: false, backoff: Backoff::between(PAUSE.0, PAUSE.1) }
    }

    /// Returns the pause after a batch. After an answered batch the size doubles, and the pause is short enough that the whole queue is
    /// retried within a part of the lease.
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

    /// Returns to single tries with backoff, since the store does not answer.
    fn unanswered(&mut self) -> Duration {
        (self.size, self.is_trusted) = (1, false);
        self.backoff.next()
    }
}

/// Retries due claims until the guard and all its claims are dropped.
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
        // Steps that hang occupy the batch until one of them ends.
        let wait = if steps.is_empty() { wait } else { Some(wait.unwrap_or(BREATH).max(BREATH)) };
        if queue.0.idle(&queue.0.retries, wait, &mut gone).await.is_break() {
            return;
        }
    }
}

/// Returns the claims whose lookup the store answers.
async fn answered(claims: &[Arc<dyn Renewable>]) -> Vec<Arc<dyn Renewable>> {
    let mut looks = JoinSet::new();
    for claim in claims.iter().cloned() {
        looks.spawn(async move { timeout(ENOUGH, claim.is_answered()).await.unwrap_or(false).then_some(claim) });
    }
    looks.join_all().await.into_iter().flatten().collect()
}

/// Runs a step of each claim, and waits for them up to the timeout of a batch.
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
    fn unanswered_retries_go_one_at_a_time_with_backoff() {
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
    fn full_queue_is_retried_in_batches_within_a_lease() {
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
    fn partly_answered_batch_continues_after_new_probes() {
        let mut pace = Pace::new();
        pace.after(BatchResult { answered: 1, ..answered(8, 100) });
        assert!(!pace.is_trusted);
        assert_eq!(pace.size, 2);
    }

    #[test]
    fn last_batch_is_not_followed_by_a_pause() {
        assert_eq!(Pace::new().after(answered(3, 0)), Duration::ZERO);
    }
}
