//! A process that is killed with `kill -9` in the middle of a handler.

use futures_util::future::join_all;
use onceward_tests::client::{send, token};
use onceward_tests::contract::shop_process::ShopProcess;
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::{LEASE, Stage};
use onceward_tests::key_routes::THEN;
use onceward_tests::shop::{ORDER, TAKES};

use super::failures::{runs_again, stays_unknown};

/// Longer than any test.
const FOREVER: u64 = 60_000;

pub(super) async fn crash_at_most_once_leaves_an_unknown_outcome(stack: Stack) {
    let mut stage = Stage::of(stack).shops(2).lease(LEASE).open().await;
    let lost = [TAKES, THEN].map(|moment| {
        let lost = stage.shop().submit("/orders", moment).header(ORDER, moment).header(moment, FOREVER);
        tokio::spawn(async move { lost.send().await })
    });
    stage.recorded("begun", 1).await;
    stage.recorded(THEN, 1).await;
    stage.shops[0].kill();
    for lost in lost {
        assert!(lost.await.unwrap().is_err());
    }
    join_all([(TAKES, 0), (THEN, 1)].map(async |(moment, effects)| {
        stays_unknown(|| stage.shops[1].submit("/orders", moment).header(ORDER, moment)).await;
        assert_eq!(stage.ledger.count(moment), effects, "{moment}");
    }))
    .await;
}

pub(super) async fn crash_under_a_token_leaves_an_unknown_outcome(stack: Stack) {
    let mut stage = Stage::of(stack).shops(2).lease(LEASE).open().await;
    let tokens = [token(&stage.shop().url).await, token(&stage.shop().url).await];
    let submit = |shop: &ShopProcess, token: &str, moment: &str| {
        shop.post("/forms").header("onceward-token", token).header(ORDER, moment)
    };
    let moments = [TAKES, THEN];
    let lost = [0, 1]
        .map(|at| tokio::spawn(submit(stage.shop(), &tokens[at], moments[at]).header(moments[at], FOREVER).send()));
    stage.recorded("begun", 1).await;
    stage.recorded(THEN, 1).await;
    stage.shops[0].kill();
    for lost in lost {
        assert!(lost.await.unwrap().is_err());
    }
    join_all([0, 1].map(async |at| {
        stays_unknown(|| submit(&stage.shops[1], &tokens[at], moments[at])).await;
        assert_eq!(stage.ledger.count(moments[at]), at, "{}", moments[at]);
    }))
    .await;
}

pub(super) async fn crash_of_a_retryable_run_frees_the_key_after_its_lease(stack: Stack) {
    let mut stage = Stage::of(stack).shops(2).lease(LEASE).open().await;
    let lost = stage.shop().submit("/retryable", "k").header(TAKES, FOREVER);
    let lost = tokio::spawn(async move { lost.send().await });
    stage.recorded("begun", 1).await;
    stage.shops[0].kill();
    assert!(lost.await.unwrap().is_err());
    runs_again(|| stage.shops[1].submit("/retryable", "k")).await;
    assert_eq!(send(stage.shops[1].submit("/retryable", "k")).await.said(), "201 replayed");
    assert_eq!(stage.ledger.count("order"), 1);
}
