//! A duplicate that arrives while the first run is in flight may wait for its response. Waiting is bounded. It ends in a run of one
//! waiter only if the first was certainly not applied.
//!
//! Tests that call the guard without HTTP, and the one with 10,000 waiters, run once: they test the engine, not an adapter.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use onceward::actix::Actix;
use onceward::http::protect::KeyPolicy;
use onceward::http::{Protect, SubjectSource as SubjectFrom};
use onceward::store::{Memory, Redis};
use onceward::{
    Binding, Content, Fields, Fingerprint, Guard, Intent, Key, KeyRules, Pass, Policy, Reply, Subject, Verdict,
};
use onceward_api::Code;
use onceward_tests::client::{Answer, at_last, http, send, submit};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::{BRIEF, KEY, LEASE, Pair, buy, serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::metrics::waiting;
use onceward_tests::on_every_framework;
use onceward_tests::polling::{holds_for, outlast, until};
use onceward_tests::redis_server::{Monitor, RedisServer};
use onceward_tests::routes::Routes;
use onceward_tests::shop::{ORDER, STATUS, TAKES, TestServer};
use onceward_tests::shop_handlers::purchase;
use onceward_tests::web_framework::WebFramework;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::PEER;

on_every_framework! {
    duplicate_waits_for_the_first_response,
    second_click_with_a_remembered_token_waits,
    one_waiter_runs_if_the_first_was_not_applied,
    waiters_decide_again_only_once,
    waiter_that_runs_is_not_cancelled_with_its_connection,
    waiter_receives_in_progress_after_its_timeout,
    waiting_without_a_limit_ends_with_the_response,
    waiter_receives_an_unknown_outcome,
    waiter_elsewhere_does_not_run_after_a_crash (threads),
    graceful_shutdown_lets_waiters_receive_the_response (threads),
    other_content_is_rejected_without_waiting,
    thousand_duplicates_in_two_processes_receive_one_response (threads),
    waiting_disabled_rejects_duplicates_at_once,
    disconnected_client_frees_its_seat,
    store_failure_does_not_make_a_waiter_run,
    store_data_loss_does_not_make_a_waiter_run,
}

const LONG: Duration = Duration::from_secs(10);
/// Longer than any pause between two lookups.
const PAUSE: Duration = Duration::from_millis(250);

/// One route on which a duplicate waits, with its ledger.
struct Bed {
    served: TestServer,
    ledger: Ledger,
}

impl Bed {
    fn new<F: WebFramework, P>(protect: Protect<F, P>) -> Self {
        let ledger = Ledger::new();
        Self { served: serve_one(&ledger, protect), ledger }
    }

    /// Starts the first request, which takes this long and returns this status.
    async fn begin(&self, millis: u64, status: u16) -> JoinHandle<Answer> {
        let first = under(&self.served.url, "/it", "k", "first").header(TAKES, millis).header(STATUS, status);
        let first = tokio::spawn(send(first));
        until("the handler runs", LONG, || async { self.ledger.count("begun") == 1 }).await;
        first
    }

    /// Sends a duplicate and returns its response and how long that took.
    async fn duplicate(&self) -> (Answer, Duration) {
        let begun = Instant::now();
        (buy(&self.served.url, "/it", "k", "duplicate").await, begun.elapsed())
    }
}

fn by_key<F: WebFramework>(guard: &Guard, rules: KeyRules, longest: Duration) -> Protect<F, KeyPolicy> {
    Protect::<F, _>::key(guard, SubjectFrom::anonymous(), rules.lease(LEASE).unwrap()).wait(longest)
}

fn on_memory<F: WebFramework>(rules: KeyRules, longest: Duration) -> Bed {
    Bed::new(by_key::<F>(&Guard::new(Memory::new()), rules, longest))
}

async fn duplicate_waits_for_the_first_response<F: WebFramework>() {
    let redis = RedisServer::start();
    let on_redis = Guard::new(Redis::open(&redis.url()).unwrap());
    for guard in [on_redis, Guard::new(Memory::new())] {
        for rules in [KeyRules::retryable(), KeyRules::at_most_once()] {
            let bed = Bed::new(by_key::<F>(&guard, rules.clone(), LONG).action(if rules == KeyRules::retryable() {
                "a"
            } else {
                "b"
            }));
            let first = bed.begin(500, 201).await;
            let (second, _) = bed.duplicate().await;
            let first = first.await.unwrap();
            assert_eq!((first.said().as_str(), second.said().as_str()), ("201 executed", "201 replayed"));
            assert_eq!((second.body, &second.headers["location"]), (first.body, &first.headers["location"]));
            assert_eq!(second.headers["idempotent-replayed"], "true");
            assert_eq!((bed.ledger.count("first"), bed.ledger.count("duplicate")), (1, 0));
        }
    }
}

async fn second_click_with_a_remembered_token_waits<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    let bed = Bed::new(Protect::<F, _>::token(&guard, SubjectFrom::anonymous()).remember(LONG).wait(LONG));
    let token = guard.issue(LONG, Binding::none()).await.unwrap();
    let click = |order| submit(&bed.served.url, "/it", token.as_str(), order).body("what was filled in");
    let first = tokio::spawn(send(click("first").header(TAKES, 500)));
    until("the handler runs", LONG, || async { bed.ledger.count("begun") == 1 }).await;
    let other = send(click("duplicate").body("something else")).await;
    assert!(!first.is_finished(), "other content is not waited for");
    let (second, first) = (send(click("duplicate")).await, first.await.unwrap());
    assert_eq!(first.said(), "200 executed");
    assert_eq!(other.said(), "409 token_used");
    assert_eq!((second.said().as_str(), second.body), ("200 replayed", first.body));
    assert_eq!(bed.ledger.runs(), ["begun", "first"]);
}

async fn one_waiter_runs_if_the_first_was_not_applied<F: WebFramework>() {
    for rules in [KeyRules::retryable(), KeyRules::at_most_once()] {
        let bed = on_memory::<F>(rules, LONG);
        // Not applied, also at most once.
        let first = bed.begin(400, 429).await;
        let duplicates = join_all((0..5).map(|_| bed.duplicate())).await;
        assert_eq!(first.await.unwrap().status, 429);
        let executed: Vec<_> = duplicates.iter().filter(|(answer, _)| answer.said() == "200 executed").collect();
        let [(executed, _)] = executed[..] else { panic!("{duplicates:?}") };
        for (answer, took) in &duplicates {
            assert_eq!((answer.status, &answer.body), (200, &executed.body), "{answer:?}");
            assert!(*took < LONG / 2, "it waits no longer than both runs take: {took:?}");
        }
        assert_eq!(bed.ledger.count("duplicate"), 1, "one of them ran");
        assert_eq!(bed.duplicate().await.0.said(), "200 replayed");
    }
}

async fn waiters_decide_again_only_once<F: WebFramework>() {
    let bed = on_memory::<F>(KeyRules::retryable(), LONG);
    let first = bed.begin(400, 503).await;
    let again = || send(under(&bed.served.url, "/it", "k", "duplicate").header(TAKES, 400).header(STATUS, 503));
    let duplicates = join_all((0..5).map(|_| again())).await;
    assert_eq!(first.await.unwrap().status, 503);
    let (ran, waited): (Vec<_>, Vec<_>) = duplicates.into_iter().partition(|answer| answer.status == 503);
    assert_eq!((ran.len(), waited.len()), (1, 4), "{waited:?}");
    for answer in waited {
        assert_eq!(
            (answer.said().as_str(), &answer.headers["retry-after"]),
            ("409 in_progress", &"1".parse().unwrap())
        );
    }
    assert_eq!(bed.ledger.count("duplicate"), 1, "there is no third run");
    assert_eq!(bed.duplicate().await.0.said(), "200 executed", "the key is free");
}

/// The client of a waiter disconnects while the waiter runs: the run still finishes.
async fn waiter_that_runs_is_not_cancelled_with_its_connection<F: WebFramework>() {
    let bed = on_memory::<F>(KeyRules::retryable(), LONG);
    let first = bed.begin(400, 503).await;
    let mut waiter = TcpStream::connect(bed.served.url.strip_prefix("http://").unwrap()).await.unwrap();
    let head = format!("host: shop\r\n{KEY}: k\r\n{ORDER}: waiter\r\n{TAKES}: 400\r\ncontent-length: 0\r\n");
    waiter.write_all(format!("POST /it HTTP/1.1\r\n{head}\r\n").as_bytes()).await.unwrap();
    until("the waiter runs", LONG, || async { bed.ledger.count("begun") == 2 }).await;
    assert_eq!(first.await.unwrap().status, 503);
    socket2::SockRef::from(&waiter).set_linger(Some(Duration::ZERO)).unwrap();
    drop(waiter);
    until("the run has finished", LONG, || async { bed.ledger.count("waiter") == 1 }).await;
    until("its response is stored", LONG, || async { bed.duplicate().await.0.said() == "200 replayed" }).await;
    assert_eq!(bed.ledger.count("duplicate"), 0);
}

#[tokio::test]
async fn waiter_is_rejected_while_the_process_drains() {
    let (guard, key) = (Guard::new(Memory::new()), Key::new("k").unwrap());
    let intent = Intent::new("buy", Subject::anonymous()).key(&key).fingerprint(saying(b"it"));
    let first = claim(&guard, &Policy::key(KeyRules::retryable().lease(LONG).unwrap()), &intent).await;
    let (told, ()) = tokio::join!(wait(&guard, &key, b"it", LONG), async {
        until("it waits", LONG, || async { waiting(&guard) == 1 }).await;
        let drained = tokio::spawn({
            let guard = guard.clone();
            async move { guard.drain().await }
        });
        until("no new run starts", LONG, || async {
            let other = Key::new("other").unwrap();
            let asked = Intent::new("buy", Subject::anonymous()).key(&other);
            let policy = Policy::key(KeyRules::retryable());
            matches!(guard.check(&policy, &asked).await, Ok(Verdict::Reject(rejection)) if rejection.code() == Code::Overloaded)
        })
        .await;
        first.release().await.unwrap();
        drained.await.unwrap();
    });
    assert_eq!(told, "overloaded");
}

/// One submission cannot occupy all seats.
#[tokio::test]
async fn one_ticket_gets_at_most_a_quarter_of_the_seats() {
    let guard = Guard::builder(Memory::new()).waiters(8).build();
    let policy = Policy::key(KeyRules::retryable().lease(LONG).unwrap());
    let [hot, other] = ["hot", "other"].map(|key| Key::new(key).unwrap());
    let mut passes = Vec::new();
    for key in [&hot, &other] {
        let intent = Intent::new("buy", Subject::anonymous()).key(key).fingerprint(saying(b"it"));
        passes.push(claim(&guard, &policy, &intent).await);
    }
    let wait_for = |key: &Key| {
        let (guard, key) = (guard.clone(), key.clone());
        tokio::spawn(async move { wait(&guard, &key, b"it", LONG).await })
    };
    let crowd: Vec<_> = (0..10).map(|_| wait_for(&hot)).collect();
    until("most waiters are rejected", LONG, || async {
        crowd.iter().filter(|waiter| waiter.is_finished()).count() == 8
    })
    .await;
    let beside = wait_for(&other);
    holds_for("another submission has a seat", PAUSE, || async { !beside.is_finished() }).await;
    for pass in passes {
        pass.complete(Some(Reply::new(200, "the answer"))).await.unwrap();
    }
    assert_eq!(beside.await.unwrap(), "the answer");
    let told: Vec<_> = join_all(crowd).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(told.iter().filter(|told| *told == "the answer").count(), 2, "{told:?}");
    assert_eq!(told.iter().filter(|told| *told == "in_progress").count(), 8, "{told:?}");
}

async fn waiter_receives_in_progress_after_its_timeout<F: WebFramework>() {
    let bed = on_memory::<F>(KeyRules::retryable(), Duration::from_millis(300));
    let first = bed.begin(2_000, 200).await;
    let (answer, took) = bed.duplicate().await;
    assert!(!first.is_finished() && took >= Duration::from_millis(300), "{took:?}");
    assert_eq!(answer.said(), "409 in_progress");
    assert_eq!(first.await.unwrap().said(), "200 executed");
    assert_eq!(bed.duplicate().await.0.said(), "200 replayed");
    assert_eq!(bed.ledger.count("duplicate"), 0);
}

async fn waiting_without_a_limit_ends_with_the_response<F: WebFramework>() {
    let bed = on_memory::<F>(KeyRules::retryable(), Duration::MAX);
    let first = bed.begin(300, 200).await;
    assert_eq!(bed.duplicate().await.0.said(), "200 replayed");
    assert_eq!(first.await.unwrap().said(), "200 executed");
}

async fn waiter_receives_an_unknown_outcome<F: WebFramework>() {
    for (rules, expected) in
        [(KeyRules::at_most_once(), "409 outcome_unknown"), (KeyRules::retryable(), "409 in_progress")]
    {
        let bed = on_memory::<F>(rules, LONG);
        let first = bed.begin(300, 504).await;
        let (answer, took) = bed.duplicate().await;
        assert_eq!(first.await.unwrap().said(), "504 unknown");
        assert_eq!(answer.said(), expected);
        assert!(took < LONG / 2, "{took:?}");
        assert_eq!(bed.ledger.count("duplicate"), 0);
    }
}

async fn waiter_elsewhere_does_not_run_after_a_crash<F: WebFramework>() {
    for (path, expected) in [("/keyed/held/wait", "409 outcome_unknown"), ("/keyed/wait", "409 in_progress")] {
        let mut pair = Pair::start(PEER, &F::peer("onceward")).await;
        let first = under(pair.one(), path, "k", "first").header(TAKES, 60_000);
        let first = tokio::spawn(async move { first.send().await });
        pair.begun(1).await;
        let monitor = pair.redis.monitor();
        let waiter = tokio::spawn(send(under(pair.other(), path, "k", "duplicate")));
        until("it waits", LONG, || async { looks(&monitor) > 1 }).await;
        assert!(!waiter.is_finished(), "it waits");
        pair.peers[0].kill();
        assert!(first.await.unwrap().is_err());
        let told = tokio::time::timeout(LEASE * 5, waiter).await.expect("soon after the lease").unwrap();
        assert_eq!(told.said(), expected, "{path}");
        assert_eq!(pair.ledger.runs(), ["begun"]);
    }
}

async fn graceful_shutdown_lets_waiters_receive_the_response<F: WebFramework>() {
    let mut pair = Pair::start(PEER, &F::peer("onceward")).await;
    let first = tokio::spawn(send(under(pair.one(), "/keyed/wait", "k", "first").header(TAKES, 1_500)));
    pair.begun(1).await;
    let monitor = pair.redis.monitor();
    let waiter = tokio::spawn(send(under(pair.other(), "/keyed/wait", "k", "duplicate")));
    until("it waits", LONG, || async { looks(&monitor) > 1 }).await;
    pair.peers[1].terminate();
    let (first, told) = (first.await.unwrap(), waiter.await.unwrap());
    assert_eq!((told.said().as_str(), told.body), ("200 replayed", first.body));
    let mut ended = None;
    while ended.is_none() {
        ended = pair.peers[1].ended();
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((ended, pair.ledger.runs()), (Some(0), vec!["begun".to_owned(), "first".to_owned()]));
}

async fn other_content_is_rejected_without_waiting<F: WebFramework>() {
    let bed = on_memory::<F>(KeyRules::retryable(), LONG);
    let first = bed.begin(1_000, 200).await;
    let other = send(under(&bed.served.url, "/it", "k", "duplicate").body("something else")).await;
    assert!(!first.is_finished(), "it was not waited for");
    assert_eq!(other.said(), "422 key_reused");
    assert_eq!(first.await.unwrap().said(), "200 executed");
    assert_eq!(bed.ledger.runs(), ["begun", "first"]);
}

/// Returns the fingerprint of a request with this body.
fn saying(body: &[u8]) -> Fingerprint {
    Content { method: "POST", path: "/it", query: "", content_type: None, body }.fingerprint(&Fields::all())
}

async fn claim(guard: &Guard, policy: &Policy, intent: &Intent<'_>) -> Pass {
    match guard.check(policy, intent).await.unwrap() {
        Verdict::Run(pass) => pass,
        other => panic!("{other:?}"),
    }
}

/// Checks, waits, and returns the result as text.
async fn wait(guard: &Guard, key: &Key, body: &[u8], longest: Duration) -> String {
    let intent = Intent::new("buy", Subject::anonymous()).key(key).fingerprint(saying(body));
    match guard.check_and_wait(&Policy::key(KeyRules::retryable().lease(LEASE).unwrap()), &intent, longest).await {
        Ok(Verdict::Replay(reply)) => String::from_utf8_lossy(reply.body()).into_owned(),
        Ok(Verdict::Reject(rejection)) => rejection.code().as_str().to_owned(),
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    }
}

/// The first run fails, and its key is used for other content before the waiter looks again.
#[tokio::test]
async fn waiter_never_receives_the_response_to_other_content() {
    let store = Arc::new(Memory::new());
    // The first runs in another process, so waiters here must poll to see that it has ended.
    let (elsewhere, guard) = (Guard::new(Arc::clone(&store)), Guard::new(store));
    let policy = Policy::key(KeyRules::retryable().lease(LEASE).unwrap());
    let all_wait = Barrier::new(20);
    let told = join_all((0..20).map(async |number| {
        let key = Key::new(format!("k{number}")).unwrap();
        let intent = |body| Intent::new("buy", Subject::anonymous()).key(&key).fingerprint(saying(body));
        let first = claim(&elsewhere, &policy, &intent(b"ten")).await;
        let (waiter, ()) = tokio::join!(wait(&guard, &key, b"ten", LONG), async {
            until("all wait", LONG, || async { waiting(&guard) == 20 }).await;
            all_wait.wait().await;
            first.release().await.unwrap();
            let other = claim(&elsewhere, &policy, &intent(b"a thousand")).await;
            other.complete(Some(Reply::new(200, "paid a thousand"))).await.unwrap();
        });
        waiter
    }))
    .await;
    let told: HashSet<_> = told.into_iter().collect();
    // A waiter may have looked between the two runs.
    assert!(told.contains("key_reused"), "{told:?}");
    assert!(told.is_subset(&HashSet::from(["key_reused".to_owned(), "in_progress".to_owned()])), "{told:?}");
}

async fn thousand_duplicates_in_two_processes_receive_one_response<F: WebFramework>() {
    let pair = Pair::start(PEER, &F::peer("onceward")).await;
    let (client, path) = (http(), "/keyed/wait");
    let first = tokio::spawn(send(under(pair.one(), path, "k", "first").header(TAKES, 2_000)));
    pair.begun(1).await;
    let urls = [pair.one().to_owned(), pair.other().to_owned()];
    let duplicates = join_all((0..1_000).map(|number| {
        let url = format!("{}{path}", urls[number % 2]);
        let request = client.post(url).header(KEY, "k").header(ORDER, "duplicate");
        tokio::spawn(at_last(request))
    }))
    .await;
    let first = first.await.unwrap();
    assert_eq!(first.said(), "200 executed");
    for duplicate in duplicates {
        let duplicate = duplicate.unwrap();
        assert_eq!((duplicate.said().as_str(), &duplicate.body), ("200 replayed", &first.body));
    }
    assert_eq!(pair.ledger.runs(), ["begun", "first"]);
}

/// Returns the typical duration of another request.
async fn another(served: &TestServer, times: usize) -> Duration {
    let mut took = Vec::new();
    for _ in 0..times {
        let begun = Instant::now();
        let answer = buy(&served.url, "/it", &uuid::Uuid::new_v4().to_string(), "other").await;
        assert_eq!(answer.said(), "200 executed");
        took.push(begun.elapsed());
    }
    took.sort();
    took[times / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_of_ten_thousand_wait_without_slowing_other_routes() {
    let redis = RedisServer::start();
    // A long store timeout, since all requests arrive at once.
    let store = Redis::open(&redis.url()).unwrap().timeout(LONG);
    // One key may use a quarter of the seats.
    let guard = Guard::builder(store).waiters(4_000).build();
    let (ledger, key) = (Ledger::new(), Key::new("k").unwrap());
    let served = serve_one(&ledger, Protect::<Actix, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()));
    let calm = another(&served, 20).await;
    let policy = Policy::key(KeyRules::retryable().lease(LONG).unwrap());
    let intent = Intent::new("buy", Subject::anonymous()).key(&key).fingerprint(saying(b"it"));
    let first = claim(&guard, &policy, &intent).await;
    let (begun, last_gone) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let crowd: Vec<_> = (0..10_000)
        .map(|_| {
            let (guard, key, last_gone) = (guard.clone(), key.clone(), Arc::clone(&last_gone));
            tokio::spawn(async move {
                let told = wait(&guard, &key, b"it", Duration::from_secs(60)).await;
                if told == "in_progress" {
                    last_gone.fetch_max(begun.elapsed().as_millis() as u64, Ordering::SeqCst);
                }
                told
            })
        })
        .collect();
    let gone = || crowd.iter().filter(|waiter| waiter.is_finished()).count();
    let (mut slowest, mut number) = (Duration::ZERO, 0);
    while gone() < 9_000 {
        number += 1;
        slowest = slowest.max(another(&served, 1).await);
        assert!(number < 2_000, "only {} were rejected", gone());
    }
    assert_eq!(gone(), 9_000, "a thousand still wait");
    let beside = another(&served, 20).await;
    let sent_away = Duration::from_millis(last_gone.load(Ordering::SeqCst));
    println!(
        "10,000 on one key: 9,000 are rejected in {sent_away:?}; another request takes {slowest:?} at most meanwhile, {beside:?} beside \
         those who wait, and {calm:?} without any"
    );
    assert!(slowest < sent_away * 2 + calm * 10, "another route waits longer than the rejected requests");
    assert!(beside < calm * 5, "the waiters slow down another route");
    first.complete(Some(Reply::new(200, "the answer"))).await.unwrap();
    let told: Vec<_> = join_all(crowd).await.into_iter().map(Result::unwrap).collect();
    let count = |what: &str| told.iter().filter(|said| *said == what).count();
    let others: HashSet<_> =
        told.iter().filter(|said| !["the answer", "in_progress"].contains(&said.as_str())).collect();
    assert_eq!((count("the answer"), count("in_progress")), (1_000, 9_000), "and {others:?}");
}

/// Counts the lookups of records, without those of the secret.
fn looks(monitor: &Monitor) -> usize {
    let is_look = |command: &&String| command.starts_with("\"GET\"") && !command.contains(":secret:");
    monitor.commands().iter().filter(is_look).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_share_one_poll_that_ends_with_them() {
    let redis = RedisServer::start();
    let guard = Guard::builder(Redis::open(&redis.url()).unwrap().timeout(LONG)).waiters(2_000).build();
    let key = Key::new("k").unwrap();
    let intent = Intent::new("buy", Subject::anonymous()).key(&key).fingerprint(saying(b"it"));
    let first = claim(&guard, &Policy::key(KeyRules::retryable().lease(LONG).unwrap()), &intent).await;
    let monitor = redis.monitor();
    let begun = Instant::now();
    let crowd: Vec<_> = (0..500)
        .map(|_| {
            let (guard, key) = (guard.clone(), key.clone());
            tokio::spawn(async move { wait(&guard, &key, b"it", LONG * 6).await })
        })
        .collect();
    while begun.elapsed() < Duration::from_secs(2) {
        sleep(Duration::from_millis(20)).await;
    }
    let asked = looks(&monitor);
    // Short intervals at first, then five lookups a second.
    let most = 9 + begun.elapsed().as_millis() / 200;
    assert!((5..=most as usize).contains(&asked), "{asked} lookups in {:?}, at most {most}", begun.elapsed());
    assert!(crowd.iter().all(|waiter| !waiter.is_finished()));

    crowd.iter().for_each(JoinHandle::abort);
    join_all(crowd).await;
    let left = looks(&monitor);
    // Long enough for several lookups.
    holds_for("one lookup may have been in flight", PAUSE * 2, || async { looks(&monitor) <= left + 1 }).await;
    let after = looks(&monitor);
    holds_for("no lookup without a waiter", PAUSE * 3, || async { looks(&monitor) == after }).await;

    // A later waiter is served as well.
    let (later, ()) = tokio::join!(wait(&guard, &key, b"it", LONG), async {
        until("it waits", LONG, || async { looks(&monitor) > after }).await;
        first.complete(Some(Reply::new(200, "the answer"))).await.unwrap();
    });
    assert_eq!(later, "the answer");
}

async fn waiting_disabled_rejects_duplicates_at_once<F: WebFramework>() {
    let guard = Guard::builder(Memory::new()).waiters(0).build();
    let bed = Bed::new(by_key::<F>(&guard, KeyRules::retryable(), LONG));
    let first = bed.begin(1_000, 200).await;
    assert_eq!(bed.duplicate().await.0.said(), "409 in_progress");
    assert!(!first.is_finished());
}

/// A client that resets its connection, and one that only closes it and, as far as actix knows, may still read.
async fn disconnected_client_frees_its_seat<F: WebFramework>() {
    for is_reset in [true, false] {
        hangs_up::<F>(is_reset).await;
    }
}

async fn hangs_up<F: WebFramework>(is_reset: bool) {
    let guard = Guard::builder(Memory::new()).waiters(1).build();
    let ledger = Ledger::new();
    let protect = by_key::<F>(&guard, KeyRules::retryable(), LONG * 6);
    let served = F::serve_watching(&ledger, Routes::new().any("/it", protect, Handler::of_body(purchase)));
    let bed = Bed { served, ledger };
    let first = bed.begin(3_000, 200).await;
    let mut impatient = TcpStream::connect(bed.served.url.strip_prefix("http://").unwrap()).await.unwrap();
    let request = format!("POST /it HTTP/1.1\r\nhost: shop\r\n{KEY}: k\r\ncontent-length: 0\r\n\r\n");
    impatient.write_all(request.as_bytes()).await.unwrap();
    until("it has the seat", LONG, || async { waiting(&guard) == 1 }).await;
    assert_eq!(bed.duplicate().await.0.said(), "409 in_progress", "the seat is taken");
    if is_reset {
        socket2::SockRef::from(&impatient).set_linger(Some(Duration::ZERO)).unwrap();
    }
    drop(impatient);
    let gave_up = Instant::now();
    // The next waiter keeps the seat until the first run has ended.
    while bed.duplicate().await.0.said() != "200 replayed" {
        assert!(gave_up.elapsed() < Duration::from_secs(1), "the seat is still taken");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(first.await.unwrap().said(), "200 executed");
    assert_eq!(bed.ledger.runs(), ["begun", "first"]);
}

async fn store_failure_does_not_make_a_waiter_run<F: WebFramework>() {
    for is_killed in [false, true] {
        let mut redis = RedisServer::start();
        let store = Redis::open(&redis.url()).unwrap().timeout(Duration::from_millis(300));
        let guard = Guard::new(store);
        let bed = Bed::new(by_key::<F>(&guard, KeyRules::retryable(), Duration::from_secs(2)));
        let first = bed.begin(1_000, 200).await;
        let waiter = tokio::spawn(send(under(&bed.served.url, "/it", "k", "duplicate")));
        until("it waits", LONG, || async { waiting(&guard) == 1 }).await;
        let begun = Instant::now();
        if is_killed {
            redis.kill()
        } else {
            redis.freeze()
        }
        assert_eq!(first.await.unwrap().said(), "200 unprotected");
        let told = waiter.await.unwrap();
        assert_eq!(told.said(), "409 in_progress");
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        assert_eq!(bed.ledger.runs(), ["begun", "first"]);
    }
}

/// A store that has lost its data knows no first run. The waiter must not become one.
async fn store_data_loss_does_not_make_a_waiter_run<F: WebFramework>() {
    let redis = RedisServer::start();
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let bed = Bed::new(by_key::<F>(&guard, KeyRules::retryable(), LONG));
    let first = bed.begin(1_500, 200).await;
    let waiter = tokio::spawn(send(under(&bed.served.url, "/it", "k", "duplicate")));
    until("it waits", LONG, || async { waiting(&guard) == 1 }).await;
    redis.ask::<()>("FLUSHALL");
    // The waiter is rejected at once, or gets the response if the claim was renewed before its lookup.
    let told = waiter.await.unwrap();
    assert!(["409 in_progress", "200 replayed"].contains(&told.said().as_str()), "{}", told.said());
    assert_eq!(first.await.unwrap().said(), "200 executed");
    assert_eq!(bed.ledger.runs(), ["begun", "first"]);
}

/// Two guards on one store stand for two processes.
#[tokio::test]
async fn waiter_receives_the_response_of_another_process() {
    let store = Arc::new(Memory::new());
    let one = Guard::new(Arc::clone(&store));
    let other = Guard::new(store);
    let key = Key::new("k").unwrap();
    let intent = Intent::new("buy", Subject::anonymous()).key(&key).fingerprint(saying(b"it"));
    let first = claim(&one, &Policy::key(KeyRules::retryable().lease(BRIEF).unwrap()), &intent).await;
    let (told, ()) = tokio::join!(wait(&other, &key, b"it", LONG), async {
        // Longer than the lease, which is renewed.
        outlast(BRIEF).await;
        first.complete(Some(Reply::new(200, "the answer"))).await.unwrap();
    });
    assert_eq!(told, "the answer");
}
