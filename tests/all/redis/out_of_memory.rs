//! Redis has reached `maxmemory` without eviction: the requests it still serves, and the responses to the others. With room again
//! nothing runs twice and no unused token is called used.

use std::time::Duration;

use onceward::store::Redis;
use onceward::{
    Binding, Guard, Intent, Key, KeyRules, Policy, RecordState, Reply, Settled, Subject, TokenRules, Verdict,
};
use onceward_api::header::LOOK;
use onceward_tests::client::{ask_token, http, send, submit, token};
use onceward_tests::command_output::said;
use onceward_tests::key_routes::{SIZE, buy, under};
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{OncewardServer, run};
use onceward_tests::service_calls::{post, redeemed_by, release};
use onceward_tests::shop::{STATUS, Shop, TAKES};
use serde_json::{Value, json};
use tokio::time::Instant;

const LONG: Duration = Duration::from_secs(30);

/// Starts a Redis with 6 MB of other data; `fill` sets the limit below that.
fn start() -> RedisServer {
    let redis = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    let value = "x".repeat(1_000_000);
    for at in 0..6 {
        redis.ask::<()>(&format!("SET fill:{at} {value}"));
    }
    redis
}

fn fill(redis: &RedisServer) {
    redis.ask::<()>("CONFIG SET maxmemory 4mb");
}

/// Deletes the other data; the limit stays.
fn make_room(redis: &RedisServer) {
    let deleted: usize = redis.ask("DEL fill:0 fill:1 fill:2 fill:3 fill:4 fill:5");
    assert_eq!(deleted, 6, "nothing was evicted");
}

async fn redeem(url: &str, body: Value) -> String {
    post(url, "/token/redeem", &body).await.said()
}

#[tokio::test]
async fn full_redis_redeems_issued_tokens_and_issues_none() {
    let redis = start();
    let service = OncewardServer::start(&["--store", &redis.url(), "--store-timeout", "5s"]);
    let url = &service.url;
    let (plain, new, marked) = (token(url).await, token(url).await, token(url).await);
    let run = redeemed_by(url, &marked, "early").await;
    fill(&redis);

    assert_eq!(ask_token(url, "").await.said(), "503 store_unavailable");
    assert_eq!(redeem(url, json!({"token": plain})).await, "200 redeemed");
    assert_eq!(redeem(url, json!({"token": plain})).await, "409 token_used");
    let first = redeemed_by(url, &new, "one").await;
    assert_eq!(redeemed_by(url, &new, "one").await, first, "the same attempt is accepted again");
    assert_eq!(redeem(url, json!({"token": new, "attempt": "two"})).await, "409 token_used");
    assert_eq!(redeem(url, json!({"token": marked, "attempt": "other"})).await, "409 token_used");
    assert!(release(url, &marked, "early", &run).await.starts_with("204"));
    assert_eq!(redeem(url, json!({"token": marked})).await, "200 redeemed");
    assert_eq!(redeem(url, json!({"token": marked})).await, "409 token_used");
}

#[tokio::test]
async fn full_redis_claims_remembered_tokens_and_stores_responses_later() {
    let redis = start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap().timeout(LONG));
    let (old, new) = (token(shop.url()).await, token(shop.url()).await);
    let submit = async |token: &str, name: &str| {
        send(submit(shop.url(), "/remembered/orders", token, name).header(SIZE, 2_000)).await
    };
    let first = submit(&old, "old").await;
    fill(&redis);

    let replay = submit(&old, "old").await;
    assert_eq!((replay.said().as_str(), replay.body == first.body), ("200 replayed", true));
    let executed = submit(&new, "new").await;
    assert_eq!(executed.said(), "200 unprotected", "the response is marked as not stored");
    let key = redis
        .keys()
        .into_iter()
        .find(|key| key.contains(":token:") && redis.ask::<usize>(&format!("STRLEN {key}")) < 256);
    let claim = key.expect("the claim is stored");
    // While storing the response is retried, the claim is renewed and no duplicate runs.
    let lease = Duration::from_millis(redis.ask::<u64>(&format!("PTTL {claim}")));
    assert!(lease > Duration::from_secs(60), "the claim outlives its lease: {lease:?}");
    for _ in 0..3 {
        assert_eq!(submit(&new, "new").await.said(), "409 in_progress");
    }

    make_room(&redis);
    until("it is stored", LONG, || async {
        let again = submit(&new, "new").await;
        assert!(["409 in_progress", "200 replayed"].contains(&again.said().as_str()), "{}", again.said());
        again.body == executed.body
    })
    .await;
    assert_eq!((shop.ledger.count("old"), shop.ledger.count("new")), (1, 1));
}

/// A run of several leases on a full Redis keeps its claim: with a retryable key, an at-most-once key, and a remembered token.
#[tokio::test]
async fn full_redis_renews_the_claims_of_runs_in_flight() {
    let redis = start();
    let guard = Guard::new(Redis::open(&redis.url()).unwrap().timeout(LONG));
    let lease = Duration::from_millis(300);
    let (key, other) = (Key::new("k").unwrap(), Key::new("o").unwrap());
    let token = guard.issue(LONG, Binding::none()).await.unwrap();
    let intent = || Intent::new("a", Subject::anonymous());
    let mut passes = Vec::new();
    for (policy, intent) in [
        (Policy::key(KeyRules::retryable().lease(lease).unwrap()), intent().key(&key)),
        (Policy::key(KeyRules::at_most_once().lease(lease).unwrap()), intent().key(&other)),
        (
            Policy::Token(TokenRules::new().remember_by(KeyRules::retryable().lease(lease).unwrap())),
            intent().credential(token.as_str()),
        ),
    ] {
        let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("a free key") };
        passes.push((pass, policy, intent));
    }
    fill(&redis);
    let end = Instant::now() + lease * 5;
    while Instant::now() < end {
        for (pass, policy, intent) in &passes {
            let name = pass.ticket().name("onceward");
            assert_eq!(redis.ask::<i64>(&format!("EXISTS {name}")), 1, "{policy:?}: its claim is stored");
            let state = guard.look(policy, intent).await.unwrap().state;
            assert!(matches!(state, RecordState::Running(_)), "{policy:?}: {state:?}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    make_room(&redis);
    for (pass, policy, intent) in passes {
        assert_eq!(pass.complete(Some(Reply::new(200, "done"))).await.unwrap(), Settled::Final, "{policy:?}");
        let Ok(Verdict::Replay(_)) = guard.check(&policy, &intent).await else { panic!("{policy:?}: stored") };
    }
}

#[tokio::test]
async fn full_redis_releases_rejected_tokens() {
    let redis = start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap().timeout(LONG));
    let (url, ledger) = (shop.url(), &shop.ledger);
    let (plain, remembered) = (token(url).await, token(url).await);
    fill(&redis);
    for (path, token) in [("/orders", &plain), ("/remembered/orders", &remembered)] {
        for _ in 0..3 {
            let rejected = send(submit(url, path, token, "rejected").header(STATUS, 422)).await;
            assert_eq!(rejected.said(), "422 not_applied", "{path}");
        }
        assert_eq!(send(submit(url, path, token, path)).await.status, 200);
        assert_ne!(send(submit(url, path, token, path)).await.said(), "200 executed", "{path}");
    }
    assert_eq!((ledger.count("rejected"), ledger.count("/orders"), ledger.count("/remembered/orders")), (6, 1, 1));
}

#[tokio::test]
async fn full_redis_rejects_keys_and_frees_failed_ones() {
    let redis = start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap().timeout(LONG));
    let (url, ledger) = (shop.url(), &shop.ledger);
    let first = buy(url, "/keyed/orders", "old", "old").await;
    let failing =
        tokio::spawn(send(under(url, "/keyed/orders", "failing", "failing").header(TAKES, 2_000).header(STATUS, 503)));
    until("the handler runs", LONG, || async { ledger.count("begun") == 1 }).await;
    fill(&redis);

    for key in ["old", "new"] {
        assert_eq!(buy(url, "/keyed/orders", key, key).await.said(), "503 store_unavailable");
    }
    let look = send(under(url, "/keyed/orders", "old", "old").header(LOOK, "true")).await;
    assert_eq!(look.body, first.body, "a lookup works");
    assert_eq!(failing.await.unwrap().said(), "503 not_applied", "a key is freed by deleting its claim");

    make_room(&redis);
    assert_eq!(buy(url, "/keyed/orders", "old", "old").await.body, first.body);
    assert_eq!(buy(url, "/keyed/orders", "new", "new").await.said(), "200 executed");
    assert_eq!(buy(url, "/keyed/orders", "failing", "failing").await.said(), "200 executed");
    assert_eq!((ledger.count("old"), ledger.count("new"), ledger.count("failing")), (1, 1, 2));
}

#[tokio::test]
async fn full_redis_makes_the_service_unready_with_the_reason() {
    let redis = start();
    let service = OncewardServer::start(&["--store", &redis.url(), "--store-timeout", "5s"]);
    let get = async |service: &OncewardServer, path: &str| send(http().get(format!("{}{path}", service.url))).await;
    assert_eq!(get(&service, "/readyz").await.status, 200);
    let plain = token(&service.url).await;
    fill(&redis);

    // Readiness is cached for a moment.
    until("the service is not ready", LONG, || async { get(&service, "/readyz").await.status == 503 }).await;
    let answer = get(&service, "/readyz").await;
    let problem = answer.problem();
    assert_eq!(problem.code.as_str(), "store_unavailable");
    for part in ["full", "no token is issued", "no key is claimed", "Issued tokens are still redeemed"] {
        assert!(problem.detail.contains(part), "{part}: {}", problem.detail);
    }
    let (code, text) = said(&run(&["healthcheck", "--listen", service.url.trim_start_matches("http://")]));
    assert!(code == 1 && text.contains("The store is full"), "{text}");
    assert_eq!(get(&service, "/healthz").await.status, 200);
    let (code, text) = said(&run(&["check", "--store", &redis.url()]));
    assert!(code == 1 && text.contains("It is full"), "{text}");

    let started = OncewardServer::start(&["--store", &redis.url(), "--store-timeout", "5s"]);
    assert_eq!(get(&started, "/readyz").await.status, 503, "the service starts and is not ready");
    assert_eq!(redeem(&started.url, json!({"token": plain})).await, "200 redeemed");
    make_room(&redis);
    for service in [&service, &started] {
        until("the service is ready again", LONG, || async { get(service, "/readyz").await.status == 200 }).await;
    }
}
