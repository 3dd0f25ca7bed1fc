//! Revokes tokens.

use std::time::Duration;

use super::TOKEN_TTL;
use crate::engine::Engine;
use crate::record::{BARRED, DoneRecord, REVOKED, Record};
use crate::run_id::RunId;
use crate::store::{Compared, Room, StoreError};
use crate::ticket::Ticket;
use crate::token::{GRACE, TokenFields};

/// Maximum number of tries. Concurrent requests may redeem and release the token; after each conflict, the record is read again.
const TRIES: usize = 8;

/// The result of revoking a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revocation {
    /// The token was unused, and is rejected as `token_revoked` from now on: no request has run with it, and no SDK replaces it by itself.
    /// If a full store refuses the write, the token is removed, and is rejected as `token_used`.
    Now,
    /// The token was revoked before, or has no record: it was used, has expired, or belongs to another store. A token without a record is
    /// barred until it expires, so that a request that redeemed it earlier cannot release it; requests with it receive `token_used`.
    Gone,
    /// A request has used the token; its record stays. An attempt that redeemed the token can no longer release it.
    Used,
    /// A run on a route that remembers replies holds the token, or the outcome of that run is unknown. If the run is not applied, the token
    /// is valid again, and can be revoked then.
    InUse,
    /// The text does not have the shape of a token.
    Malformed,
}

pub(super) async fn revoke(engine: &Engine, token: &str) -> Result<Revocation, StoreError> {
    let Some((fields, _)) = TokenFields::open(token) else { return Ok(Revocation::Malformed) };
    let ticket = Ticket::of_token(fields.id);
    for _ in 0..TRIES {
        let found = match withdraw(engine, &ticket, &fields).await? {
            Compared::Done => return Ok(Revocation::Now),
            Compared::Gone | Compared::Stale => None,
            Compared::Found(found) => Some(found),
        };
        let found = found.map(|found| Record::decode(&found).map(|record| (found, record))).transpose();
        let barring = bar(engine, BARRED, &fields);
        match (found.map_err(StoreError::not_executed)?, barring) {
            (Some((_, Record::Done(done))), _) if [BARRED, REVOKED].contains(&done.run) => {
                return Ok(Revocation::Gone);
            }
            (Some((_, Record::Done(_))), _) | (Some(_), None) => return Ok(Revocation::Used),
            (Some((_, Record::Claimed(_))), _) => return Ok(Revocation::InUse),
            (None, None) => return Ok(Revocation::Gone),
            (None, Some((bar, life))) if engine.store.insert(&ticket, &bar, life, Room::Reserved).await?.is_none() => {
                return Ok(Revocation::Gone);
            }
            (Some((held, _)), Some((bar, life)))
                if engine.store.swap(&ticket, &held, &bar, life, Room::Reserved, None).await? == Compared::Done =>
            {
                return Ok(Revocation::Used);
            }
            // A concurrent request has redeemed or released the token.
            _ => {}
        }
    }
    Err(StoreError::not_executed("gave up after 8 compare-and-swap conflicts on the token's record"))
}

/// Replaces the record of an unused token by a revocation. If a full store refuses that write, the token is removed, and counts as used
/// from then on. An expired token is removed as well.
async fn withdraw(engine: &Engine, ticket: &Ticket, token: &TokenFields) -> Result<Compared, StoreError> {
    if let Some((revoked, life)) = bar(engine, REVOKED, token) {
        match engine.store.swap(ticket, &Record::ISSUED, &revoked, life, Room::Reserved, None).await {
            Err(StoreError::NotExecuted(_)) => {}
            written => return written,
        }
    }
    engine.store.remove(ticket, &Record::ISSUED, None).await
}

/// Returns a record that bars the token, and its time to live, or `None` if the token has expired. The signature is not verified here, so
/// the expiry in the token is trusted only up to the longest time that any token lives.
fn bar(engine: &Engine, whose: RunId, token: &TokenFields) -> Option<(Vec<u8>, Duration)> {
    let now = engine.clock.wall();
    let left = Duration::from_millis(token.expires_at.checked_sub(now).filter(|left| *left > 0)?);
    let life = left.min(*TOKEN_TTL.end()) + GRACE;
    let deadline = now.saturating_add(life.as_millis() as u64);
    Some((DoneRecord::bar(whose, deadline).encode(), life))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use onceward_api::Code;

    use super::*;
    use crate::attempt::Attempt;
    use crate::binding::Binding;
    use crate::intent::Intent;
    use crate::policy::{Policy, TokenRules};
    use crate::reply::NoReply;
    use crate::settled::Settled;
    use crate::snapshot::RecordState;
    use crate::subject::Subject;
    use crate::testing;
    use crate::verdict::Verdict;

    const TTL: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn inspecting_a_token_shows_its_binding_and_consumes_nothing() {
        let (guard, clock) = testing::guard();
        let token = guard.issue(TTL, Binding::none().action("pay").subject(Subject::named("alice"))).await.unwrap();
        let presented = |action, subject| Intent::new(action, subject).credential(token.as_str());
        for _ in 0..2 {
            let inspected = guard.inspect(&presented("pay", Subject::named("alice"))).await.unwrap().unwrap();
            assert!(inspected.names_action && inspected.names_subject && inspected.is_ours, "{inspected:?}");
            assert_eq!((inspected.snapshot.state, inspected.late), (RecordState::Issued, None));
            assert_eq!(inspected.expires_at, token.expires_at());
        }
        let elsewhere = guard.inspect(&presented("refund", Subject::named("alice"))).await.unwrap().unwrap();
        assert!(!elsewhere.is_ours && elsewhere.snapshot.state == RecordState::Issued, "{elsewhere:?}");
        clock.advance(TTL);
        let late = guard.inspect(&presented("pay", Subject::named("alice"))).await.unwrap().unwrap();
        assert_eq!(late.late.map(|rejection| rejection.code()), Some(Code::TokenExpired));
        let nothing = Intent::new("pay", Subject::anonymous());
        assert_eq!(guard.inspect(&nothing).await.unwrap(), None);
        assert_eq!(guard.inspect(&nothing.credential("ow1_x")).await.unwrap(), None);
    }

    #[tokio::test]
    async fn revoked_token_is_rejected_and_used_record_stays() {
        let (guard, _clock) = testing::guard();
        let bound = guard.issue(TTL, Binding::none().action("pay")).await.unwrap();
        assert_eq!(guard.revoke(bound.as_str()).await.unwrap(), Revocation::Now);
        assert_eq!(guard.revoke(bound.as_str()).await.unwrap(), Revocation::Gone);
        let intent = Intent::new("pay", Subject::anonymous()).credential(bound.as_str());
        let Ok(Verdict::Reject(rejection)) = guard.check(&Policy::token(), &intent).await else {
            panic!("revoked token accepted")
        };
        assert_eq!(rejection.code(), Code::TokenRevoked);
        assert_eq!(guard.inspect(&intent).await.unwrap().unwrap().snapshot.state, RecordState::Revoked);

        let used = guard.issue(TTL, Binding::none()).await.unwrap();
        let intent = Intent::new("pay", Subject::anonymous()).credential(used.as_str());
        let remembered = Policy::Token(TokenRules::new().remember(TTL));
        let Ok(Verdict::Run(pass)) = guard.check(&remembered, &intent).await else { panic!("valid token rejected") };
        assert_eq!(guard.revoke(used.as_str()).await.unwrap(), Revocation::InUse);
        pass.complete(None).await.unwrap();
        assert_eq!(guard.revoke(used.as_str()).await.unwrap(), Revocation::Used);
        assert_eq!(guard.look(&remembered, &intent).await.unwrap().state, RecordState::Done(Err(NoReply::NotGiven)));
        assert_eq!(guard.revoke("x").await.unwrap(), Revocation::Malformed);
    }

    #[tokio::test]
    async fn revoked_token_is_not_given_back_by_a_run_in_flight() {
        let (guard, clock) = testing::guard();
        let used = async |token: &str| {
            let intent = Intent::new("pay", Subject::anonymous()).credential(token);
            match guard.check(&Policy::token(), &intent).await.unwrap() {
                Verdict::Reject(rejection) => rejection.code(),
                other => panic!("{other:?}"),
            }
        };
        let in_use = guard.issue(TTL, Binding::none()).await.unwrap();
        let intent = Intent::new("pay", Subject::anonymous()).credential(in_use.as_str());
        let Ok(Verdict::Run(pass)) = guard.check(&Policy::token(), &intent).await else {
            panic!("valid token rejected")
        };
        for _ in 0..3 {
            assert_eq!(guard.revoke(in_use.as_str()).await.unwrap(), Revocation::Gone);
        }
        pass.release().await.unwrap();
        assert_eq!(used(in_use.as_str()).await, Code::TokenUsed);
        let remembered = Policy::Token(TokenRules::new().remember(TTL));
        let Ok(Verdict::Reject(rejection)) = guard.check(&remembered, &intent).await else {
            panic!("barred token accepted")
        };
        assert_eq!(rejection.code(), Code::TokenUsed);

        let marked = guard.issue(TTL, Binding::none()).await.unwrap();
        let attempt = Attempt::new("one").unwrap();
        let intent = Intent::new("pay", Subject::anonymous()).credential(marked.as_str()).attempt(&attempt);
        let Ok(Verdict::Run(pass)) = guard.check(&Policy::token(), &intent).await else {
            panic!("valid token rejected")
        };
        let run = pass.run_id().expect("a pass of an attempt has a run id");
        assert_eq!(guard.revoke(marked.as_str()).await.unwrap(), Revocation::Used);
        pass.release().await.unwrap();
        let lost = Settled::Lost;
        assert_eq!(guard.release(marked.as_str(), &attempt, run).await.unwrap(), lost);
        assert_eq!(used(marked.as_str()).await, Code::TokenUsed);

        // The bar lives as long as the token could be used, and no longer.
        clock.advance(TTL - Duration::from_millis(1));
        assert_eq!((used(in_use.as_str()).await, used(marked.as_str()).await), (Code::TokenUsed, Code::TokenUsed));
        clock.advance(GRACE * 2);
        assert_eq!(
            guard.look_at(&Ticket::of_token(TokenFields::open(marked.as_str()).unwrap().0.id)).await.unwrap().state,
            RecordState::Absent
        );
        assert_eq!(guard.revoke(marked.as_str()).await.unwrap(), Revocation::Gone, "the token has expired");
    }
}
