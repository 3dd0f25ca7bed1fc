//! Handlers that fail, and handlers that state their effect.

use std::time::Duration;

use futures_util::future::join_all;
use onceward_tests::client::{Answer, send, token};
use onceward_tests::contract::contract_handler::RAISE;
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::{LEASE, LONG, Stage};
use onceward_tests::polling::{holds_for, until};
use onceward_tests::shop::{EFFECT, STATUS};
use reqwest::RequestBuilder;

/// Time for which an unknown outcome is watched after it has settled.
const SETTLED: Duration = Duration::from_millis(500);

/// Asserts the outcome of a handler that has failed.
pub(super) fn failed(answer: &Answer, outcome: &str) {
    assert!(answer.status >= 500 && answer.outcome == outcome, "not a failure with the outcome {outcome}: {answer:?}");
}

/// Asserts that the outcome of a run becomes unknown when its lease is over, and stays unknown.
pub(super) async fn stays_unknown(request: impl Fn() -> RequestBuilder) {
    let is_unknown = || async {
        let said = send(request()).await.said();
        assert!(["409 in_progress", "409 outcome_unknown"].contains(&said.as_str()), "{said}");
        said == "409 outcome_unknown"
    };
    until("the outcome is unknown", LONG, is_unknown).await;
    holds_for("the outcome stays unknown", SETTLED, is_unknown).await;
}

/// Sends a request until it runs. Until then another run is in flight.
pub(super) async fn runs_again(request: impl Fn() -> RequestBuilder) {
    until("the key is free", LONG, || async {
        let said = send(request()).await.said();
        assert!(["409 in_progress", "201 executed"].contains(&said.as_str()), "{said}");
        said == "201 executed"
    })
    .await;
}

pub(super) async fn failure_at_most_once_never_runs_again(stack: Stack) {
    let stage = Stage::of(stack).lease(LEASE).open().await;
    join_all([("before", 0), ("after", 1), ("unknown", 1)].map(async |(moment, effects)| {
        let submit = || stage.shop().submit("/orders", moment).header("x-order", moment);
        failed(&send(submit().header(RAISE, moment)).await, "unknown");
        stays_unknown(submit).await;
        assert_eq!(stage.ledger.count(moment), effects, "{moment}");
    }))
    .await;
}

pub(super) async fn failure_of_a_retryable_run_frees_the_key(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    for (moment, effects) in [("before", 1), ("after", 2)] {
        let submit = || stage.shop().submit("/retryable", moment).header("x-order", moment);
        failed(&send(submit().header(RAISE, moment)).await, "not_applied");
        assert_eq!(send(submit()).await.said(), "201 executed", "{moment}");
        assert_eq!(send(submit()).await.said(), "201 replayed", "{moment}");
        assert_eq!(stage.ledger.count(moment), effects, "{moment}");
    }
}

pub(super) async fn failure_under_a_token_makes_it_valid_again(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    let token = token(&stage.shop().url).await;
    let submit = || stage.shop().post("/forms").header("onceward-token", &token);
    failed(&send(submit().header(RAISE, "before")).await, "not_applied");
    let invalid = send(submit().header(STATUS, 422).header("x-order", "invalid")).await;
    assert_eq!(invalid.said(), "422 not_applied");
    assert_eq!(send(submit()).await.said(), "201 executed");
    assert_eq!(send(submit()).await.said(), "201 replayed");
    assert_eq!(stage.ledger.runs(), ["invalid", "order"]);
}

pub(super) async fn failure_that_says_not_applied_frees_the_key(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    for path in ["/orders", "/retryable"] {
        failed(&send(stage.shop().submit(path, "k").header(RAISE, "not-applied")).await, "not_applied");
        assert_eq!(send(stage.shop().submit(path, "k")).await.said(), "201 executed", "{path}");
    }
    assert_eq!(stage.ledger.runs().len(), 2);
}

pub(super) async fn failure_that_says_unknown_keeps_a_retryable_claim(stack: Stack) {
    let stage = Stage::of(stack).lease(LEASE).open().await;
    let submit = || stage.shop().submit("/retryable", "k");
    failed(&send(submit().header(RAISE, "unknown")).await, "unknown");
    assert_eq!(send(submit()).await.said(), "409 in_progress", "until the lease is over");
    runs_again(submit).await;
    assert_eq!(stage.ledger.runs().len(), 2);
}

/// Asserts what a duplicate receives. An unknown outcome is in flight until its lease is over.
async fn receives(request: RequestBuilder, expected: &str, what: &str) {
    let said = send(request).await.said();
    let is_unknown = expected == "409 in_progress" && said == "409 outcome_unknown";
    assert!(said == expected || is_unknown, "{what}: {said}, not {expected}");
}

pub(super) async fn status_decides_the_effect(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    // A status, the outcome of the run, and the response to a duplicate.
    for (path, status, outcome, again) in [
        ("/orders", 404, "executed", "404 replayed"),
        ("/orders", 422, "executed", "422 replayed"),
        ("/orders", 203, "executed", "203 replayed"),
        ("/orders", 401, "not_applied", "201 executed"),
        ("/orders", 403, "not_applied", "201 executed"),
        ("/orders", 429, "not_applied", "201 executed"),
        ("/orders", 408, "unknown", "409 in_progress"),
        ("/orders", 503, "unknown", "409 in_progress"),
        ("/retryable", 404, "executed", "404 replayed"),
        ("/retryable", 408, "not_applied", "201 executed"),
        ("/retryable", 503, "not_applied", "201 executed"),
        ("/retryable", 502, "unknown", "409 in_progress"),
    ] {
        let submit = || stage.shop().submit(path, &format!("k{status}"));
        let first = send(submit().header(STATUS, status)).await;
        assert_eq!(first.said(), format!("{status} {outcome}"), "{path}: {first:?}");
        receives(submit(), again, &format!("{path} {status}")).await;
    }
}

pub(super) async fn stated_effect_precedes_the_status(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    for (status, effect, outcome, again) in [
        (500, "applied", "executed", "500 replayed"),
        (403, "applied", "executed", "403 replayed"),
        (200, "not-applied", "not_applied", "201 executed"),
        (200, "unknown", "unknown", "409 in_progress"),
    ] {
        let submit = || stage.shop().submit("/orders", &format!("{effect}{status}"));
        let first = send(submit().header(STATUS, status).header(EFFECT, effect)).await;
        assert_eq!(first.said(), format!("{status} {outcome}"), "{effect}: {first:?}");
        receives(submit(), again, &format!("{effect} {status}")).await;
    }
}
