//! What is counted, seen as Prometheus sees it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics::{LocalRecorderGuard, set_default_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use onceward_api::Code;

use crate::clock::ManualClock;
use crate::effect::Effect;
use crate::guard::Guard;
use crate::intent::{Binding, Intent, Subject};
use crate::key::Key;
use crate::mode::Mode;
use crate::pass::Pass;
use crate::policy::{IntervalRules, KeyRules, Policy, TokenRules};
use crate::reply::Reply;
use crate::snapshot::RecordState;
use crate::store::{Bytes, Compared, Epoch, Memory, Room, Store, StoreError};
use crate::testing;
use crate::ticket::Ticket;
use crate::verdict::Verdict;

const TTL: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(10);

/// A recorder for whatever this thread makes.
struct Prometheus {
    handle: PrometheusHandle,
    _recorder: LocalRecorderGuard<'static>,
}

impl Prometheus {
    fn install() -> Self {
        let recorder: &'static PrometheusRecorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        Self { handle: recorder.handle(), _recorder: set_default_local_recorder(recorder) }
    }

    /// Every series, with its value.
    fn series(&self) -> BTreeMap<String, f64> {
        let text = self.handle.render();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
            .collect()
    }

    /// Every series of this name that has been counted, as its labels' values and its value.
    fn counted(&self, name: &str) -> Vec<String> {
        let own =
            self.series().into_iter().filter(|(series, value)| series.split('{').next() == Some(name) && *value > 0.0);
        let mut own: Vec<_> = own.map(|(series, value)| format!("{} {value}", labels(&series))).collect();
        own.sort();
        own
    }
}

/// The values of the labels, in their order.
fn labels(series: &str) -> String {
    series.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" ")
}

fn key_policy() -> Policy {
    Policy::key(KeyRules::retryable().lease(LEASE).unwrap())
}

async fn run(guard: &Guard, policy: &Policy, intent: &Intent<'_>) -> Pass {
    match guard.check(policy, intent).await.unwrap() {
        Verdict::Run(pass) => pass,
        other => panic!("it may run: {other:?}"),
    }
}

async fn refused(guard: &Guard, policy: &Policy, intent: &Intent<'_>) -> Code {
    match guard.check(policy, intent).await.unwrap() {
        Verdict::Reject(rejection) => rejection.code(),
        other => panic!("it may not run: {other:?}"),
    }
}

#[tokio::test]
async fn every_verdict_is_counted_once_under_its_policy_and_code() {
    let prometheus = Prometheus::install();
    let (guard, _clock) = testing::guard();
    let anybody = || Intent::new("a", Subject::anonymous());

    let token = guard.issue(TTL, Binding::none()).await.unwrap();
    run(&guard, &Policy::token(), &anybody().credential(token.as_str())).await.complete(None).await.unwrap();
    for (credential, code) in
        [(token.as_str(), Code::TokenUsed), ("ow1_x", Code::TokenMalformed), (token.as_str(), Code::TokenUsed)]
    {
        assert_eq!(refused(&guard, &Policy::token(), &anybody().credential(credential)).await, code);
    }

    let remembered = Policy::Token(TokenRules::new().remember(TTL));
    let token = guard.issue(TTL, Binding::none()).await.unwrap();
    let intent = anybody().credential(token.as_str());
    let pass = run(&guard, &remembered, &intent).await;
    assert_eq!(refused(&guard, &remembered, &intent).await, Code::InProgress);
    pass.complete(Some(Reply::new(200, ""))).await.unwrap();
    assert!(matches!(guard.check(&remembered, &intent).await, Ok(Verdict::Replay(_))));

    let interval = Policy::interval(IntervalRules::new().every(TTL).unwrap());
    run(&guard, &interval, &anybody()).await.complete(None).await.unwrap();
    assert_eq!(refused(&guard, &interval, &anybody()).await, Code::TooSoon);
    let (lock, named) =
        (Policy::interval(IntervalRules::new().release_always()), Intent::new("b", Subject::anonymous()));
    let pass = run(&guard, &lock, &named).await;
    assert_eq!(refused(&guard, &lock, &named).await, Code::Locked);
    pass.complete(None).await.unwrap();
    assert_eq!(refused(&guard, &key_policy(), &anybody()).await, Code::KeyMissing);

    assert_eq!(
        prometheus.counted("onceward_verdicts_total"),
        [
            "interval locked 1",
            "interval run 2",
            "interval too_soon 1",
            "key key_missing 1",
            "remembered in_progress 1",
            "remembered replay 1",
            "remembered run 1",
            "token run 1",
            "token token_malformed 1",
            "token token_used 2",
        ]
    );
    assert_eq!(prometheus.counted("onceward_tokens_issued_total"), [" 2"]);
}

#[tokio::test]
async fn a_duplicate_that_waits_is_one_verdict_and_one_wait() {
    let prometheus = Prometheus::install();
    let guard = Guard::new(Memory::new());
    let key = Key::new("k").unwrap();
    let intent = Intent::new("a", Subject::anonymous()).key(&key);
    let (policy, long) = (key_policy(), Duration::from_secs(10));
    let pass = run(&guard, &policy, &intent).await;
    assert!(matches!(guard.check_and_wait(&policy, &intent, Duration::ZERO).await, Ok(Verdict::Reject(_))));
    let (waited, ()) = tokio::join!(guard.check_and_wait(&policy, &intent, long), async {
        while guard.waiters().count() == 0 {
            tokio::task::yield_now().await;
        }
        guard.report();
        assert_eq!(prometheus.counted("onceward_waiting_duplicates"), [" 1"]);
        assert_eq!(prometheus.counted("onceward_running_handlers"), [" 1"]);
        pass.complete(Some(Reply::new(200, ""))).await.unwrap();
    });
    assert!(matches!(waited, Ok(Verdict::Replay(_))));
    assert_eq!(prometheus.counted("onceward_waits_total"), ["answered 1", "in_vain 1"]);
    assert_eq!(prometheus.counted("onceward_verdicts_total"), ["key in_progress 1", "key replay 1", "key run 1"]);
    guard.report();
    assert_eq!(prometheus.counted("onceward_waiting_duplicates"), [""; 0]);
    assert_eq!(prometheus.counted("onceward_running_handlers"), [""; 0]);
}

#[tokio::test]
async fn a_duplicate_that_waits_and_then_runs_is_one_verdict_and_one_wait() {
    let prometheus = Prometheus::install();
    let guard = Guard::new(Memory::new());
    let key = Key::new("k").unwrap();
    let intent = Intent::new("a", Subject::anonymous()).key(&key);
    let (policy, long) = (key_policy(), Duration::from_secs(10));
    let pass = run(&guard, &policy, &intent).await;
    let (waited, ()) = tokio::join!(guard.check_and_wait(&policy, &intent, long), async {
        while guard.waiters().count() == 0 {
            tokio::task::yield_now().await;
        }
        pass.release().await.unwrap();
    });
    let Ok(Verdict::Run(pass)) = waited else { panic!("{waited:?}") };
    pass.complete(None).await.unwrap();
    assert_eq!(prometheus.counted("onceward_waits_total"), ["ran 1"]);
    assert_eq!(prometheus.counted("onceward_verdicts_total"), ["key run 2"]);
}

/// A guard that takes no step by itself, its store, and the clock of both.
fn by_hand() -> (Guard, Arc<Memory>, ManualClock) {
    let clock = ManualClock::new();
    let store = Arc::new(Memory::with_clock((&clock).into()));
    (Guard::builder(Arc::clone(&store)).clock((&clock).into()).by_hand().build(), store, clock)
}

#[tokio::test]
async fn renewals_and_every_end_of_a_claim_are_counted() {
    let prometheus = Prometheus::install();
    let (guard, store, clock) = by_hand();
    let policy = Policy::key(KeyRules::at_most_once().lease(LEASE).unwrap());
    let keys = ["completed", "released", "unknown", "lost"].map(|name| Key::new(name).unwrap());
    let intent = |at: usize| Intent::new("a", Subject::anonymous()).key(&keys[at]);
    run(&guard, &policy, &intent(0)).await.complete(None).await.unwrap();
    run(&guard, &policy, &intent(1)).await.release().await.unwrap();
    run(&guard, &policy, &intent(2)).await.unknown().await.unwrap();
    assert!(matches!(guard.look(&policy, &intent(2)).await.unwrap().state, RecordState::Unknown(_)));

    let pass = run(&guard, &key_policy(), &intent(3)).await;
    guard.renewals().take(|_| 0).expect("a renewal is due").step().await;
    assert_eq!(prometheus.counted("onceward_renewals_total"), ["renewed 1"]);
    // It is stopped for longer than its lease; meanwhile somebody else comes, and is done.
    clock.advance(LEASE * 2);
    let other = Guard::builder(Arc::clone(&store)).clock((&clock).into()).by_hand().build();
    run(&other, &key_policy(), &intent(3)).await.complete(None).await.unwrap();
    guard.renewals().take(|_| 0).expect("a renewal is due").step().await;
    drop(pass);
    let counted = prometheus.counted("onceward_claims_total");
    let expected = ["key claimed 5", "key completed 2", "key lost 1", "key released 1", "key unknown 2"];
    assert_eq!(counted, expected, "the pass that has lost its claim was dropped, so nobody can tell of it");
    guard.settle(&KeyRules::retryable(), &intent(2), None, Effect::Applied, None).await.unwrap();
    assert!(
        prometheus.counted("onceward_claims_total").contains(&"key completed 3".to_owned()),
        "an operator's word too"
    );
}

/// A store that takes one record, and then fails: it does not do it, or its answer is lost.
#[derive(Default)]
struct Failing(AtomicBool);

#[crate::store::async_trait]
impl Store for Failing {
    async fn insert(&self, _: &Ticket, _: &[u8], _: Duration, _: Room) -> Result<Option<Bytes>, StoreError> {
        if self.0.swap(true, Ordering::SeqCst) { Err(StoreError::not_executed("down")) } else { Ok(None) }
    }
    async fn swap(
        &self,
        _: &Ticket,
        _: &[u8],
        _: &[u8],
        _: Duration,
        _: Room,
        _: Option<Epoch>,
    ) -> Result<Compared, StoreError> {
        Err(StoreError::unknown("lost"))
    }
    async fn remove(&self, _: &Ticket, _: &[u8], _: Option<Epoch>) -> Result<Compared, StoreError> {
        Err(StoreError::unknown("lost"))
    }
    async fn look(&self, _: &Ticket) -> Result<Option<Bytes>, StoreError> {
        Err(StoreError::unknown("lost"))
    }
}

#[tokio::test]
async fn failures_of_the_store_and_what_runs_all_the_same_are_counted() {
    let prometheus = Prometheus::install();
    let guard = Guard::builder(Failing::default()).secret(crate::token::secret::Secret::random()).by_hand().build();
    let token = guard.issue(TTL, Binding::none()).await.unwrap();
    assert!(guard.issue(TTL, Binding::none()).await.is_err());
    let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
    assert!(guard.check(&Policy::token(), &intent).await.is_err());
    let open = Policy::interval(IntervalRules::new().every(TTL).unwrap().fail_open());
    // It goes by a name: what goes by its content needs the store's salt first.
    let name = Key::new("k").unwrap();
    assert!(guard.run(&open, &intent.key(&name), async || Ok::<_, String>(1)).await.is_ok());
    assert_eq!(prometheus.counted("onceward_store_errors_total"), ["insert not_executed 2", "remove unknown 1"]);
    assert_eq!(prometheus.counted("onceward_tokens_issued_total"), [" 1"], "what was not stored was not issued");
    let verdicts = prometheus.counted("onceward_verdicts_total");
    assert_eq!(verdicts, ["interval store_unavailable 1", "token redeem_unknown 1"]);
    assert_eq!((prometheus.counted("onceward_unprotected_total"), guard.let_through()), (vec![" 1".to_owned()], 1));
}

#[tokio::test]
async fn whoever_only_observes_counts_what_would_not_have_run() {
    let prometheus = Prometheus::install();
    let clock = ManualClock::new();
    let store = Memory::with_clock((&clock).into());
    let guard = Guard::builder(store).clock((&clock).into()).mode(Mode::Observe).build();
    let key = Key::new("k").unwrap();
    let intent = Intent::new("a", Subject::anonymous()).key(&key);
    for _ in 0..3 {
        guard.run(&key_policy(), &intent, async || Ok::<_, String>(1)).await.unwrap();
    }
    assert_eq!(prometheus.counted("onceward_would_have_total"), ["replayed 2"]);
    assert_eq!(guard.would_have()["replayed"], 2);
}

#[tokio::test]
async fn ten_thousand_callers_with_keys_of_their_own_leave_the_series_as_they_were() {
    let prometheus = Prometheus::install();
    let (guard, _clock) = testing::guard();
    let series = || prometheus.series().into_keys().collect::<Vec<_>>();
    guard.report();
    let before = series();
    for number in 0..10_000 {
        let [key, action, subject] = ["key", "action", "subject"].map(|what| format!("canary-{what}-{number}"));
        let key = Key::new(key).unwrap();
        let intent = Intent::new(&action, Subject::named(subject)).key(&key).credential("ow1_canary");
        run(&guard, &key_policy(), &intent).await.complete(Some(Reply::new(200, "canary"))).await.unwrap();
        assert!(matches!(guard.check(&key_policy(), &intent).await, Ok(Verdict::Replay(_))));
        refused(&guard, &Policy::token(), &intent).await;
    }
    guard.report();
    assert_eq!(series(), before);
    assert!(!prometheus.handle.render().contains("canary"));
    assert_eq!(
        prometheus.counted("onceward_verdicts_total"),
        ["key replay 10000", "key run 10000", "token token_malformed 10000"]
    );
}

#[tokio::test]
async fn the_store_is_timed_by_verb_and_a_memory_store_says_how_full_it_is() {
    let prometheus = Prometheus::install();
    let store = Memory::new().limit(1024 * 1024);
    let guard = Guard::builder(store).secret(crate::token::secret::Secret::random()).build();
    let token = guard.issue(TTL, Binding::none()).await.unwrap();
    guard.issue(TTL, Binding::none()).await.unwrap();
    let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
    run(&guard, &Policy::token(), &intent).await.release().await.unwrap();
    let counts = prometheus.counted("onceward_store_duration_seconds_count");
    assert_eq!(counts, ["insert 3", "remove 1"]);
    guard.report();
    assert_eq!(prometheus.counted("onceward_memory_records"), [" 2"]);
    assert_eq!(prometheus.counted("onceward_memory_limit_bytes").len(), 3);
    assert_eq!(prometheus.counted("onceward_memory_bytes"), ["token 512"]);
}
