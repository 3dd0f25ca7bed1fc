//! A service, or a store, that is down, hangs, restarts, or rejects the credentials.

use std::time::Duration;

use onceward_tests::client::{Answer, send, token};
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::{LEASE, LONG, Stage};
use onceward_tests::key_routes::THEN;
use onceward_tests::polling::{holds_for, until};
use onceward_tests::shop::TAKES;
use tokio::time::{Instant, sleep};

/// A lease that outlasts a restart of the service, also on a busy machine.
const RESTART: Duration = Duration::from_secs(5);

/// Asserts that a request was rejected because the service or the store could not be asked.
fn unavailable(answer: &Answer) {
    assert_eq!(answer.said(), "503 store_unavailable", "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    assert_eq!(answer.headers["onceward-retry"], "same");
    assert_eq!(answer.problem().status, 503);
}

pub(super) async fn nothing_runs_while_the_service_is_down(stack: Stack) {
    let mut stage = Stage::of(stack).open().await;
    let token = token(&stage.shop().url).await;
    let form = |stage: &Stage| stage.shop().post("/forms").header("onceward-token", &token);
    assert_eq!(send(stage.shop().submit("/orders", "warm")).await.said(), "201 executed");
    stage.stop_service();
    for path in ["/orders", "/retryable"] {
        unavailable(&send(stage.shop().submit(path, "k")).await);
    }
    unavailable(&send(form(&stage)).await);
    assert_eq!(stage.ledger.runs().len(), 1);
    stage.start_service();
    runs_once_the_service_is_back(&stage).await;
}

/// Sends the rejected submission again until it runs. It may be rejected until then, but its outcome is never unknown: nothing ran.
async fn runs_once_the_service_is_back(stage: &Stage) {
    until("the rejected submission runs", LONG, || async {
        let said = send(stage.shop().submit("/orders", "k")).await.said();
        assert!(["503 store_unavailable", "409 in_progress", "201 executed"].contains(&said.as_str()), "{said}");
        said == "201 executed"
    })
    .await;
    assert_eq!(stage.ledger.runs().len(), 2);
}

/// An SDK repeats the claim for one lease. The service may still grant what was sent meanwhile, so the middleware releases it.
pub(super) async fn nothing_runs_while_the_service_hangs(stack: Stack) {
    let stage = Stage::of(stack).lease(LEASE).open().await;
    assert_eq!(send(stage.shop().submit("/orders", "warm")).await.said(), "201 executed");
    stage.freeze_service();
    unavailable(&send(stage.shop().submit("/orders", "k")).await);
    stage.thaw_service();
    assert_eq!(stage.ledger.runs().len(), 1);
    runs_once_the_service_is_back(&stage).await;
}

/// The handler takes three leases. A duplicate after the first one shows that the claim was renewed after the restart: an expired claim would
/// be `outcome_unknown`, or run again.
pub(super) async fn run_survives_a_restart_of_the_service(stack: Stack) {
    let mut stage = Stage::of(stack).lease(RESTART).open().await;
    let slow =
        tokio::spawn(send(stage.shop().submit("/orders", "k").header(TAKES, (RESTART * 3).as_millis().to_string())));
    stage.recorded("begun", 1).await;
    let begun = Instant::now();
    stage.stop_service();
    stage.start_service();
    sleep((RESTART * 3 / 2).saturating_sub(begun.elapsed())).await;
    let duplicate = send(stage.shop().submit("/orders", "k")).await;
    assert_eq!(duplicate.said(), "409 in_progress", "{:?} after the run began: {duplicate:?}", begun.elapsed());
    let first = slow.await.unwrap();
    assert_eq!(first.said(), "201 executed", "{first:?}");
    let second = send(stage.shop().submit("/orders", "k")).await;
    assert_eq!((second.said().as_str(), second.body), ("201 replayed", first.body));
    assert_eq!(stage.ledger.count("order"), 1);
}

/// The effect has happened, and the service is down when its response is stored: the client receives the response, which is stored later.
pub(super) async fn response_is_stored_once_the_service_is_back(stack: Stack) {
    let mut stage = Stage::of(stack).open().await;
    let slow = tokio::spawn(send(stage.shop().submit("/orders", "k").header(THEN, 500)));
    stage.recorded("order", 1).await;
    stage.stop_service();
    let first = slow.await.unwrap();
    assert_eq!(first.status, 201, "an effect never becomes an error: {first:?}");
    assert!(["executed", "unprotected"].contains(&first.outcome.as_str()), "{first:?}");
    stage.start_service();
    until("the response is stored", LONG, || async {
        let answer = send(stage.shop().submit("/orders", "k")).await;
        let said = answer.said();
        assert!(["503 store_unavailable", "409 in_progress", "201 replayed"].contains(&said.as_str()), "{answer:?}");
        said == "201 replayed" && answer.body == first.body
    })
    .await;
    assert_eq!(stage.ledger.count("order"), 1);
}

/// The service never comes back within the lease. The outcome becomes unknown, and no duplicate runs.
pub(super) async fn response_that_is_never_stored_leaves_an_unknown_outcome(stack: Stack) {
    let mut stage = Stage::of(stack).lease(LEASE).open().await;
    let slow = tokio::spawn(send(stage.shop().submit("/orders", "k").header(THEN, 300)));
    stage.recorded("order", 1).await;
    stage.stop_service();
    assert_eq!(slow.await.unwrap().status, 201);
    // The process that knows the response ends before it could store it.
    stage.shops[0].kill();
    stage.restart_shop(0);
    stage.start_service();
    let is_settled = || async {
        let said = send(stage.shop().submit("/orders", "k")).await.said();
        assert!(["503 store_unavailable", "409 in_progress", "409 outcome_unknown"].contains(&said.as_str()), "{said}");
        said == "409 outcome_unknown"
    };
    until("the outcome is unknown", LONG, is_settled).await;
    holds_for("the outcome stays unknown", Duration::from_millis(300), is_settled).await;
    assert_eq!(stage.ledger.count("order"), 1);
}

pub(super) async fn wrong_credentials_let_nothing_run(stack: Stack) {
    let stage = Stage::of(stack).with_wrong_key().open().await;
    for _ in 0..2 {
        unavailable(&send(stage.shop().submit("/orders", "k")).await);
    }
    assert_eq!(stage.ledger.runs(), [""; 0]);
    let cause = stack.word_for_wrong_credentials();
    until("the operator learns it from the log", LONG, || async { stage.shop().log().contains(cause) }).await;
    assert!(!stage.shop().log().contains("a-wrong-key"), "{}", stage.shop().log());
}
