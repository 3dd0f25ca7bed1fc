use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use onceward_api::Code;

use super::*;
use crate::binding::Binding;
use crate::clock::ManualClock;
use crate::guard::{Guard, IssueError};
use crate::intent::Intent;
use crate::key::Key;
use crate::policy::{IntervalRules, KeyRules, Policy, TokenRules};
use crate::reply::Reply;
use crate::store::{Admission, Bytes, Compared, Epoch, Memory, Room, Store, StoreError, async_trait};
use crate::subject::Subject;
use crate::ticket::Ticket;
use crate::verdict::Verdict;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(15);

/// A memory store that counts its commands, and loses its replies while it is slow.
struct Slow {
    memory: Memory,
    is_slow: AtomicBool,
    /// Number of inserts that are still answered while the store is slow.
    answers_inserts: AtomicUsize,
    looks: AtomicUsize,
    writes: AtomicUsize,
    is_closed: AtomicBool,
    /// True if the store refuses every swap.
    is_full: AtomicBool,
}

impl Slow {
    fn new(memory: Memory) -> Arc<Self> {
        let (is_slow, is_closed, is_full) = Default::default();
        Arc::new(Self {
            memory,
            is_slow,
            answers_inserts: AtomicUsize::new(0),
            looks: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            is_closed,
            is_full,
        })
    }

    fn be_slow(&self, is_slow: bool) {
        self.is_slow.store(is_slow, Ordering::SeqCst);
    }

    fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// Counts an executed write, and loses its reply if the store is slow.
    fn write<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.unless_slow(answer)
    }

    fn unless_slow<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if self.is_slow.load(Ordering::SeqCst) { Err(StoreError::unknown("too late")) } else { answer }
    }
}

#[async_trait]
impl Store for Slow {
    async fn insert(
        &self,
        ticket: &Ticket,
        value: &[u8],
        ttl: Duration,
        room: Room,
    ) -> Result<Option<Bytes>, StoreError> {
        let inserted = self.memory.insert(ticket, value, ttl, room).await;
        let fewer = |count: usize| count.checked_sub(1);
        match self.answers_inserts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer) {
            Ok(_) => inserted,
            Err(_) => self.write(inserted),
        }
    }
    async fn swap(
        &self,
        ticket: &Ticket,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
        room: Room,
        epoch: Option<Epoch>,
    ) -> Result<Compared, StoreError> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(StoreError::not_executed("no room"));
        }
        self.write(self.memory.swap(ticket, held, value, ttl, room, epoch).await)
    }
    async fn remove(&self, ticket: &Ticket, held: &[u8], epoch: Option<Epoch>) -> Result<Compared, StoreError> {
        // As with an overloaded Redis that does not execute the command in time: the record stays.
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.unless_slow(Ok(()))?;
        self.memory.remove(ticket, held, epoch).await
    }
    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.unless_slow(self.memory.look(ticket).await)
    }
    fn epoch(&self, ticket: &Ticket) -> Option<Epoch> {
        self.memory.epoch(ticket)
    }
    fn admission(&self, _: &Ticket) -> Admission {
        match (self.is_closed.load(Ordering::SeqCst), self.is_slow.load(Ordering::SeqCst)) {
            (false, _) => Admission::Accept,
            (true, true) => Admission::Reject,
            (true, false) => Admission::Probe,
        }
    }
}

/// A guard on a slow store, without background tasks: the test runs each step.
struct Bench {
    guard: Guard,
    clock: ManualClock,
    store: Arc<Slow>,
}

impl Bench {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = Slow::new(Memory::with_clock((&clock).into()));
        let guard = Guard::builder(Arc::clone(&store)).clock((&clock).into()).by_hand().build();
        Self { guard, clock, store }
    }

    async fn ask(&self, policy: &Policy, name: &str) -> Result<Verdict, StoreError> {
        let key = Key::new(name).unwrap();
        self.guard.check(policy, &Intent::new("pay", Subject::anonymous()).key(&key)).await
    }

    /// Advances the clock, and runs every step that becomes due.
    async fn pass(&self, time: Duration) {
        for _ in 0..time.as_millis() / 10 {
            self.clock.advance(Duration::from_millis(10));
            for claim in self.guard.renewals().take_due() {
                claim.step().await;
            }
        }
    }

    fn retrying(&self) -> usize {
        self.guard.renewals().retrying()
    }
}

fn held() -> Policy {
    Policy::key(KeyRules::at_most_once().lease(LEASE).unwrap())
}

#[tokio::test]
async fn short_unknown_claim_is_revoked_once() {
    let every = |time| IntervalRules::new().every(time).unwrap();
    for policy in [
        Policy::key(KeyRules::retryable()),
        Policy::interval(every(LEASE)),
        Policy::interval(every(SECOND)),
        // The lost command is the insert, whose record lives for one lease only.
        held(),
    ] {
        let bench = Bench::new();
        bench.store.be_slow(true);
        assert!(matches!(bench.ask(&policy, "k").await, Err(StoreError::Unknown(_))));
        assert_eq!((bench.store.writes(), bench.retrying()), (1, 1));
        bench.pass(SECOND * 60).await;
        assert_eq!((bench.store.writes(), bench.retrying()), (2, 0), "{policy:?}");
        bench.store.be_slow(false);
        assert!(matches!(bench.ask(&policy, "k").await, Ok(Verdict::Run(_))), "the claim has expired");
    }
}

#[tokio::test]
async fn lasting_unknown_claim_is_revoked_until_gone() {
    let long = Policy::key(KeyRules::retryable().lease(LEASE + SECOND).unwrap());
    for (policy, answered) in [(held(), 1), (long, 0)] {
        let bench = Bench::new();
        bench.store.be_slow(true);
        bench.store.answers_inserts.store(answered, Ordering::SeqCst);
        assert!(matches!(bench.ask(&policy, "k").await, Err(StoreError::Unknown(_))));
        bench.pass(SECOND * 600).await;
        assert_eq!(bench.retrying(), 1, "the retries continue");
        assert!(bench.store.writes() < 250, "{} writes in ten minutes", bench.store.writes());
        bench.store.be_slow(false);
        bench.pass(LEASE * 2).await;
        assert_eq!(bench.retrying(), 0);
        assert!(matches!(bench.ask(&policy, "k").await, Ok(Verdict::Run(_))));
    }
}

#[tokio::test]
async fn unknown_claim_of_a_remembered_token_releases_the_token() {
    let bench = Bench::new();
    let token = bench.guard.issue(LEASE * 100, Binding::none()).await.unwrap();
    let policy = Policy::Token(TokenRules::new().remember(LEASE * 100));
    let intent = Intent::new("pay", Subject::anonymous()).credential(token.as_str());
    bench.store.be_slow(true);
    assert!(matches!(bench.guard.check(&policy, &intent).await, Err(StoreError::Unknown(_))));
    bench.pass(SECOND * 60).await;
    assert_eq!(bench.retrying(), 1);
    bench.store.be_slow(false);
    bench.pass(LEASE).await;
    assert!(matches!(bench.guard.check(&policy, &intent).await, Ok(Verdict::Run(_))));
}

#[tokio::test]
async fn remembered_token_refused_by_store_is_not_retried() {
    let bench = Bench::new();
    let token = bench.guard.issue(LEASE * 100, Binding::none()).await.unwrap();
    let policy = Policy::Token(TokenRules::new().remember(LEASE * 100));
    let intent = Intent::new("pay", Subject::anonymous()).credential(token.as_str());
    bench.store.is_full.store(true, Ordering::SeqCst);
    assert!(matches!(bench.guard.check(&policy, &intent).await, Err(StoreError::NotExecuted(_))));
    assert_eq!(bench.retrying(), 0);
    bench.store.is_full.store(false, Ordering::SeqCst);
    assert!(matches!(bench.guard.check(&policy, &intent).await, Ok(Verdict::Run(_))));
}

/// The store executes commands but replies too late: as long as renewals are sent, the claim of a run does not expire.
#[tokio::test]
async fn run_is_renewed_while_the_store_does_not_answer() {
    let bench = Bench::new();
    let policy = Policy::key(KeyRules::retryable().lease(LEASE).unwrap());
    let Ok(Verdict::Run(pass)) = bench.ask(&policy, "k").await else { panic!("the key is free") };
    bench.store.be_slow(true);
    let before = bench.store.writes();
    for _ in 0..40 {
        bench.pass(LEASE / 10).await;
        assert_eq!(bench.retrying(), 0, "a renewal does not wait in the retry queue");
    }
    let renewals = bench.store.writes() - before;
    assert!((12..40).contains(&renewals), "{renewals} renewals in four leases");
    bench.store.be_slow(false);
    let again = bench.ask(&policy, "k").await;
    assert!(matches!(again, Ok(Verdict::Reject(rejection)) if rejection.code() == Code::InProgress));
    pass.complete(None).await.unwrap();
}

/// The store refuses the outcome twice, after a handler that took longer than the claim lives without renewals.
#[tokio::test]
async fn outcome_of_a_long_run_in_an_interval_is_stored_once_there_is_room() {
    let policy = Policy::interval(IntervalRules::new().every(LEASE).unwrap().remember());
    for is_known in [true, false] {
        let bench = Bench::new();
        let Ok(Verdict::Run(pass)) = bench.ask(&policy, "k").await else { panic!("the interval is free") };
        bench.pass(LEASE * 3).await;
        bench.store.is_full.store(true, Ordering::SeqCst);
        let settled = if is_known { pass.complete(Some(Reply::new(201, "made"))).await } else { pass.unknown().await };
        assert!(settled.is_err(), "{settled:?}");
        bench.pass(LEASE / 3).await;
        bench.store.is_full.store(false, Ordering::SeqCst);
        let outcome = loop {
            match bench.ask(&policy, "k").await.unwrap() {
                Verdict::Reject(rejection) if rejection.code() == Code::InProgress => bench.pass(SECOND / 2).await,
                Verdict::Reject(rejection) => break rejection.code().as_str(),
                Verdict::Replay(reply) if reply.status() == 201 => break "replayed",
                other => panic!("the outcome is lost: {other:?}"),
            }
        };
        assert_eq!(outcome, if is_known { "replayed" } else { "outcome_unknown" });
    }
}

/// The write of a claim that the store does not have may still arrive. So the revocation is repeated a few times, until one lease after
/// the first reply of the store.
#[tokio::test]
async fn late_claim_is_revoked_for_one_lease() {
    let bench = Bench::new();
    bench.store.answers_inserts.store(1, Ordering::SeqCst);
    bench.store.be_slow(true);
    assert!(bench.ask(&held(), "k").await.is_err());
    bench.store.be_slow(false);
    let before = bench.store.writes();
    bench.pass(LEASE - SECOND).await;
    // The first try finds the claim, although with other bytes by then, so no late write is left.
    assert_eq!((bench.store.writes() - before, bench.retrying()), (2, 0));

    let bench = Bench::new();
    bench.store.answers_inserts.store(1, Ordering::SeqCst);
    bench.store.be_slow(true);
    assert!(bench.ask(&held(), "k").await.is_err());
    bench.store.be_slow(false);
    let ticket = Ticket::of_key(&Subject::anonymous(), "pay", &Key::new("k").unwrap());
    let there = bench.store.memory.look(&ticket).await.unwrap().unwrap();
    bench.store.memory.remove(&ticket, &there, None).await.unwrap();
    let before = bench.store.writes();
    bench.pass(LEASE - SECOND).await;
    assert_eq!(bench.retrying(), 1);
    bench.pass(SECOND * 2).await;
    assert_eq!(bench.retrying(), 0);
    let tries = bench.store.writes() - before;
    assert!((3..=8).contains(&tries), "{tries} tries");
}

#[tokio::test]
async fn full_list_of_retries_rejects_new_claims_and_drops_none() {
    let bench = Bench::new();
    bench.store.be_slow(true);
    let long = Policy::key(KeyRules::retryable().lease(LEASE * 2).unwrap());
    for number in 0..MOST {
        assert!(matches!(bench.ask(&long, &number.to_string()).await, Err(StoreError::Unknown(_))), "{number}");
    }
    let writes = bench.store.writes();
    for policy in [&long, &held(), &Policy::interval(IntervalRules::new().every(SECOND).unwrap())] {
        assert!(matches!(bench.ask(policy, "new").await, Err(StoreError::NotExecuted(_))));
    }
    assert_eq!(bench.store.writes(), writes, "no store command is sent");
    bench.store.be_slow(false);
    bench.pass(SECOND * 2).await;
    assert_eq!(bench.retrying(), 0);
    assert!(matches!(bench.ask(&long, "new").await, Ok(Verdict::Run(_))));
    for number in 0..MOST {
        assert!(
            matches!(bench.ask(&long, &number.to_string()).await, Ok(Verdict::Run(_))),
            "claim {number} was revoked"
        );
    }
}

#[tokio::test]
async fn closed_store_receives_no_new_work_but_settlements() {
    let bench = Bench::new();
    let Ok(Verdict::Run(pass)) = bench.ask(&held(), "begun").await else { panic!("the key is free") };
    let token = bench.guard.issue(LEASE, Binding::none()).await.unwrap();
    let redeem = || async {
        let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
        bench.guard.check(&Policy::token(), &intent).await
    };
    bench.store.is_closed.store(true, Ordering::SeqCst);
    bench.store.be_slow(true);
    let sent = (bench.store.writes(), bench.store.looks.load(Ordering::SeqCst));
    assert!(matches!(bench.ask(&held(), "new").await, Err(StoreError::NotExecuted(_))));
    assert!(matches!(redeem().await, Err(StoreError::NotExecuted(_))));
    assert!(matches!(
        bench.guard.issue(LEASE, Binding::none()).await,
        Err(IssueError::Store(StoreError::NotExecuted(_)))
    ));
    assert_eq!((bench.store.writes(), bench.store.looks.load(Ordering::SeqCst)), sent);

    bench.store.be_slow(false);
    assert!(pass.complete(None).await.is_ok(), "a settlement needs no admission");
    // A request whose probe is answered is admitted.
    assert!(matches!(redeem().await, Ok(Verdict::Run(_))));
    let again = bench.ask(&held(), "begun").await;
    assert!(matches!(again, Ok(Verdict::Reject(rejection)) if rejection.code() == Code::ReplyNotKept));
}

/// Tests the retry loop itself: while the store does not answer it sends a few lookups, and once it does all claims are settled within a
/// lease.
#[tokio::test]
async fn retries_wait_for_store_and_finish_within_a_lease() {
    const CLAIMS: usize = 300;
    /// Duration of the outage: several pauses between two lookups.
    const SILENCE: Duration = SECOND;
    let lease = SECOND * 2;
    let store = Slow::new(Memory::new());
    let guard = Guard::new(Arc::clone(&store));
    store.be_slow(true);
    store.answers_inserts.store(CLAIMS, Ordering::SeqCst);
    let policy = Policy::key(KeyRules::at_most_once().lease(lease).unwrap());
    for number in 0..CLAIMS {
        let key = Key::new(number.to_string()).unwrap();
        assert!(guard.check(&policy, &Intent::new("pay", Subject::anonymous()).key(&key)).await.is_err());
    }
    let begun = tokio::time::Instant::now();
    let sent = store.writes();
    tokio::time::sleep(SILENCE).await;
    let (writes, looks) = (store.writes() - sent, store.looks.load(Ordering::SeqCst));
    let elapsed = begun.elapsed().as_millis() as usize;
    assert!(writes <= 1, "{writes} writes to a store that does not answer");
    assert!(looks < 4 * (10 + elapsed / 100), "{looks} looks in {elapsed} ms");
    assert!(guard.renewals().retrying() >= CLAIMS - 1, "nothing is dropped");

    store.be_slow(false);
    let limit = tokio::time::Instant::now() + lease * 5;
    while guard.renewals().retrying() > 0 && tokio::time::Instant::now() < limit {
        tokio::time::sleep(SECOND / 20).await;
    }
    assert_eq!(guard.renewals().retrying(), 0);
    let writes = store.writes() - sent;
    // Two for each claim, whose bytes differ by then, and one that may have been tried before the loop noticed the outage.
    assert!(writes <= CLAIMS * 2 + 2, "{writes} writes for {CLAIMS} claims");
}

/// A job under an interval or a lock, with a manual clock.
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
        !matches!(self.ask().await, Verdict::Reject(rejection) if [Code::TooSoon, Code::Locked].contains(&rejection.code()))
    }

    /// Advances the clock, and runs every step that becomes due.
    async fn pass(&self, time: Duration) {
        for _ in 0..time.as_millis() / 10 {
            self.clock.advance(Duration::from_millis(10));
            for claim in self.guard.renewals().take_due() {
                claim.step().await;
            }
        }
    }
}

#[tokio::test]
async fn handler_that_outlives_its_interval_holds_it() {
    for millis in [1, 200, 300, 500, 1_000, 1_500] {
        let job = Job::new(IntervalRules::new().every(Duration::from_millis(millis)).unwrap());
        let Verdict::Run(pass) = job.ask().await else { panic!("the interval is free") };
        for _ in 0..40 {
            job.pass(SECOND / 10).await;
            assert!(!job.is_free().await, "{millis} ms");
        }
        pass.complete(None).await.unwrap();
        assert!(job.is_free().await, "{millis} ms");
    }
}

#[tokio::test]
async fn lock_is_held_up_to_its_ceiling() {
    let job = Job::new(IntervalRules::new().release_always().ceiling(SECOND * 5));
    let Verdict::Run(_pass) = job.ask().await else { panic!("the lock is free") };
    job.pass(SECOND * 5).await;
    assert!(!job.is_free().await);
    job.pass(SECOND * 2).await;
    assert!(job.is_free().await, "the lock has expired");
}

/// A claim that counts its steps.
#[derive(Default)]
struct CountedClaim(AtomicUsize);

#[async_trait]
impl Renewable for CountedClaim {
    async fn step(self: Arc<Self>) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst);
        true
    }

    async fn is_answered(&self) -> bool {
        true
    }

    fn lease(&self) -> Duration {
        LEASE
    }
}

#[tokio::test]
async fn claim_of_every_thread_is_renewed() {
    let (_guard, gone) = watch::channel(());
    let (queue, claim) = (RenewalQueue::begin(Clock::system(), gone), Arc::new(CountedClaim::default()));
    // Threads are numbered one after the other, and other tests start some too: until each queue has had a claim.
    let (mut added, mut used) = (0, [false; STEP_QUEUES]);
    while used.contains(&false) {
        let (queue, claim) = (queue.clone(), Arc::clone(&claim));
        let position = std::thread::spawn(move || queue.add(claim, Duration::ZERO)).join().unwrap();
        let QueuePosition::Step(number, _) = position else { panic!("it is a first step") };
        (used[number], added) = (true, added + 1);
        assert!(added < 1_000, "{used:?}");
    }
    let begun = tokio::time::Instant::now();
    while claim.0.load(Ordering::SeqCst) < added {
        assert!(begun.elapsed() < LEASE, "{} of {added} are renewed", claim.0.load(Ordering::SeqCst));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
