//! Settling what only the application or an operator can: a run that was held because nobody could tell how it ended.

use onceward_api::Code;

use crate::event::Event;
use crate::guard::Guard;
use crate::intent::Intent;
use crate::policy::{Effect, KeyRules};
use crate::record::{Done, Record};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::run_id::RunId;
use crate::store::{Compared, StoreError};
use crate::ticket::Ticket;

/// What became of settling a run from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// It is settled as was said, now or from before.
    Settled,
    /// It is not, for this reason.
    Refused(Refusal),
}

/// A few callers may settle at the same time; each has to look again then.
const TRIES: usize = 4;

impl Guard {
    /// Settles a run whose outcome is unknown: it happened, and a duplicate gets this reply from now on; or it did not, and
    /// the next request runs. A run that is still alive is left alone. Whoever names the run, as [`look`](Self::look) has given
    /// it, settles that one only: doing the same twice is as good as once then, also if it has run again meanwhile.
    ///
    /// # Errors
    /// If the store could not be asked, or if its answer was lost; the same may be sent again.
    pub async fn settle(
        &self,
        rules: &KeyRules,
        intent: &Intent<'_>,
        run: Option<RunId>,
        effect: Effect,
        reply: Option<Reply>,
    ) -> Result<Resolved, StoreError> {
        let Some(key) = intent.key else { return Ok(Resolved::Refused(Code::KeyMissing.into())) };
        let ticket = Ticket::of_key(&intent.subject, intent.action, key);
        let reply = reply.filter(|reply| reply.size() <= rules.reply_limit && reply.fits());
        for _ in 0..TRIES {
            let Some(held) = self.store().look(&ticket).await? else { return Ok(absent(effect)) };
            let claimed = match Record::decode(&held).map_err(StoreError::not_executed)? {
                Record::Claimed(claimed) if claimed.is_running(self.clock().wall()) => {
                    return Ok(Resolved::Refused(Code::InProgress.into()));
                }
                Record::Claimed(claimed) if run.is_some_and(|run| run != claimed.run) => {
                    return Ok(Resolved::Refused(Code::ClaimLost.into()));
                }
                Record::Claimed(claimed) => claimed,
                Record::Done(_) if effect == Effect::Happened => return Ok(Resolved::Settled),
                _ => return Ok(Resolved::Refused(Code::ClaimLost.into())),
            };
            let deadline = self.clock().wall().saturating_add(rules.retain.as_millis() as u64);
            let done = Done { run: claimed.run, fingerprint: claimed.fingerprint, deadline, reply: reply.clone() };
            let written = match effect {
                Effect::Happened => self.store().swap(&ticket, &held, &done.encode(), rules.retain).await?,
                Effect::DidNotHappen => self.store().remove(&ticket, &held).await?,
                Effect::Unknown => Compared::Done,
            };
            if written == Compared::Done {
                Event::of(effect).log(intent.action, &ticket, claimed.run);
                return Ok(Resolved::Settled);
            }
        }
        Err(StoreError::not_executed("the record changes again and again"))
    }
}

/// Nothing is on record: what did not happen is settled, and what did cannot be any more.
fn absent(effect: Effect) -> Resolved {
    match effect {
        Effect::DidNotHappen => Resolved::Settled,
        Effect::Happened | Effect::Unknown => Resolved::Refused(Code::NotFound.into()),
    }
}
