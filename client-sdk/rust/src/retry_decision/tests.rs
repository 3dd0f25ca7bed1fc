use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn conditions(carried: CredentialKind) -> RetryConditions {
    let limits = RetryLimits::new();
    RetryConditions {
        limits,
        time_left: limits.deadline,
        is_repeatable: true,
        carried,
        until_deadline: false,
        is_refreshable: false,
    }
}

fn rejected(code: Code) -> AttemptSummary {
    AttemptSummary::Rejected { code, retry: code.retry(), retry_after: None }
}

/// The last decision, after all of these came.
fn after(all: &[AttemptSummary], conditions: &RetryConditions) -> Decision {
    let mut history = AttemptHistory::new(false);
    let mut last = Decision::Return;
    for summary in all {
        last = decide(&history, *summary, conditions);
        history = history.and(*summary, last);
    }
    last
}

fn is_same(decision: Decision) -> bool {
    matches!(decision, Decision::Retry(_))
}

#[test]
fn an_answer_is_handed_over_whatever_came_before() {
    assert_eq!(after(&[AttemptSummary::Response], &conditions(CredentialKind::Token)), Decision::Return);
    assert_eq!(
        after(
            &[AttemptSummary::Lost, rejected(Code::InProgress), AttemptSummary::Response],
            &conditions(CredentialKind::Key)
        ),
        Decision::Return
    );
}

#[test]
fn a_new_token_is_fetched_once_and_only_if_nothing_else_was_ever_said() {
    let token = conditions(CredentialKind::Token);
    for code in [Code::TokenExpired, Code::TokenStale, Code::TokenMissing, Code::TokenInvalid, Code::RedeemUnknown] {
        assert!(matches!(after(&[rejected(code)], &token), Decision::NewToken(_)), "{code}");
        assert_eq!(after(&[rejected(code), rejected(code)], &token), Decision::Reject, "{code}");
        assert_eq!(after(&[AttemptSummary::Lost, rejected(code)], &token), Decision::Unknown, "{code}");
        assert_eq!(
            after(&[AttemptSummary::GatewayError { retry_after: None }, rejected(code)], &token),
            Decision::Unknown,
            "{code}"
        );
        assert_eq!(after(&[rejected(Code::StoreUnavailable), rejected(code)], &token), Decision::Reject, "{code}");
        assert_eq!(
            after(&[rejected(Code::InProgress), rejected(code)], &token),
            Decision::Unknown,
            "{code}: it was running"
        );
        assert!(
            matches!(after(&[AttemptSummary::NotSent, rejected(code)], &token), Decision::NewToken(_)),
            "{code}: it never left"
        );
        assert_eq!(
            after(&[rejected(code)], &conditions(CredentialKind::Key)),
            Decision::Reject,
            "{code}: there is no token to renew"
        );
    }
}

#[test]
fn a_used_token_is_a_duplicate_unless_the_user_may_have_been_us() {
    let token = conditions(CredentialKind::Token);
    assert_eq!(after(&[rejected(Code::TokenUsed)], &token), Decision::Reject);
    assert_eq!(after(&[AttemptSummary::NotSent, rejected(Code::TokenUsed)], &token), Decision::Reject);
    assert_eq!(after(&[AttemptSummary::Lost, rejected(Code::TokenUsed)], &token), Decision::Unknown);
    for earlier in [rejected(Code::StoreUnavailable), AttemptSummary::TooManyRequests { retry_after: None }] {
        assert_eq!(after(&[earlier, rejected(Code::TokenUsed)], &token), Decision::Unknown, "{earlier:?}");
    }
    let lost_long_ago =
        [AttemptSummary::Lost, rejected(Code::StoreUnavailable), AttemptSummary::NotSent, rejected(Code::TokenUsed)];
    assert_eq!(after(&lost_long_ago, &token), Decision::Unknown);
}

#[test]
fn what_was_lost_is_sent_again_with_the_same_and_only_with_something_to_know_it_by() {
    for carried in [CredentialKind::Token, CredentialKind::Key] {
        assert!(is_same(after(&[AttemptSummary::Lost], &conditions(carried))));
        assert!(is_same(after(&[AttemptSummary::GatewayError { retry_after: None }], &conditions(carried))));
        assert!(is_same(after(&[AttemptSummary::NotSent], &conditions(carried))));
    }
    assert_eq!(after(&[AttemptSummary::Lost], &conditions(CredentialKind::Nothing)), Decision::Unknown);
    assert_eq!(after(&[AttemptSummary::NotSent], &conditions(CredentialKind::Nothing)), Decision::NotSent);
}

#[test]
fn a_body_that_cannot_be_sent_again_is_never_repeated() {
    let conditions = RetryConditions { is_repeatable: false, is_refreshable: true, ..conditions(CredentialKind::Key) };
    assert_eq!(after(&[AttemptSummary::Lost], &conditions), Decision::Unknown);
    assert_eq!(after(&[AttemptSummary::NotSent], &conditions), Decision::NotSent);
    assert_eq!(after(&[rejected(Code::InProgress)], &conditions), Decision::Reject);
    assert_eq!(after(&[AttemptSummary::Unauthorized], &conditions), Decision::Return);
    let token = RetryConditions { carried: CredentialKind::Token, ..conditions };
    assert_eq!(after(&[rejected(Code::TokenExpired)], &token), Decision::Reject);
}

#[test]
fn a_server_s_wait_is_waited_for_and_spread_on_top() {
    let rejection =
        AttemptSummary::Rejected { code: Code::InProgress, retry: Retry::Same, retry_after: Some(3 * SECOND) };
    let Decision::Retry(backoff) = after(&[rejection], &conditions(CredentialKind::Key)) else {
        panic!("it is sent again")
    };
    assert_eq!(backoff.minimum, 3 * SECOND);
    assert!(backoff.delay(0.0) == 3 * SECOND && backoff.delay(1.0) > 3 * SECOND);
}

#[test]
fn waits_double_from_zero_up_to_a_bound() {
    let limits = RetryLimits::new().backoff(SECOND, 5 * SECOND);
    let jitters = [0, 1, 2, 3, 31].map(|attempts| Backoff::after(attempts, None, &limits).jitter);
    assert_eq!(jitters, [1, 2, 4, 5, 5].map(|seconds| seconds * SECOND));
    assert_eq!(Backoff::after(3, None, &limits).delay(0.0), Duration::ZERO);
}

#[test]
fn tries_come_to_an_end_and_say_what_is_certain() {
    let key = conditions(CredentialKind::Key);
    let five = |summary: AttemptSummary| after(&[summary; 5], &key);
    assert_eq!(five(rejected(Code::StoreUnavailable)), Decision::Reject);
    assert_eq!(five(AttemptSummary::NotSent), Decision::NotSent);
    assert_eq!(five(AttemptSummary::Lost), Decision::Unknown);
    assert_eq!(five(AttemptSummary::GatewayError { retry_after: None }), Decision::Unknown);
    assert_eq!(five(AttemptSummary::TooManyRequests { retry_after: None }), Decision::Return);
    assert!(is_same(after(&[rejected(Code::StoreUnavailable); 4], &key)));
    let mixed = [
        AttemptSummary::Lost,
        AttemptSummary::NotSent,
        AttemptSummary::NotSent,
        AttemptSummary::NotSent,
        AttemptSummary::NotSent,
    ];
    assert_eq!(after(&mixed, &key), Decision::Unknown, "the last never left, but the first may have run");
}

#[test]
fn refused_connection_is_retried_until_deadline_and_uses_up_no_attempt() {
    let refused = AttemptSummary::Refused;
    for carried in [CredentialKind::Token, CredentialKind::Key] {
        let conditions = conditions(carried);
        assert!(is_same(after(&[refused; 50], &conditions)));
        assert!(is_same(after(&[[refused; 50].as_slice(), &[AttemptSummary::Lost; 4]].concat(), &conditions)));
        assert_eq!(
            after(&[[refused; 50].as_slice(), &[AttemptSummary::Lost; 5]].concat(), &conditions),
            Decision::Unknown
        );
        assert!(is_same(after(&[AttemptSummary::Lost, refused, refused, refused, refused, refused], &conditions)));
        let late = RetryConditions { time_left: Duration::ZERO, ..conditions };
        assert_eq!(after(&[refused], &late), Decision::NotSent);
        assert_eq!(after(&[AttemptSummary::Lost, refused], &late), Decision::Unknown, "the first may have run");
        assert_eq!(after(&[refused, rejected(Code::TokenUsed)], &conditions), Decision::Reject, "it never left");
    }
    let key = conditions(CredentialKind::Key);
    let once = RetryConditions { limits: RetryLimits::new().attempts(1), ..key };
    assert_eq!(after(&[refused], &once), Decision::NotSent, "the error is returned at once");
    assert_eq!(after(&[refused], &RetryConditions { is_repeatable: false, ..key }), Decision::NotSent);
    assert_eq!(after(&[refused], &conditions(CredentialKind::Nothing)), Decision::NotSent);
}

#[test]
fn backoff_after_refusals_is_bounded_on_both_sides_and_ends_by_the_deadline() {
    let none = RetryLimits::new().backoff(Duration::ZERO, Duration::ZERO);
    assert_eq!(Backoff::after_refusals(3, &none).delay(0.0), Duration::from_millis(5), "a server is not flooded");
    let long = RetryLimits::new().backoff(60 * SECOND, 60 * SECOND);
    assert_eq!(Backoff::after_refusals(3, &long).delay(1.0), SECOND, "and is soon found");
    assert_eq!(Backoff::after_refusals(3, &long).within(SECOND / 10).delay(1.0), SECOND / 10);
}

#[test]
fn a_wait_that_would_outlast_the_deadline_is_not_begun() {
    let soon = RetryConditions { time_left: 2 * SECOND, ..conditions(CredentialKind::Key) };
    let rejection =
        |after| AttemptSummary::Rejected { code: Code::InProgress, retry: Retry::Same, retry_after: Some(after) };
    assert_eq!(after(&[rejection(2 * SECOND)], &soon), Decision::Reject);
    assert!(is_same(after(&[rejection(SECOND)], &soon)));
    assert_eq!(
        after(&[AttemptSummary::Lost], &RetryConditions { time_left: Duration::ZERO, ..soon }),
        Decision::Unknown
    );
    let stale =
        AttemptSummary::Rejected { code: Code::TokenStale, retry: Retry::NewToken, retry_after: Some(2 * SECOND) };
    assert_eq!(after(&[stale], &RetryConditions { carried: CredentialKind::Token, ..soon }), Decision::Reject);
}

#[test]
fn whoever_insists_goes_on_beyond_the_tries_but_not_against_a_word() {
    let until_deadline = RetryConditions { until_deadline: true, ..conditions(CredentialKind::Key) };
    assert!(is_same(after(&[AttemptSummary::Lost; 50], &until_deadline)));
    assert_eq!(after(&[AttemptSummary::Lost, rejected(Code::OutcomeUnknown)], &until_deadline), Decision::Unknown);
    assert_eq!(after(&[rejected(Code::KeyReused)], &until_deadline), Decision::Reject);
}

#[test]
fn an_interval_is_never_waited_out() {
    for carried in [CredentialKind::Token, CredentialKind::Key] {
        let conditions = RetryConditions { until_deadline: carried == CredentialKind::Key, ..conditions(carried) };
        assert_eq!(after(&[rejected(Code::TooSoon)], &conditions), Decision::Reject);
        assert_eq!(
            after(&[AttemptSummary::NotSent, rejected(Code::TooSoon)], &conditions),
            Decision::Reject,
            "it never left"
        );
        for earlier in
            [AttemptSummary::Lost, AttemptSummary::GatewayError { retry_after: None }, rejected(Code::StoreUnavailable)]
        {
            assert_eq!(
                after(&[earlier, rejected(Code::TooSoon)], &conditions),
                Decision::Unknown,
                "{earlier:?}: it may be ours"
            );
        }
        // A server that says otherwise is not believed.
        let too_soon = AttemptSummary::Rejected { code: Code::TooSoon, retry: Retry::Same, retry_after: Some(SECOND) };
        assert_eq!(after(&[too_soon], &conditions), Decision::Reject);
    }
}

#[test]
fn a_lock_is_waited_for_unless_we_may_hold_it_ourselves() {
    let locked = AttemptSummary::Rejected { code: Code::Locked, retry: Retry::Same, retry_after: Some(SECOND) };
    let token = conditions(CredentialKind::Token);
    let Decision::Retry(backoff) = after(&[locked], &token) else { panic!("it is sent again") };
    assert_eq!(backoff.minimum, SECOND);
    assert!(is_same(after(&[rejected(Code::StoreUnavailable), locked], &token)));
    assert_eq!(after(&[locked; 5], &token), Decision::Reject);
    assert_eq!(after(&[AttemptSummary::Lost, locked], &token), Decision::Unknown);
}

#[test]
fn revoked_token_is_not_replaced() {
    let token = conditions(CredentialKind::Token);
    assert_eq!(after(&[rejected(Code::TokenRevoked)], &token), Decision::Reject);
    assert_eq!(after(&[AttemptSummary::Lost, rejected(Code::TokenRevoked)], &token), Decision::Unknown);
}

#[test]
fn nobody_knows_is_unknown_and_not_kept_is_certain() {
    let key = conditions(CredentialKind::Key);
    assert_eq!(after(&[rejected(Code::OutcomeUnknown)], &key), Decision::Unknown);
    assert_eq!(after(&[rejected(Code::Internal)], &key), Decision::Unknown);
    assert_eq!(after(&[AttemptSummary::Lost, rejected(Code::ReplyNotKept)], &key), Decision::Reject);
}

#[test]
fn what_was_running_when_last_heard_of_is_not_certain_to_have_run_nothing() {
    let key = conditions(CredentialKind::Key);
    let runs = rejected(Code::InProgress);
    assert_eq!(
        after(
            &[runs, AttemptSummary::NotSent, AttemptSummary::NotSent, AttemptSummary::NotSent, AttemptSummary::NotSent],
            &key
        ),
        Decision::Unknown
    );
    assert_eq!(after(&[runs, rejected(Code::BadRequest)], &key), Decision::Unknown);
    assert_eq!(after(&[runs, AttemptSummary::Unauthorized], &key), Decision::Unknown);
    assert_eq!(after(&[runs; 5], &key), Decision::Reject, "it says so itself");
}

#[test]
fn a_failure_that_no_guard_has_marked_says_nothing_of_a_try_that_was_lost() {
    assert_eq!(after(&[AttemptSummary::UnmarkedFailure], &conditions(CredentialKind::Token)), Decision::Return);
    assert_eq!(
        after(&[AttemptSummary::Lost, AttemptSummary::UnmarkedFailure], &conditions(CredentialKind::Token)),
        Decision::Unknown
    );
    assert_eq!(
        after(&[AttemptSummary::Lost, AttemptSummary::UnmarkedFailure], &conditions(CredentialKind::Key)),
        Decision::Return,
        "other servers mark nothing"
    );
}

#[test]
fn credentials_are_refreshed_once() {
    let elsewhere = RetryConditions { is_refreshable: true, ..conditions(CredentialKind::Nothing) };
    assert_eq!(after(&[AttemptSummary::Unauthorized], &elsewhere), Decision::Return, "none were sent there");
    let conditions = RetryConditions { is_refreshable: true, ..conditions(CredentialKind::Token) };
    assert_eq!(after(&[AttemptSummary::Unauthorized], &conditions), Decision::RefreshCredentials);
    assert_eq!(after(&[AttemptSummary::Unauthorized, AttemptSummary::Unauthorized], &conditions), Decision::Return);
    assert_eq!(
        after(&[AttemptSummary::Lost, AttemptSummary::Unauthorized, AttemptSummary::Unauthorized], &conditions),
        Decision::Unknown
    );
}

#[test]
fn it_is_never_sent_more_often_than_is_allowed_nor_after_the_deadline() {
    let once = RetryConditions {
        limits: RetryLimits::new().attempts(1),
        is_refreshable: true,
        ..conditions(CredentialKind::Token)
    };
    for summary in [
        AttemptSummary::Unauthorized,
        rejected(Code::TokenExpired),
        rejected(Code::InProgress),
        AttemptSummary::NotSent,
        AttemptSummary::Lost,
    ] {
        let decision = after(&[summary], &once);
        assert!(
            matches!(decision, Decision::Return | Decision::Reject | Decision::NotSent | Decision::Unknown),
            "{summary:?}: {decision:?}"
        );
    }
    let twice = RetryConditions { limits: RetryLimits::new().attempts(2), ..once };
    assert_eq!(after(&[AttemptSummary::NotSent, rejected(Code::TokenExpired)], &twice), Decision::Reject);
    assert_eq!(after(&[AttemptSummary::NotSent, AttemptSummary::Unauthorized], &twice), Decision::Return);
    assert_eq!(
        after(&[AttemptSummary::Unauthorized], &RetryConditions { time_left: Duration::ZERO, ..twice }),
        Decision::Return
    );
}

#[test]
fn what_is_resumed_may_have_run_before() {
    let history = AttemptHistory::new(true);
    assert_eq!(decide(&history, rejected(Code::KeyMalformed), &conditions(CredentialKind::Key)), Decision::Unknown);
    assert_eq!(decide(&history, AttemptSummary::Response, &conditions(CredentialKind::Key)), Decision::Return);
}
