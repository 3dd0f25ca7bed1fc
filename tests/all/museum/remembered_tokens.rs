//! Museum rows about tokens, repeated for remembered tokens.

use std::time::Duration;

use futures_util::future::join_all;
use onceward_api::Retry;
use onceward_tests::client::{order, send, submit, token};
use onceward_tests::faulty_tcp_proxy::TcpFault;
use onceward_tests::key_routes::Pair;
use onceward_tests::polling::until;
use onceward_tests::shop::TAKES;

use super::{ScenarioResult, ensure};
use crate::PEER;

const REMEMBERED: &str = "/remembered/orders";

/// A token that was redeemed on a remembering route is sent to a plain route, and the other way round: one redeem is accepted,
/// and the stored response stays.
async fn spent_elsewhere_scenario(kind: &str) -> ScenarioResult {
    let pair = Pair::start(PEER, kind).await;
    let running = token(pair.one()).await;
    let first = submit(pair.one(), REMEMBERED, &running, "first").header(TAKES, 500);
    let first = tokio::spawn(send(first));
    pair.begun(1).await;
    let beside = order(pair.other(), &running, "elsewhere").await;
    ensure(beside.said() == "409 token_used", || format!("during a run: {}", beside.said()))?;
    let first = first.await.unwrap();
    assert_eq!(first.said(), "200 executed");
    for url in [pair.other(), pair.one()] {
        let after = order(url, &running, "elsewhere").await;
        ensure(after.said() == "409 token_used", || format!("after a run: {}", after.said()))?;
        let again = send(submit(url, REMEMBERED, &running, "first")).await;
        assert_eq!((again.said().as_str(), &again.body), ("200 replayed", &first.body), "the stored response stays");
    }

    let spent = token(pair.one()).await;
    assert_eq!(order(pair.one(), &spent, "plain").await.status, 200);
    let elsewhere = send(submit(pair.other(), REMEMBERED, &spent, "elsewhere")).await;
    ensure(elsewhere.said() == "409 token_used", || format!("redeemed plainly, and then: {}", elsewhere.said()))?;
    assert_eq!(["first", "plain", "elsewhere"].map(|order| pair.ledger.count(order)), [1, 1, 0]);
    for number in 0..20 {
        by_all_at_once(&pair, &format!("raced-{number}")).await?;
    }
    Ok(())
}

/// Sends one token to both routes of both processes concurrently.
async fn by_all_at_once(pair: &Pair, name: &str) -> ScenarioResult {
    let token = token(pair.one()).await;
    let tries = [REMEMBERED, "/orders"].map(|path| {
        [pair.one(), pair.other(), pair.one(), pair.other()].map(|url| send(submit(url, path, &token, name)))
    });
    let answers = join_all(tries.into_iter().flatten()).await;
    let effects = pair.ledger.count(name);
    ensure(effects == 1, || format!("{name}: {effects} effects"))?;
    for answer in &answers {
        assert!([200, 409].contains(&answer.status), "this request did not take part in the race: {answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spent_elsewhere_for_remembered_tokens() {
    spent_elsewhere_scenario("onceward").await.unwrap();
    let wrong = spent_elsewhere_scenario("spent_elsewhere").await.unwrap_err();
    assert_eq!(wrong, "during a run: 200 ");
}

/// The token is claimed, and the reply is lost: the only submission receives 503 and runs on a retry.
async fn lost_reply_scenario(kind: &str, fate: TcpFault) -> ScenarioResult {
    let pair = Pair::start(PEER, kind).await;
    let warm = token(pair.one()).await;
    // A script that Redis has not cached is sent twice: cache it first.
    assert_eq!(send(submit(pair.one(), REMEMBERED, &warm, "warm")).await.said(), "200 executed");

    let token = token(pair.one()).await;
    // The flawed implementation uses a script on every server.
    let swap = if kind == "onceward" { pair.redis.compare_commands().swap_word() } else { "EVALSHA" };
    pair.proxy.next(swap, fate);
    let lost = send(submit(pair.one(), REMEMBERED, &token, "effect")).await;
    assert_eq!((pair.proxy.struck(), pair.ledger.count("effect")), (1, 0), "the reply was lost, and nothing ran");
    ensure(lost.outcome != "token_used", || "the only submission was rejected as a duplicate".into())?;
    assert_eq!((lost.said().as_str(), lost.problem().retry), ("503 store_unavailable", Retry::Same));
    assert_eq!(lost.headers["retry-after"], "1");
    // The claim whose reply was lost is there until the guard releases it.
    let ask = async || send(submit(pair.other(), REMEMBERED, &token, "effect")).await;
    until("the same token is valid again", Duration::from_secs(5), || async {
        let said = ask().await.said();
        assert!(["503 store_unavailable", "409 in_progress", "200 executed"].contains(&said.as_str()), "{said}");
        said == "200 executed"
    })
    .await;
    assert_eq!((ask().await.said().as_str(), pair.ledger.count("effect")), ("200 replayed", 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_for_remembered_tokens() {
    for fate in [TcpFault::LoseAnswer, TcpFault::SwallowAnswer, TcpFault::LoseRequest] {
        lost_reply_scenario("onceward", fate).await.unwrap();
    }
    lost_reply_scenario("lost_reply", TcpFault::LoseAnswer).await.unwrap_err();
}
