//! The table proves something only if cases of it fail on naive middleware. Each of these has one flaw, besides what all of them leave out:
//! they know no tokens, compare no content, do not repeat a command, and collect streams.

use onceward_tests::contract::naive_shop::NaiveFlaw;
use onceward_tests::contract::stack::Stack;

use super::{concurrent, crashes, disconnects, failures, lost_messages, outages, replays, streams, timeouts};

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

/// The middleware of the issue: it pays twice once a handler takes longer than the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_that_never_renews_its_claim_fails() {
    concurrent::parallel_duplicates_over_two_processes_run_once(Stack::Naive(NaiveFlaw::NeverRenews)).await;
    fails(concurrent::slow_handler_keeps_its_claim, NaiveFlaw::NeverRenews, "beside a live run: 201 executed").await;
    fails(crashes::crash_at_most_once_leaves_an_unknown_outcome, NaiveFlaw::NeverRenews, RAN_AGAIN).await;
}

/// The claim stays after a crash, and after a command whose response is lost: each case waits for its limit, at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_whose_claim_never_expires_fails() {
    concurrent::slow_handler_keeps_its_claim(Stack::Naive(NaiveFlaw::ClaimsForever)).await;
    tokio::join!(
        fails(
            crashes::crash_of_a_retryable_run_frees_the_key_after_its_lease,
            NaiveFlaw::ClaimsForever,
            "the key is free: not within"
        ),
        fails(lost_messages::lost_claim_runs_once, NaiveFlaw::ClaimsForever, "Response: not within"),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_that_sends_each_command_once_fails() {
    replays::duplicate_receives_status_headers_and_binary_body(Stack::Naive(NaiveFlaw::ClaimsForever)).await;
    fails(
        outages::response_is_stored_once_the_service_is_back,
        NaiveFlaw::ClaimsForever,
        "an effect never becomes an error",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_that_fails_open_fails() {
    concurrent::slow_handler_keeps_its_claim(Stack::Naive(NaiveFlaw::FailsOpen)).await;
    fails(outages::nothing_runs_while_the_service_hangs, NaiveFlaw::FailsOpen, RAN_AGAIN).await;
    fails(lost_messages::lost_claim_runs_once, NaiveFlaw::FailsOpen, RAN_AGAIN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_that_frees_the_key_of_a_lost_client_fails() {
    replays::duplicate_receives_status_headers_and_binary_body(Stack::Naive(NaiveFlaw::FreesKeyOnDisconnect)).await;
    fails(disconnects::run_of_a_lost_client_is_recorded_and_replayed, NaiveFlaw::FreesKeyOnDisconnect, RAN_AGAIN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_that_stores_streams_or_frees_the_key_of_a_broken_one_fails() {
    replays::duplicate_receives_status_headers_and_binary_body(Stack::Naive(NaiveFlaw::FreesKeyOfBrokenStream)).await;
    fails(streams::streamed_response_is_sent_once_and_not_kept, NaiveFlaw::FreesKeyOfBrokenStream, "201 replayed")
        .await;
    fails(streams::broken_stream_never_runs_again, NaiveFlaw::FreesKeyOfBrokenStream, RAN_AGAIN).await;
}
