//! Signed passes: another process runs the handler, and settles the run with the pass.
//!
//! A signed pass names its claim. This process keeps no state for it: any process with the same store and secret accepts it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::claim::{Claim, Origin, Terms};
use crate::engine::Engine;
use crate::policy::KeyRules;
use crate::record::{ClaimRecord, Record};
use crate::reply::Reply;
use crate::settled::Settled;
use crate::store::StoreError;
use crate::ticket::{Kind, Ticket};
use crate::token::TAG;
use crate::token::mint::Mint;

/// Prefix of a signed pass.
const PREFIX: &str = "owp1_";

/// A pass for a run in another process, created by [`Pass::into_signed`](crate::Pass::into_signed) and opened by
/// [`Guard::open_pass`](crate::Guard::open_pass).
pub struct SignedPass {
    claim: Claim,
}

impl SignedPass {
    /// Records that the run took effect. A duplicate receives `reply`; without one, it learns that the run was completed without a reply to
    /// store.
    ///
    /// This call is idempotent. It returns [`Settled::Lost`] if another request has claimed the key since.
    ///
    /// # Errors
    /// If the store could not be reached, or if its reply was lost. Retry the call in both cases.
    pub async fn complete(&self, reply: Option<Reply>) -> Result<Settled, StoreError> {
        self.claim.complete_remotely(reply).await
    }

    /// Releases the key of a run that did not take effect: the next request runs.
    ///
    /// This call is idempotent. It returns [`Settled::Lost`] if another request has claimed the key since, or if the run was completed.
    /// Make sure that no renewal is in flight: a renewal that arrives afterwards claims the key again, for a lease in which no request
    /// runs.
    ///
    /// # Errors
    /// If the store could not be reached, or if its reply was lost. Retry the call in both cases.
    pub async fn release(&self) -> Result<Settled, StoreError> {
        self.claim.release_remotely().await
    }

    /// Renews the claim for another lease. An expired claim is inserted again, if no other request has claimed the key since.
    ///
    /// Returns `false` if another request has claimed the key, or if the run was completed.
    ///
    /// # Errors
    /// If the store could not be reached, or if its reply was lost. Retry the call in both cases.
    pub async fn renew(&self) -> Result<bool, StoreError> {
        self.claim.renew_remotely().await
    }
}

impl fmt::Debug for SignedPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedPass").field("ticket", self.claim.ticket()).finish_non_exhaustive()
    }
}

/// Opens a signed pass. Returns `None` if it was not signed with a secret of this guard.
pub(crate) async fn open(engine: &Arc<Engine>, text: &str) -> Result<Option<SignedPass>, StoreError> {
    let Some((bytes, tag)) = split(text) else { return Ok(None) };
    // Another process may have signed it with a secret that was agreed on a moment ago, because the store had lost the former one.
    if !engine.mint().await?.is_pass(&bytes, &tag) && !engine.current_mint().await?.is_pass(&bytes, &tag) {
        return Ok(None);
    }
    let Some(PassFields { ticket, retain, at_most_once, action, claimed }) = PassFields::read(&bytes) else {
        return Ok(None);
    };
    let rules = if at_most_once { KeyRules::at_most_once() } else { KeyRules::retryable() };
    let rules = KeyRules { lease: Duration::from_millis(claimed.lease), retain, ..rules };
    let (engine, fingerprint, attempt) = (Arc::clone(engine), claimed.fingerprint, claimed.attempt);
    let terms = Terms { engine, rules, origin: Origin::Key, action, ticket, fingerprint, attempt };
    Ok(Some(SignedPass { claim: Claim::remote(terms, claimed) }))
}

/// Signs a pass for this claim. Returns `None` unless the claim is on a key.
pub(super) fn sign(mint: &Mint, claim: &Claim) -> Option<String> {
    let (claimed, rules, action) = claim.to_sign()?;
    let (retain, at_most_once, action) = (rules.retain, rules.at_most_once, action.to_owned());
    let fields = PassFields { ticket: *claim.ticket(), retain, at_most_once, action, claimed };
    let mut bytes = fields.write();
    bytes.extend_from_slice(&mint.sign_pass(&bytes));
    Some(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// The contents of a signed pass.
struct PassFields {
    ticket: Ticket,
    retain: Duration,
    at_most_once: bool,
    /// For the audit log.
    action: String,
    claimed: ClaimRecord,
}

impl PassFields {
    fn write(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.at_most_once)];
        bytes.extend_from_slice(&(self.retain.as_millis() as u64).to_be_bytes());
        bytes.extend_from_slice(self.ticket.digest());
        let claimed = self.claimed.encode();
        bytes.extend_from_slice(&(claimed.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&claimed);
        bytes.extend_from_slice(self.action.as_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (&[at_most_once], rest) = bytes.split_first_chunk()?;
        let (retain, rest) = rest.split_first_chunk()?;
        let (digest, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (claimed, action) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        let Ok(Record::Claimed(claimed)) = Record::decode(claimed) else { return None };
        let (retain, action) = (Duration::from_millis(u64::from_be_bytes(*retain)), str::from_utf8(action).ok()?);
        let ticket = Ticket::from_digest(Kind::Key, *digest);
        Some(Self { ticket, retain, at_most_once: at_most_once == 1, action: action.to_owned(), claimed })
    }
}

/// Splits a pass into the signed bytes and the signature.
fn split(text: &str) -> Option<(Vec<u8>, [u8; TAG])> {
    let mut bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
    let signed = bytes.len().checked_sub(TAG)?;
    let tag = bytes.split_off(signed);
    Some((bytes, tag.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Attempt;
    use crate::clock::ManualClock;
    use crate::fingerprint::Fingerprint;
    use crate::guard::Guard;
    use crate::intent::{Intent, Subject};
    use crate::key::Key;
    use crate::policy::Policy;
    use crate::snapshot::RecordState;
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
        async fn claim(&self, attempt: Option<&str>, said: &str) -> String {
            let (key, attempt) = (Key::new("k").unwrap(), attempt.map(|name| Attempt::new(name).unwrap()));
            let mut intent = Intent::new("pay", Subject::named("alice")).key(&key);
            intent = intent.fingerprint(Fingerprint::of_bytes(said.as_bytes()));
            if let Some(attempt) = &attempt {
                intent = intent.attempt(attempt);
            }
            match self.guard.check(&Policy::key(self.rules.clone()), &intent).await.unwrap() {
                Verdict::Run(pass) => pass.into_signed().await.unwrap().unwrap(),
                Verdict::Replay(reply) => format!("replay {}", reply.status()),
                Verdict::Reject(rejection) => rejection.code().to_string(),
            }
        }

        async fn pass(&self, text: &str) -> SignedPass {
            self.guard.open_pass(text).await.unwrap().expect("it is ours")
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
    async fn what_happened_elsewhere_is_replayed_and_may_be_said_twice() {
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
        assert_eq!(backend.claim(None, "a").await, "replay 201", "a pass that is over changes nothing");
    }

    #[tokio::test]
    async fn what_did_not_happen_elsewhere_frees_the_key_and_may_be_said_twice() {
        let backend = Backend::new(KeyRules::at_most_once());
        let text = backend.claim(None, "a").await;
        let pass = backend.pass(&text).await;
        for _ in 0..2 {
            assert_eq!(pass.release().await.unwrap(), Settled::Released);
        }
        let next = backend.claim(None, "b").await;
        assert!(next.starts_with(PREFIX), "{next}");
        assert_eq!((pass.release().await.unwrap(), pass.complete(None).await.unwrap()), (lost(), lost()));
        assert_eq!(backend.claim(None, "b").await, "in_progress", "its successor's claim is untouched");
    }

    #[tokio::test]
    async fn nobody_renews_for_a_backend_that_has_died() {
        let backend = Backend::new(KeyRules::retryable());
        let text = backend.claim(None, "a").await;
        backend.clock.advance(LEASE - Duration::from_millis(1));
        assert_eq!(backend.claim(None, "a").await, "in_progress");
        assert!(backend.pass(&text).await.renew().await.unwrap());
        backend.clock.advance(LEASE - Duration::from_millis(1));
        assert_eq!(backend.claim(None, "a").await, "in_progress");
        backend.clock.advance(Duration::from_millis(1));
        let successor = backend.claim(None, "a").await;
        assert!(successor.starts_with(PREFIX), "{successor}");
        let late = backend.pass(&text).await;
        let told = (late.renew().await.unwrap(), late.complete(None).await.unwrap(), late.release().await.unwrap());
        assert_eq!(told, (false, lost(), lost()));
    }

    #[tokio::test]
    async fn a_backend_that_has_died_at_most_once_leaves_an_unknown_outcome() {
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
    async fn a_late_one_that_nobody_has_succeeded_still_counts() {
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
    async fn the_same_attempt_gets_the_same_pass_and_no_other_does() {
        for rules in [KeyRules::retryable(), KeyRules::at_most_once()] {
            let backend = Backend::new(rules);
            let text = backend.claim(Some("one"), "a").await;
            backend.clock.advance(Duration::from_secs(1));
            assert_eq!(backend.claim(Some("one"), "a").await, text);
            assert_eq!(backend.claim(Some("two"), "a").await, "in_progress");
            assert_eq!(backend.claim(None, "a").await, "in_progress");
            assert_eq!(backend.claim(Some("one"), "b").await, "key_reused");
            backend.pass(&text).await.complete(Some(Reply::new(201, ""))).await.unwrap();
            assert_eq!(backend.claim(Some("one"), "a").await, "replay 201", "asked for late, it does not run again");
        }
    }

    #[tokio::test]
    async fn an_attempt_that_runs_again_is_not_freed_by_a_late_word_of_its_first_run() {
        let backend = Backend::new(KeyRules::retryable());
        let first = backend.claim(Some("one"), "a").await;
        backend.pass(&first).await.release().await.unwrap();
        backend.clock.advance(Duration::from_secs(1));
        let second = backend.claim(Some("one"), "a").await;
        assert!(second.starts_with(PREFIX) && second != first, "{second}");
        assert_eq!(backend.pass(&first).await.release().await.unwrap(), lost());
        assert_eq!(backend.claim(None, "a").await, "in_progress");
        assert_eq!(backend.pass(&second).await.release().await.unwrap(), Settled::Released);
    }

    #[tokio::test]
    async fn runs_of_one_attempt_in_one_millisecond_are_told_apart() {
        for rules in [KeyRules::retryable(), KeyRules::at_most_once()] {
            let backend = Backend::new(rules);
            let first = backend.claim(Some("one"), "a").await;
            let late = backend.pass(&first).await;
            assert_eq!(late.release().await.unwrap(), Settled::Released);
            let second = backend.claim(Some("one"), "a").await;
            assert!(second.starts_with(PREFIX) && second != first, "{second}");
            let told = (late.renew().await.unwrap(), late.complete(None).await.unwrap(), late.release().await.unwrap());
            assert_eq!(told, (false, lost(), lost()));
            assert_eq!(backend.claim(Some("one"), "a").await, second, "it still runs");
            let second = backend.pass(&second).await;
            assert_eq!(second.complete(Some(Reply::new(201, ""))).await.unwrap(), Settled::Final);
            assert_eq!(late.complete(None).await.unwrap(), lost(), "it is another run that is on record");
        }
    }

    #[tokio::test]
    async fn claim_revived_by_a_late_renewal_is_not_given_out_again() {
        let backend = Backend::new(KeyRules::retryable());
        let first = backend.claim(Some("one"), "a").await;
        let late = backend.pass(&first).await;
        assert_eq!(late.release().await.unwrap(), Settled::Released);
        assert!(late.renew().await.unwrap());
        assert_eq!(
            backend.claim(Some("one"), "a").await,
            "in_progress",
            "its pass would be that of a run that is over"
        );
        assert_eq!(late.release().await.unwrap(), Settled::Released);
        let second = backend.claim(Some("one"), "a").await;
        assert!(second.starts_with(PREFIX) && second != first, "{second}");
        assert_eq!(late.release().await.unwrap(), lost());
    }

    #[tokio::test]
    async fn an_attempt_that_is_told_again_to_run_has_a_whole_lease_for_it() {
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
    async fn an_attempt_at_most_once_whose_lease_is_over_does_not_run_again() {
        let backend = Backend::new(KeyRules::at_most_once());
        let text = backend.claim(Some("one"), "a").await;
        backend.clock.advance(LEASE - Duration::from_millis(1));
        assert_eq!(backend.claim(Some("one"), "a").await, text, "its lease is not over");
        backend.clock.advance(LEASE);
        for attempt in [Some("one"), Some("two"), None] {
            assert_eq!(backend.claim(attempt, "a").await, "outcome_unknown", "{attempt:?}");
        }
        assert!(matches!(backend.seen().await, RecordState::Unknown(_)));
        // An operator has verified that the run did not take effect.
        assert_eq!(backend.pass(&text).await.release().await.unwrap(), Settled::Released);
        assert!(backend.claim(Some("one"), "a").await.starts_with(PREFIX));
    }

    #[tokio::test]
    async fn an_attempt_that_runs_again_is_not_completed_nor_renewed_by_a_late_word_of_its_first_run() {
        let backend = Backend::new(KeyRules::retryable());
        let first = backend.claim(Some("one"), "a").await;
        backend.clock.advance(LEASE);
        let second = backend.claim(Some("one"), "a").await;
        assert!(second.starts_with(PREFIX) && second != first, "{second}");
        let late = backend.pass(&first).await;
        assert_eq!(late.complete(Some(Reply::new(201, "first"))).await.unwrap(), lost());
        assert!(!late.renew().await.unwrap());
        assert!(matches!(backend.seen().await, RecordState::Running(_)), "nothing was written");
        let second = backend.pass(&second).await;
        assert_eq!(second.complete(Some(Reply::new(202, "second"))).await.unwrap(), Settled::Final);
        assert_eq!(backend.claim(None, "a").await, "replay 202");
    }

    #[tokio::test]
    async fn what_is_forged_or_altered_or_anything_else_is_no_pass() {
        let backend = Backend::new(KeyRules::retryable());
        let text = backend.claim(None, "a").await;
        let (other, _clock) = testing::guard();
        assert!(other.open_pass(&text).await.unwrap().is_none(), "it was signed with another secret");
        let token = backend.guard.issue(LEASE, crate::intent::Binding::none()).await.unwrap();
        for text in ["", PREFIX, "owp1_AAAA", token.as_str(), &text[..text.len() - 1], &format!("{text}A")] {
            assert!(backend.guard.open_pass(text).await.unwrap().is_none());
        }
        for at in PREFIX.len()..text.len() {
            let mut altered = text.clone().into_bytes();
            altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
            let altered = String::from_utf8(altered).unwrap();
            assert!(backend.guard.open_pass(&altered).await.unwrap().is_none(), "{at}");
        }
        assert!(!format!("{:?}", backend.pass(&text).await).contains("owp1_"));
    }
}
