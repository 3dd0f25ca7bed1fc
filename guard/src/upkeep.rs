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

#[cfg(test)]
mod tests {
    use onceward_api::Code;

    use super::*;
    use crate::clock::ManualClock;
    use crate::guard::{Guard, Verdict};
    use crate::intent::{Intent, Subject};
    use crate::policy::{IntervalRules, Policy};
    use crate::store::Memory;

    const SECOND: Duration = Duration::from_secs(1);

    /// One job at a time, or once in a while, on a clock that is moved by hand.
    struct Job {
        guard: Guard,
        clock: ManualClock,
        policy: Policy,
    }

    impl Job {
        fn new(rules: IntervalRules) -> Self {
            let clock = ManualClock::new();
            let memory = Memory::with_clock((&clock).into());
            let guard = Guard::builder(memory).clock((&clock).into()).by_hand().build();
            Self { guard, clock, policy: Policy::interval(rules) }
        }

        async fn ask(&self) -> Verdict {
            self.guard.check(&self.policy, &Intent::new("job", Subject::anonymous())).await.unwrap()
        }

        async fn is_free(&self) -> bool {
            !matches!(self.ask().await, Verdict::Refuse(refusal) if [Code::TooSoon, Code::Locked].contains(&refusal.code()))
        }

        /// Lets time pass, in which whatever is due is done.
        async fn pass(&self, time: Duration) {
            for _ in 0..time.as_millis() / 10 {
                self.clock.advance(Duration::from_millis(10));
                for claim in self.guard.upkeep().due().0 {
                    claim.step().await;
                }
            }
        }
    }

    #[tokio::test]
    async fn whoever_outlives_an_interval_however_short_keeps_it_to_the_end() {
        for millis in [1, 200, 300, 500, 1_000, 1_500] {
            let job = Job::new(IntervalRules::new().every(Duration::from_millis(millis)).unwrap());
            let Verdict::Run(pass) = job.ask().await else { panic!("it is free") };
            for _ in 0..40 {
                job.pass(SECOND / 10).await;
                assert!(!job.is_free().await, "{millis} ms");
            }
            pass.complete(None).await.unwrap();
            assert!(job.is_free().await, "{millis} ms");
        }
    }

    #[tokio::test]
    async fn a_lock_is_kept_as_long_as_its_ceiling_says_and_no_longer() {
        let job = Job::new(IntervalRules::new().release_always().ceiling(SECOND * 5));
        let Verdict::Run(_pass) = job.ask().await else { panic!("it is free") };
        job.pass(SECOND * 5).await;
        assert!(!job.is_free().await);
        job.pass(SECOND * 2).await;
        assert!(job.is_free().await, "it is taken for lost");
    }
}
