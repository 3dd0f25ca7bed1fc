//! Two guards around one handler: an error if both claim the same record, and legal otherwise.

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use onceward::actix::protect::{IntervalPolicy, KeyPolicy};
use onceward::actix::{KeyFrom, Protect, RequestIntent, SubjectFrom, reject};
use onceward::store::{Memory, Redis, Store};
use onceward::{
    Binding, Fields, Guard, Intent, IntervalRules, Key, KeyRules, Mode, Policy, RecordState, RunError, Subject,
};
use onceward_api::{Code, Retry};
use onceward_tests::actix_handlers::{header, order};
use onceward_tests::client::{Answer, http, send};
use onceward_tests::key_routes::{KEY, buy, serve, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{ORDER, TestServer};
use serde_json::Value;

use crate::keys::audit_log::LOG;

/// Maximum time that a duplicate waits: a test that takes this long has waited for itself.
const PATIENCE: Duration = Duration::from_secs(60);

fn anyone() -> SubjectFrom {
    SubjectFrom::anonymous()
}

fn by_key(guard: &Guard) -> Protect<KeyPolicy> {
    Protect::key(guard, anyone(), KeyRules::retryable())
}

fn by_interval(guard: &Guard) -> Protect<IntervalPolicy> {
    Protect::interval(guard, anyone(), IntervalRules::new().every(PATIENCE).unwrap())
}

fn key(guard: &Guard) -> Protect {
    by_key(guard).into_any()
}

fn token(guard: &Guard) -> Protect {
    Protect::token(guard, anyone()).into_any()
}

fn remembered(guard: &Guard) -> Protect {
    Protect::token(guard, anyone()).remember(PATIENCE).wait(PATIENCE).into_any()
}

fn interval(guard: &Guard) -> Protect {
    by_interval(guard).into_any()
}

/// A scope with one guard around a route with another.
fn nested(ledger: &Ledger, outer: Protect, inner: Protect) -> TestServer {
    serve(ledger, move |config| {
        let orders = web::resource("/orders").wrap(inner.clone()).route(web::post().to(order));
        config.service(web::scope("/shop").wrap(outer.clone()).service(orders));
    })
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

#[tokio::test]
async fn same_claim_by_two_guards_is_an_error_and_nothing_runs() {
    type Both = (&'static str, fn(&Guard) -> Protect, fn(&Guard) -> Protect);
    let pairs: [Both; 8] = [
        ("key, key", key, key),
        ("key, waiting key", key, |guard| by_key(guard).wait(PATIENCE).into_any()),
        ("key, held key", key, |guard| Protect::key(guard, anyone(), KeyRules::at_most_once()).into_any()),
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

#[tokio::test]
async fn key_compared_by_other_fields_is_the_same_claim() {
    let (guard, ledger) = (on_memory(), Ledger::new());
    let inner = by_key(&guard).fingerprint(Fields::only(["/item"]).unwrap()).into_any();
    let served = nested(&ledger, key(&guard), inner);
    is_found_out("key, key by other fields", &ledger, &served, "").await;
}

#[tokio::test]
async fn token_and_key_are_valid_after_conflicting_guards() {
    let (guard, ledger) = (on_memory(), Ledger::new());
    for (outer, inner) in [(token(&guard), token(&guard)), (remembered(&guard), remembered(&guard))] {
        let served = nested(&ledger, outer, inner);
        let good = issue(&guard).await;
        submit(&served, &good).await;
        let intent = Intent::new("POST /shop/orders", Subject::anonymous()).credential(&good);
        assert_eq!(guard.look(&Policy::token(), &intent).await.unwrap().state, RecordState::Issued);
    }
    let served = nested(&ledger, key(&guard), key(&guard));
    submit(&served, "").await;
    let name = Key::new("k").unwrap();
    let intent = Intent::new("POST /shop/orders", Subject::anonymous()).key(&name);
    assert_eq!(guard.look(&Policy::key(KeyRules::retryable()), &intent).await.unwrap().state, RecordState::Absent);
}

async fn two_guards_on(one: impl Store, other: impl Store, what: &str) {
    let ledger = Ledger::new();
    let (one, other) = (Guard::new(one), Guard::new(other));
    for protect in [key as fn(&Guard) -> Protect, token, remembered, interval] {
        let served = nested(&ledger, protect(&one), protect(&other));
        is_found_out(what, &ledger, &served, &issue(&one).await).await;
    }
}

#[tokio::test]
async fn two_guards_on_one_store_are_an_error() {
    let memory = Arc::new(Memory::new());
    two_guards_on(Arc::clone(&memory), memory, "memory").await;
    let redis = RedisServer::start();
    let open = || Redis::open(&redis.url()).unwrap();
    two_guards_on(open(), open(), "redis").await;
}

#[tokio::test]
async fn both_guards_are_named_in_the_log() {
    LazyLock::force(&LOG);
    let (guard, ledger) = (on_memory(), Ledger::new());
    let action = format!("order-{}", uuid::Uuid::new_v4());
    let served = nested(&ledger, remembered(&guard).action(action.clone()), token(&guard));
    submit(&served, &issue(&guard).await).await;
    let lines: Vec<Value> = LOG.lines("onceward::http", &action);
    let [line] = &lines[..] else { panic!("one line: {lines:?}") };
    assert_eq!(line["level"], "ERROR");
    let fields = &line["fields"];
    let said = ["outer_policy", "outer_action", "inner_policy", "inner_action"].map(|name| fields[name].as_str());
    assert_eq!(said, ["remembered", &action, "token", "POST /shop/orders"].map(Some), "{line}");
}

#[tokio::test]
async fn guards_that_claim_different_things_are_legal() {
    type Both = (&'static str, fn(&Guard) -> Protect, fn(&Guard) -> Protect);
    let other_key: fn(&Guard) -> Protect = |guard| by_key(guard).from(KeyFrom::header(ORDER).unwrap()).into_any();
    let other_action: fn(&Guard) -> Protect = |guard| key(guard).action("another");
    let other_interval: fn(&Guard) -> Protect =
        |guard| by_interval(guard).from(KeyFrom::header(ORDER).unwrap()).into_any();
    let pairs: [Both; 8] = [
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

#[tokio::test]
async fn same_key_on_two_stores_is_legal() {
    let (one, other, ledger) = (on_memory(), on_memory(), Ledger::new());
    let served = nested(&ledger, key(&one), key(&other));
    assert_eq!(submit(&served, "").await.said(), "200 executed");
    assert_eq!(submit(&served, "").await.said(), "200 replayed");
    // The outer store loses the record, and the inner one still has it.
    let served = nested(&ledger, key(&on_memory()), key(&other));
    assert_eq!(submit(&served, "").await.status, 200);
    assert_eq!(ledger.runs().len(), 1);
}

#[tokio::test]
async fn inner_guard_that_observes_lets_the_handler_run() {
    let (guard, ledger) = (on_memory(), Ledger::new());
    let served = nested(&ledger, key(&guard), key(&guard).mode(Mode::Observe));
    assert_eq!(submit(&served, "").await.said(), "200 executed");
    assert_eq!(submit(&served, "").await.said(), "200 replayed");
    assert_eq!(ledger.runs().len(), 1);
}

/// A handler behind a guard that runs work under the intent of its request, or under another key.
async fn runs_again(
    request: HttpRequest,
    asked: RequestIntent,
    guard: web::Data<Guard>,
    ledger: web::Data<Ledger>,
) -> HttpResponse {
    let other = Key::new("another").unwrap();
    let intent = match header(&request, "x-other") {
        Some(_) => asked.intent().key(&other),
        None => asked.intent(),
    };
    let work = async || {
        ledger.record("work");
        Ok::<_, io::Error>(())
    };
    match guard.run(&Policy::key(KeyRules::retryable()), &intent, work).await {
        Ok(_) => HttpResponse::Ok().finish(),
        Err(RunError::Rejected(rejection)) => reject(&request, &guard, &rejection),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn handler_that_repeats_the_surrounding_claim_is_an_error() {
    let (guard, ledger) = (on_memory(), Ledger::new());
    let served = serve(&ledger, move |config| {
        let data = web::Data::new(guard.clone());
        let again = web::resource("/again").app_data(data).wrap(key(&guard));
        config.service(again.route(web::post().to(runs_again)));
    });
    for _ in 0..2 {
        let answer = buy(&served.url, "/again", "k", "").await;
        assert_eq!(answer.status, 500, "{answer:?}");
        assert!(answer.problem().detail.contains("the guard around it"), "{answer:?}");
    }
    assert_eq!(ledger.runs().len(), 0);
    assert_eq!(send(under(&served.url, "/again", "k", "").header("x-other", "yes")).await.said(), "200 executed");
    assert_eq!(ledger.runs(), ["work"]);
}
