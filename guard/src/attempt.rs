//! One try at redeeming, named by a caller we trust: the same try asked twice is accepted twice.
//!
//! A gateway or a backend may ask twice for one request, because it lost the answer or because it is built that way. With
//! a name for the try, the second question finds its own mark on the token and gets the first answer again.

use std::fmt;
use std::time::Duration;

use onceward_api::Code;
use sha2::{Digest as _, Sha256};

use crate::guard::{Guard, Released};
use crate::record::{AttemptRecord, Record};
use crate::rejection::Rejection;
use crate::run_id::RunId;
use crate::store::{Bytes, Compared, StoreError};
use crate::ticket::Ticket;
use crate::token::TokenFields;

/// The most characters of an attempt.
const LONGEST: usize = 255;
/// How long the same attempt is accepted again, and may release the token.
const ACCEPTED_AGAIN: Duration = Duration::from_secs(60);
/// How often a record of a token's use that is not there is looked for again, and how long after each time.
///
/// Whoever asks for the plain token takes that record in hand for a moment and puts it back. In that moment it is not gone.
pub(crate) const IN_HAND: (usize, Duration) = (8, Duration::from_millis(8));

/// The name of one try, which fits into a log and into a header. Whoever knows it may release what it has redeemed, so
/// it does not show itself.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Attempt(String);

impl Attempt {
    /// A try of this name.
    ///
    /// # Errors
    /// Unless it is 1 to 255 visible ASCII characters.
    pub fn new(text: impl Into<String>) -> Result<Self, BadAttempt> {
        let text = text.into();
        let is_name = (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_name { Ok(Self(text)) } else { Err(BadAttempt) }
    }

    /// What a claim says of it under a key. With other content it is another, so that the two are told apart.
    pub(crate) fn under(&self, ticket: &Ticket, fingerprint: Option<[u8; 16]>) -> [u8; 16] {
        let mut digest = Sha256::new();
        for field in [&ticket.digest()[..], fingerprint.as_ref().map_or(&[], |said| &said[..]), self.0.as_bytes()] {
            digest.update((field.len() as u64).to_be_bytes());
            digest.update(field);
        }
        let mut short = [0; 16];
        short.copy_from_slice(&digest.finalize()[..16]);
        short
    }

    /// What the store is told of it: the name is the caller's.
    fn digest(&self) -> [u8; 16] {
        let digest: [u8; 32] = Sha256::digest(self.0.as_bytes()).into();
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        short
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attempt(…)")
    }
}

/// What is wrong with an attempt. It says what is allowed, and never what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an attempt has 1 to {LONGEST} visible ASCII characters")]
pub struct BadAttempt;

impl Guard {
    /// Marks the token as used by this attempt, and names the run that it is used for, now or from before.
    pub(crate) async fn mark(
        &self,
        token: &TokenFields,
        attempt: &Attempt,
    ) -> Result<Result<RunId, Rejection>, StoreError> {
        let mark = AttemptRecord {
            attempt: attempt.digest(),
            run: RunId::new(),
            deadline: self.clock().wall() + ACCEPTED_AGAIN.as_millis() as u64,
            expires_at: token.expires_at,
        };
        let ticket = Ticket::of_token(token.id);
        let store = self.store();
        match store.swap_under(&ticket, token.epoch, &Record::ISSUED, &mark.encode(), ACCEPTED_AGAIN).await? {
            None => Ok(Err(Code::TokenStale.into())),
            Some(Compared::Done) => Ok(Ok(mark.run)),
            Some(Compared::Gone) => Ok(self.marked(token, attempt).await?.ok_or(Code::TokenUsed.into())),
            Some(Compared::Found(bytes)) => match Record::decode(&bytes).map_err(StoreError::not_executed)? {
                Record::Attempted(found) if found.attempt == mark.attempt => Ok(Ok(found.run)),
                found => Ok(Err(found.used().into())),
            },
        }
    }

    /// Whether the store still lives the life that issued this token. What it has on record of an attempt is otherwise perhaps of
    /// before: the attempt may have released the token since, and another one used it.
    async fn is_of_epoch(&self, token: &TokenFields) -> Result<bool, StoreError> {
        let asked = self.store().ask_epoch(&Ticket::of_token(token.id)).await;
        Ok(asked.map_err(StoreError::certainly_not_executed)? == token.epoch)
    }

    /// The run that this attempt has used the token for, as far as is still known.
    pub(crate) async fn marked(&self, token: &TokenFields, attempt: &Attempt) -> Result<Option<RunId>, StoreError> {
        let Some(bytes) = self.look_again(&Ticket::of_token(token.id)).await? else { return Ok(None) };
        match Record::decode(&bytes).map_err(StoreError::not_executed)? {
            Record::Attempted(found) if found.attempt == attempt.digest() => {
                Ok(self.is_of_epoch(token).await?.then_some(found.run))
            }
            _ => Ok(None),
        }
    }

    /// What is there, also if somebody has it in hand at this moment.
    async fn look_again(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        for _ in 0..IN_HAND.0 {
            if let Some(found) = self.store().look(ticket).await? {
                return Ok(Some(found));
            }
            tokio::time::sleep(IN_HAND.1).await;
        }
        self.store().look(ticket).await
    }

    /// Makes a token valid again that this attempt has redeemed, for the rest of its life: the submission did not take effect.
    ///
    /// `run` is what [`Pass::run_id`](crate::Pass::run_id) named when the attempt redeemed the token; the same attempt gets the
    /// same one when it asks again. Repeating a release does no harm: once the attempt has redeemed the token anew, that is
    /// another run, and the release of the first is refused with `claim_lost`. So is one for a token of an earlier epoch of the store.
    ///
    /// # Errors
    /// If the store could not be asked, or if its answer was lost; the same may be sent again.
    pub async fn release(&self, token: &str, attempt: &Attempt, run: RunId) -> Result<Released, StoreError> {
        match TokenFields::open(token) {
            // Whom it is bound to is not known here, so the signature cannot be checked: knowing the attempt is what
            // allows it, and a token that was altered is still not good afterwards.
            Some((fields, _)) => self.unmark(&fields, attempt, run).await,
            None => Ok(Released::Rejected(Code::TokenMalformed.into())),
        }
    }

    pub(crate) async fn unmark(
        &self,
        token: &TokenFields,
        attempt: &Attempt,
        run: RunId,
    ) -> Result<Released, StoreError> {
        let lost = || Ok(Released::Rejected(Code::ClaimLost.into()));
        let ticket = Ticket::of_token(token.id);
        let Some(held) = self.look_again(&ticket).await? else { return lost() };
        let left = match Record::decode(&held).map_err(StoreError::not_executed)? {
            Record::Issued if self.is_of_epoch(token).await? => return Ok(Released::Back),
            Record::Attempted(found) if found.attempt == attempt.digest() && found.run == run => {
                TokenFields::worth_putting_back(found.expires_at, self.clock())
            }
            _ => return lost(),
        };
        // A token that is as good as expired cannot be given back any more.
        let Some(life) = left else { return lost() };
        match self.store().swap_under(&ticket, token.epoch, &held, &Record::ISSUED, life).await? {
            Some(Compared::Done) => Ok(Released::Back),
            Some(Compared::Found(bytes)) if bytes == Record::ISSUED.as_slice() => Ok(Released::Back),
            Some(Compared::Found(_) | Compared::Gone) | None => lost(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::{Seen, Verdict};
    use crate::intent::{Binding, Intent, Subject};
    use crate::no_reply::NoReply;
    use crate::policy::Policy;
    use crate::testing;

    const TTL: Duration = Duration::from_secs(30);

    fn named(name: &str) -> Attempt {
        Attempt::new(name).unwrap()
    }

    async fn ask(guard: &Guard, token: &str, attempt: Option<&str>) -> Result<(), Code> {
        redeem(guard, token, attempt).await.map(drop)
    }

    /// Redeems, and names the run if there is an attempt.
    async fn redeem(guard: &Guard, token: &str, attempt: Option<&str>) -> Result<Option<RunId>, Code> {
        let attempt = attempt.map(named);
        let mut intent = Intent::new("a", Subject::anonymous()).credential(token);
        if let Some(attempt) = &attempt {
            intent = intent.attempt(attempt);
        }
        match guard.check(&Policy::token(), &intent).await.unwrap() {
            Verdict::Run(pass) => {
                let run = pass.run_id();
                pass.complete(None).await.unwrap();
                Ok(run)
            }
            Verdict::Reject(rejection) => Err(rejection.code()),
            Verdict::Replay(_) => unreachable!("a token has no reply"),
        }
    }

    async fn token(guard: &Guard) -> String {
        guard.issue(TTL, Binding::none()).await.unwrap().as_str().to_owned()
    }

    const USED: Result<(), Code> = Err(Code::TokenUsed);

    #[test]
    fn an_attempt_is_one_to_255_visible_ascii_characters_and_does_not_show_itself() {
        for good in ["4711", "!", "~", "a/b?c#d", &"a".repeat(255)] {
            assert_eq!(format!("{:?}", Attempt::new(good)), "Ok(Attempt(…))", "{good}");
        }
        for bad in ["", " ", "a b", "a\nb", "a\n", "\u{7f}", "é", "a\u{0}", &"a".repeat(256)] {
            assert_eq!(Attempt::new(bad), Err(BadAttempt), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn the_same_attempt_is_accepted_again_and_no_other_is() {
        let (guard, clock) = testing::guard();
        let token = token(&guard).await;
        for _ in 0..3 {
            assert_eq!(ask(&guard, &token, Some("one")).await, Ok(()));
            assert_eq!(ask(&guard, &token, Some("two")).await, USED);
            assert_eq!(ask(&guard, &token, None).await, USED, "and its mark is put back");
            clock.advance(Duration::from_secs(9));
        }
        let intent = Intent::new("a", Subject::anonymous()).credential(&token);
        assert_eq!(guard.look(&Policy::token(), &intent).await.unwrap(), Seen::Done(Err(NoReply::Unrecorded)));
    }

    #[tokio::test]
    async fn an_attempt_is_known_for_a_minute_also_past_the_token_s_own_expiry() {
        let (guard, clock) = testing::guard();
        let token = token(&guard).await;
        assert_eq!(ask(&guard, &token, Some("one")).await, Ok(()));
        clock.advance(Duration::from_secs(59));
        assert_eq!(ask(&guard, &token, Some("one")).await, Ok(()));
        assert_eq!(ask(&guard, &token, Some("two")).await, Err(Code::TokenExpired));
        clock.advance(Duration::from_secs(1));
        assert_eq!(ask(&guard, &token, Some("one")).await, Err(Code::TokenExpired));
    }

    #[tokio::test]
    async fn being_asked_by_others_does_not_prolong_a_mark() {
        let (guard, clock) = testing::guard();
        let token = guard.issue(TTL * 10, Binding::none()).await.unwrap().as_str().to_owned();
        assert_eq!(ask(&guard, &token, Some("one")).await, Ok(()));
        for _ in 0..6 {
            clock.advance(Duration::from_secs(10));
            assert_eq!(ask(&guard, &token, None).await, USED);
        }
        assert_eq!(ask(&guard, &token, Some("one")).await, USED, "its minute is over");
    }

    #[tokio::test]
    async fn only_its_own_attempt_releases_a_token_and_may_do_so_twice() {
        let (guard, clock) = testing::guard();
        let token = token(&guard).await;
        let lost = Released::Rejected(Code::ClaimLost.into());
        let run = redeem(&guard, &token, Some("one")).await.unwrap().unwrap();
        assert_eq!(guard.release(&token, &named("two"), run).await.unwrap(), lost);
        assert_eq!(guard.release(&token, &named("one"), RunId::new()).await.unwrap(), lost);
        assert_eq!(guard.release(&token, &named("one"), run).await.unwrap(), Released::Back);
        assert_eq!(guard.release(&token, &named("one"), run).await.unwrap(), Released::Back);
        let second = redeem(&guard, &token, Some("two")).await.expect("it works again").unwrap();
        assert_eq!(guard.release(&token, &named("one"), run).await.unwrap(), lost);
        clock.advance(Duration::from_secs(60));
        assert_eq!(guard.release(&token, &named("two"), second).await.unwrap(), lost, "its minute is over");
        let malformed = guard.release("x", &named("two"), second).await.unwrap();
        assert_eq!(malformed, Released::Rejected(Code::TokenMalformed.into()));
    }

    #[tokio::test]
    async fn an_attempt_asked_again_names_the_same_run_and_after_its_release_another() {
        let (guard, _clock) = testing::guard();
        let token = token(&guard).await;
        let first = redeem(&guard, &token, Some("one")).await.unwrap().unwrap();
        assert_eq!(redeem(&guard, &token, Some("one")).await, Ok(Some(first)), "asked again, it is the same");
        assert_eq!(guard.release(&token, &named("one"), first).await.unwrap(), Released::Back);
        let second = redeem(&guard, &token, Some("one")).await.unwrap().unwrap();
        assert_ne!(first, second);
        let lost = Released::Rejected(Code::ClaimLost.into());
        assert_eq!(guard.release(&token, &named("one"), first).await.unwrap(), lost, "that run is over");
        assert_eq!(ask(&guard, &token, Some("two")).await, USED);
        assert_eq!(guard.release(&token, &named("one"), second).await.unwrap(), Released::Back);
    }

    #[tokio::test]
    async fn a_token_that_is_released_too_late_stays_away() {
        let (guard, clock) = testing::guard();
        let token = token(&guard).await;
        let run = redeem(&guard, &token, Some("one")).await.unwrap().unwrap();
        clock.advance(TTL - Duration::from_millis(999));
        let lost = Released::Rejected(Code::ClaimLost.into());
        assert_eq!(guard.release(&token, &named("one"), run).await.unwrap(), lost);
        assert_eq!(guard.release(&token, &named("one"), run).await.unwrap(), lost);
        assert_eq!(ask(&guard, &token, None).await, USED);
    }

    #[tokio::test]
    async fn a_pass_of_an_attempt_gives_the_token_back() {
        let (guard, _clock) = testing::guard();
        let token = token(&guard).await;
        let one = named("one");
        let intent = Intent::new("a", Subject::anonymous()).credential(&token).attempt(&one);
        let Ok(Verdict::Run(pass)) = guard.check(&Policy::token(), &intent).await else { panic!("it is good") };
        pass.release().await.unwrap();
        assert_eq!(ask(&guard, &token, None).await, Ok(()));
    }
}
