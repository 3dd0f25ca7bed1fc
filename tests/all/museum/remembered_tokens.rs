//! The rows of the museum that are told once more of tokens whose answer is remembered.

use std::time::Duration;

use futures_util::future::join_all;
use onceward_api::Retry;
use onceward_tests::client::{order, send, submit, token};
use onceward_tests::faulty_tcp_proxy::TcpFault;
use onceward_tests::key_routes::Pair;
use onceward_tests::polling::until;
use onceward_tests::shop::TAKES;

use super::{StoryResult, told};
use crate::PEER;

const REMEMBERED: &str = "/remembered/orders";

/// A token that runs, or has run, where it is remembered is tried where it is not, and the other way round: one is accepted,
/// and what is remembered stays.
async fn the_story_of_spent_elsewhere(kind: &str) -> StoryResult {
    let pair = Pair::start(PEER, kind).await;
    let running = token(pair.one()).await;
    let first = submit(pair.one(), REMEMBERED, &running, "first").header(TAKES, 500);
    let first = tokio::spawn(send(first));
    pair.begun(1).await;
    let beside = order(pair.other(), &running, "elsewhere").await;
    told(beside.said() == "409 token_used", || format!("beside a run: {}", beside.said()))?;
    let first = first.await.unwrap();
    assert_eq!(first.said(), "200 executed");
    for url in [pair.other(), pair.one()] {
        let after = order(url, &running, "elsewhere").await;
        told(after.said() == "409 token_used", || format!("after a run: {}", after.said()))?;
        let again = send(submit(url, REMEMBERED, &running, "first")).await;
        assert_eq!((again.said().as_str(), &again.body), ("200 replayed", &first.body), "it is still remembered");
    }

    let spent = token(pair.one()).await;
    assert_eq!(order(pair.one(), &spent, "plain").await.status, 200);
    let elsewhere = send(submit(pair.other(), REMEMBERED, &spent, "elsewhere")).await;
    told(elsewhere.said() == "409 token_used", || format!("spent, and then: {}", elsewhere.said()))?;
    assert_eq!(["first", "plain", "elsewhere"].map(|order| pair.ledger.count(order)), [1, 1, 0]);
    for number in 0..20 {
        by_all_at_once(&pair, &format!("raced-{number}")).await?;
    }
    Ok(())
}

/// Tries one token everywhere at the same moment.
async fn by_all_at_once(pair: &Pair, name: &str) -> StoryResult {
    let token = token(pair.one()).await;
    let tries = [REMEMBERED, "/orders"].map(|path| {
        [pair.one(), pair.other(), pair.one(), pair.other()].map(|url| send(submit(url, path, &token, name)))
    });
    let answers = join_all(tries.into_iter().flatten()).await;
    let effects = pair.ledger.count(name);
    told(effects == 1, || format!("{name}: {effects} effects"))?;
    for answer in &answers {
        assert!([200, 409].contains(&answer.status), "whoever was refused otherwise has taken no part: {answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spent_elsewhere_for_remembered_tokens() {
    the_story_of_spent_elsewhere("onceward").await.unwrap();
    let wrong = the_story_of_spent_elsewhere("spent_elsewhere").await.unwrap_err();
    assert_eq!(wrong, "beside a run: 200 ");
}

/// The token's place is taken, and nobody hears of it: the only submission is told to come again, and then it runs.
async fn the_story_of_lost_reply(kind: &str, fate: TcpFault) -> StoryResult {
    let pair = Pair::start(PEER, kind).await;
    let warm = token(pair.one()).await;
    // A script that Redis has not seen is sent twice: from now on it knows it.
    assert_eq!(send(submit(pair.one(), REMEMBERED, &warm, "warm")).await.said(), "200 executed");

    let token = token(pair.one()).await;
    // Implementations with this bug compare by a script on every server.
    let swap = if kind == "onceward" { pair.redis.compare_commands().swap_word() } else { "EVALSHA" };
    pair.proxy.next(swap, fate);
    let lost = send(submit(pair.one(), REMEMBERED, &token, "effect")).await;
    assert_eq!((pair.proxy.struck(), pair.ledger.count("effect")), (1, 0), "the answer was lost, and nothing ran");
    told(lost.outcome != "token_used", || "the only submission was called a duplicate".into())?;
    assert_eq!((lost.said().as_str(), lost.problem().retry), ("503 store_unavailable", Retry::Same));
    assert_eq!(lost.headers["retry-after"], "1");
    // Until it is taken back, a claim that nobody knows of is there.
    let ask = async || send(submit(pair.other(), REMEMBERED, &token, "effect")).await;
    until("the same token works again", Duration::from_secs(5), || async {
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
        the_story_of_lost_reply("onceward", fate).await.unwrap();
    }
    the_story_of_lost_reply("lost_reply", TcpFault::LoseAnswer).await.unwrap_err();
}
