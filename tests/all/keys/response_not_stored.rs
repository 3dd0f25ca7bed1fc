//! A run without a stored response: its duplicate is rejected, and the detail says that the run was carried out and why there is no response.
//!
//! Tests of the service, of `Guard::run` and of transactions run once: they test the engine, not an adapter.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use onceward::http::{Protect, SubjectSource as SubjectFrom};
use onceward::store::{Memory, Sql};
use onceward::transaction::claim_in;
use onceward::{Effect, Guard, Intent, Key, KeyRules, Policy, Rejection, Reply, RunError, Settled, Subject, Verdict};
use onceward_api::Code;
use onceward_tests::call::Call;
use onceward_tests::client::{Answer, http, send, submit, token};
use onceward_tests::command_output::{parsed, said};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::{buy, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::reply::Reply as HandlerReply;
use onceward_tests::routes::{Layer, Route, Routes};
use onceward_tests::service::{OncewardServer, run};
use onceward_tests::service_calls::post;
use onceward_tests::shop::TestServer;
use onceward_tests::web_framework::WebFramework;
use serde_json::{Value, json};
use sqlx::SqlitePool;

on_every_framework! {
    duplicate_without_stored_response_gets_the_true_reason,
    true_reason_is_given_with_storing_disabled,
    duplicate_of_a_run_without_response_gets_the_true_reason,
}

const MINUTE: Duration = Duration::from_secs(60);
const LARGE: &str = "too large to store";
const STREAMED: &str = "streamed";
const COMPRESSED: &str = "compressed";
const BROKEN: &str = "failed while it was read";
const NOT_GIVEN: &str = "completed without a response";
const SETTLED: &str = "settled later, without a response";
const UNWRITABLE: &str = "could not be serialized as JSON";

async fn answer(call: Call) -> HandlerReply {
    call.ledger.record("ran");
    match call.header("x-kind") {
        Some("large") => HandlerReply::new(200).body("x".repeat(2_000)),
        Some("headers") => HandlerReply::new(200).header("etag", &"x".repeat(2_000)).body("x"),
        Some("streamed") => HandlerReply::new(200).streamed(stream::iter([Ok(Bytes::from_static(b"in pieces"))])),
        // A body that declares its length and then fails.
        Some("broken") => HandlerReply::new(200).sized(100, stream::iter([Err(io::Error::other("no more"))])),
        _ => HandlerReply::new(200).body("tea ".repeat(100)),
    }
}

/// Serves routes with a key and with a remembered token, with compression inside the guard.
fn served<F: WebFramework>(guard: &Guard, ledger: &Ledger) -> TestServer {
    let rules = || KeyRules::retryable().reply_limit(1_000);
    let key = Protect::<F, _>::key(guard, SubjectFrom::anonymous(), rules());
    let remembered = Protect::<F, _>::token(guard, SubjectFrom::anonymous()).remember_by(rules());
    let route = |path: &str| Route::post(path, Handler::of_head(answer)).wrap(Layer::Compress);
    let routes = Routes::new().tokens(guard, SubjectFrom::anonymous());
    F::serve(ledger, routes.route(route("/key").wrap(key)).route(route("/remembered").wrap(remembered)))
}

/// Returns the detail of a rejection after asserting that it says so first.
#[track_caller]
fn reason(answer: &Answer) -> String {
    assert_eq!(answer.said(), "409 reply_not_kept");
    let problem = answer.problem();
    assert!(problem.detail.starts_with("It was carried out; no response was stored. "), "{}", problem.detail);
    problem.detail
}

#[track_caller]
fn assert_says_only(detail: &str, true_one: &str) {
    for reason in [LARGE, STREAMED, COMPRESSED, BROKEN, NOT_GIVEN, SETTLED, UNWRITABLE] {
        assert_eq!(detail.contains(reason), reason == true_one, "{true_one}: {detail}");
    }
}

async fn duplicate_without_stored_response_gets_the_true_reason<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = served::<F>(&guard, &ledger);
    for (kind, true_one) in
        [("large", LARGE), ("headers", LARGE), ("streamed", STREAMED), ("compressed", COMPRESSED), ("broken", BROKEN)]
    {
        let encoding = if kind == "compressed" { "gzip" } else { "identity" };
        let token = token(&served.url).await;
        for path in ["/key", "/remembered"] {
            let request = || {
                let request = match path {
                    "/key" => under(&served.url, path, kind, "order"),
                    _ => submit(&served.url, path, &token, "order"),
                };
                request.header("x-kind", kind).header("accept-encoding", encoding)
            };
            match request().send().await {
                Ok(first) => assert_eq!(first.status(), 200, "{kind}"),
                Err(error) => assert_eq!(kind, "broken", "{error}"),
            }
            for request in [request(), request().header("onceward-look", "true"), request()] {
                assert_says_only(&reason(&send(request).await), true_one);
            }
        }
    }
    assert_eq!(ledger.runs().len(), 10);
}

async fn true_reason_is_given_with_storing_disabled<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect = Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable().reply_limit(0));
    let served = F::serve(&ledger, Routes::new().post("/key", protect, Handler::of_head(answer)));
    for (kind, true_one) in [("large", LARGE), ("streamed", STREAMED)] {
        let request = || under(&served.url, "/key", kind, "order").header("x-kind", kind);
        assert_eq!(send(request()).await.said(), "200 executed");
        assert_says_only(&reason(&send(request()).await), true_one);
    }
    assert_eq!(ledger.runs().len(), 2);
}

fn intent<'a>(key: &'a Key) -> Intent<'a> {
    Intent::new("POST /key", Subject::anonymous()).key(key)
}

async fn duplicate_of_a_run_without_response_gets_the_true_reason<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = served::<F>(&guard, &ledger);
    let policy = Policy::key(KeyRules::at_most_once());
    for (name, true_one) in [("completed", NOT_GIVEN), ("settled", SETTLED), ("large", LARGE)] {
        let key = Key::new(name).unwrap();
        let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent(&key)).await else { panic!("a free key") };
        if name == "completed" {
            pass.complete(None).await.unwrap();
        } else {
            pass.unknown().await.unwrap();
            let reply = (name == "large").then(|| Reply::new(200, "x".repeat(2_000)));
            let rules = KeyRules::retryable().reply_limit(1_000);
            let settled = guard.settle(&rules, &intent(&key), None, Effect::Applied, reply).await.unwrap();
            assert_eq!(settled, Settled::Final);
        }
        assert_says_only(&reason(&buy(&served.url, "/key", name, "order").await), true_one);
    }
    assert_eq!(ledger.runs().len(), 0);
}

/// Claims over the service, with one outcome settled by its command line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backend_that_claims_gets_the_true_reason() {
    let redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url(), "--store-timeout", "5s"]);
    let asked = |key: &str| json!({"key": key, "action": "pay", "subject": "alice", "lease": "200ms"});
    let claim = async |key: &str| post(&service.url, "/claim", &asked(key)).await;
    let pass =
        async |key: &str| -> Value { serde_json::from_slice::<Value>(&claim(key).await.body).unwrap()["pass"].take() };
    let large = json!({"status": 200, "body": "QUFB".repeat(360_000)});
    for (key, body, true_one) in [
        ("without", json!({"pass": pass("without").await}), NOT_GIVEN),
        ("large", json!({"pass": pass("large").await, "reply": large}), LARGE),
    ] {
        assert_eq!(post(&service.url, "/claim/complete", &body).await.status, 204);
        assert_says_only(&reason(&claim(key).await), true_one);
    }
    pass("settled").await;
    let is_unknown = || async { claim("settled").await.said() == "409 outcome_unknown" };
    until("its lease has expired", Duration::from_secs(10), is_unknown).await;
    let key =
        ["--key", "settled", "--action", "pay", "--subject", "alice", "--store-timeout", "5s", "--store", &redis.url()];
    let (code, text) = said(&run(&[&["key", "settle", "--applied"], &key[..]].concat()));
    assert_eq!(code, 0, "{text}");
    assert_says_only(&reason(&claim("settled").await), SETTLED);
    let look = parsed(&run(&[&["key", "look", "--json"], &key[..]].concat()));
    assert!(look["says"].as_str().unwrap().contains(SETTLED), "{look:#}");
}

/// Returns the detail of a rejected run.
#[track_caller]
fn refused<T: std::fmt::Debug, E: std::fmt::Debug>(ended: Result<T, RunError<E>>) -> String {
    let Err(RunError::Rejected(rejection)) = ended else { panic!("{ended:?}") };
    detail(&rejection)
}

#[track_caller]
fn detail(rejection: &Rejection) -> String {
    assert_eq!(rejection.code(), Code::ReplyNotKept);
    rejection.problem().detail
}

#[tokio::test]
async fn function_whose_value_was_not_stored_gets_the_true_reason() {
    let guard = Guard::new(Memory::new());
    let small = Policy::key(KeyRules::retryable().reply_limit(10));
    let [strange, large] = ["strange", "large"].map(|name| Key::new(name).unwrap());
    // JSON cannot encode a map whose keys are not strings.
    let value = || vec![HashMap::from([(vec![1u8], 2u8)])];
    let odd = || async move { Ok::<_, io::Error>(value()) };
    guard.run(&small, &intent(&strange), odd).await.unwrap();
    assert_says_only(&refused(guard.run(&small, &intent(&strange), odd).await), UNWRITABLE);
    let long = || async { Ok::<_, io::Error>("x".repeat(20)) };
    guard.run(&small, &intent(&large), long).await.unwrap();
    assert_says_only(&refused(guard.run(&small, &intent(&large), long).await), LARGE);
}

#[tokio::test]
async fn transaction_whose_value_was_not_stored_gets_the_true_reason() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("shop.db").display());
    Sql::migrate(&store).await.unwrap();
    let pool = SqlitePool::connect(&store).await.unwrap();
    let guard = Guard::new(Memory::new());
    let rules = KeyRules::retryable().reply_limit(10).retain(MINUTE);
    let [bare, large, strange] = ["bare", "large", "strange"].map(|name| Key::new(name).unwrap());
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    drop(claim_in(&mut transaction, &rules, &intent(&bare)).await.unwrap());
    transaction.commit().await.unwrap();
    let long = |_| async { Ok::<_, sqlx::Error>("x".repeat(20)) };
    let ended = guard.transact(&pool, &rules, &intent(&bare), long).await;
    assert_says_only(&refused(ended), NOT_GIVEN);
    guard.transact(&pool, &rules, &intent(&large), long).await.unwrap();
    assert_says_only(&refused(guard.transact(&pool, &rules, &intent(&large), long).await), LARGE);
    let odd = |_| async { Ok::<_, sqlx::Error>(vec![HashMap::from([(vec![1u8], 2u8)])]) };
    guard.transact(&pool, &rules, &intent(&strange), odd).await.unwrap();
    assert_says_only(&refused(guard.transact(&pool, &rules, &intent(&strange), odd).await), UNWRITABLE);
}

/// Records of versions that stored no reason give none.
#[tokio::test]
async fn page_for_the_code_names_no_reason() {
    let service = OncewardServer::start(&[]);
    let page = send(http().get(format!("{}/problems/reply_not_kept", service.url))).await;
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    assert!(page.contains("It was carried out; no response was stored") && !page.contains("too large"), "{page}");
}
