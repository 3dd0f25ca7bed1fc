//! The rows of the museum that need attempts: two processes that redeem tokens and one that takes orders, on one Redis.

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

use super::{StoryResult, told};
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

/// Asks whether this token may be used, by this attempt if there is one.
async fn redeem(url: &str, token: &str, attempt: Option<&str>) -> Answer {
    let body = match attempt {
        Some(attempt) => json!({"token": token, "attempt": attempt}),
        None => json!({ "token": token }),
    };
    post(url, "/token/redeem", &body).await
}

/// What is redeemed in one place is asked for in every other way and place, also by many at once: one is accepted.
async fn the_story_of_spent_elsewhere(kind: &str) -> StoryResult {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let redeemers = [(); 2].map(|()| Redeemer::start(kind, &redis.url(), &ledger));
    let [one, two] = redeemers.each_ref().map(Redeemer::url);
    let shop = Peer::start(PEER, kind, &redis.url(), &ledger);
    by_an_attempt_first(one, two, &shop.url).await?;
    told(ledger.runs().is_empty(), || format!("an effect of a token that was used elsewhere: {:?}", ledger.runs()))?;
    by_an_order_first(one, two, &shop.url).await?;
    assert_eq!(ledger.runs(), ["first"]);
    for number in 0..20 {
        by_all_at_once(one, two, &shop.url, number).await?;
    }
    Ok(())
}

async fn by_an_attempt_first(one: &str, two: &str, shop: &str) -> StoryResult {
    let token = token(one).await;
    assert_eq!(redeem(one, &token, Some("first")).await.said(), "200 redeemed");
    for answer in [
        order(shop, &token, "elsewhere").await,
        redeem(two, &token, None).await,
        redeem(two, &token, Some("second")).await,
        redeem(one, &token, None).await,
    ] {
        told(answer.said() == "409 token_used", || format!("used by an attempt, and then: {}", answer.said()))?;
    }
    let again = redeem(two, &token, Some("first")).await.said();
    told(again == "200 redeemed", || format!("the attempt that has used it is told: {again}"))
}

async fn by_an_order_first(one: &str, two: &str, shop: &str) -> StoryResult {
    let token = token(two).await;
    assert_eq!(order(shop, &token, "first").await.status, 200);
    for answer in [redeem(one, &token, Some("first")).await, redeem(two, &token, None).await] {
        told(answer.said() == "409 token_used", || format!("used for an order, and then: {}", answer.said()))?;
    }
    Ok(())
}

async fn by_all_at_once(one: &str, two: &str, shop: &str, number: usize) -> StoryResult {
    let token = token(one).await;
    let mut askers = JoinSet::new();
    for asker in 0..4 {
        let (at, shop, token) = ([one, two][asker % 2].to_owned(), shop.to_owned(), token.clone());
        askers.spawn(async move {
            let attempt = format!("attempt-{asker}");
            let asked = [redeem(&at, &token, Some(&attempt)), redeem(&at, &token, None)];
            let (asked, ordered) = tokio::join!(futures_util::future::join_all(asked), order(&shop, &token, "raced"));
            let answers = asked.iter().chain([&ordered]);
            for answer in answers.clone() {
                // Whoever was refused for another reason has taken no part in the race.
                assert!([200, 409].contains(&answer.status), "{answer:?}");
            }
            answers.filter(|answer| answer.status == 200).count()
        });
    }
    let accepted: usize = askers.join_all().await.iter().sum();
    told(accepted == 1, || format!("token {number}: {accepted} acceptances"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spent_elsewhere() {
    the_story_of_spent_elsewhere("onceward").await.unwrap();
    let wrong = the_story_of_spent_elsewhere("spent_elsewhere").await.unwrap_err();
    assert_eq!(wrong, "used by an attempt, and then: 200 ");
}

/// Asks the same again, as whoever was told 503 should, until the store is reached again.
async fn keep_asking(url: &str, token: &str, attempt: &str) -> Answer {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let answer = redeem(url, token, Some(attempt)).await;
        if answer.status != 503 || Instant::now() > deadline {
            return answer;
        }
    }
}

/// A redeem is carried out and its answer is lost. The attempt asks again, there and elsewhere: the token is its own.
async fn the_story_of_lost_reply(kind: &str, fate: TcpFault) -> StoryResult {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let proxy = Proxy::before(redis.port()).await;
    let redeemers = [proxy.url(), redis.url()].map(|store| Redeemer::start(kind, &store, &ledger));
    let [one, two] = redeemers.each_ref().map(Redeemer::url);
    // A script that Redis has not seen is sent twice: from now on it knows it.
    assert_eq!(redeem(one, &token(one).await, Some("before")).await.said(), "200 redeemed");

    let token = token(one).await;
    proxy.next(if kind == "onceward" { redis.compare_commands().swap_word() } else { "DEL\r\n" }, fate);
    let lost = redeem(one, &token, Some("mine")).await;
    assert_eq!((lost.status, proxy.struck()), (503, 1), "the answer was lost");
    if fate != TcpFault::LoseRequest {
        assert_eq!(redeem(two, &token, Some("another")).await.said(), "409 token_used", "it was carried out");
    }
    for url in [one, two, one] {
        let again = keep_asking(url, &token, "mine").await.said();
        told(again == "200 redeemed", || format!("the only attempt asks again, and is told: {again}"))?;
    }
    assert_eq!(redeem(two, &token, Some("another")).await.said(), "409 token_used");
    assert_eq!(lost.said(), "503 store_unavailable");
    assert_eq!((lost.problem().retry, &lost.headers["retry-after"]), (Retry::Same, &"1".parse().unwrap()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_for_attempts() {
    for fate in [TcpFault::LoseAnswer, TcpFault::SwallowAnswer, TcpFault::LoseRequest] {
        the_story_of_lost_reply("onceward", fate).await.unwrap();
    }
    let wrong = the_story_of_lost_reply("no_attempts", TcpFault::LoseAnswer).await.unwrap_err();
    assert_eq!(wrong, "the only attempt asks again, and is told: 409 token_used");
}

/// An attempt releases its token and redeems it again. Then the release is repeated, whose answer was lost: the token stays used.
async fn the_story_of_repeated_release(kind: &str) -> StoryResult {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let redeemers = [(); 2].map(|()| Redeemer::start(kind, &redis.url(), &ledger));
    let [one, two] = redeemers.each_ref().map(Redeemer::url);
    let token = token(one).await;
    let first = redeem(one, &token, Some("mine")).await;
    assert_eq!(first.said(), "200 redeemed");
    let run: Value = serde_json::from_slice(&first.body).unwrap_or_default();
    let release = json!({"token": token, "attempt": "mine", "run_id": run["run_id"]});
    for url in [one, two] {
        assert_eq!(post(url, "/token/release", &release).await.status, 204, "repeating it does no harm");
    }
    assert_eq!(redeem(two, &token, Some("mine")).await.said(), "200 redeemed", "it works again");
    post(one, "/token/release", &release).await;
    let another = redeem(one, &token, Some("another")).await.said();
    told(another == "409 token_used", || format!("beside the second run, another attempt: {another}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_release() {
    the_story_of_repeated_release("onceward").await.unwrap();
    let wrong = the_story_of_repeated_release("release_by_name").await.unwrap_err();
    assert_eq!(wrong, "beside the second run, another attempt: 200 redeemed");
}
