//! Releases a token that an attempt has redeemed.

use onceward_api::Code;

use crate::attempt::Attempt;
use crate::engine::Engine;
use crate::run_id::RunId;
use crate::settled::Settled;
use crate::store::StoreError;
use crate::token::TokenFields;

pub(super) async fn release(
    engine: &Engine,
    token: &str,
    attempt: &Attempt,
    run: RunId,
) -> Result<Settled, StoreError> {
    match TokenFields::open(token) {
        // The binding of the token is not known here, so its signature cannot be verified: knowing the attempt authorizes the release, and
        // an altered token is still invalid afterwards.
        Some((fields, _)) => engine.unmark(&fields, attempt, run).await,
        None => Ok(Settled::Rejected(Code::TokenMalformed.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::binding::Binding;
    use crate::guard::Guard;
    use crate::intent::Intent;
    use crate::policy::Policy;
    use crate::reply::NoReply;
    use crate::snapshot::RecordState;
    use crate::subject::Subject;
    use crate::testing;
    use crate::verdict::Verdict;

    const TTL: Duration = Duration::from_secs(30);

    fn named(name: &str) -> Attempt {
        Attempt::new(name).unwrap()
    }

    async fn check(guard: &Guard, token: &str, attempt: Option<&str>) -> Result<(), Code> {
        redeem(guard, token, attempt).await.map(drop)
    }

    /// Redeems a token, and returns the run if there is an attempt.
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

    #[tokio::test]
    async fn same_attempt_is_accepted_again_and_no_other() {
        let (guard, clock) = testing::guard();
        let token = token(&guard).await;
        for _ in 0..3 {
            assert_eq!(check(&guard, &token, Some("one")).await, Ok(()));
            assert_eq!(check(&guard, &token, Some("two")).await, USED);
            assert_eq!(check(&guard, &token, None).await, USED, "and the record of the attempt stays");
            clock.advance(Duration::from_secs(9));
        }
        let intent = Intent::new("a", Subject::anonymous()).credential(&token);
        assert_eq!(
            guard.look(&Policy::token(), &intent).await.unwrap().state,
            RecordState::Done(Err(NoReply::Unrecorded))
        );
    }

    #[tokio::test]
    async fn attempt_is_accepted_for_a_minute_despite_token_expiry() {
        let (guard, clock) = testing::guard();
        let token = token(&guard).await;
        assert_eq!(check(&guard, &token, Some("one")).await, Ok(()));
        clock.advance(Duration::from_secs(59));
        assert_eq!(check(&guard, &token, Some("one")).await, Ok(()));
        assert_eq!(check(&guard, &token, Some("two")).await, Err(Code::TokenExpired));
        clock.advance(Duration::from_secs(1));
        assert_eq!(check(&guard, &token, Some("one")).await, Err(Code::TokenExpired));
    }

    #[tokio::test]
    async fn rejected_requests_do_not_extend_an_attempt_record() {
        let (guard, clock) = testing::guard();
        let token = guard.issue(TTL * 10, Binding::none()).await.unwrap().as_str().to_owned();
        assert_eq!(check(&guard, &token, Some("one")).await, Ok(()));
        for _ in 0..6 {
            clock.advance(Duration::from_secs(10));
            assert_eq!(check(&guard, &token, None).await, USED);
        }
        assert_eq!(check(&guard, &token, Some("one")).await, USED, "the attempt has expired");
    }

    #[tokio::test]
    async fn token_is_released_only_by_its_own_attempt() {
        let (guard, clock) = testing::guard();
        let token = token(&guard).await;
        let lost = Settled::Lost;
        let run = redeem(&guard, &token, Some("one")).await.unwrap().unwrap();
        assert_eq!(guard.release(&token, &named("two"), run).await.unwrap(), lost);
        assert_eq!(guard.release(&token, &named("one"), RunId::new()).await.unwrap(), lost);
        assert_eq!(guard.release(&token, &named("one"), run).await.unwrap(), Settled::Released);
        assert_eq!(guard.release(&token, &named("one"), run).await.unwrap(), Settled::Released);
        let second = redeem(&guard, &token, Some("two")).await.expect("the token was released").unwrap();
        assert_eq!(guard.release(&token, &named("one"), run).await.unwrap(), lost);
        clock.advance(Duration::from_secs(60));
        assert_eq!(guard.release(&token, &named("two"), second).await.unwrap(), lost, "the attempt has expired");
        let malformed = guard.release("x", &named("two"), second).await.unwrap();
        assert_eq!(malformed, Settled::Rejected(Code::TokenMalformed.into()));
    }

    #[tokio::test]
    async fn retried_attempt_keeps_its_run_until_released() {
        let (guard, _clock) = testing::guard();
        let token = token(&guard).await;
        let first = redeem(&guard, &token, Some("one")).await.unwrap().unwrap();
        assert_eq!(redeem(&guard, &token, Some("one")).await, Ok(Some(first)), "a retry continues the same run");
        assert_eq!(guard.release(&token, &named("one"), first).await.unwrap(), Settled::Released);
        let second = redeem(&guard, &token, Some("one")).await.unwrap().unwrap();
        assert_ne!(first, second);
        let lost = Settled::Lost;
        assert_eq!(guard.release(&token, &named("one"), first).await.unwrap(), lost, "that run has ended");
        assert_eq!(check(&guard, &token, Some("two")).await, USED);
        assert_eq!(guard.release(&token, &named("one"), second).await.unwrap(), Settled::Released);
    }

    #[tokio::test]
    async fn token_released_too_late_stays_used() {
        let (guard, clock) = testing::guard();
        let token = token(&guard).await;
        let run = redeem(&guard, &token, Some("one")).await.unwrap().unwrap();
        clock.advance(TTL - Duration::from_millis(999));
        let lost = Settled::Lost;
        assert_eq!(guard.release(&token, &named("one"), run).await.unwrap(), lost);
        assert_eq!(guard.release(&token, &named("one"), run).await.unwrap(), lost);
        assert_eq!(check(&guard, &token, None).await, USED);
    }

    #[tokio::test]
    async fn released_pass_of_an_attempt_frees_the_token() {
        let (guard, _clock) = testing::guard();
        let token = token(&guard).await;
        let one = named("one");
        let intent = Intent::new("a", Subject::anonymous()).credential(&token).attempt(&one);
        let Ok(Verdict::Run(pass)) = guard.check(&Policy::token(), &intent).await else {
            panic!("valid token rejected")
        };
        pass.release().await.unwrap();
        assert_eq!(check(&guard, &token, None).await, Ok(()));
    }
}
