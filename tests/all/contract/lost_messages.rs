//! Calls of the middleware whose request or response is lost.

use onceward_tests::client::send;
use onceward_tests::contract::contract_handler::RAISE;
use onceward_tests::contract::network::{Lost, Step};
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::{LEASE, LONG, Stage};
use onceward_tests::polling::until;
use onceward_tests::shop::{ORDER, TAKES};
use reqwest::RequestBuilder;

/// The time that a handler takes so that the loss can be arranged meanwhile, in milliseconds.
const SLOW: u64 = 400;

/// Sends a submission until it has a response of the handler. Until then it was rejected, and ran nothing.
async fn answered(what: &str, request: impl Fn() -> RequestBuilder, expected: &[&str]) {
    until(what, LONG, || async {
        let said = send(request()).await.said();
        let is_answered = expected.contains(&said.as_str());
        assert!(is_answered || ["409 in_progress", "503 store_unavailable"].contains(&said.as_str()), "{what}: {said}");
        is_answered
    })
    .await;
}

/// Completes one run and releases another, so that Redis has loaded the scripts of both commands.
async fn warm_up(stage: &Stage) {
    let submit = |key| stage.shop().submit("/retryable", key).header(ORDER, "warm");
    assert_eq!(send(submit("completed")).await.said(), "201 executed");
    assert_eq!(send(submit("released").header(RAISE, "not-applied")).await.outcome, "not_applied");
}

pub(super) async fn lost_claim_runs_once(stack: Stack) {
    let stage = Stage::of(stack).lease(LEASE).open().await;
    assert_eq!(send(stage.shop().submit("/orders", "warm")).await.said(), "201 executed");
    for (at, lost) in [Lost::Request, Lost::Response].into_iter().enumerate() {
        let (name, submit) = (format!("{lost:?}"), |path| stage.shop().submit(path, &format!("{lost:?}")));
        for (more, path) in ["/orders", "/retryable"].into_iter().enumerate() {
            stage.network.lose(Step::Claim, lost);
            if stack.asks_service() {
                // The call is repeated with its attempt id, so that the client notices nothing.
                assert_eq!(send(submit(path)).await.said(), "201 executed", "{path} {name}");
            } else {
                answered(&name, || submit(path), &["201 executed"]).await;
            }
            assert_eq!(stage.network.lost(), at * 2 + more + 1, "{path} {name}");
            assert_eq!(send(submit(path)).await.said(), "201 replayed", "{path} {name}");
            assert_eq!(stage.ledger.count("order"), 1 + at * 2 + more + 1, "{path} {name}");
        }
    }
}

pub(super) async fn lost_renewal_keeps_the_claim(stack: Stack) {
    let stage = Stage::of(stack).shops(2).lease(LEASE).open().await;
    warm_up(&stage).await;
    for (runs, lost) in [(1, Lost::Request), (2, Lost::Response)] {
        let submit = |shop: usize| stage.shops[shop].submit("/retryable", &format!("{lost:?}"));
        let slow = tokio::spawn(send(submit(0).header(TAKES, (LEASE * 2).as_millis().to_string())));
        stage.recorded("begun", runs).await;
        stage.network.lose(Step::Renew, lost);
        answered("the first run ends", || submit(1), &["201 replayed"]).await;
        assert_eq!((slow.await.unwrap().said().as_str(), stage.network.lost()), ("201 executed", runs), "{lost:?}");
        assert_eq!((stage.ledger.count("begun"), stage.ledger.count("order")), (runs, runs), "{lost:?}");
    }
}

pub(super) async fn lost_completion_is_repeated(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    warm_up(&stage).await;
    for (at, lost) in [Lost::Request, Lost::Response].into_iter().enumerate() {
        let submit = || stage.shop().submit("/orders", &format!("{lost:?}"));
        let slow = tokio::spawn(send(submit().header(TAKES, SLOW)));
        stage.recorded("begun", at + 1).await;
        stage.network.lose(Step::Complete, lost);
        let first = slow.await.unwrap();
        assert_eq!(first.status, 201, "an effect never becomes an error: {lost:?}: {first:?}");
        assert!(["executed", "unprotected"].contains(&first.outcome.as_str()), "{lost:?}: {first:?}");
        assert_eq!(stage.network.lost(), at + 1, "{lost:?}");
        answered("the response is stored", submit, &["201 replayed"]).await;
        assert_eq!(stage.ledger.count("order"), at + 1, "{lost:?}");
    }
}

pub(super) async fn lost_release_is_repeated(stack: Stack) {
    let stage = Stage::of(stack).lease(LEASE).open().await;
    warm_up(&stage).await;
    for (at, lost) in [Lost::Request, Lost::Response].into_iter().enumerate() {
        let submit = || stage.shop().submit("/retryable", &format!("{lost:?}"));
        stage.network.lose(Step::Release, lost);
        let first = send(submit().header(RAISE, "not-applied")).await;
        assert!(["not_applied", "not_released"].contains(&first.outcome.as_str()), "{lost:?}: {first:?}");
        assert_eq!(stage.network.lost(), at + 1, "{lost:?}");
        answered("the key is free", submit, &["201 executed"]).await;
        assert_eq!(stage.ledger.count("order"), at + 1, "{lost:?}");
    }
}
