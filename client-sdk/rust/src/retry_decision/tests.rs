use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn terms(carries: Carries) -> Terms {
    let limits = Limits::new();
    Terms { limits, left: limits.deadline, repeatable: true, carries, insists: false, refreshable: false }
}

fn says(code: Code) -> Came {
    Came::Refused { code, retry: code.retry(), after: None }
}

/// The last decision, after all of these came.
fn after(all: &[Came], terms: &Terms) -> Next {
    let mut history = History::new(false);
    let mut last = Next::Give;
    for came in all {
        last = decide(&history, *came, terms);
        history = history.and(*came, last);
    }
    last
}

fn is_same(next: Next) -> bool {
    matches!(next, Next::Same(_))
}

#[test]
fn an_answer_is_handed_over_whatever_came_before() {
    assert_eq!(after(&[Came::Answer], &terms(Carries::Token)), Next::Give);
    assert_eq!(after(&[Came::Lost, says(Code::InProgress), Came::Answer], &terms(Carries::Key)), Next::Give);
}

#[test]
fn a_new_token_is_fetched_once_and_only_if_nothing_else_was_ever_said() {
    let token = terms(Carries::Token);
    for code in [Code::TokenExpired, Code::TokenStale, Code::TokenMissing, Code::TokenInvalid, Code::RedeemUnknown] {
        assert!(matches!(after(&[says(code)], &token), Next::NewToken(_)), "{code}");
        assert_eq!(after(&[says(code), says(code)], &token), Next::Refused, "{code}");
        assert_eq!(after(&[Came::Lost, says(code)], &token), Next::Unknown, "{code}");
        assert_eq!(after(&[Came::Between { after: None }, says(code)], &token), Next::Unknown, "{code}");
        assert_eq!(after(&[says(Code::StoreUnavailable), says(code)], &token), Next::Refused, "{code}");
        assert_eq!(after(&[says(Code::InProgress), says(code)], &token), Next::Unknown, "{code}: it was running");
        assert!(matches!(after(&[Came::NotSent, says(code)], &token), Next::NewToken(_)), "{code}: it never left");
        assert_eq!(after(&[says(code)], &terms(Carries::Key)), Next::Refused, "{code}: there is no token to renew");
    }
}

#[test]
fn a_used_token_is_a_duplicate_unless_the_user_may_have_been_us() {
    let token = terms(Carries::Token);
    assert_eq!(after(&[says(Code::TokenUsed)], &token), Next::Refused);
    assert_eq!(after(&[Came::NotSent, says(Code::TokenUsed)], &token), Next::Refused);
    assert_eq!(after(&[Came::Lost, says(Code::TokenUsed)], &token), Next::Unknown);
    for earlier in [says(Code::StoreUnavailable), Came::Busy { after: None }] {
        assert_eq!(after(&[earlier, says(Code::TokenUsed)], &token), Next::Unknown, "{earlier:?}");
    }
    let lost_long_ago = [Came::Lost, says(Code::StoreUnavailable), Came::NotSent, says(Code::TokenUsed)];
    assert_eq!(after(&lost_long_ago, &token), Next::Unknown);
}

#[test]
fn what_was_lost_is_sent_again_with_the_same_and_only_with_something_to_know_it_by() {
    for carries in [Carries::Token, Carries::Key] {
        assert!(is_same(after(&[Came::Lost], &terms(carries))));
        assert!(is_same(after(&[Came::Between { after: None }], &terms(carries))));
        assert!(is_same(after(&[Came::NotSent], &terms(carries))));
    }
    assert_eq!(after(&[Came::Lost], &terms(Carries::Nothing)), Next::Unknown);
    assert_eq!(after(&[Came::NotSent], &terms(Carries::Nothing)), Next::NotSent);
}

#[test]
fn a_body_that_cannot_be_sent_again_is_never_repeated() {
    let terms = Terms { repeatable: false, refreshable: true, ..terms(Carries::Key) };
    assert_eq!(after(&[Came::Lost], &terms), Next::Unknown);
    assert_eq!(after(&[Came::NotSent], &terms), Next::NotSent);
    assert_eq!(after(&[says(Code::InProgress)], &terms), Next::Refused);
    assert_eq!(after(&[Came::Unauthorized], &terms), Next::Give);
    let token = Terms { carries: Carries::Token, ..terms };
    assert_eq!(after(&[says(Code::TokenExpired)], &token), Next::Refused);
}

#[test]
fn a_server_s_wait_is_waited_for_and_spread_on_top() {
    let refused = Came::Refused { code: Code::InProgress, retry: Retry::Same, after: Some(3 * SECOND) };
    let Next::Same(wait) = after(&[refused], &terms(Carries::Key)) else { panic!("it is sent again") };
    assert_eq!(wait.at_least, 3 * SECOND);
    assert!(wait.drawn(0.0) == 3 * SECOND && wait.drawn(1.0) > 3 * SECOND);
}

#[test]
fn waits_double_from_zero_up_to_a_bound() {
    let limits = Limits::new().waits(SECOND, 5 * SECOND);
    let spreads = [0, 1, 2, 3, 31].map(|tries| Wait::before(tries, None, &limits).spread);
    assert_eq!(spreads, [1, 2, 4, 5, 5].map(|seconds| seconds * SECOND));
    assert_eq!(Wait::before(3, None, &limits).drawn(0.0), Duration::ZERO);
}

#[test]
fn tries_come_to_an_end_and_say_what_is_certain() {
    let key = terms(Carries::Key);
    let five = |came: Came| after(&[came; 5], &key);
    assert_eq!(five(says(Code::StoreUnavailable)), Next::Refused);
    assert_eq!(five(Came::NotSent), Next::NotSent);
    assert_eq!(five(Came::Lost), Next::Unknown);
    assert_eq!(five(Came::Between { after: None }), Next::Unknown);
    assert_eq!(five(Came::Busy { after: None }), Next::Give);
    assert!(is_same(after(&[says(Code::StoreUnavailable); 4], &key)));
    let mixed = [Came::Lost, Came::NotSent, Came::NotSent, Came::NotSent, Came::NotSent];
    assert_eq!(after(&mixed, &key), Next::Unknown, "the last never left, but the first may have run");
}

#[test]
fn a_wait_that_would_outlast_the_deadline_is_not_begun() {
    let soon = Terms { left: 2 * SECOND, ..terms(Carries::Key) };
    let refused = |after| Came::Refused { code: Code::InProgress, retry: Retry::Same, after: Some(after) };
    assert_eq!(after(&[refused(2 * SECOND)], &soon), Next::Refused);
    assert!(is_same(after(&[refused(SECOND)], &soon)));
    assert_eq!(after(&[Came::Lost], &Terms { left: Duration::ZERO, ..soon }), Next::Unknown);
    let stale = Came::Refused { code: Code::TokenStale, retry: Retry::NewToken, after: Some(2 * SECOND) };
    assert_eq!(after(&[stale], &Terms { carries: Carries::Token, ..soon }), Next::Refused);
}

#[test]
fn whoever_insists_goes_on_beyond_the_tries_but_not_against_a_word() {
    let insists = Terms { insists: true, ..terms(Carries::Key) };
    assert!(is_same(after(&[Came::Lost; 50], &insists)));
    assert_eq!(after(&[Came::Lost, says(Code::OutcomeUnknown)], &insists), Next::Unknown);
    assert_eq!(after(&[says(Code::KeyReused)], &insists), Next::Refused);
}

#[test]
fn an_interval_is_never_waited_out() {
    for carries in [Carries::Token, Carries::Key] {
        let terms = Terms { insists: carries == Carries::Key, ..terms(carries) };
        assert_eq!(after(&[says(Code::TooSoon)], &terms), Next::Refused);
        assert_eq!(after(&[Came::NotSent, says(Code::TooSoon)], &terms), Next::Refused, "it never left");
        for earlier in [Came::Lost, Came::Between { after: None }, says(Code::StoreUnavailable)] {
            assert_eq!(after(&[earlier, says(Code::TooSoon)], &terms), Next::Unknown, "{earlier:?}: it may be ours");
        }
        // A server that says otherwise is not believed.
        let waits = Came::Refused { code: Code::TooSoon, retry: Retry::Same, after: Some(SECOND) };
        assert_eq!(after(&[waits], &terms), Next::Refused);
    }
}

#[test]
fn a_lock_is_waited_for_unless_we_may_hold_it_ourselves() {
    let held = Came::Refused { code: Code::Locked, retry: Retry::Same, after: Some(SECOND) };
    let token = terms(Carries::Token);
    let Next::Same(wait) = after(&[held], &token) else { panic!("it is sent again") };
    assert_eq!(wait.at_least, SECOND);
    assert!(is_same(after(&[says(Code::StoreUnavailable), held], &token)));
    assert_eq!(after(&[held; 5], &token), Next::Refused);
    assert_eq!(after(&[Came::Lost, held], &token), Next::Unknown);
}

#[test]
fn revoked_token_is_not_replaced() {
    let token = terms(Carries::Token);
    assert_eq!(after(&[says(Code::TokenRevoked)], &token), Next::Refused);
    assert_eq!(after(&[Came::Lost, says(Code::TokenRevoked)], &token), Next::Unknown);
}

#[test]
fn nobody_knows_is_unknown_and_not_kept_is_certain() {
    let key = terms(Carries::Key);
    assert_eq!(after(&[says(Code::OutcomeUnknown)], &key), Next::Unknown);
    assert_eq!(after(&[says(Code::Internal)], &key), Next::Unknown);
    assert_eq!(after(&[Came::Lost, says(Code::ReplyNotKept)], &key), Next::Refused);
}

#[test]
fn what_was_running_when_last_heard_of_is_not_certain_to_have_run_nothing() {
    let key = terms(Carries::Key);
    let runs = says(Code::InProgress);
    assert_eq!(after(&[runs, Came::NotSent, Came::NotSent, Came::NotSent, Came::NotSent], &key), Next::Unknown);
    assert_eq!(after(&[runs, says(Code::BadRequest)], &key), Next::Unknown);
    assert_eq!(after(&[runs, Came::Unauthorized], &key), Next::Unknown);
    assert_eq!(after(&[runs; 5], &key), Next::Refused, "it says so itself");
}

#[test]
fn a_failure_that_no_guard_has_marked_says_nothing_of_a_try_that_was_lost() {
    assert_eq!(after(&[Came::Failure], &terms(Carries::Token)), Next::Give);
    assert_eq!(after(&[Came::Lost, Came::Failure], &terms(Carries::Token)), Next::Unknown);
    assert_eq!(after(&[Came::Lost, Came::Failure], &terms(Carries::Key)), Next::Give, "other servers mark nothing");
}

#[test]
fn credentials_are_refreshed_once() {
    let elsewhere = Terms { refreshable: true, ..terms(Carries::Nothing) };
    assert_eq!(after(&[Came::Unauthorized], &elsewhere), Next::Give, "none were sent there");
    let terms = Terms { refreshable: true, ..terms(Carries::Token) };
    assert_eq!(after(&[Came::Unauthorized], &terms), Next::Refresh);
    assert_eq!(after(&[Came::Unauthorized, Came::Unauthorized], &terms), Next::Give);
    assert_eq!(after(&[Came::Lost, Came::Unauthorized, Came::Unauthorized], &terms), Next::Unknown);
}

#[test]
fn it_is_never_sent_more_often_than_is_allowed_nor_after_the_deadline() {
    let once = Terms { limits: Limits::new().tries(1), refreshable: true, ..terms(Carries::Token) };
    for came in [Came::Unauthorized, says(Code::TokenExpired), says(Code::InProgress), Came::NotSent, Came::Lost] {
        let next = after(&[came], &once);
        assert!(matches!(next, Next::Give | Next::Refused | Next::NotSent | Next::Unknown), "{came:?}: {next:?}");
    }
    let twice = Terms { limits: Limits::new().tries(2), ..once };
    assert_eq!(after(&[Came::NotSent, says(Code::TokenExpired)], &twice), Next::Refused);
    assert_eq!(after(&[Came::NotSent, Came::Unauthorized], &twice), Next::Give);
    assert_eq!(after(&[Came::Unauthorized], &Terms { left: Duration::ZERO, ..twice }), Next::Give);
}

#[test]
fn what_is_resumed_may_have_run_before() {
    let history = History::new(true);
    assert_eq!(decide(&history, says(Code::KeyMalformed), &terms(Carries::Key)), Next::Unknown);
    assert_eq!(decide(&history, Came::Answer, &terms(Carries::Key)), Next::Give);
}
