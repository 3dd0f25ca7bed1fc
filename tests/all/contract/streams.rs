//! Streamed responses, which are not stored.

use std::time::Duration;

use onceward_tests::client::send;
use onceward_tests::contract::contract_handler::{FAIL_STREAM, STREAM};
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::{LEASE, LONG, Stage};
use onceward_tests::polling::{holds_for, until};

pub(super) async fn streamed_response_is_sent_once_and_not_kept(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    for path in ["/orders", "/retryable"] {
        let submit = || stage.shop().submit(path, "k");
        let first = send(submit().header(STREAM, 5)).await;
        assert_eq!(first.said(), "201 executed", "{path}: {first:?}");
        assert_eq!(first.body.iter().filter(|byte| **byte == b'\n').count(), 5, "{path}: {first:?}");
        let second = send(submit().header(STREAM, 5)).await;
        assert_eq!(second.said(), "409 reply_not_kept", "{path}: {second:?}");
        assert_eq!(second.headers["onceward-retry"], "no");
    }
    assert_eq!(stage.ledger.runs().len(), 2);
}

/// The client notices that the response is incomplete. The effect stands, so a duplicate never runs.
pub(super) async fn broken_stream_never_runs_again(stack: Stack) {
    let stage = Stage::of(stack).lease(LEASE).open().await;
    let submit = || stage.shop().submit("/orders", "k");
    let response = submit().header(STREAM, 5).header(FAIL_STREAM, "yes").send().await;
    if let Ok(response) = response {
        let body = response.bytes().await;
        assert!(
            body.is_err() || body.is_ok_and(|body| body.len() < 5 * b"chunk 0\n".len()),
            "the response is complete"
        );
    }
    let is_settled = || async {
        let said = send(submit()).await.said();
        let expected = ["409 in_progress", "409 reply_not_kept", "409 outcome_unknown"];
        assert!(expected.contains(&said.as_str()), "{said}");
        said != "409 in_progress"
    };
    until("the run is settled", LONG, is_settled).await;
    holds_for("the run stays settled", Duration::from_millis(300), is_settled).await;
    assert_eq!(stage.ledger.runs().len(), 1);
}
