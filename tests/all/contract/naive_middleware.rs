//! The table proves something only if cases of it fail on naive middleware. Each of these has one flaw.

use onceward_tests::contract::naive_shop::NaiveFlaw;
use onceward_tests::contract::stack::Stack;

use super::{concurrent, failures, replays};

/// Asserts that a case fails on a flawed stack.
async fn fails<F: Future<Output = ()> + Send + 'static>(case: fn(Stack) -> F, flaw: NaiveFlaw) {
    let ended = tokio::spawn(case(Stack::Naive(flaw))).await;
    assert!(ended.is_err_and(|error| error.is_panic()), "the case does not detect {flaw:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_that_always_runs_fails() {
    replays::first_run_executes_and_records_its_response(Stack::Naive(NaiveFlaw::RunsAlways)).await;
    fails(replays::duplicate_receives_status_headers_and_binary_body, NaiveFlaw::RunsAlways).await;
    fails(concurrent::parallel_duplicates_over_two_processes_run_once, NaiveFlaw::RunsAlways).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_that_reads_and_then_writes_fails() {
    replays::duplicate_receives_status_headers_and_binary_body(Stack::Naive(NaiveFlaw::ExistsThenSet)).await;
    fails(concurrent::parallel_duplicates_over_two_processes_run_once, NaiveFlaw::ExistsThenSet).await;
    fails(concurrent::duplicate_of_a_run_in_flight_is_rejected, NaiveFlaw::ExistsThenSet).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_that_frees_the_key_after_every_error_fails() {
    concurrent::parallel_duplicates_over_two_processes_run_once(Stack::Naive(NaiveFlaw::ReleasesEveryError)).await;
    fails(failures::failure_at_most_once_never_runs_again, NaiveFlaw::ReleasesEveryError).await;
    fails(concurrent::slow_handler_keeps_its_claim, NaiveFlaw::ReleasesEveryError).await;
}
