use super::*;
use crate::attempt::Attempt;
use crate::binding::Binding;
use crate::clock::ManualClock;
use crate::fingerprint::Fingerprint;
use crate::guard::Guard;
use crate::intent::Intent;
use crate::key::Key;
use crate::policy::{Policy, TokenRules};
use crate::snapshot::RecordState;
use crate::subject::Subject;
use crate::testing;
use crate::verdict::Verdict;

const LEASE: Duration = Duration::from_secs(10);

/// A backend in another process.
struct Backend {
    guard: Guard,
    clock: ManualClock,
    rules: KeyRules,
}

impl Backend {
    fn new(rules: KeyRules) -> Self {
        let (guard, clock) = testing::guard();
        Self { guard, clock, rules: rules.lease(LEASE).unwrap() }
    }

    /// Claims the key. Returns the signed pass, the status of the replayed response, or the code of the rejection.
    async fn claim(&self, attempt: Option<&str>, content: &str) -> String {
        let (key, attempt) = (Key::new("k").unwrap(), attempt.map(|name| Attempt::new(name).unwrap()));
        let mut intent = Intent::new("pay", Subject::named("alice")).key(&key);
        intent = intent.fingerprint(Fingerprint::of_bytes(content.as_bytes()));
        if let Some(attempt) = &attempt {
            intent = intent.attempt(attempt);
        }
        summary(self.guard.check(&Policy::key(self.rules.clone()), &intent).await.unwrap()).await
    }

    async fn pass(&self, text: &str) -> SignedPass {
        self.guard.open_pass(text).await.unwrap().expect("the pass is valid")
    }

    async fn seen(&self) -> RecordState {
        let key = Key::new("k").unwrap();
        let intent = Intent::new("pay", Subject::named("alice")).key(&key);
        self.guard.look(&Policy::key(self.rules.clone()), &intent).await.unwrap().state
    }
}

fn lost() -> Settled {
    Settled::Lost
}

#[tokio::test]
async fn remote_completion_is_replayed_and_idempotent() {
    let backend = Backend::new(KeyRules::retryable());
    let text = backend.claim(None, "a").await;
    assert_eq!(backend.claim(None, "a").await, "in_progress");
    assert_eq!(backend.claim(None, "b").await, "key_reused");
    let pass = backend.pass(&text).await;
    for _ in 0..2 {
        assert_eq!(pass.complete(Some(Reply::new(201, "paid"))).await.unwrap(), Settled::Final);
    }
    assert_eq!(backend.claim(None, "a").await, "replay 201");
    assert_eq!((pass.release().await.unwrap(), pass.renew().await.unwrap()), (lost(), false));
    assert_eq!(backend.claim(None, "a").await, "replay 201", "a settled pass changes nothing");
}

#[tokio::test]
async fn remote_release_frees_the_key_and_is_idempotent() {
    let backend = Backend::new(KeyRules::at_most_once());
    let text = backend.claim(None, "a").await;
    let pass = backend.pass(&text).await;
    for _ in 0..2 {
        assert_eq!(pass.release().await.unwrap(), Settled::Released);
    }
    let next = backend.claim(None, "b").await;
    assert!(next.starts_with(KEY_PREFIX), "{next}");
    assert_eq!((pass.release().await.unwrap(), pass.complete(None).await.unwrap()), (lost(), lost()));
    assert_eq!(backend.claim(None, "b").await, "in_progress", "its successor's claim is untouched");
}

#[tokio::test]
async fn claim_of_a_dead_backend_expires_with_its_lease() {
    let backend = Backend::new(KeyRules::retryable());
    let text = backend.claim(None, "a").await;
    backend.clock.advance(LEASE - Duration::from_millis(1));
    assert_eq!(backend.claim(None, "a").await, "in_progress");
    assert!(backend.pass(&text).await.renew().await.unwrap());
    backend.clock.advance(LEASE - Duration::from_millis(1));
    assert_eq!(backend.claim(None, "a").await, "in_progress");
    backend.clock.advance(Duration::from_millis(1));
    let successor = backend.claim(None, "a").await;
    assert!(successor.starts_with(KEY_PREFIX), "{successor}");
    let late = backend.pass(&text).await;
    let late_results = (late.renew().await.unwrap(), late.complete(None).await.unwrap(), late.release().await.unwrap());
    assert_eq!(late_results, (false, lost(), lost()));
}

#[tokio::test]
async fn dead_backend_leaves_unknown_outcome_if_at_most_once() {
    let backend = Backend::new(KeyRules::at_most_once());
    let text = backend.claim(None, "a").await;
    backend.clock.advance(LEASE + Duration::from_millis(1));
    assert_eq!(backend.claim(None, "a").await, "outcome_unknown");
    assert!(matches!(backend.seen().await, RecordState::Unknown(_)));
    // The backend did not crash, but was slow.
    let pass = backend.pass(&text).await;
    assert!(pass.renew().await.unwrap());
    assert_eq!(backend.claim(None, "a").await, "in_progress");
    assert_eq!(pass.complete(Some(Reply::new(200, ""))).await.unwrap(), Settled::Final);
    assert_eq!(backend.claim(None, "a").await, "replay 200");
}

#[tokio::test]
async fn late_backend_without_successor_still_settles() {
    let backend = Backend::new(KeyRules::retryable());
    let text = backend.claim(None, "a").await;
    backend.clock.advance(LEASE * 2);
    assert_eq!(backend.seen().await, RecordState::Absent);
    assert!(backend.pass(&text).await.renew().await.unwrap());
    assert_eq!(backend.claim(None, "a").await, "in_progress");
    backend.clock.advance(LEASE * 2);
    assert_eq!(backend.pass(&text).await.complete(Some(Reply::new(201, ""))).await.unwrap(), Settled::Final);
    assert_eq!(backend.claim(None, "a").await, "replay 201");
}

#[tokio::test]
async fn same_attempt_receives_the_same_pass() {
    for rules in [KeyRules::retryable(), KeyRules::at_most_once()] {
        let backend = Backend::new(rules);
        let text = backend.claim(Some("one"), "a").await;
        backend.clock.advance(Duration::from_secs(1));
        assert_eq!(backend.claim(Some("one"), "a").await, text);
        assert_eq!(backend.claim(Some("two"), "a").await, "in_progress");
        assert_eq!(backend.claim(None, "a").await, "in_progress");
        assert_eq!(backend.claim(Some("one"), "b").await, "key_reused");
        backend.pass(&text).await.complete(Some(Reply::new(201, ""))).await.unwrap();
        assert_eq!(backend.claim(Some("one"), "a").await, "replay 201", "a late repetition does not run again");
    }
}

#[tokio::test]
async fn late_release_of_first_run_keeps_second_claim() {
    let backend = Backend::new(KeyRules::retryable());
    let first = backend.claim(Some("one"), "a").await;
    backend.pass(&first).await.release().await.unwrap();
    backend.clock.advance(Duration::from_secs(1));
    let second = backend.claim(Some("one"), "a").await;
    assert!(second.starts_with(KEY_PREFIX) && second != first, "{second}");
    assert_eq!(backend.pass(&first).await.release().await.unwrap(), lost());
    assert_eq!(backend.claim(None, "a").await, "in_progress");
    assert_eq!(backend.pass(&second).await.release().await.unwrap(), Settled::Released);
}

#[tokio::test]
async fn runs_of_one_attempt_in_one_millisecond_differ() {
    for rules in [KeyRules::retryable(), KeyRules::at_most_once()] {
        let backend = Backend::new(rules);
        let first = backend.claim(Some("one"), "a").await;
        let late = backend.pass(&first).await;
        assert_eq!(late.release().await.unwrap(), Settled::Released);
        let second = backend.claim(Some("one"), "a").await;
        assert!(second.starts_with(KEY_PREFIX) && second != first, "{second}");
        let late_results =
            (late.renew().await.unwrap(), late.complete(None).await.unwrap(), late.release().await.unwrap());
        assert_eq!(late_results, (false, lost(), lost()));
        assert_eq!(backend.claim(Some("one"), "a").await, second, "the second run is in flight");
        let second = backend.pass(&second).await;
        assert_eq!(second.complete(Some(Reply::new(201, ""))).await.unwrap(), Settled::Final);
        assert_eq!(late.complete(None).await.unwrap(), lost(), "the record belongs to the second run");
    }
}

#[tokio::test]
async fn claim_revived_by_late_renewal_is_not_reissued() {
    let backend = Backend::new(KeyRules::retryable());
    let first = backend.claim(Some("one"), "a").await;
    let late = backend.pass(&first).await;
    assert_eq!(late.release().await.unwrap(), Settled::Released);
    assert!(late.renew().await.unwrap());
    assert_eq!(backend.claim(Some("one"), "a").await, "in_progress", "its pass would belong to a run that has ended");
    assert_eq!(late.release().await.unwrap(), Settled::Released);
    let second = backend.claim(Some("one"), "a").await;
    assert!(second.starts_with(KEY_PREFIX) && second != first, "{second}");
    assert_eq!(late.release().await.unwrap(), lost());
}

#[tokio::test]
async fn repeated_attempt_receives_a_full_lease() {
    for rules in [KeyRules::retryable(), KeyRules::at_most_once()] {
        let backend = Backend::new(rules);
        let text = backend.claim(Some("one"), "a").await;
        backend.clock.advance(LEASE - Duration::from_millis(1));
        assert_eq!(backend.claim(Some("one"), "a").await, text);
        backend.clock.advance(LEASE - Duration::from_millis(1));
        assert_eq!(backend.claim(Some("two"), "a").await, "in_progress");
        assert_eq!(backend.pass(&text).await.complete(None).await.unwrap(), Settled::Final);
    }
}

/// The backend crashed, and its message is delivered again, with the same attempt.
#[tokio::test]
async fn at_most_once_attempt_does_not_rerun_after_lease() {
    let backend = Backend::new(KeyRules::at_most_once());
    let text = backend.claim(Some("one"), "a").await;
    backend.clock.advance(LEASE - Duration::from_millis(1));
    assert_eq!(backend.claim(Some("one"), "a").await, text, "its lease has not expired");
    backend.clock.advance(LEASE);
    for attempt in [Some("one"), Some("two"), None] {
        assert_eq!(backend.claim(attempt, "a").await, "outcome_unknown", "{attempt:?}");
    }
    assert!(matches!(backend.seen().await, RecordState::Unknown(_)));
    // An operator has verified that the run did not take effect.
    assert_eq!(backend.pass(&text).await.release().await.unwrap(), Settled::Released);
    assert!(backend.claim(Some("one"), "a").await.starts_with(KEY_PREFIX));
}

#[tokio::test]
async fn late_completion_or_renewal_of_first_run_is_lost() {
    let backend = Backend::new(KeyRules::retryable());
    let first = backend.claim(Some("one"), "a").await;
    backend.clock.advance(LEASE);
    let second = backend.claim(Some("one"), "a").await;
    assert!(second.starts_with(KEY_PREFIX) && second != first, "{second}");
    let late = backend.pass(&first).await;
    assert_eq!(late.complete(Some(Reply::new(201, "first"))).await.unwrap(), lost());
    assert!(!late.renew().await.unwrap());
    assert!(matches!(backend.seen().await, RecordState::Running(_)), "the late calls write nothing");
    let second = backend.pass(&second).await;
    assert_eq!(second.complete(Some(Reply::new(202, "second"))).await.unwrap(), Settled::Final);
    assert_eq!(backend.claim(None, "a").await, "replay 202");
}

#[tokio::test]
async fn forged_or_altered_pass_is_rejected() {
    let backend = Backend::new(KeyRules::retryable());
    let text = backend.claim(None, "a").await;
    let (other, _clock) = testing::guard();
    assert!(other.open_pass(&text).await.unwrap().is_none(), "the pass was signed with another secret");
    let token = backend.guard.issue(LEASE, Binding::none()).await.unwrap();
    for text in ["", KEY_PREFIX, "owp1_AAAA", token.as_str(), &text[..text.len() - 1], &format!("{text}A")] {
        assert!(backend.guard.open_pass(text).await.unwrap().is_none());
    }
    for at in KEY_PREFIX.len()..text.len() {
        let mut altered = text.clone().into_bytes();
        altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
        let altered = String::from_utf8(altered).unwrap();
        assert!(backend.guard.open_pass(&altered).await.unwrap().is_none(), "{at}");
    }
    assert!(!format!("{:?}", backend.pass(&text).await).contains("owp1_"));
}

/// A backend that claims the tokens of its clients.
struct TokenBackend {
    backend: Backend,
    token: String,
}

const TTL: Duration = Duration::from_secs(60);

impl TokenBackend {
    async fn new() -> Self {
        let backend = Backend::new(KeyRules::retryable());
        let token = backend.guard.issue(TTL, Binding::none()).await.unwrap().as_str().to_owned();
        Self { backend, token }
    }

    /// Claims the token for `alice`. Returns the signed pass, the status of the replayed response, or the code of the rejection.
    async fn claim(&self, attempt: Option<&str>, content: &str) -> String {
        self.claim_as("alice", attempt, content).await
    }

    async fn claim_as(&self, subject: &str, attempt: Option<&str>, content: &str) -> String {
        let attempt = attempt.map(|name| Attempt::new(name).unwrap());
        let mut intent = Intent::new("pay", Subject::named(subject)).credential(&self.token);
        intent = intent.fingerprint(Fingerprint::of_bytes(content.as_bytes()));
        if let Some(attempt) = &attempt {
            intent = intent.attempt(attempt);
        }
        let policy = Policy::Token(TokenRules::new().remember_by(self.backend.rules.clone()));
        summary(self.backend.guard.check(&policy, &intent).await.unwrap()).await
    }

    async fn pass(&self, text: &str) -> SignedPass {
        self.backend.pass(text).await
    }

    fn advance(&self, time: Duration) {
        self.backend.clock.advance(time);
    }
}

async fn summary(verdict: Verdict) -> String {
    match verdict {
        Verdict::Run(pass) => pass.into_signed().await.unwrap().unwrap(),
        Verdict::Replay(reply) => format!("replay {}", reply.status()),
        Verdict::Reject(rejection) => rejection.code().to_string(),
    }
}

#[tokio::test]
async fn token_completed_elsewhere_is_replayed_to_its_sender_only() {
    let backend = TokenBackend::new().await;
    let text = backend.claim(None, "a").await;
    assert!(text.starts_with(OTHER_PREFIX), "{text}");
    assert_eq!(backend.claim(None, "a").await, "in_progress");
    assert_eq!(backend.claim(None, "b").await, "token_used");
    let pass = backend.pass(&text).await;
    for _ in 0..2 {
        assert_eq!(pass.complete(Some(Reply::new(201, "paid"))).await.unwrap(), Settled::Final);
    }
    assert_eq!((pass.release().await.unwrap(), pass.renew().await.unwrap()), (lost(), false));
    backend.advance(TTL * 2);
    assert_eq!(backend.claim(None, "a").await, "replay 201", "the reply outlives the token");
    assert_eq!(backend.claim_as("bob", None, "a").await, "token_used");
    backend.advance(Duration::from_secs(24 * 60 * 60));
    assert_eq!(backend.claim(None, "a").await, "token_expired");
}

#[tokio::test]
async fn token_released_elsewhere_is_valid_again_until_it_expires() {
    let backend = TokenBackend::new().await;
    let first = backend.pass(&backend.claim(None, "a").await).await;
    for _ in 0..2 {
        assert_eq!(first.release().await.unwrap(), Settled::Released);
    }
    let second = backend.pass(&backend.claim(None, "b").await).await;
    let late = (first.renew().await.unwrap(), first.complete(None).await.unwrap(), first.release().await.unwrap());
    assert_eq!(late, (false, lost(), lost()), "its successor's claim is untouched");
    assert!(second.renew().await.unwrap());
    backend.advance(TTL);
    for _ in 0..2 {
        assert_eq!(second.release().await.unwrap(), Settled::Released);
    }
    assert_eq!(backend.claim(None, "b").await, "token_expired");
}

#[tokio::test]
async fn renewal_of_a_released_token_does_not_claim_it_again() {
    let backend = TokenBackend::new().await;
    let pass = backend.pass(&backend.claim(None, "a").await).await;
    assert_eq!(pass.release().await.unwrap(), Settled::Released);
    assert!(!pass.renew().await.unwrap());
    assert!(backend.claim(None, "a").await.starts_with(OTHER_PREFIX));
}

#[tokio::test]
async fn token_of_dead_backend_is_unknown_until_settled() {
    let backend = TokenBackend::new().await;
    let text = backend.claim(None, "a").await;
    backend.advance(LEASE / 2);
    assert!(backend.pass(&text).await.renew().await.unwrap());
    backend.advance(LEASE - Duration::from_millis(1));
    assert_eq!(backend.claim(None, "a").await, "in_progress");
    backend.advance(Duration::from_millis(1));
    assert_eq!(backend.claim(None, "a").await, "outcome_unknown");
    assert_eq!(backend.pass(&text).await.complete(Some(Reply::new(200, ""))).await.unwrap(), Settled::Final);
    assert_eq!(backend.claim(None, "a").await, "replay 200");
}

#[tokio::test]
async fn token_attempt_receives_same_pass_until_lease_expires() {
    let backend = TokenBackend::new().await;
    let text = backend.claim(Some("one"), "a").await;
    backend.advance(LEASE - Duration::from_millis(1));
    assert_eq!(backend.claim(Some("one"), "a").await, text);
    backend.advance(LEASE - Duration::from_millis(1));
    assert_eq!(backend.claim(Some("one"), "a").await, text, "each repetition has a full lease");
    for (subject, attempt, content, expected) in [
        ("alice", Some("two"), "a", "in_progress"),
        ("alice", None, "a", "in_progress"),
        ("alice", Some("one"), "b", "token_used"),
        ("bob", Some("one"), "a", "token_used"),
    ] {
        assert_eq!(backend.claim_as(subject, attempt, content).await, expected, "{subject} {attempt:?} {content}");
    }
    backend.advance(LEASE);
    assert_eq!(backend.claim(Some("one"), "a").await, "outcome_unknown");
}

#[tokio::test]
async fn accepted_attempt_receives_its_pass_after_token_expiry() {
    let backend = TokenBackend::new().await;
    backend.advance(TTL - Duration::from_millis(1));
    let text = backend.claim(Some("one"), "a").await;
    backend.advance(Duration::from_secs(1));
    assert_eq!(backend.claim(Some("one"), "a").await, text);
    assert_eq!(backend.claim(Some("two"), "a").await, "in_progress");
    backend.pass(&text).await.complete(Some(Reply::new(201, ""))).await.unwrap();
    assert_eq!(backend.claim(Some("one"), "a").await, "replay 201");
}

#[tokio::test]
async fn attempt_that_released_its_token_starts_another_run() {
    let backend = TokenBackend::new().await;
    let first = backend.claim(Some("one"), "a").await;
    let late = backend.pass(&first).await;
    late.release().await.unwrap();
    let second = backend.claim(Some("one"), "a").await;
    assert!(second.starts_with(OTHER_PREFIX) && second != first, "{second}");
    assert_eq!(late.release().await.unwrap(), lost());
    assert_eq!(backend.claim(Some("one"), "a").await, second);
}

/// Claims an interval for `alice`. Returns the signed pass, or the code of the rejection.
async fn interval(backend: &Backend, rules: IntervalRules, attempt: Option<&str>, content: &str) -> String {
    let attempt = attempt.map(|name| Attempt::new(name).unwrap());
    let mut intent = Intent::new("comment", Subject::named("alice"));
    intent = intent.fingerprint(Fingerprint::of_bytes(content.as_bytes()));
    if let Some(attempt) = &attempt {
        intent = intent.attempt(attempt);
    }
    summary(backend.guard.check(&Policy::interval(rules), &intent).await.unwrap()).await
}

#[tokio::test]
async fn completed_interval_rejects_duplicates_and_released_one_does_not() {
    let backend = Backend::new(KeyRules::retryable());
    let every = || IntervalRules::new().every(LEASE).unwrap();
    let first = interval(&backend, every(), Some("one"), "a").await;
    assert_eq!(interval(&backend, every(), Some("one"), "a").await, first, "the same attempt");
    assert_eq!(interval(&backend, every(), None, "a").await, "too_soon");
    let second = interval(&backend, every(), None, "b").await;
    assert!(second.starts_with(OTHER_PREFIX), "{second}");
    for _ in 0..2 {
        assert_eq!(backend.pass(&first).await.complete(None).await.unwrap(), Settled::Final);
        assert_eq!(backend.pass(&second).await.release().await.unwrap(), Settled::Released);
    }
    assert!(interval(&backend, every(), None, "b").await.starts_with(OTHER_PREFIX));
    backend.clock.advance(LEASE - Duration::from_millis(1));
    assert_eq!(interval(&backend, every(), None, "a").await, "too_soon");
    backend.clock.advance(Duration::from_millis(1));
    assert!(interval(&backend, every(), None, "a").await.starts_with(OTHER_PREFIX));
    assert_eq!(backend.pass(&first).await.complete(None).await.unwrap(), lost());
    assert!(!backend.pass(&first).await.renew().await.unwrap());
}

#[tokio::test]
async fn renewed_interval_lasts_as_long_as_its_run() {
    let backend = Backend::new(KeyRules::retryable());
    let every = || IntervalRules::new().every(LEASE).unwrap();
    let pass = backend.pass(&interval(&backend, every(), None, "a").await).await;
    for _ in 0..3 {
        backend.clock.advance(LEASE / 2);
        assert!(pass.renew().await.unwrap());
    }
    assert_eq!(interval(&backend, every(), None, "a").await, "too_soon");
}

#[tokio::test]
async fn lock_is_released_by_completion_or_release() {
    for is_applied in [true, false] {
        let backend = Backend::new(KeyRules::retryable());
        let lock = || IntervalRules::new().every(LEASE).unwrap().release_always();
        let pass = backend.pass(&interval(&backend, lock(), None, "a").await).await;
        assert_eq!(interval(&backend, lock(), None, "a").await, "locked");
        let settled = if is_applied { pass.complete(None).await } else { pass.release().await };
        settled.unwrap().into_result().unwrap();
        assert!(interval(&backend, lock(), None, "a").await.starts_with(OTHER_PREFIX));
    }
}

#[tokio::test]
async fn pass_under_the_prefix_of_another_kind_is_rejected() {
    let (key, token) = (Backend::new(KeyRules::retryable()), TokenBackend::new().await);
    let of_key = key.claim(None, "a").await.replace(KEY_PREFIX, OTHER_PREFIX);
    let of_token = token.claim(None, "a").await.replace(OTHER_PREFIX, KEY_PREFIX);
    assert!(key.guard.open_pass(&of_key).await.unwrap().is_none());
    assert!(token.backend.guard.open_pass(&of_token).await.unwrap().is_none());
}
