//! The shared signing secret after the store has lost it: FLUSHALL, and a process that starts afterwards.

use std::time::Duration;

use onceward::Guard;
use onceward::store::Redis;
use onceward_tests::client::{order, token};
use onceward_tests::key_routes::buy;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::post;
use onceward_tests::shop::Shop;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

/// Maximum time until two processes know each other's secret: two refreshes, with a margin for a busy machine.
const AGREED: Duration = Duration::from_secs(10);

/// Issues a token at one process and redeems it at another.
async fn crosses(from: &OncewardServer, to: &OncewardServer) -> String {
    post(&to.url, "/token/redeem", &json!({"token": token(&from.url).await})).await.said()
}

/// Claims a key at this process and returns its pass.
async fn pass(from: &OncewardServer) -> Value {
    let asked = json!({"key": Uuid::new_v4().to_string(), "action": "pay", "subject": "alice", "lease": "60s"});
    let claimed: Value = serde_json::from_slice(&post(&from.url, "/claim", &asked).await.body).unwrap();
    json!({"pass": claimed["pass"].as_str().expect("a pass")})
}

async fn completes(pass: &Value, at: &OncewardServer) -> String {
    post(&at.url, "/claim/complete", pass).await.said()
}

/// Two processes; the second starts after the store of the first was flushed.
struct ProcessPair {
    redis: RedisServer,
    before: OncewardServer,
    after: OncewardServer,
}

impl ProcessPair {
    async fn start(arguments: &[&str]) -> Self {
        let redis = RedisServer::start();
        let start = |more: &[&str]| {
            OncewardServer::start(&[&["--store", &redis.url(), "--store-timeout", "5s"], more].concat())
        };
        let before = start(arguments);
        token(&before.url).await;
        // Paused, so that it does not restore its secret before the other process starts.
        before.freeze();
        redis.ask::<()>("FLUSHALL");
        let after = start(&[]);
        token(&after.url).await;
        before.thaw();
        Self { redis, before, after }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_agree_on_the_secret_seconds_after_flushall() {
    let ProcessPair { redis, before, after } = ProcessPair::start(&[]).await;
    // Signed with the lost secret, and stored after the flush.
    let kept = token(&before.url).await;
    let begun = Instant::now();
    for (from, to) in [(&after, &before), (&before, &after)] {
        until("each process accepts the tokens of the other", AGREED, || async {
            let said = crosses(from, to).await;
            assert!(["200 redeemed", "403 token_invalid"].contains(&said.as_str()), "{said}");
            said == "200 redeemed"
        })
        .await;
    }
    let accepts_former = || async {
        let said = post(&after.url, "/token/redeem", &json!({"token": kept})).await.said();
        assert!(["200 redeemed", "403 token_invalid"].contains(&said.as_str()), "{said}");
        said == "200 redeemed"
    };
    until("the new process accepts tokens of the former secret", AGREED, accepts_former).await;
    println!("agreed after {:?}", begun.elapsed());
    for (from, to) in [(&before, &after), (&after, &before)] {
        assert_eq!(completes(&pass(from).await, to).await, "204 ");
        assert_eq!(crosses(from, to).await, "200 redeemed");
    }
    // A process that starts now accepts both secrets.
    let third = OncewardServer::start(&["--store", &redis.url(), "--store-timeout", "5s"]);
    for from in [&before, &after] {
        assert_eq!(
            (crosses(from, &third).await.as_str(), crosses(&third, from).await.as_str()),
            ("200 redeemed", "200 redeemed")
        );
    }
}

/// A completion is not lost if the process that receives it has not refreshed its secrets yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_of_a_process_started_after_flushall_is_accepted_at_once() {
    let ProcessPair { redis: _redis, before, after } = ProcessPair::start(&["--share-every", "1h"]).await;
    assert_eq!(completes(&pass(&after).await, &before).await, "204 ");
    assert_eq!(crosses(&after, &before).await, "200 redeemed", "tokens are accepted from then on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_with_a_set_secret_agree_across_flushall_at_all_times() {
    let secret = ["--secret", "a-secret-of-the-settings"];
    let redis = RedisServer::start();
    let start = || OncewardServer::start(&[&["--store", &redis.url(), "--store-timeout", "5s"][..], &secret].concat());
    let before = start();
    redis.ask::<()>("FLUSHALL");
    let after = start();
    for (from, to) in [(&after, &before), (&before, &after)] {
        assert_eq!(crosses(from, to).await, "200 redeemed");
        assert_eq!(completes(&pass(from).await, to).await, "204 ");
    }
}

/// FLUSHALL deletes all records without a new epoch: no token comes back, and unused tokens cannot be distinguished from used
/// ones.
#[tokio::test]
async fn flushall_calls_unused_tokens_used_and_lets_keys_run_again() {
    let redis = RedisServer::start();
    let shop = Shop::with(Guard::new(Redis::open(&redis.url()).unwrap().timeout(Duration::from_secs(5))));
    let [used, unused] = [token(shop.url()).await, token(shop.url()).await];
    assert_eq!(order(shop.url(), &used, "used").await.said(), "200 executed");
    assert_eq!(buy(shop.url(), "/keyed/orders", "k", "keyed").await.said(), "200 executed");
    redis.ask::<()>("FLUSHALL");
    for token in [&used, &unused] {
        assert_eq!(order(shop.url(), token, "again").await.said(), "409 token_used");
    }
    assert_eq!(buy(shop.url(), "/keyed/orders", "k", "keyed").await.said(), "200 executed");
    let runs = ["used", "again", "keyed"].map(|order| shop.ledger.count(order));
    assert_eq!(runs, [1, 0, 2]);
    assert_eq!(order(shop.url(), &token(shop.url()).await, "next").await.said(), "200 executed");
}
