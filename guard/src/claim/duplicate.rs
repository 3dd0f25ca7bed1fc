//! What a duplicate is told.

use std::time::Duration;

use onceward_api::Code;

use super::{Claim, Origin};
use crate::audit;
use crate::policy::IntervalRules;
use crate::record::{ClaimRecord, DoneRecord, Record, UnknownRecord};
use crate::rejection::{Duplicate, Rejection};
use crate::store::StoreError;

/// The shortest wait that a duplicate of a run in progress is told, in milliseconds.
const SHORTEST_WAIT: u64 = 1_000;

impl Claim {
    /// What is said to a request that has met somebody else's record. That it comes from somebody else, or has other content, is told
    /// before anything else.
    pub(super) fn duplicate_of(&self, found: Record) -> Result<Duplicate, StoreError> {
        let (owner, said, asker) = match &found {
            Record::Claimed(claimed) => (claimed.run, claimed.fingerprint, claimed.asker),
            Record::Done(done) => (done.run, done.fingerprint, done.asker),
            Record::Attempted(_) if self.token().is_some() => return Ok(Duplicate::Reject(Code::TokenUsed.into())),
            Record::Issued | Record::Attempted(_) => return Err(StoreError::not_executed(UnknownRecord)),
        };
        let is_other = said.zip(self.record.fingerprint).is_some_and(|(theirs, ours)| theirs != ours);
        let rejection = match (found, &self.terms.origin) {
            (_, Origin::Token(..)) if is_other => Rejection::new(Code::TokenUsed)
                .detail("This token was sent before with other content. Fetch a new one."),
            // What it was answered with is for whoever has sent it.
            (found, Origin::Token(_, ours)) if asker.is_some_and(|theirs| theirs != *ours) => found.used().into(),
            (_, _) if is_other => Code::KeyReused.into(),
            (Record::Claimed(claimed), Origin::Interval(rules)) if rules.is_lock => {
                locked(rules, &claimed, self.terms.engine.clock.wall())
            }
            (Record::Claimed(_), Origin::Interval(rules)) => with_message(Code::TooSoon.into(), rules),
            (Record::Done(DoneRecord { reply: Ok(reply), .. }), _) => return Ok(Duplicate::Replay(reply)),
            (Record::Done(DoneRecord { reply: Err(reason), .. }), _) => reason.into(),
            (Record::Claimed(claimed), _) => unfinished(&claimed, self.terms.engine.clock.wall()),
            (Record::Issued | Record::Attempted(_), _) => return Err(StoreError::not_executed(UnknownRecord)),
        };
        audit::rejected(&self.terms.action, &self.terms.ticket, &rejection, owner);
        Ok(Duplicate::Reject(rejection))
    }
}

/// What is said of a lock that is held: to come back when it would be over if its owner had died, or later if it is still held then. Of
/// any other interval no wait is told: a client that waited for its end and sent the same again would run the duplicate.
fn locked(rules: &IntervalRules, claimed: &ClaimRecord, now: u64) -> Rejection {
    let every = rules.every.as_millis() as u64;
    // Whoever has claimed it may have another clock; it is never longer than the interval.
    let left = claimed.started_at.saturating_add(every).saturating_sub(now).clamp(1, every);
    with_message(Rejection::new(Code::Locked).wait(Duration::from_millis(left)), rules)
}

/// The rejection in the application's own words, if it has any.
fn with_message(rejection: Rejection, rules: &IntervalRules) -> Rejection {
    match &rules.message {
        Some(message) => rejection.detail(message.clone()),
        None => rejection,
    }
}

/// What is said of a claim that is there. Whoever asks for a run that has lasted for a while is told to wait for as long
/// again, up to a lease: a quick run is asked for soon, and a slow one not all the time.
fn unfinished(claimed: &ClaimRecord, now: u64) -> Rejection {
    if !claimed.is_running(now) {
        return Code::OutcomeUnknown.into();
    }
    let so_far = now.saturating_sub(claimed.started_at);
    let wait = so_far.clamp(SHORTEST_WAIT, claimed.lease.max(SHORTEST_WAIT));
    Rejection::new(Code::InProgress).wait(Duration::from_millis(wait))
}
