//! Decides what a duplicate receives.

use std::time::Duration;

use bytes::Bytes;
use onceward_api::Code;

use super::{Origin, Terms};
use crate::audit;
use crate::language::Language;
use crate::policy::IntervalRules;
use crate::record::{ClaimRecord, DoneRecord, Record, UnknownRecord};
use crate::rejection::{Duplicate, Rejection};
use crate::store::StoreError;

/// Shortest retry delay for a duplicate of a run in flight, in milliseconds.
const SHORTEST_WAIT: u64 = 1_000;

impl Terms {
    /// Decides a request that finds this record. Returns `None` if the record shows no use.
    pub(crate) fn duplicate_for(&self, found: &Bytes) -> Result<Option<Duplicate>, StoreError> {
        match Record::decode_shared(found).map_err(StoreError::not_executed)? {
            Record::Issued | Record::Attempted(_) => Ok(None),
            found => self.duplicate_of(found).map(Some),
        }
    }

    /// Decides a request whose token has expired or is stale: a late retry still receives the stored reply.
    pub(crate) async fn reply_to_late(&self, rejection: Rejection) -> Result<Duplicate, StoreError> {
        let found = self.engine.store.look(&self.ticket).await?;
        let duplicate = found.map(|found| self.duplicate_for(&found)).transpose()?.flatten();
        Ok(duplicate.unwrap_or(Duplicate::Reject(rejection)))
    }

    /// Decides a request that has found the record of another run. A different sender or different content is reported before anything
    /// else.
    pub(super) fn duplicate_of(&self, found: Record) -> Result<Duplicate, StoreError> {
        let (said, asker) = (found.fingerprint(), found.asker());
        let owner = match &found {
            Record::Claimed(claimed) => claimed.run,
            Record::Done(done) => done.run,
            Record::Attempted(_) if self.token().is_some() => return Ok(Duplicate::Reject(Code::TokenUsed.into())),
            Record::Issued | Record::Attempted(_) => return Err(StoreError::not_executed(UnknownRecord::Foreign)),
        };
        let is_other = said.zip(self.fingerprint).is_some_and(|(theirs, ours)| theirs != ours);
        let rejection = match (found, &self.origin) {
            (_, Origin::Token(..)) if is_other => used_with_other_content(),
            // Only the sender of the token receives its reply.
            (found, Origin::Token(_, ours)) if asker.is_some_and(|theirs| theirs != *ours) => found.used().into(),
            (_, _) if is_other => Code::KeyReused.into(),
            (Record::Claimed(claimed), Origin::Interval(rules)) if rules.is_lock => {
                locked(rules, &claimed, self.engine.clock.wall())
            }
            (Record::Claimed(_), Origin::Interval(rules)) if rules.remember.is_none() => {
                with_message(Code::TooSoon.into(), rules)
            }
            (Record::Done(DoneRecord { reply: Ok(reply), .. }), _) => return Ok(Duplicate::Replay(reply)),
            (Record::Done(DoneRecord { reply: Err(reason), .. }), _) => reason.into(),
            (Record::Claimed(claimed), _) => unfinished(&claimed, self.engine.clock.wall()),
            (Record::Issued | Record::Attempted(_), _) => return Err(StoreError::not_executed(UnknownRecord::Foreign)),
        };
        audit::rejected(&self.action, &self.ticket, &rejection, owner);
        Ok(Duplicate::Reject(rejection))
    }
}

/// Rejects a token whose first request had other content.
pub(crate) fn used_with_other_content() -> Rejection {
    Rejection::new(Code::TokenUsed)
        .detail("This token was used before with different content. Fetch a new one.")
        .detail_in(Language::SIMPLIFIED_CHINESE, "该令牌此前已随不同的内容使用过。请获取新的令牌。")
}

/// Rejects a request for a lock that is held. The retry delay is the time until the lock would expire if its owner had crashed; the lock
/// may still be held then. Other intervals have no retry delay: a client that waited for the end of the interval and retried would run the
/// duplicate.
fn locked(rules: &IntervalRules, claimed: &ClaimRecord, now: u64) -> Rejection {
    let every = rules.every.as_millis() as u64;
    // The owner's clock may differ from ours; the delay never exceeds the interval.
    let left = claimed.started_at.saturating_add(every).saturating_sub(now).clamp(1, every);
    with_message(Rejection::new(Code::Locked).wait(Duration::from_millis(left)), rules)
}

/// Adds the application's message to the rejection, if one is configured.
fn with_message(rejection: Rejection, rules: &IntervalRules) -> Rejection {
    match &rules.message {
        Some(message) => rejection.message(message.clone()),
        None => rejection,
    }
}

/// Rejects a request whose run is in flight or has an unknown outcome. The retry delay equals the age of the run, up to a lease, so that
/// clients poll a short run soon and a long run rarely.
fn unfinished(claimed: &ClaimRecord, now: u64) -> Rejection {
    if !claimed.is_running(now) {
        return Code::OutcomeUnknown.into();
    }
    let so_far = now.saturating_sub(claimed.started_at);
    let wait = so_far.clamp(SHORTEST_WAIT, claimed.lease.max(SHORTEST_WAIT));
    Rejection::new(Code::InProgress).wait(Duration::from_millis(wait))
}
