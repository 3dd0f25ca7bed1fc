//! Watches a claim whose run is in another process: if its lease expires and no process has renewed or settled it, it is overdue.
//!
//! A backend may renew and settle its claim at another process of the service, so the record in the store is decisive.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;

use super::Claim;
use crate::engine::Engine;
use crate::record::{ClaimRecord, Record};
use crate::renewal::Renewable;
use crate::run_id::RunId;
use crate::store::StoreError;
use crate::ticket::Ticket;

/// Bounds of the pause between two lookups of an overdue claim.
const SHORTEST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of lookups of overdue claims per second, on average.
const LOOKS_PER_SECOND: u32 = 200;
/// Number of overdue claims that are logged with one line each. Beyond it, the lines are rate limited.
const LOGGED_EACH: usize = 100;

/// A claim that a backend holds. It does not keep the guard alive.
struct ClaimWatch {
    engine: Weak<Engine>,
    ticket: Ticket,
    run: RunId,
    action: String,
    lease: Duration,
}

impl Claim {
    /// Counts the claim as open. Only an at-most-once claim can be overdue: any other claim disappears when its lease expires.
    pub(super) fn watch(&self) {
        let (engine, lease) = (&self.terms.engine, self.terms.rules.lease);
        if !self.terms.rules.at_most_once || !engine.open_claims.add(self.run(), after(engine, lease)) {
            return;
        }
        let watch = ClaimWatch {
            engine: Arc::downgrade(engine),
            ticket: self.terms.ticket,
            run: self.run(),
            action: self.terms.action.clone(),
            lease,
        };
        Arc::new(watch).look_after(engine, lease);
    }

    /// Extends the claim by a lease, if this process has handed it out. Only that process counts it, so that the counts of several
    /// processes add up.
    pub(super) fn watch_on(&self) {
        self.terms.engine.open_claims.extend(self.run(), after(&self.terms.engine, self.terms.rules.lease));
    }

    /// Stops counting the claim as open.
    pub(super) fn end_watch(&self) {
        let place = self.terms.engine.open_claims.end(self.run());
        place.into_iter().for_each(|place| self.terms.engine.renewals.remove(place));
    }
}

impl ClaimWatch {
    /// Schedules the next lookup, unless the run has ended.
    fn look_after(self: Arc<Self>, engine: &Engine, pause: Duration) {
        let run = self.run;
        let place = engine.renewals.add(self, pause);
        engine.open_claims.place(run, place).into_iter().for_each(|place| engine.renewals.remove(place));
    }

    /// Looks up the claim if it is due. Returns the time until the next lookup, or `None` if the run has ended.
    async fn look(&self, engine: &Engine) -> Option<Duration> {
        let now = engine.clock.steady();
        match engine.open_claims.due(self.run)? {
            due if due > now => Some(Duration::from_millis(due - now)),
            _ => self.judge(engine, engine.record(&self.ticket).await),
        }
    }

    /// Decides by the record of a claim that was not renewed at this process. A failed lookup is repeated later.
    fn judge(&self, engine: &Engine, found: Result<Option<Record>, StoreError>) -> Option<Duration> {
        match found {
            Ok(Some(Record::Claimed(claimed))) if claimed.run == self.run => match self.left(engine, &claimed) {
                Some(left) => {
                    engine.open_claims.extend(self.run, after(engine, left));
                    Some(left)
                }
                None => Some(self.mark_overdue(engine)),
            },
            Ok(_) => {
                engine.open_claims.end(self.run);
                None
            }
            Err(_) => Some(self.pause(engine)),
        }
    }

    /// Returns the remaining time of the lease, or `None` if it has expired. A claim without a heartbeat disappears with its lease.
    fn left(&self, engine: &Engine, claimed: &ClaimRecord) -> Option<Duration> {
        let Some(heartbeat) = claimed.heartbeat else { return Some(self.lease) };
        let left = heartbeat.renewed_at.saturating_add(claimed.lease).saturating_sub(engine.clock.wall());
        (left > 0).then(|| Duration::from_millis(left))
    }

    fn mark_overdue(&self, engine: &Engine) -> Duration {
        if engine.open_claims.mark_overdue(self.run, engine.clock.steady()) {
            self.warn(engine);
        }
        self.pause(engine)
    }

    /// Logs one line for each of the first overdue claims; the lines of further claims are rate limited.
    fn warn(&self, engine: &Engine) {
        let suppressed = match engine.open_claims.counts().overdue {
            ..=LOGGED_EACH => 0,
            _ => match engine.overdue_warnings.admit() {
                Some(suppressed) => suppressed,
                None => return,
            },
        };
        tracing::warn!(
            action = self.action, ticket = %self.ticket, run = %self.run, lease = ?self.lease, suppressed,
            "a backend has neither renewed nor settled its claim within its lease, so duplicates receive outcome_unknown; find out \
             whether it took effect, then: onceward key settle {} --run {} --applied (or --not-applied)",
            self.ticket, self.run
        );
    }

    fn pause(&self, engine: &Engine) -> Duration {
        let overdue = u32::try_from(engine.open_claims.counts().overdue).unwrap_or(u32::MAX);
        (self.lease * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE) + Duration::from_secs(1) * overdue / LOOKS_PER_SECOND
    }
}

#[async_trait]
impl Renewable for ClaimWatch {
    async fn step(self: Arc<Self>) -> bool {
        let Some(engine) = self.engine.upgrade() else { return true };
        if let Some(pause) = self.look(&engine).await {
            self.look_after(&engine, pause);
        }
        true
    }

    async fn is_answered(&self) -> bool {
        true
    }

    fn lease(&self) -> Duration {
        self.lease
    }
}

fn after(engine: &Engine, time: Duration) -> u64 {
    engine.clock.steady().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::guard::Guard;
    use crate::intent::Intent;
    use crate::key::Key;
    use crate::open_claims::ClaimCounts;
    use crate::policy::{KeyRules, Policy};
    use crate::store::Memory;
    use crate::subject::Subject;
    use crate::token::secret::Secret;
    use crate::verdict::Verdict;

    const LEASE: Duration = Duration::from_secs(10);

    /// Two processes of the service on one store.
    struct Service {
        here: Guard,
        there: Guard,
        clock: ManualClock,
    }

    impl Service {
        fn new() -> Self {
            let (clock, secret) = (ManualClock::new(), Secret::random());
            let store = Arc::new(Memory::with_clock((&clock).into()));
            let guard = || Guard::builder(Arc::clone(&store)).clock((&clock).into()).secret(secret.clone()).by_hand();
            Self { here: guard().build(), there: guard().build(), clock }
        }

        async fn claim(&self, rules: KeyRules, key: &str) -> String {
            let key = Key::new(key).unwrap();
            let intent = Intent::new("pay", Subject::named("alice")).key(&key);
            let policy = Policy::key(rules.lease(LEASE).unwrap());
            let Ok(Verdict::Run(pass)) = self.here.check(&policy, &intent).await else { panic!("the key is free") };
            pass.into_signed().await.unwrap().unwrap()
        }

        /// Advances the clock, and runs the due steps of the process that has handed out the claims.
        async fn advance(&self, time: Duration) {
            self.clock.advance(time);
            for step in self.here.renewals().take_due() {
                step.step().await;
            }
        }

        fn counts(&self) -> (usize, usize) {
            let ClaimCounts { open, overdue } = self.here.open_claims();
            (open, overdue)
        }
    }

    async fn open(guard: &Guard, pass: &str) -> crate::SignedPass {
        guard.open_pass(pass).await.unwrap().expect("the pass is valid")
    }

    #[tokio::test]
    async fn claim_without_renewal_is_overdue_after_its_lease() {
        let service = Service::new();
        let pass = service.claim(KeyRules::at_most_once(), "k").await;
        assert_eq!(service.counts(), (1, 0));
        service.advance(LEASE).await;
        assert_eq!(service.counts(), (1, 1));
        service.advance(LONGEST_PAUSE * 2).await;
        assert_eq!(service.counts(), (1, 1), "the claim stays overdue");
        assert!(open(&service.here, &pass).await.renew().await.unwrap());
        assert_eq!(service.counts(), (1, 0));
        service.advance(LONGEST_PAUSE).await;
        assert_eq!(service.counts(), (1, 1));
        open(&service.here, &pass).await.complete(None).await.unwrap();
        assert_eq!(service.counts(), (0, 0));
    }

    #[tokio::test]
    async fn claim_renewed_or_settled_at_another_process_is_not_overdue() {
        let service = Service::new();
        let [renewed, completed, released, settled] = ["renewed", "completed", "released", "settled"];
        let renewed = service.claim(KeyRules::at_most_once(), renewed).await;
        let completed = service.claim(KeyRules::at_most_once(), completed).await;
        let released = service.claim(KeyRules::at_most_once(), released).await;
        service.claim(KeyRules::at_most_once(), settled).await;
        service.advance(LEASE / 2).await;
        assert!(open(&service.there, &renewed).await.renew().await.unwrap());
        open(&service.there, &completed).await.complete(None).await.unwrap();
        open(&service.there, &released).await.release().await.unwrap();
        assert_eq!(service.counts(), (4, 0), "this process has not looked yet");
        service.advance(LEASE / 2).await;
        assert_eq!(service.counts(), (2, 1));
        let key = Key::new(settled).unwrap();
        let intent = Intent::new("pay", Subject::named("alice")).key(&key);
        let effect = crate::Effect::Applied;
        service.there.settle(&KeyRules::at_most_once(), &intent, None, effect, None).await.unwrap();
        service.advance(LEASE / 2).await;
        service.advance(LONGEST_PAUSE).await;
        assert_eq!(service.counts(), (1, 1), "the renewed claim is overdue, the settled one is not counted");
    }

    #[tokio::test]
    async fn retryable_claim_is_not_counted() {
        let service = Service::new();
        service.claim(KeyRules::retryable(), "k").await;
        assert_eq!((service.counts(), service.here.renewals().scheduled()), ((0, 0), 0));
    }

    #[tokio::test]
    async fn claim_renewed_by_another_process_is_counted_once() {
        let service = Service::new();
        let pass = service.claim(KeyRules::at_most_once(), "k").await;
        assert!(open(&service.there, &pass).await.renew().await.unwrap());
        assert_eq!((service.here.open_claims().open, service.there.open_claims().open), (1, 0));
    }

    #[tokio::test]
    async fn settled_claims_leave_nothing_in_the_queue() {
        let service = Service::new();
        for number in 0..1_000 {
            let pass = open(&service.here, &service.claim(KeyRules::at_most_once(), &number.to_string()).await).await;
            match number % 2 {
                0 => pass.complete(None).await.unwrap(),
                _ => pass.release().await.unwrap(),
            };
        }
        assert_eq!((service.counts(), service.here.renewals().scheduled()), ((0, 0), 0));
    }
}
