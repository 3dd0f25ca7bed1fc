//! A Redis that has reached `maxmemory` and evicts nothing: which requests it still serves, what the others receive, and that with room again
//! nothing runs twice and no unused token is called used.

use std::time::Duration;

use onceward::store::Redis;
use onceward_api::header::LOOK;
use onceward_tests::client::{ask_token, http, order, send, submit, token};
use onceward_tests::command_output::said;
use onceward_tests::key_routes::{buy, under};
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{OncewardServer, run};
use onceward_tests::service_calls::{post, redeemed_by, release};
use onceward_tests::shop::{STATUS, Shop, TAKES};
use serde_json::{Value, json};

const LONG: Duration = Duration::from_secs(30);

/// A Redis that holds 6 MB of something else, with a limit that this is below or beyond.
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

/// Takes out what fills it; the limit stays.
fn make_room(redis: &RedisServer) {
    let deleted: usize = redis.ask("DEL fill:0 fill:1 fill:2 fill:3 fill:4 fill:5");
    assert_eq!(deleted, 6, "nothing was evicted");
}

async fn redeem(url: &str, body: Value) -> String {
    post(url, "/token/redeem", &body).await.said()
}

#[tokio::test]
async fn full_redis_refuses_attempts_and_their_release_until_there_is_room() {
    let redis = start();
    let service = OncewardServer::start(&["--store", &redis.url(), "--store-timeout", "5s"]);
    let url = &service.url;
    let (plain, new, marked) = (token(url).await, token(url).await, token(url).await);
    let run = redeemed_by(url, &marked, "early").await;
    fill(&redis);

    assert_eq!(ask_token(url, "").await.said(), "503 store_unavailable");
    assert_eq!(redeem(url, json!({"token": plain})).await, "200 redeemed", "a plain token is deleted");
    assert_eq!(redeem(url, json!({"token": plain})).await, "409 token_used");
    assert_eq!(redeem(url, json!({"token": new, "attempt": "one"})).await, "503 store_unavailable");
    assert_eq!(redeemed_by(url, &marked, "early").await, run, "an attempt from before is accepted again");
    assert_eq!(redeem(url, json!({"token": marked, "attempt": "other"})).await, "409 token_used");
    assert_eq!(release(url, &marked, "early", &run).await, "503 store_unavailable");

    make_room(&redis);
    let first = redeemed_by(url, &new, "one").await;
    assert_eq!(redeemed_by(url, &new, "one").await, first);
    assert_eq!(redeem(url, json!({"token": new, "attempt": "two"})).await, "409 token_used");
    assert!(release(url, &marked, "early", &run).await.starts_with("204"));
    assert_eq!(redeem(url, json!({"token": marked})).await, "200 redeemed");
    assert_eq!(redeem(url, json!({"token": marked})).await, "409 token_used");
}

#[tokio::test]
async fn full_redis_refuses_remembered_tokens_and_replays_stored_responses() {
    let redis = start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap().timeout(LONG));
    let (old, new) = (token(shop.url()).await, token(shop.url()).await);
    let submit = async |token: &str, name: &str| send(submit(shop.url(), "/remembered/orders", token, name)).await;
    let first = submit(&old, "old").await;
    fill(&redis);

    let replay = submit(&old, "old").await;
    assert_eq!((replay.said().as_str(), replay.body == first.body), ("200 replayed", true));
    for _ in 0..2 {
        assert_eq!(submit(&new, "new").await.said(), "503 store_unavailable");
    }
    assert_eq!(shop.ledger.count("new"), 0, "nothing runs");

    make_room(&redis);
    assert_eq!(submit(&new, "new").await.said(), "200 executed", "the token was not used up");
    assert_eq!(submit(&new, "new").await.said(), "200 replayed");
    assert_eq!((shop.ledger.count("old"), shop.ledger.count("new")), (1, 1));
}

#[tokio::test]
async fn full_redis_keeps_rejected_plain_tokens_used_and_gives_remembered_ones_back_with_room() {
    let redis = start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap().timeout(LONG));
    let (url, ledger) = (shop.url(), &shop.ledger);
    let (plain, remembered) = (token(url).await, token(url).await);
    let running = tokio::spawn(send(
        submit(url, "/remembered/orders", &remembered, "remembered").header(TAKES, 2_000).header(STATUS, 422),
    ));
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    fill(&redis);

    let rejected = send(submit(url, "/orders", &plain, "plain").header(STATUS, 422)).await;
    assert_eq!(rejected.said(), "422 not_released", "the response says that a new token is needed");
    assert_eq!(order(url, &plain, "plain").await.said(), "409 token_used");
    assert_eq!(running.await.unwrap().said(), "422 not_released");
    let again = async || send(submit(url, "/remembered/orders", &remembered, "remembered")).await.said();
    // Its claim is still there, and is not renewed any more.
    until("its lease is over", LONG, || async {
        let said = again().await;
        assert!(["409 in_progress", "409 outcome_unknown"].contains(&said.as_str()), "{said}");
        said == "409 outcome_unknown"
    })
    .await;

    make_room(&redis);
    assert_eq!(order(url, &plain, "plain").await.said(), "409 token_used", "it stays used");
    until("it is given back", LONG, || async {
        let said = again().await;
        assert!(["409 outcome_unknown", "200 executed"].contains(&said.as_str()), "{said}");
        said == "200 executed"
    })
    .await;
    assert_eq!((ledger.count("plain"), ledger.count("remembered")), (1, 2), "rejected, and then accepted once");
}

#[tokio::test]
async fn full_redis_refuses_keys_new_and_old_and_frees_those_that_failed() {
    let redis = start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap().timeout(LONG));
    let (url, ledger) = (shop.url(), &shop.ledger);
    let first = buy(url, "/keyed/orders", "old", "old").await;
    let failing =
        tokio::spawn(send(under(url, "/keyed/orders", "failing", "failing").header(TAKES, 2_000).header(STATUS, 503)));
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    fill(&redis);

    for key in ["old", "new"] {
        assert_eq!(buy(url, "/keyed/orders", key, key).await.said(), "503 store_unavailable");
    }
    let look = send(under(url, "/keyed/orders", "old", "old").header(LOOK, "true")).await;
    assert_eq!(look.body, first.body, "it can be looked at");
    assert_eq!(failing.await.unwrap().said(), "503 not_applied", "a key is freed by deleting its claim");

    make_room(&redis);
    assert_eq!(buy(url, "/keyed/orders", "old", "old").await.body, first.body);
    assert_eq!(buy(url, "/keyed/orders", "new", "new").await.said(), "200 executed");
    assert_eq!(buy(url, "/keyed/orders", "failing", "failing").await.said(), "200 executed");
    assert_eq!((ledger.count("old"), ledger.count("new"), ledger.count("failing")), (1, 1, 2));
}

#[tokio::test]
async fn full_redis_makes_the_service_unready_with_the_reason_until_there_is_room() {
    let redis = start();
    let service = OncewardServer::start(&["--store", &redis.url(), "--store-timeout", "5s"]);
    let get = async |service: &OncewardServer, path: &str| send(http().get(format!("{}{path}", service.url))).await;
    assert_eq!(get(&service, "/readyz").await.status, 200);
    let plain = token(&service.url).await;
    fill(&redis);

    // What the store has answered counts for a moment.
    until("it is not ready", LONG, || async { get(&service, "/readyz").await.status == 503 }).await;
    let answer = get(&service, "/readyz").await;
    let problem = answer.problem();
    assert_eq!(problem.code.as_str(), "store_unavailable");
    for part in ["full", "no token is issued", "with an attempt", "Plain tokens are still redeemed"] {
        assert!(problem.detail.contains(part), "{part}: {}", problem.detail);
    }
    let (code, text) = said(&run(&["healthcheck", "--listen", service.url.trim_start_matches("http://")]));
    assert!(code == 1 && text.contains("The store is full"), "{text}");
    assert_eq!(get(&service, "/healthz").await.status, 200);
    let (code, text) = said(&run(&["check", "--store", &redis.url()]));
    assert!(code == 1 && text.contains("It is full"), "{text}");

    let started = OncewardServer::start(&["--store", &redis.url(), "--store-timeout", "5s"]);
    assert_eq!(get(&started, "/readyz").await.status, 503, "it starts, and is not ready");
    assert_eq!(redeem(&started.url, json!({"token": plain})).await, "200 redeemed");
    make_room(&redis);
    for service in [&service, &started] {
        until("it is ready again", LONG, || async { get(service, "/readyz").await.status == 200 }).await;
    }
}
