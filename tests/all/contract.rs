//! The contract suite: one list of cases on one list of stacks. Each cell is a test, `contract::STACK::CASE`.
//! `docs/contract-suite.md` says how to add a stack or a case.

mod bad_requests;
mod concurrent;
mod crashes;
mod disconnects;
mod failures;
mod keys;
mod logs;
mod looks;
mod lost_messages;
mod naive_middleware;
mod network_faults;
mod outages;
mod replays;
mod streams;
mod timeouts;

use onceward_tests::contract::stack::Stack;

/// The cases, as tests of the stack `STACK`.
macro_rules! cases {
    () => {
        case!(replays::first_run_executes_and_records_its_response);
        case!(replays::duplicate_receives_status_headers_and_binary_body);
        case!(replays::response_without_a_body_is_replayed_with_its_headers);
        case!(replays::other_content_under_the_key_is_rejected);
        case!(replays::key_belongs_to_subject_and_action);
        case!(keys::bare_and_quoted_spellings_are_one_key);
        case!(keys::malformed_spelling_of_a_key_is_rejected);
        case!(looks::look_receives_the_stored_response_and_never_runs);
        case!(looks::look_at_an_unknown_run_never_runs);
        case!(bad_requests::request_without_key_or_token_is_rejected);
        case!(bad_requests::malformed_key_or_token_is_rejected);
        case!(bad_requests::body_above_the_limit_is_rejected);
        case!(bad_requests::chunked_body_equals_the_same_body_with_a_length);
        case!(bad_requests::safe_methods_are_never_claimed);
        case!(bad_requests::unprotected_route_runs_every_request);
        case!(bad_requests::shop_without_middleware_runs_every_request);
        case!(concurrent::duplicate_of_a_run_in_flight_is_rejected);
        case!(concurrent::slow_handler_keeps_its_claim);
        case!(concurrent::waiting_duplicate_receives_the_response);
        case!(concurrent::parallel_duplicates_over_two_processes_run_once);
        case!(concurrent::double_click_with_a_remembered_token_runs_once);
        case!(failures::failure_at_most_once_never_runs_again);
        case!(failures::failure_of_a_retryable_run_frees_the_key);
        case!(failures::failure_under_a_token_makes_it_valid_again);
        case!(failures::failure_that_says_not_applied_frees_the_key);
        case!(failures::failure_that_says_unknown_keeps_a_retryable_claim);
        case!(failures::status_decides_the_effect);
        case!(failures::stated_effect_precedes_the_status);
        case!(timeouts::timed_out_run_is_unknown_and_keeps_its_key);
        case!(timeouts::timed_out_run_is_unknown_and_keeps_its_token);
        case!(timeouts::timeout_of_a_call_is_unknown);
        case!(streams::streamed_response_is_sent_once_and_not_kept);
        case!(streams::broken_stream_never_runs_again);
        case!(disconnects::run_of_a_lost_client_is_recorded_and_replayed);
        case!(outages::nothing_runs_while_the_service_is_down);
        case!(outages::nothing_runs_while_the_service_hangs);
        case!(outages::run_survives_a_restart_of_the_service);
        case!(outages::response_is_stored_once_the_service_is_back);
        case!(outages::response_that_is_never_stored_leaves_an_unknown_outcome);
        case!(outages::wrong_credentials_let_nothing_run);
        case!(lost_messages::lost_claim_runs_once);
        case!(lost_messages::lost_renewal_keeps_the_claim);
        case!(lost_messages::lost_completion_is_repeated);
        case!(lost_messages::lost_release_is_repeated);
        case!(lost_messages::lost_call_under_a_token_is_repeated);
        case!(lost_messages::lost_renewal_keeps_the_claim_of_a_token);
        case!(crashes::crash_at_most_once_leaves_an_unknown_outcome);
        case!(crashes::crash_under_a_token_leaves_an_unknown_outcome);
        case!(crashes::crash_of_a_retryable_run_frees_the_key_after_its_lease);
        case!(network_faults::submissions_take_effect_once_despite_network_faults);
        case!(logs::log_has_no_key_token_pass_or_credential);
        case!(logs::shop_ends_after_sigterm);
    };
}

macro_rules! case {
    ($group:ident::$case:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            super::$group::$case(STACK).await;
        }
    };
}

macro_rules! stacks {
    ($($stack:ident: $kind:ident),+ $(,)?) => {
        $(mod $stack {
            const STACK: super::Stack = super::Stack::$kind;
            cases!();
        })+
    };
}

stacks! {
    actix: Actix,
    axum: Axum,
    asgi: Asgi,
    wsgi: Wsgi,
    django: Django,
    django_asgi: DjangoAsgi,
    express: Express,
    fastify: Fastify,
    fetch: Fetch,
}
