//! Museum rows about attempts: two processes that redeem tokens and one that accepts orders, on one Redis.

use std::time::Duration;

use onceward_api::Retry;
use onceward_tests::client::{Answer, order, token};
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::post;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{ScenarioResult, ensure};
use crate::PEER;

/// A process that redeems tokens: the real `onceward`, or an implementation with a flaw.
enum Redeemer {
    Onceward(OncewardServer),
    Another(Peer),
}

impl Redeemer {
    fn start(kind: &str, store: &str, ledger: &Ledger) -> Self {
        match kind {
            "onceward" => Self::Onceward(OncewardServer::start(&["--store", store])),
            flaw => Self::Another(Peer::start(PEER, flaw, store, ledger)),
        }
    }

    fn url(&self) -> &str {
        match self {
            Self::Onceward(service) => &service.url,
            Self::Another(peer) => &peer.url,
        }
    }
}

/// Redeems this token, by this attempt if there is one.
async fn redeem(url: &str, token: &str, attempt: Option<&str>) -> Answer {
    let body = match attempt {
        Some(attempt) => json!({"token": token, "attempt": attempt}),
        None => json!({ "token": token }),
    };
    post(url, "/token/redeem", &body).await
}

/// A token is redeemed in every way and on every process, one after the other and concurrently: one redeem is accepted.
async fn spent_elsewhere_scenario(kind: &str) -> ScenarioResult {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let redeemers = [(); 2].map(|()| Redeemer::start(kind, &redis.url(), &ledger));
    let [one, two] = redeemers.each_ref().map(Redeemer::url);
    let shop = Peer::start(PEER, kind, &redis.url(), &ledger);
    by_an_attempt_first(one, two, &shop.url).await?;
    ensure(ledger.runs().is_empty(), || {
        format!("a token that was redeemed elsewhere had an effect: {:?}", ledger.runs())
    })?;
    by_an_order_first(one, two, &shop.url).await?;
    assert_eq!(ledger.runs(), ["first"]);
    for number in 0..20 {
        by_all_at_once(one, two, &shop.url, number).await?;
    }
    Ok(())
}

async fn by_an_attempt_first(one: &str, two: &str, shop: &str) -> ScenarioResult {
    let token = token(one).await;
    assert_eq!(redeem(one, &token, Some("first")).await.said(), "200 redeemed");
    for answer in [
        order(shop, &token, "elsewhere").await,
        redeem(two, &token, None).await,
        redeem(two, &token, Some("second")).await,
        redeem(one, &token, None).await,
    ] {
        ensure(answer.said() == "409 token_used", || format!("redeemed by an attempt, and then: {}", answer.said()))?;
    }
    let again = redeem(two, &token, Some("first")).await.said();
    ensure(again == "200 redeemed", || format!("the same attempt again: {again}"))
}

async fn by_an_order_first(one: &str, two: &str, shop: &str) -> ScenarioResult {
    let token = token(two).await;
    assert_eq!(order(shop, &token, "first").await.status, 200);
    for answer in [redeem(one, &token, Some("first")).await, redeem(two, &token, None).await] {
        ensure(answer.said() == "409 token_used", || format!("redeemed by an order, and then: {}", answer.said()))?;
    }
    Ok(())
}

async fn by_all_at_once(one: &str, two: &str, shop: &str, number: usize) -> ScenarioResult {
    let token = token(one).await;
    let mut racers = JoinSet::new();
    for racer in 0..4 {
        let (at, shop, token) = ([one, two][racer % 2].to_owned(), shop.to_owned(), token.clone());
        racers.spawn(async move {
            let attempt = format!("attempt-{racer}");
            let redeems = [redeem(&at, &token, Some(&attempt)), redeem(&at, &token, None)];
            let (redeems, ordered) =
                tokio::join!(futures_util::future::join_all(redeems), order(&shop, &token, "raced"));
            let answers = redeems.iter().chain([&ordered]);
            for answer in answers.clone() {
                // A request that failed for another reason did not take part in the race.
                assert!([200, 409].contains(&answer.status), "{answer:?}");
            }
            answers.filter(|answer| answer.status == 200).count()
        });
    }
    let accepted: usize = racers.join_all().await.iter().sum();
    ensure(accepted == 1, || format!("token {number}: {accepted} acceptances"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spent_elsewhere() {
    spent_elsewhere_scenario("onceward").await.unwrap();
    let wrong = spent_elsewhere_scenario("spent_elsewhere").await.unwrap_err();
    assert_eq!(wrong, "redeemed by an attempt, and then: 200 ");
}

/// Retries on 503, as a client should, until the store is reached again.
async fn retry_on_503(url: &str, token: &str, attempt: &str) -> Answer {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let answer = redeem(url, token, Some(attempt)).await;
        if answer.status != 503 || Instant::now() > deadline {
            return answer;
        }
    }
}

/// A redeem is executed and its reply is lost. A retry of the same attempt on either process is accepted.
async fn lost_reply_scenario(kind: &str, fate: TcpFault) -> ScenarioResult {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let proxy = Proxy::before(redis.port()).await;
    let redeemers = [proxy.url(), redis.url()].map(|store| Redeemer::start(kind, &store, &ledger));
    let [one, two] = redeemers.each_ref().map(Redeemer::url);
    // A script that Redis has not cached is sent twice: cache it first.
    assert_eq!(redeem(one, &token(one).await, Some("before")).await.said(), "200 redeemed");

    let token = token(one).await;
    proxy.next(if kind == "onceward" { redis.compare_commands().swap_word() } else { "DEL\r\n" }, fate);
    let lost = redeem(one, &token, Some("mine")).await;
    assert_eq!((lost.status, proxy.struck()), (503, 1), "the reply was lost");
    if fate != TcpFault::LoseRequest {
        assert_eq!(redeem(two, &token, Some("another")).await.said(), "409 token_used", "the redeem was executed");
    }
    for url in [one, two, one] {
        let again = retry_on_503(url, &token, "mine").await.said();
        ensure(again == "200 redeemed", || format!("a retry of the only attempt: {again}"))?;
    }
    assert_eq!(redeem(two, &token, Some("another")).await.said(), "409 token_used");
    assert_eq!(lost.said(), "503 store_unavailable");
    assert_eq!((lost.problem().retry, &lost.headers["retry-after"]), (Retry::Same, &"1".parse().unwrap()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_for_attempts() {
    for fate in [TcpFault::LoseAnswer, TcpFault::SwallowAnswer, TcpFault::LoseRequest] {
        lost_reply_scenario("onceward", fate).await.unwrap();
    }
    let wrong = lost_reply_scenario("no_attempts", TcpFault::LoseAnswer).await.unwrap_err();
    assert_eq!(wrong, "a retry of the only attempt: 409 token_used");
}

/// An attempt releases its token and redeems it again. Then a retry of the release arrives: the token stays used.
async fn repeated_release_scenario(kind: &str) -> ScenarioResult {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let redeemers = [(); 2].map(|()| Redeemer::start(kind, &redis.url(), &ledger));
    let [one, two] = redeemers.each_ref().map(Redeemer::url);
    let token = token(one).await;
    let first = redeem(one, &token, Some("mine")).await;
    assert_eq!(first.said(), "200 redeemed");
    let run: Value = serde_json::from_slice(&first.body).unwrap_or_default();
    let release = json!({"token": token, "attempt": "mine", "run_id": run["run_id"]});
    for url in [one, two] {
        assert_eq!(post(url, "/token/release", &release).await.status, 204, "a repeated release does no harm");
    }
    assert_eq!(redeem(two, &token, Some("mine")).await.said(), "200 redeemed", "the token is valid again");
    post(one, "/token/release", &release).await;
    let another = redeem(one, &token, Some("another")).await.said();
    ensure(another == "409 token_used", || format!("another attempt during the second run: {another}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_release() {
    repeated_release_scenario("onceward").await.unwrap();
    let wrong = repeated_release_scenario("release_by_name").await.unwrap_err();
    assert_eq!(wrong, "another attempt during the second run: 200 redeemed");
}
