//! Tests of the metrics, as Prometheus scrapes them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics::{LocalRecorderGuard, set_default_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use onceward_api::Code;

use crate::binding::Binding;
use crate::clock::ManualClock;
use crate::effect::Effect;
use crate::guard::Guard;
use crate::intent::Intent;
use crate::key::Key;
use crate::mode::Mode;
use crate::pass::Pass;
use crate::policy::{IntervalRules, KeyRules, Policy, TokenRules};
use crate::reply::Reply;
use crate::snapshot::RecordState;
use crate::store::{Bytes, Compared, Epoch, Memory, Room, Store, StoreError};
use crate::subject::Subject;
use crate::testing;
use crate::ticket::Ticket;
use crate::verdict::Verdict;

const TTL: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(10);

/// A recorder for the metrics of this thread.
struct Prometheus {
    handle: PrometheusHandle,
    _recorder: LocalRecorderGuard<'static>,
}

impl Prometheus {
    fn install() -> Self {
        let recorder: &'static PrometheusRecorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        Self { handle: recorder.handle(), _recorder: set_default_local_recorder(recorder) }
    }

    /// Returns every series, with its value.
    fn series(&self) -> BTreeMap<String, f64> {
        let text = self.handle.render();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
            .collect()
    }

    /// Returns every series of this metric with a value above zero, as the values of its labels and its own value.
    fn counted(&self, name: &str) -> Vec<String> {
        let own =
            self.series().into_iter().filter(|(series, value)| series.split('{').next() == Some(name) && *value > 0.0);
        let mut own: Vec<_> = own.map(|(series, value)| format!("{} {value}", labels(&series))).collect();
        own.sort();
        own
    }
}

/// Returns the values of the labels, in their order.
fn labels(series: &str) -> String {
    series.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" ")
}

fn key_policy() -> Policy {
    Policy::key(KeyRules::retryable().lease(LEASE).unwrap())
}

async fn run(guard: &Guard, policy: &Policy, intent: &Intent<'_>) -> Pass {
    match guard.check(policy, intent).await.unwrap() {
        Verdict::Run(pass) => pass,
        other => panic!("expected a run: {other:?}"),
    }
}

async fn rejected(guard: &Guard, policy: &Policy, intent: &Intent<'_>) -> Code {
    match guard.check(policy, intent).await.unwrap() {
        Verdict::Reject(rejection) => rejection.code(),
        other => panic!("expected a rejection: {other:?}"),
    }
}

#[tokio::test]
async fn verdict_is_counted_once_by_policy_and_code() {
    let prometheus = Prometheus::install();
    let (guard, _clock) = testing::guard();
    let anonymous = || Intent::new("a", Subject::anonymous());

    let token = guard.issue(TTL, Binding::none()).await.unwrap();
    run(&guard, &Policy::token(), &anonymous().credential(token.as_str())).await.complete(None).await.unwrap();
    for (credential, code) in
        [(token.as_str(), Code::TokenUsed), ("ow1_x", Code::TokenMalformed), (token.as_str(), Code::TokenUsed)]
    {
        assert_eq!(rejected(&guard, &Policy::token(), &anonymous().credential(credential)).await, code);
    }

    let remembered = Policy::Token(TokenRules::new().remember(TTL));
    let token = guard.issue(TTL, Binding::none()).await.unwrap();
    let intent = anonymous().credential(token.as_str());
    let pass = run(&guard, &remembered, &intent).await;
    assert_eq!(rejected(&guard, &remembered, &intent).await, Code::InProgress);
    pass.complete(Some(Reply::new(200, ""))).await.unwrap();
    assert!(matches!(guard.check(&remembered, &intent).await, Ok(Verdict::Replay(_))));

    let interval = Policy::interval(IntervalRules::new().every(TTL).unwrap());
    run(&guard, &interval, &anonymous()).await.complete(None).await.unwrap();
    assert_eq!(rejected(&guard, &interval, &anonymous()).await, Code::TooSoon);
    let (lock, named) =
        (Policy::interval(IntervalRules::new().release_always()), Intent::new("b", Subject::anonymous()));
    let pass = run(&guard, &lock, &named).await;
    assert_eq!(rejected(&guard, &lock, &named).await, Code::Locked);
    pass.complete(None).await.unwrap();
    assert_eq!(rejected(&guard, &key_policy(), &anonymous()).await, Code::KeyMissing);

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
async fn waiting_duplicate_counts_one_verdict_and_one_wait() {
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
    assert_eq!(prometheus.counted("onceward_waits_total"), ["answered 1", "timed_out 1"]);
    assert_eq!(prometheus.counted("onceward_verdicts_total"), ["key in_progress 1", "key replay 1", "key run 1"]);
    guard.report();
    assert_eq!(prometheus.counted("onceward_waiting_duplicates"), [""; 0]);
    assert_eq!(prometheus.counted("onceward_running_handlers"), [""; 0]);
}

#[tokio::test]
async fn duplicate_that_runs_after_waiting_counts_once() {
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

/// Builds a guard without background tasks, its store, and the clock of both.
fn by_hand() -> (Guard, Arc<Memory>, ManualClock) {
    let clock = ManualClock::new();
    let store = Arc::new(Memory::with_clock((&clock).into()));
    (Guard::builder(Arc::clone(&store)).clock((&clock).into()).by_hand().build(), store, clock)
}

#[tokio::test]
async fn renewals_and_claim_ends_are_counted() {
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
    // The process pauses for longer than its lease. Meanwhile another process claims and completes the key.
    clock.advance(LEASE * 2);
    let other = Guard::builder(Arc::clone(&store)).clock((&clock).into()).by_hand().build();
    run(&other, &key_policy(), &intent(3)).await.complete(None).await.unwrap();
    guard.renewals().take(|_| 0).expect("a renewal is due").step().await;
    drop(pass);
    let counted = prometheus.counted("onceward_claims_total");
    let expected = ["key claimed 5", "key completed 2", "key lost 1", "key released 1", "key unknown 2"];
    assert_eq!(counted, expected, "the pass that lost its claim was dropped, so its outcome counts as unknown");
    guard.settle(&KeyRules::retryable(), &intent(2), None, Effect::Applied, None).await.unwrap();
    assert!(
        prometheus.counted("onceward_claims_total").contains(&"key completed 3".to_owned()),
        "a settlement by an operator is counted too"
    );
}

/// A store that executes its first insert and then fails: further inserts are not executed, and all other replies are lost.
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
async fn store_failures_and_unprotected_runs_are_counted() {
    let prometheus = Prometheus::install();
    let guard = Guard::builder(Failing::default()).secret(crate::token::secret::Secret::random()).by_hand().build();
    let token = guard.issue(TTL, Binding::none()).await.unwrap();
    assert!(guard.issue(TTL, Binding::none()).await.is_err());
    let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
    assert!(guard.check(&Policy::token(), &intent).await.is_err());
    let open = Policy::interval(IntervalRules::new().every(TTL).unwrap().fail_open());
    // The interval has a name: an interval by content would need the store's salt first.
    let name = Key::new("k").unwrap();
    assert!(guard.run(&open, &intent.key(&name), async || Ok::<_, String>(1)).await.is_ok());
    assert_eq!(prometheus.counted("onceward_store_errors_total"), ["insert not_executed 2", "remove unknown 1"]);
    assert_eq!(prometheus.counted("onceward_tokens_issued_total"), [" 1"], "a token that was not stored is not issued");
    let verdicts = prometheus.counted("onceward_verdicts_total");
    assert_eq!(verdicts, ["interval store_unavailable 1", "token redeem_unknown 1"]);
    assert_eq!((prometheus.counted("onceward_unprotected_total"), guard.let_through()), (vec![" 1".to_owned()], 1));
}

#[tokio::test]
async fn observe_mode_counts_requests_it_would_have_stopped() {
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
async fn ten_thousand_keys_add_no_metric_series() {
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
        rejected(&guard, &Policy::token(), &intent).await;
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
async fn store_verbs_are_timed_and_memory_usage_reported() {
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
