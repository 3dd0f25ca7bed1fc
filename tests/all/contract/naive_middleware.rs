//! The table proves something only if cases of it fail on naive middleware. Each of these has one flaw, besides what all of them leave out:
//! they know no tokens and no leases, and compare no content.

use onceward_tests::contract::naive_shop::NaiveFlaw;
use onceward_tests::contract::stack::Stack;

use super::{concurrent, failures, replays, timeouts};

/// The handler ran a second time.
const RAN_AGAIN: &str = "201 executed";

/// Asserts that a case fails on a flawed stack, with a message that contains `symptom`: by the flaw, and not by anything else.
async fn fails<F: Future<Output = ()> + Send + 'static>(case: fn(Stack) -> F, flaw: NaiveFlaw, symptom: &str) {
    let ended = tokio::spawn(case(Stack::Naive(flaw))).await;
    let panic = ended.expect_err("the case does not detect the flaw").into_panic();
    let message = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert!(message.contains(symptom), "{flaw:?}: failed for another reason: {message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_that_always_runs_fails() {
    replays::first_run_executes_and_records_its_response(Stack::Naive(NaiveFlaw::RunsAlways)).await;
    fails(replays::duplicate_receives_status_headers_and_binary_body, NaiveFlaw::RunsAlways, RAN_AGAIN).await;
    fails(concurrent::parallel_duplicates_over_two_processes_run_once, NaiveFlaw::RunsAlways, "duplicates").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_that_reads_and_then_writes_fails() {
    replays::duplicate_receives_status_headers_and_binary_body(Stack::Naive(NaiveFlaw::ExistsThenSet)).await;
    fails(concurrent::parallel_duplicates_over_two_processes_run_once, NaiveFlaw::ExistsThenSet, "duplicates").await;
    fails(concurrent::duplicate_of_a_run_in_flight_is_rejected, NaiveFlaw::ExistsThenSet, RAN_AGAIN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_that_frees_the_key_after_every_error_fails() {
    replays::key_belongs_to_subject_and_action(Stack::Naive(NaiveFlaw::ReleasesEveryError)).await;
    concurrent::parallel_duplicates_over_two_processes_run_once(Stack::Naive(NaiveFlaw::ReleasesEveryError)).await;
    fails(failures::failure_at_most_once_never_runs_again, NaiveFlaw::ReleasesEveryError, RAN_AGAIN).await;
    fails(timeouts::timed_out_run_is_unknown_and_keeps_its_key, NaiveFlaw::ReleasesEveryError, RAN_AGAIN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_that_shares_keys_between_actions_fails() {
    replays::duplicate_receives_status_headers_and_binary_body(Stack::Naive(NaiveFlaw::SharesKeys)).await;
    fails(replays::key_belongs_to_subject_and_action, NaiveFlaw::SharesKeys, "/orders bob").await;
}
