//! Two guards around one handler: an error if both claim the same record, and legal otherwise.

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use onceward::http::protect::{IntervalPolicy, KeyPolicy};
use onceward::http::{KeySource as KeyFrom, Protect, RequestIntent, SubjectSource as SubjectFrom};
use onceward::store::{Memory, Redis, Store};
use onceward::{
    Binding, Fields, Guard, Intent, IntervalRules, Key, KeyRules, Mode, Policy, RecordState, RunError, Subject,
};
use onceward_api::{Code, Retry};
use onceward_tests::call::Call;
use onceward_tests::client::{Answer, http, send};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::{KEY, buy, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::reply::Reply;
use onceward_tests::routes::Routes;
use onceward_tests::shop::{ORDER, TestServer};
use onceward_tests::shop_handlers::order;
use onceward_tests::web_framework::WebFramework;
use serde_json::Value;

use crate::keys::audit_log::LOG;

on_every_framework! {
    same_claim_by_two_guards_is_an_error_and_nothing_runs,
    key_compared_by_other_fields_is_the_same_claim,
    token_and_key_are_valid_after_conflicting_guards,
    two_guards_on_one_store_are_an_error,
    both_guards_are_named_in_the_log,
    guards_that_claim_different_things_are_legal,
    same_key_on_two_stores_is_legal,
    inner_guard_that_observes_lets_the_handler_run,
    handler_that_repeats_the_surrounding_claim_is_an_error,
}

/// Maximum time that a duplicate waits: a test that takes this long has waited for itself.
const PATIENCE: Duration = Duration::from_secs(60);

fn anyone<F: WebFramework>() -> SubjectFrom<F::Request> {
    SubjectFrom::anonymous()
}

fn by_key<F: WebFramework>(guard: &Guard) -> Protect<F, KeyPolicy> {
    Protect::<F, _>::key(guard, anyone::<F>(), KeyRules::retryable())
}

fn by_interval<F: WebFramework>(guard: &Guard) -> Protect<F, IntervalPolicy> {
    Protect::<F, _>::interval(guard, anyone::<F>(), IntervalRules::new().every(PATIENCE).unwrap())
}

fn key<F: WebFramework>(guard: &Guard) -> Protect<F> {
    by_key(guard).into_any()
}

fn token<F: WebFramework>(guard: &Guard) -> Protect<F> {
    Protect::<F, _>::token(guard, anyone::<F>()).into_any()
}

fn remembered<F: WebFramework>(guard: &Guard) -> Protect<F> {
    Protect::<F, _>::token(guard, anyone::<F>()).remember(PATIENCE).wait(PATIENCE).into_any()
}

fn interval<F: WebFramework>(guard: &Guard) -> Protect<F> {
    by_interval(guard).into_any()
}

/// A scope with one guard around a route with another.
fn nested<F: WebFramework>(ledger: &Ledger, outer: Protect<F>, inner: Protect<F>) -> TestServer {
    let orders = Routes::new().post("/orders", inner, Handler::of_body(order)).wrap(outer);
    F::serve(ledger, Routes::new().scope("/shop", orders))
}

async fn issue(guard: &Guard) -> String {
    guard.issue(Duration::from_secs(600), Binding::none()).await.unwrap().as_str().to_owned()
}

async fn submit(served: &TestServer, token: &str) -> Answer {
    let request = http().post(format!("{}/shop/orders", served.url)).header(ORDER, "tea").header(KEY, "k");
    let request = request.header("content-type", "application/json").body(r#"{"item":"tea","note":"green"}"#);
    tokio::time::timeout(PATIENCE / 2, send(request.header(onceward_api::header::TOKEN, token)))
        .await
        .expect("no request waits for itself")
}

/// Asserts that every submission receives the error, and that nothing runs.
async fn is_found_out(what: &str, ledger: &Ledger, served: &TestServer, token: &str) {
    for _ in 0..3 {
        let answer = submit(served, token).await;
        assert_eq!(answer.said(), "500 internal", "{what}");
        let problem = answer.problem();
        assert_eq!((problem.code, problem.retry), (Code::Internal, Retry::No), "{what}");
        assert!(problem.detail.contains("Two guards"), "{what}: {}", problem.detail);
    }
    assert_eq!(ledger.runs().len(), 0, "{what}");
}

fn on_memory() -> Guard {
    Guard::new(Memory::new())
}

async fn same_claim_by_two_guards_is_an_error_and_nothing_runs<F: WebFramework>() {
    type Both<F> = (&'static str, fn(&Guard) -> Protect<F>, fn(&Guard) -> Protect<F>);
    let pairs: [Both<F>; 8] = [
        ("key, key", key, key),
        ("key, waiting key", key, |guard| by_key(guard).wait(PATIENCE).into_any()),
        ("key, held key", key, |guard| Protect::<F, _>::key(guard, anyone::<F>(), KeyRules::at_most_once()).into_any()),
        ("token, token", token, token),
        ("remembered, remembered", remembered, remembered),
        ("token, remembered", token, remembered),
        ("remembered, token", remembered, token),
        ("interval, interval", interval, interval),
    ];
    for (what, outer, inner) in pairs {
        let (guard, ledger) = (on_memory(), Ledger::new());
        let served = nested(&ledger, outer(&guard), inner(&guard));
        is_found_out(what, &ledger, &served, &issue(&guard).await).await;
    }
}

async fn key_compared_by_other_fields_is_the_same_claim<F: WebFramework>() {
    let (guard, ledger) = (on_memory(), Ledger::new());
    let inner = by_key(&guard).fingerprint(Fields::only(["/item"]).unwrap()).into_any();
    let served = nested(&ledger, key::<F>(&guard), inner);
    is_found_out("key, key by other fields", &ledger, &served, "").await;
}

async fn token_and_key_are_valid_after_conflicting_guards<F: WebFramework>() {
    let (guard, ledger) = (on_memory(), Ledger::new());
    for (outer, inner) in [(token::<F>(&guard), token::<F>(&guard)), (remembered::<F>(&guard), remembered::<F>(&guard))]
    {
        let served = nested(&ledger, outer, inner);
        let good = issue(&guard).await;
        submit(&served, &good).await;
        let intent = Intent::new("POST /shop/orders", Subject::anonymous()).credential(&good);
        assert_eq!(guard.look(&Policy::token(), &intent).await.unwrap().state, RecordState::Issued);
    }
    let served = nested(&ledger, key::<F>(&guard), key::<F>(&guard));
    submit(&served, "").await;
    let name = Key::new("k").unwrap();
    let intent = Intent::new("POST /shop/orders", Subject::anonymous()).key(&name);
    assert_eq!(guard.look(&Policy::key(KeyRules::retryable()), &intent).await.unwrap().state, RecordState::Absent);
}

async fn two_guards_on<F: WebFramework>(one: impl Store, other: impl Store, what: &str) {
    let ledger = Ledger::new();
    let (one, other) = (Guard::new(one), Guard::new(other));
    for protect in [key as fn(&Guard) -> Protect<F>, token, remembered, interval] {
        let served = nested(&ledger, protect(&one), protect(&other));
        is_found_out(what, &ledger, &served, &issue(&one).await).await;
    }
}

async fn two_guards_on_one_store_are_an_error<F: WebFramework>() {
    let memory = Arc::new(Memory::new());
    two_guards_on::<F>(Arc::clone(&memory), memory, "memory").await;
    let redis = RedisServer::start();
    let open = || Redis::open(&redis.url()).unwrap();
    two_guards_on::<F>(open(), open(), "redis").await;
}

async fn both_guards_are_named_in_the_log<F: WebFramework>() {
    LazyLock::force(&LOG);
    let (guard, ledger) = (on_memory(), Ledger::new());
    let action = format!("order-{}", uuid::Uuid::new_v4());
    let served = nested(&ledger, remembered::<F>(&guard).action(action.clone()), token::<F>(&guard));
    submit(&served, &issue(&guard).await).await;
    let lines: Vec<Value> = LOG.lines("onceward::http", &action);
    let [line] = &lines[..] else { panic!("one line: {lines:?}") };
    assert_eq!(line["level"], "ERROR");
    let fields = &line["fields"];
    let said = ["outer_policy", "outer_action", "inner_policy", "inner_action"].map(|name| fields[name].as_str());
    assert_eq!(said, ["remembered", &action, "token", "POST /shop/orders"].map(Some), "{line}");
}

async fn guards_that_claim_different_things_are_legal<F: WebFramework>() {
    type Both<F> = (&'static str, fn(&Guard) -> Protect<F>, fn(&Guard) -> Protect<F>);
    let other_key: fn(&Guard) -> Protect<F> = |guard| by_key(guard).from(KeyFrom::header(ORDER).unwrap()).into_any();
    let other_action: fn(&Guard) -> Protect<F> = |guard| key(guard).action("another");
    let other_interval: fn(&Guard) -> Protect<F> =
        |guard| by_interval(guard).from(KeyFrom::header(ORDER).unwrap()).into_any();
    let pairs: [Both<F>; 8] = [
        ("token, interval", token, interval),
        ("interval, token", interval, token),
        ("key, token", key, token),
        ("remembered, key", remembered, key),
        ("key, other key", key, other_key),
        ("key, other action", key, other_action),
        ("interval, other interval", interval, other_interval),
        ("token, key", token, key),
    ];
    for (what, outer, inner) in pairs {
        let (guard, ledger) = (on_memory(), Ledger::new());
        let served = nested(&ledger, outer(&guard), inner(&guard));
        let answer = submit(&served, &issue(&guard).await).await;
        assert_eq!((answer.said().as_str(), ledger.runs().len()), ("200 executed", 1), "{what}");
    }
}

async fn same_key_on_two_stores_is_legal<F: WebFramework>() {
    let (one, other, ledger) = (on_memory(), on_memory(), Ledger::new());
    let served = nested(&ledger, key::<F>(&one), key::<F>(&other));
    assert_eq!(submit(&served, "").await.said(), "200 executed");
    assert_eq!(submit(&served, "").await.said(), "200 replayed");
    // The outer store loses the record, and the inner one still has it.
    let served = nested(&ledger, key::<F>(&on_memory()), key::<F>(&other));
    assert_eq!(submit(&served, "").await.status, 200);
    assert_eq!(ledger.runs().len(), 1);
}

async fn inner_guard_that_observes_lets_the_handler_run<F: WebFramework>() {
    let (guard, ledger) = (on_memory(), Ledger::new());
    let served = nested(&ledger, key::<F>(&guard), key::<F>(&guard).mode(Mode::Observe));
    assert_eq!(submit(&served, "").await.said(), "200 executed");
    assert_eq!(submit(&served, "").await.said(), "200 replayed");
    assert_eq!(ledger.runs().len(), 1);
}

/// A handler behind a guard that runs work under the intent of its request, or under another key.
async fn runs_again(guard: Guard, call: Call, asked: RequestIntent) -> Reply {
    let other = Key::new("another").unwrap();
    let intent = match call.header("x-other") {
        Some(_) => asked.intent().key(&other),
        None => asked.intent(),
    };
    let work = async || {
        call.ledger.record("work");
        Ok::<_, io::Error>(())
    };
    match guard.run(&Policy::key(KeyRules::retryable()), &intent, work).await {
        Ok(_) => Reply::new(200),
        Err(RunError::Rejected(rejection)) => Reply::rejection(&guard, rejection),
        Err(other) => panic!("{other}"),
    }
}

async fn handler_that_repeats_the_surrounding_claim_is_an_error<F: WebFramework>() {
    let (guard, ledger) = (on_memory(), Ledger::new());
    let protect = key::<F>(&guard);
    let again = Handler::of_intent(move |call, asked| runs_again(guard.clone(), call, asked));
    let served = F::serve(&ledger, Routes::new().post("/again", protect, again));
    for _ in 0..2 {
        let answer = buy(&served.url, "/again", "k", "").await;
        assert_eq!(answer.status, 500, "{answer:?}");
        assert!(answer.problem().detail.contains("the guard around it"), "{answer:?}");
    }
    assert_eq!(ledger.runs().len(), 0);
    assert_eq!(send(under(&served.url, "/again", "k", "").header("x-other", "yes")).await.said(), "200 executed");
    assert_eq!(ledger.runs(), ["work"]);
}
