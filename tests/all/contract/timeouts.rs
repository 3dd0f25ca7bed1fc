//! Handlers that the shop's own timeout cuts off, or overtakes, or whose own call times out. Whether they take effect is unknown.

use futures_util::future::join_all;
use onceward_tests::client::{send, token};
use onceward_tests::contract::contract_handler::{RAISE, TIMEOUT};
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::{LEASE, Stage};
use onceward_tests::key_routes::THEN;
use onceward_tests::shop::{ORDER, TAKES};
use tokio::time::Instant;

use super::failures::{failed, runs_again, stays_unknown};

/// The timeout in milliseconds.
const LIMIT: u64 = 200;
/// The time that the handler takes in milliseconds. Where the timeout does not cut it off, it takes effect within its lease.
const SLOW: u64 = 700;
/// The header that makes the handler slow before or after its effect, and the number of effects: at least and at most.
const MOMENTS: [(&str, usize, usize); 2] = [(TAKES, 0, 1), (THEN, 1, 1)];

/// Asserts how often a run took effect.
fn took_effect(stage: &Stage, line: &str, least: usize, most: usize) {
    let effects = stage.ledger.count(line);
    assert!((least..=most).contains(&effects), "{line}: {effects} effects");
}

pub(super) async fn timed_out_run_is_unknown_and_keeps_its_key(stack: Stack) {
    let stage = Stage::of(stack).lease(LEASE).open().await;
    let at_most_once = join_all(MOMENTS.map(async |(moment, least, most)| {
        let submit = || stage.shop().submit("/orders", moment).header(ORDER, moment);
        failed(&send(submit().header(moment, SLOW).header(TIMEOUT, LIMIT)).await, "unknown");
        stays_unknown(submit).await;
        took_effect(&stage, moment, least, most);
    }));
    let retryable = join_all(MOMENTS.map(async |(moment, least, most)| {
        let (first, second) = (format!("first {moment}"), format!("second {moment}"));
        let submit = || stage.shop().submit("/retryable", moment);
        let sent = Instant::now();
        let slow = submit().header(ORDER, &first).header(moment, SLOW).header(TIMEOUT, LIMIT);
        failed(&send(slow).await, "unknown");
        runs_again(|| submit().header(ORDER, &second)).await;
        assert!(sent.elapsed() >= LEASE, "{moment}: 201 executed after {:?}, within the lease", sent.elapsed());
        assert_eq!(send(submit()).await.said(), "201 replayed", "{moment}");
        took_effect(&stage, &first, least, most);
        took_effect(&stage, &second, 1, 1);
    }));
    tokio::join!(at_most_once, retryable);
}

pub(super) async fn timed_out_run_is_unknown_and_keeps_its_token(stack: Stack) {
    let stage = Stage::of(stack).lease(LEASE).open().await;
    join_all(MOMENTS.map(async |(moment, least, most)| {
        let token = token(&stage.shop().url).await;
        let submit = || stage.shop().post("/forms").header("onceward-token", &token).header(ORDER, moment);
        failed(&send(submit().header(moment, SLOW).header(TIMEOUT, LIMIT)).await, "unknown");
        stays_unknown(submit).await;
        took_effect(&stage, moment, least, most);
    }))
    .await;
}

/// The handler raises the timeout error of an HTTP library, after a call that may have been executed.
pub(super) async fn timeout_of_a_call_is_unknown(stack: Stack) {
    let stage = Stage::of(stack).lease(LEASE).open().await;
    let at_most_once = async {
        let submit = || stage.shop().submit("/orders", "k").header(ORDER, "under a key");
        failed(&send(submit().header(RAISE, "timeout")).await, "unknown");
        stays_unknown(submit).await;
        took_effect(&stage, "under a key", 1, 1);
    };
    let retryable = async {
        let submit = || stage.shop().submit("/retryable", "k");
        let sent = Instant::now();
        failed(&send(submit().header(ORDER, "first").header(RAISE, "timeout")).await, "unknown");
        runs_again(|| submit().header(ORDER, "second")).await;
        assert!(sent.elapsed() >= LEASE, "201 executed after {:?}, within the lease", sent.elapsed());
        took_effect(&stage, "first", 1, 1);
        took_effect(&stage, "second", 1, 1);
    };
    let remembered = async {
        let token = token(&stage.shop().url).await;
        let submit = || stage.shop().post("/forms").header("onceward-token", &token).header(ORDER, "under a token");
        failed(&send(submit().header(RAISE, "timeout")).await, "unknown");
        stays_unknown(submit).await;
        took_effect(&stage, "under a token", 1, 1);
    };
    tokio::join!(at_most_once, retryable, remembered);
}
