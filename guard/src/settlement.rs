//! Settling what only the application or an operator can: a run that was held because nobody could tell how it ended.

use onceward_api::Code;

use crate::audit::AuditEvent;
use crate::guard::Guard;
use crate::intent::Intent;
use crate::metrics::PolicyLabel;
use crate::no_reply::NoReply;
use crate::policy::{Effect, KeyRules};
use crate::record::{ClaimRecord, DoneRecord, Record};
use crate::rejection::Rejection;
use crate::reply::Reply;
use crate::run_id::RunId;
use crate::store::{Compared, StoreError};
use crate::ticket::{Kind, Ticket};
use crate::token::TokenFields;

/// What became of settling a run from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// It is settled as was said, now or from before.
    Settled,
    /// It is not, for this reason.
    Rejected(Rejection),
}

/// What is to be settled.
struct Matter<'a> {
    ticket: Ticket,
    token: Option<TokenFields>,
    /// For the log.
    action: &'a str,
}

/// A few callers may settle at the same time; each has to look again then.
const TRIES: usize = 4;

impl Guard {
    /// Settles a run under a key, or with a token whose answer is remembered, whose outcome is unknown: it happened, and a
    /// duplicate gets this reply from now on; or it did not, and the next request runs. A run that is still alive, as far as
    /// this machine's clock can tell, is left alone. Whoever names the run, as [`look`](Self::look) has given
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
        let (ticket, token) = match (intent.key, intent.credential) {
            (Some(key), _) => (Ticket::of_key(&intent.subject, &intent.action, key), None),
            (None, Some(_)) => match self.presented(intent).await? {
                Ok(token) => (Ticket::of_token(token.id), Some(token)),
                Err(rejection) => return Ok(Resolved::Rejected(rejection)),
            },
            (None, None) => return Ok(Resolved::Rejected(Code::KeyMissing.into())),
        };
        let matter = Matter { ticket, token, action: &intent.action };
        self.settle_matter(rules, &matter, run, effect, reply).await
    }

    /// The same for whoever has the ticket alone, as a log names it. A token that is settled so as not to have happened does not
    /// work again: when it expires is not on record.
    ///
    /// # Errors
    /// If the store could not be asked, or if its answer was lost; the same may be sent again.
    pub async fn settle_ticket(
        &self,
        rules: &KeyRules,
        ticket: Ticket,
        run: Option<RunId>,
        effect: Effect,
        reply: Option<Reply>,
    ) -> Result<Resolved, StoreError> {
        self.settle_matter(rules, &Matter { ticket, token: None, action: "" }, run, effect, reply).await
    }

    async fn settle_matter(
        &self,
        rules: &KeyRules,
        matter: &Matter<'_>,
        run: Option<RunId>,
        effect: Effect,
        reply: Option<Reply>,
    ) -> Result<Resolved, StoreError> {
        let Matter { ticket, token, action } = matter;
        let reply = rules.kept(reply.ok_or(NoReply::Settled));
        for _ in 0..TRIES {
            let Some(held) = self.store().look(ticket).await? else { return Ok(absent(effect)) };
            let claimed = match Record::decode(&held).map_err(StoreError::not_executed)? {
                Record::Claimed(claimed) if claimed.is_running(self.clock().wall()) => {
                    return Ok(Resolved::Rejected(Code::InProgress.into()));
                }
                Record::Claimed(claimed) if run.is_some_and(|run| run != claimed.run) => {
                    return Ok(Resolved::Rejected(Code::ClaimLost.into()));
                }
                Record::Claimed(claimed) => claimed,
                Record::Done(_) if effect == Effect::Applied => return Ok(Resolved::Settled),
                Record::Issued if effect == Effect::NotApplied => return Ok(Resolved::Settled),
                _ => return Ok(Resolved::Rejected(Code::ClaimLost.into())),
            };
            let deadline = self.clock().wall().saturating_add(rules.retain.as_millis() as u64);
            let ClaimRecord { run, fingerprint, asker, .. } = claimed;
            let done = DoneRecord { run, fingerprint, asker, deadline, reply: reply.clone() };
            let written = match effect {
                Effect::Applied => self.store().swap(ticket, &held, &done.encode(), rules.retain).await?,
                Effect::NotApplied => self.free(ticket, &held, token.as_ref()).await?,
                Effect::Unknown => Compared::Done,
            };
            if written == Compared::Done {
                self.meter().claim(
                    if ticket.kind() == Kind::Token { PolicyLabel::Remembered } else { PolicyLabel::Key },
                    AuditEvent::of(effect),
                );
                AuditEvent::of(effect).log(action, ticket, run);
                return Ok(Resolved::Settled);
            }
        }
        Err(StoreError::not_executed("the record changes again and again"))
    }

    /// A key is free again; a token works again, if it has the time.
    async fn free(&self, ticket: &Ticket, held: &[u8], token: Option<&TokenFields>) -> Result<Compared, StoreError> {
        match token.and_then(|token| TokenFields::worth_putting_back(token.expires_at, self.clock())) {
            Some(life) => self.store().swap(ticket, held, &Record::ISSUED, life).await,
            None => self.store().remove(ticket, held).await,
        }
    }
}

/// Nothing is on record: what did not happen is settled, and what did cannot be any more.
fn absent(effect: Effect) -> Resolved {
    match effect {
        Effect::NotApplied => Resolved::Settled,
        Effect::Applied | Effect::Unknown => Resolved::Rejected(Code::NotFound.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::attempt::Attempt;
    use crate::guard::{Seen, Verdict};
    use crate::intent::{Binding, Subject};
    use crate::key::Key;
    use crate::policy::{Policy, TokenRules};
    use crate::testing;

    #[tokio::test]
    async fn a_remembered_token_whose_outcome_is_unknown_is_settled_either_way() {
        let (guard, _clock) = testing::guard();
        let rules = KeyRules::retryable();
        let policy = Policy::Token(TokenRules::new().remember_by(rules.clone()));
        for (effect, then) in [(Effect::Applied, "replay"), (Effect::NotApplied, "run")] {
            let token = guard.issue(Duration::from_secs(60), Binding::none()).await.unwrap();
            let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
            let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("it is good") };
            let alive = guard.settle(&rules, &intent, None, effect, None).await.unwrap();
            assert_eq!(alive, Resolved::Rejected(Code::InProgress.into()), "it is alive");
            pass.unknown().await.unwrap();
            let Ok(Seen::Unknown(run)) = guard.look(&policy, &intent).await else { panic!("nobody can tell") };
            for _ in 0..2 {
                let settled = guard.settle(&rules, &intent, Some(run), effect, Some(Reply::new(201, "made"))).await;
                assert_eq!(settled.unwrap(), Resolved::Settled);
            }
            let said = match guard.check(&policy, &intent).await.unwrap() {
                Verdict::Replay(reply) if reply.status() == 201 => "replay",
                Verdict::Run(pass) => {
                    pass.complete(None).await.unwrap();
                    "run"
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(said, then);
        }
        let forged = Intent::new("a", Subject::anonymous()).credential("ow1_x");
        let refused = guard.settle(&rules, &forged, None, Effect::Applied, None).await.unwrap();
        assert_eq!(refused, Resolved::Rejected(Code::TokenMalformed.into()));
    }

    /// An operator settles the first run of an attempt twice, and the attempt has run again in between.
    #[tokio::test]
    async fn settling_a_run_twice_leaves_a_later_run_of_its_attempt_alone() {
        let (guard, _clock) = testing::guard();
        let rules = KeyRules::at_most_once();
        let (key, attempt) = (Key::new("k").unwrap(), Attempt::new("one").unwrap());
        let intent = Intent::new("a", Subject::named("alice")).key(&key).attempt(&attempt);
        let mut runs = Vec::new();
        for _ in 0..2 {
            let checked = guard.check(&Policy::key(rules.clone()), &intent).await;
            let Ok(Verdict::Run(pass)) = checked else { panic!("it is free") };
            let run = pass.run_id().unwrap();
            pass.unknown().await.unwrap();
            runs.push(run);
            let settled = guard.settle(&rules, &intent, Some(runs[0]), Effect::NotApplied, None).await.unwrap();
            match runs.len() {
                1 => assert_eq!(settled, Resolved::Settled),
                _ => assert_eq!(settled, Resolved::Rejected(Code::ClaimLost.into()), "that was another run"),
            }
        }
        assert_ne!(runs[0], runs[1]);
        assert_eq!(guard.look(&Policy::key(rules), &intent).await.unwrap(), Seen::Unknown(runs[1]));
    }

    #[tokio::test]
    async fn whoever_has_the_ticket_settles_what_is_unknown_and_nothing_that_lives() {
        let (guard, _clock) = testing::guard();
        let rules = KeyRules::at_most_once();
        let policy = Policy::key(rules.clone());
        for (effect, then) in [(Effect::Applied, "replay"), (Effect::NotApplied, "run")] {
            let key = Key::new(then).unwrap();
            let intent = Intent::new("a", Subject::named("alice")).key(&key);
            let ticket = Ticket::of_key(&Subject::named("alice"), "a", &key);
            let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("it is free") };
            let settle = async |run| {
                guard.settle_ticket(&rules, ticket, run, effect, Some(Reply::new(201, "made"))).await.unwrap()
            };
            assert_eq!(settle(None).await, Resolved::Rejected(Code::InProgress.into()), "it is alive");
            let run = pass.run_id();
            pass.unknown().await.unwrap();
            let other = Some(RunId::new());
            assert_eq!(settle(other).await, Resolved::Rejected(Code::ClaimLost.into()), "that was another run");
            for _ in 0..2 {
                assert_eq!(settle(run).await, Resolved::Settled);
            }
            let said = match guard.check(&policy, &intent).await.unwrap() {
                Verdict::Replay(reply) if reply.status() == 201 => "replay",
                Verdict::Run(_) => "run",
                other => panic!("{other:?}"),
            };
            assert_eq!(said, then);
        }
        let nobody = Ticket::of(Kind::Key, b"nobody's");
        let happened = guard.settle_ticket(&rules, nobody, None, Effect::Applied, None).await.unwrap();
        assert_eq!(happened, Resolved::Rejected(Code::NotFound.into()));
    }
}
