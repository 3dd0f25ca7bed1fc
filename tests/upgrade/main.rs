//! A process of the former version beside one of this version on one Redis, as during a rolling restart. `make test-upgrade` builds
//! the former version into the folder `FORMER` and runs these tests on Redis 7.0 and on servers with native commands.
#![allow(clippy::unwrap_used, reason = "all of this is tests")]

use std::process::{Command, Stdio};
use std::time::Duration;

use onceward_tests::client::{send, submit, token};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::redis_server::{RedisServer, native_program};
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::{post, release};
use onceward_tests::shop::{STATUS, TAKES};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Number of tokens and keys in each race.
const MANY: usize = 150;

/// The services of both versions on one Redis.
struct Versions {
    _redis: RedisServer,
    former: OncewardServer,
    current: OncewardServer,
}

impl Versions {
    fn start(redis: RedisServer) -> Self {
        let arguments = ["--listen", "127.0.0.1:0", "--log", "json", "--store-timeout", "5s", "--store", &redis.url()];
        let mut command = Command::new(former("onceward"));
        command.args(arguments).stdin(Stdio::null());
        let former = OncewardServer::spawn(command);
        let current = OncewardServer::start(&["--store-timeout", "5s", "--store", &redis.url()]);
        Self { _redis: redis, former, current }
    }

    fn urls(&self) -> [String; 2] {
        [self.former.url.clone(), self.current.url.clone()]
    }
}

/// Returns the path of a program of the former version.
#[expect(clippy::disallowed_methods, reason = "it is no setting of the guard")]
fn former(program: &str) -> String {
    let folder =
        std::env::var("FORMER").expect("FORMER names the programs of the former version; run make test-upgrade");
    format!("{folder}/{program}")
}

/// Starts the installed Redis and two servers with native compare commands.
fn servers() -> [RedisServer; 3] {
    let [redis, valkey] = ["redis-8.10", "valkey-9.0"].map(native_program);
    [RedisServer::start(), RedisServer::start_program(&redis, &[]), RedisServer::start_program(&valkey, &[])]
}

fn body(answer: &[u8]) -> Value {
    serde_json::from_slice(answer).unwrap_or_default()
}

/// Sends these bodies concurrently, to both versions in turn, and returns the responses.
async fn at_once(urls: &[String; 2], path: &'static str, bodies: Vec<Value>) -> Vec<(String, Value)> {
    let mut racers = JoinSet::new();
    for (number, asked) in bodies.into_iter().enumerate() {
        let url = urls[number % 2].clone();
        racers.spawn(async move {
            let answer = post(&url, path, &asked).await;
            (answer.said(), body(&answer.body))
        });
    }
    racers.join_all().await
}

/// Each version redeems tokens of both, by plain requests, by attempts, and by both at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_of_either_version_is_redeemed_once_by_both() {
    for redis in servers() {
        race_for_tokens(&Versions::start(redis)).await;
    }
}

async fn race_for_tokens(versions: &Versions) {
    let urls = versions.urls();
    let mut used_early = 0;
    for number in 0..MANY {
        let token = token(&urls[number % 2]).await;
        let plain = json!({ "token": token });
        let named = |name: &str| json!({ "token": token, "attempt": name });
        let bodies = match number % 3 {
            0 => vec![plain; 8],
            1 => (0..8).map(|racer| named(&format!("a{racer}"))).collect(),
            _ => (0..8).map(|racer| if racer % 4 < 2 { plain.clone() } else { named("one") }).collect(),
        };
        let said = at_once(&urls, "/token/redeem", bodies).await;
        let redeemed: Vec<_> = said.iter().filter(|(said, _)| said == "200 redeemed").collect();
        assert!(said.iter().all(|(said, _)| ["200 redeemed", "409 token_used"].contains(&said.as_str())), "{said:?}");
        // All accepted requests of one attempt are one redeem.
        let mut runs: Vec<_> = redeemed.iter().map(|(_, body)| body["run_id"].to_string()).collect();
        runs.sort();
        runs.dedup();
        assert_eq!(runs.len(), 1, "token {number}: {said:?}");
        let is_attempt = runs[0] != "null";
        assert!(is_attempt || redeemed.len() == 1, "token {number}: {said:?}");
        used_early += usize::from(number % 3 == 2 && is_attempt && redeemed.len() < 4);
    }
    println!(
        "{MANY} tokens, 8 requests each on two versions: redeemed once each; {used_early} attempts received token_used for a moment"
    );
}

/// Each version sees a release by the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_released_by_one_version_is_redeemed_by_the_other() {
    let versions = Versions::start(RedisServer::start());
    let urls = versions.urls();
    for number in 0..20 {
        let (one, other) = (&urls[number % 2], &urls[(number + 1) % 2]);
        let token = token(other).await;
        let redeemed = post(one, "/token/redeem", &json!({ "token": token, "attempt": "a" })).await;
        let run = &body(&redeemed.body)["run_id"];
        assert!(release(other, &token, "a", run).await.starts_with("204"));
        let again = json!({ "token": token });
        assert_eq!(post(one, "/token/redeem", &again).await.said(), "200 redeemed");
        assert_eq!(post(other, "/token/redeem", &again).await.said(), "409 token_used");
    }
}

/// A key that one version has claimed does not run on the other, which can renew, complete and replay it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_claimed_by_one_version_completes_on_the_other() {
    let versions = Versions::start(RedisServer::start());
    let urls = versions.urls();
    for number in 0..MANY / 10 {
        let claim = json!({ "key": format!("k{number}"), "action": "pay", "subject": "alice" });
        let said = at_once(&urls, "/claim", vec![claim.clone(); 8]).await;
        let runs: Vec<_> = said.iter().filter(|(_, body)| body["outcome"] == "run").collect();
        assert_eq!(runs.len(), 1, "key {number}: {said:?}");
        let (one, other) = (&urls[number % 2], &urls[(number + 1) % 2]);
        let pass = &runs[0].1["pass"];
        assert_eq!(post(one, "/claim/renew", &json!({ "pass": pass })).await.status / 100, 2);
        let reply = json!({ "status": 201, "body": "paid", "headers": [] });
        let completed = post(other, "/claim/complete", &json!({ "pass": pass, "reply": reply })).await;
        assert_eq!(completed.status / 100, 2, "{}", completed.said());
        for url in &urls {
            let again = post(url, "/claim", &claim).await;
            assert_eq!(body(&again.body)["outcome"], "replay", "{}", again.said());
        }
    }
}

/// A restart of either version does not invalidate tokens for the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restart_rejects_no_token() {
    let redis_and_versions = Versions::start(RedisServer::start());
    let urls = redis_and_versions.urls();
    let begun = Instant::now();
    let mut tokens = Vec::new();
    for number in 0..50 {
        tokens.push(token(&urls[number % 2]).await);
    }
    let Versions { _redis: redis, former, current } = redis_and_versions;
    drop(former);
    let next = OncewardServer::start(&["--store-timeout", "5s", "--store", &redis.url()]);
    for (number, token) in tokens.iter().enumerate() {
        let url = if number % 2 == 0 { &next.url } else { &current.url };
        let redeem =
            onceward_tests::client::http().post(format!("{url}/token/redeem")).json(&json!({ "token": token }));
        assert_eq!(send(redeem).await.said(), "200 redeemed");
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
}

/// Remembered runs of this version, half of which are not applied, while the former version receives the same token on a plain route.
/// The former version removes the record from the store for a moment. Nothing takes effect twice; a token that could not be given back
/// in that moment stays claimed, as documented.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remembered_run_beside_former_plain_redeems_has_one_effect() {
    for redis in servers() {
        let ledger = Ledger::new();
        let old = Peer::start(&former("peer"), "onceward", &redis.url(), &ledger);
        let new = Peer::start(env!("CARGO_BIN_EXE_peer"), "onceward", &redis.url(), &ledger);
        let (mut unreleased, mut used) = (0, 0);
        for number in 0..MANY {
            let token = token(&new.url).await;
            let (first, status) = (format!("first-{number}"), if number % 2 == 0 { 422 } else { 200 });
            let remembered = |name: &str, status: u16| {
                submit(&new.url, "/remembered/orders", &token, name).header(TAKES, 3).header(STATUS, status)
            };
            let run = tokio::spawn(send(remembered(&first, status)));
            let mut plain = JoinSet::new();
            for _ in 0..6 {
                plain.spawn(send(submit(&old.url, "/orders", &token, &first)));
            }
            let (run, plain) = (run.await.unwrap(), plain.join_all().await);
            let executed = plain.iter().filter(|answer| answer.said() == "200 executed").count();
            assert!(
                executed + usize::from(run.outcome == "executed" || run.outcome == "not_applied") <= 1 || status == 422
            );
            let second = send(remembered("second", 200)).await;
            // A rejected run, and then one that is applied: by the plain route in between, or by the second submission.
            let applied =
                executed + usize::from(run.said() == "200 executed") + usize::from(second.said() == "200 executed");
            assert!(applied <= 1, "token {number}: {} {}, {executed} plain", run.said(), second.said());
            unreleased += usize::from(run.said() == "422 not_applied" && executed == 0 && applied == 0);
            used += usize::from(run.outcome == "token_used" && executed == 0);
        }
        println!(
            "{MANY} remembered tokens beside the former version: one effect each; {unreleased} not released, {used} received token_used"
        );
    }
}
