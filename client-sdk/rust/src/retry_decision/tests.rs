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

/// The decision after the last of these attempts.
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
fn response_is_returned_whatever_came_before() {
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
fn code_of_a_later_version_is_retried_as_it_says_and_otherwise_unknown() {
    let later = |retry| AttemptSummary::RejectedLater { retry, retry_after: None };
    let (token, key) = (conditions(CredentialKind::Token), conditions(CredentialKind::Key));
    assert!(is_same(after(&[later(Retry::Same)], &key)));
    assert!(matches!(after(&[later(Retry::NewToken)], &token), Decision::NewToken(_)));
    assert_eq!(after(&[later(Retry::NewToken), later(Retry::NewToken)], &token), Decision::Unknown);
    assert_eq!(after(&[AttemptSummary::Lost, later(Retry::NewToken)], &token), Decision::Unknown);
    assert_eq!(after(&[later(Retry::NewToken)], &key), Decision::Unknown);
    assert_eq!(after(&[later(Retry::No)], &key), Decision::Unknown);
    let exhausted = RetryConditions { limits: RetryLimits::new().attempts(1), ..key };
    assert_eq!(after(&[later(Retry::Same)], &exhausted), Decision::Unknown);
    // It says that this request ran nothing, as any rejection.
    assert_eq!(after(&[later(Retry::Same), rejected(Code::KeyReused)], &key), Decision::Reject);
}

#[test]
fn token_is_replaced_once_if_nothing_may_have_run() {
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
            "{code}: another request was in flight"
        );
        assert!(
            matches!(after(&[AttemptSummary::NotSent, rejected(code)], &token), Decision::NewToken(_)),
            "{code}: the first was not sent"
        );
        assert_eq!(
            after(&[rejected(code)], &conditions(CredentialKind::Key)),
            Decision::Reject,
            "{code}: there is no token to renew"
        );
    }
}

#[test]
fn used_token_is_duplicate_unless_an_own_attempt_was_lost() {
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
fn lost_attempt_is_retried_only_with_a_credential() {
    for carried in [CredentialKind::Token, CredentialKind::Key] {
        assert!(is_same(after(&[AttemptSummary::Lost], &conditions(carried))));
        assert!(is_same(after(&[AttemptSummary::GatewayError { retry_after: None }], &conditions(carried))));
        assert!(is_same(after(&[AttemptSummary::NotSent], &conditions(carried))));
    }
    assert_eq!(after(&[AttemptSummary::Lost], &conditions(CredentialKind::Nothing)), Decision::Unknown);
    assert_eq!(after(&[AttemptSummary::NotSent], &conditions(CredentialKind::Nothing)), Decision::NotSent);
}

#[test]
fn unrepeatable_body_is_never_retried() {
    let conditions = RetryConditions { is_repeatable: false, is_refreshable: true, ..conditions(CredentialKind::Key) };
    assert_eq!(after(&[AttemptSummary::Lost], &conditions), Decision::Unknown);
    assert_eq!(after(&[AttemptSummary::NotSent], &conditions), Decision::NotSent);
    assert_eq!(after(&[rejected(Code::InProgress)], &conditions), Decision::Reject);
    assert_eq!(after(&[AttemptSummary::Unauthorized], &conditions), Decision::Return);
    let token = RetryConditions { carried: CredentialKind::Token, ..conditions };
    assert_eq!(after(&[rejected(Code::TokenExpired)], &token), Decision::Reject);
}

#[test]
fn retry_after_is_obeyed_with_jitter_on_top() {
    let rejection =
        AttemptSummary::Rejected { code: Code::InProgress, retry: Retry::Same, retry_after: Some(3 * SECOND) };
    let Decision::Retry(backoff) = after(&[rejection], &conditions(CredentialKind::Key)) else {
        panic!("expected a retry")
    };
    assert_eq!(backoff.minimum, 3 * SECOND);
    assert!(backoff.delay(0.0) == 3 * SECOND && backoff.delay(1.0) > 3 * SECOND);
}

#[test]
fn backoff_doubles_from_zero_up_to_a_maximum() {
    let limits = RetryLimits::new().backoff(SECOND, 5 * SECOND);
    let jitters = [0, 1, 2, 3, 31].map(|attempts| Backoff::after(attempts, None, &limits).jitter);
    assert_eq!(jitters, [1, 2, 4, 5, 5].map(|seconds| seconds * SECOND));
    assert_eq!(Backoff::after(3, None, &limits).delay(0.0), Duration::ZERO);
}

#[test]
fn last_attempt_reports_what_is_certain() {
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
    assert_eq!(after(&mixed, &key), Decision::Unknown, "the last was not sent, but the first may have run");
}

#[test]
fn refused_connection_is_retried_until_deadline_without_costing_attempts() {
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
        assert_eq!(
            after(&[refused, rejected(Code::TokenUsed)], &conditions),
            Decision::Reject,
            "the first was not sent"
        );
    }
    let key = conditions(CredentialKind::Key);
    let once = RetryConditions { limits: RetryLimits::new().attempts(1), ..key };
    assert_eq!(after(&[refused], &once), Decision::NotSent, "the error is returned at once");
    assert_eq!(after(&[refused], &RetryConditions { is_repeatable: false, ..key }), Decision::NotSent);
    assert_eq!(after(&[refused], &conditions(CredentialKind::Nothing)), Decision::NotSent);
}

#[test]
fn backoff_after_refused_connections_is_bounded() {
    let none = RetryLimits::new().backoff(Duration::ZERO, Duration::ZERO);
    assert_eq!(Backoff::after_refusals(3, &none).delay(0.0), Duration::from_millis(5), "lower bound");
    let long = RetryLimits::new().backoff(60 * SECOND, 60 * SECOND);
    assert_eq!(Backoff::after_refusals(3, &long).delay(1.0), SECOND, "upper bound");
    assert_eq!(Backoff::after_refusals(3, &long).within(SECOND / 10).delay(1.0), SECOND / 10);
}

#[test]
fn wait_beyond_the_deadline_is_not_started() {
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
fn retry_until_deadline_exceeds_attempts_but_stops_at_rejections() {
    let until_deadline = RetryConditions { until_deadline: true, ..conditions(CredentialKind::Key) };
    assert!(is_same(after(&[AttemptSummary::Lost; 50], &until_deadline)));
    assert_eq!(after(&[AttemptSummary::Lost, rejected(Code::OutcomeUnknown)], &until_deadline), Decision::Unknown);
    assert_eq!(after(&[rejected(Code::KeyReused)], &until_deadline), Decision::Reject);
}

#[test]
fn interval_rejection_is_never_retried() {
    for carried in [CredentialKind::Token, CredentialKind::Key] {
        let conditions = RetryConditions { until_deadline: carried == CredentialKind::Key, ..conditions(carried) };
        assert_eq!(after(&[rejected(Code::TooSoon)], &conditions), Decision::Reject);
        assert_eq!(
            after(&[AttemptSummary::NotSent, rejected(Code::TooSoon)], &conditions),
            Decision::Reject,
            "the first was not sent"
        );
        for earlier in
            [AttemptSummary::Lost, AttemptSummary::GatewayError { retry_after: None }, rejected(Code::StoreUnavailable)]
        {
            assert_eq!(
                after(&[earlier, rejected(Code::TooSoon)], &conditions),
                Decision::Unknown,
                "{earlier:?}: the interval may be ours"
            );
        }
        // Also if the server says `retry: same`.
        let too_soon = AttemptSummary::Rejected { code: Code::TooSoon, retry: Retry::Same, retry_after: Some(SECOND) };
        assert_eq!(after(&[too_soon], &conditions), Decision::Reject);
    }
}

#[test]
fn lock_is_waited_for_unless_an_own_attempt_may_hold_it() {
    let locked = AttemptSummary::Rejected { code: Code::Locked, retry: Retry::Same, retry_after: Some(SECOND) };
    let token = conditions(CredentialKind::Token);
    let Decision::Retry(backoff) = after(&[locked], &token) else { panic!("expected a retry") };
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
fn unknown_outcome_is_unknown_and_reply_not_kept_certain() {
    let key = conditions(CredentialKind::Key);
    assert_eq!(after(&[rejected(Code::OutcomeUnknown)], &key), Decision::Unknown);
    assert_eq!(after(&[rejected(Code::Internal)], &key), Decision::Unknown);
    assert_eq!(after(&[AttemptSummary::Lost, rejected(Code::ReplyNotKept)], &key), Decision::Reject);
}

#[test]
fn attempt_last_seen_in_progress_stays_unknown() {
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
    assert_eq!(after(&[runs; 5], &key), Decision::Reject, "the server reports it");
}

#[test]
fn unmarked_failure_after_a_lost_attempt_is_unknown() {
    assert_eq!(after(&[AttemptSummary::UnmarkedFailure], &conditions(CredentialKind::Token)), Decision::Return);
    assert_eq!(
        after(&[AttemptSummary::Lost, AttemptSummary::UnmarkedFailure], &conditions(CredentialKind::Token)),
        Decision::Unknown
    );
    assert_eq!(
        after(&[AttemptSummary::Lost, AttemptSummary::UnmarkedFailure], &conditions(CredentialKind::Key)),
        Decision::Return,
        "a server that accepts keys may have no guard"
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
fn attempts_and_deadline_are_never_exceeded() {
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
fn resumed_submission_may_have_run_before() {
    let history = AttemptHistory::new(true);
    assert_eq!(decide(&history, rejected(Code::KeyMalformed), &conditions(CredentialKind::Key)), Decision::Unknown);
    assert_eq!(decide(&history, AttemptSummary::Response, &conditions(CredentialKind::Key)), Decision::Return);
}
