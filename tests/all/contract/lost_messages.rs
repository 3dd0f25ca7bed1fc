//! Calls of the middleware whose request or response is lost.

use onceward_tests::client::{send, token};
use onceward_tests::contract::contract_handler::RAISE;
use onceward_tests::contract::network::{Lost, Step};
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::{LEASE, LONG, Stage};
use onceward_tests::key_routes::THEN;
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

/// Builds a submission with a token, without sending it.
fn with_token(stage: &Stage, token: &str) -> RequestBuilder {
    stage.shop().post("/forms").header("onceward-token", token)
}

pub(super) async fn lost_call_under_a_token_is_repeated(stack: Stack) {
    // The default lease: no renewal is lost in place of another call.
    let stage = Stage::of(stack).open().await;
    warm_up(&stage).await;
    for lost in [Lost::Request, Lost::Response] {
        lost_claim_of_a_token(&stage, stack, lost).await;
        lost_completion_of_a_token(&stage, lost).await;
        lost_release_of_a_token(&stage, lost).await;
    }
}

async fn lost_claim_of_a_token(stage: &Stage, stack: Stack, lost: Lost) {
    let (token, before, what) = (token(&stage.shop().url).await, stage.network.lost(), format!("claim: {lost:?}"));
    let submit = || with_token(stage, &token).header(ORDER, &what);
    stage.network.lose_under_token(Step::Claim, lost);
    if stack.asks_service() {
        assert_eq!(send(submit()).await.said(), "201 executed", "{what}");
    } else {
        answered(&what, submit, &["201 executed"]).await;
    }
    lost_and_replayed(stage, &token, before, &what).await;
}

async fn lost_completion_of_a_token(stage: &Stage, lost: Lost) {
    let (token, before, what) = (token(&stage.shop().url).await, stage.network.lost(), format!("completion: {lost:?}"));
    let slow = tokio::spawn(send(with_token(stage, &token).header(ORDER, &what).header(THEN, SLOW)));
    stage.recorded(&what, 1).await;
    stage.network.lose_under_token(Step::Complete, lost);
    let first = slow.await.unwrap();
    assert_eq!(first.status, 201, "an effect never becomes an error: {what}: {first:?}");
    assert!(["executed", "unprotected"].contains(&first.outcome.as_str()), "{what}: {first:?}");
    lost_and_replayed(stage, &token, before, &what).await;
}

async fn lost_release_of_a_token(stage: &Stage, lost: Lost) {
    let (token, before, what) = (token(&stage.shop().url).await, stage.network.lost(), format!("release: {lost:?}"));
    let (submit, begun) = (|| with_token(stage, &token).header(ORDER, &what), stage.ledger.count("begun"));
    let slow = tokio::spawn(send(submit().header(TAKES, SLOW).header(RAISE, "not-applied")));
    stage.recorded("begun", begun + 1).await;
    stage.network.lose_under_token(Step::Release, lost);
    let first = slow.await.unwrap();
    assert!(["not_applied", "not_released"].contains(&first.outcome.as_str()), "{what}: {first:?}");
    answered("the token is valid again", submit, &["201 executed"]).await;
    lost_and_replayed(stage, &token, before, &what).await;
}

/// Asserts that one more message was lost than before, that the order took effect once, and that a duplicate receives its response.
async fn lost_and_replayed(stage: &Stage, token: &str, before: usize, what: &str) {
    assert_eq!(stage.network.lost(), before + 1, "{what}");
    answered(what, || with_token(stage, token), &["201 replayed"]).await;
    assert_eq!(stage.ledger.count(what), 1, "{what}");
}

/// One run that takes two leases.
pub(super) async fn lost_renewal_keeps_the_claim_of_a_token(stack: Stack) {
    let stage = Stage::of(stack).lease(LEASE).open().await;
    warm_up(&stage).await;
    let token = token(&stage.shop().url).await;
    let takes = (LEASE * 2).as_millis().to_string();
    let slow = tokio::spawn(send(with_token(&stage, &token).header(TAKES, takes)));
    stage.recorded("begun", 1).await;
    for (count, lost) in [(1, Lost::Request), (2, Lost::Response)] {
        stage.network.lose_under_token(Step::Renew, lost);
        // No duplicate is sent meanwhile: the library would lose the claim of that one instead.
        until("a renewal is lost", LONG, || async { stage.network.lost() == count }).await;
        // The connection that broke may have carried the claim of the duplicate too, which then runs nothing.
        answered("beside a live run", || with_token(&stage, &token), &["409 in_progress", "201 replayed"]).await;
    }
    answered("the first run ends", || with_token(&stage, &token), &["201 replayed"]).await;
    assert_eq!(slow.await.unwrap().said(), "201 executed");
    assert_eq!((stage.ledger.count("begun"), stage.ledger.count("order")), (1, 1));
}
