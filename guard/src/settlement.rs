//! Settling what only the application or an operator can: a run that was held because nobody could tell how it ended.

use onceward_api::Code;

use crate::event::Event;
use crate::guard::Guard;
use crate::intent::Intent;
use crate::meter::Row;
use crate::not_kept::NotKept;
use crate::policy::{Effect, KeyRules};
use crate::record::{Claimed, Done, Record};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::run_id::RunId;
use crate::store::{Compared, StoreError};
use crate::ticket::{Kind, Ticket};
use crate::token::Imprint;

/// What became of settling a run from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// It is settled as was said, now or from before.
    Settled,
    /// It is not, for this reason.
    Refused(Refusal),
}

/// What is to be settled.
struct Matter<'a> {
    ticket: Ticket,
    token: Option<Imprint>,
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
                Err(refusal) => return Ok(Resolved::Refused(refusal)),
            },
            (None, None) => return Ok(Resolved::Refused(Code::KeyMissing.into())),
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
        let reply = rules.kept(reply.ok_or(NotKept::Settled));
        for _ in 0..TRIES {
            let Some(held) = self.store().look(ticket).await? else { return Ok(absent(effect)) };
            let claimed = match Record::decode(&held).map_err(StoreError::not_executed)? {
                Record::Claimed(claimed) if claimed.is_running(self.clock().wall()) => {
                    return Ok(Resolved::Refused(Code::InProgress.into()));
                }
                Record::Claimed(claimed) if run.is_some_and(|run| run != claimed.run) => {
                    return Ok(Resolved::Refused(Code::ClaimLost.into()));
                }
                Record::Claimed(claimed) => claimed,
                Record::Done(_) if effect == Effect::Happened => return Ok(Resolved::Settled),
                Record::Issued if effect == Effect::DidNotHappen => return Ok(Resolved::Settled),
                _ => return Ok(Resolved::Refused(Code::ClaimLost.into())),
            };
            let deadline = self.clock().wall().saturating_add(rules.retain.as_millis() as u64);
            let Claimed { run, fingerprint, asker, .. } = claimed;
            let done = Done { run, fingerprint, asker, deadline, reply: reply.clone() };
            let written = match effect {
                Effect::Happened => self.store().swap(ticket, &held, &done.encode(), rules.retain).await?,
                Effect::DidNotHappen => self.free(ticket, &held, token.as_ref()).await?,
                Effect::Unknown => Compared::Done,
            };
            if written == Compared::Done {
                self.meter()
                    .claim(if ticket.kind() == Kind::Token { Row::Remembered } else { Row::Key }, Event::of(effect));
                Event::of(effect).log(action, ticket, run);
                return Ok(Resolved::Settled);
            }
        }
        Err(StoreError::not_executed("the record changes again and again"))
    }

    /// A key is free again; a token works again, if it has the time.
    async fn free(&self, ticket: &Ticket, held: &[u8], token: Option<&Imprint>) -> Result<Compared, StoreError> {
        match token.and_then(|token| Imprint::worth_putting_back(token.expires_at, self.clock())) {
            Some(life) => self.store().swap(ticket, held, &Record::ISSUED, life).await,
            None => self.store().remove(ticket, held).await,
        }
    }
}

/// Nothing is on record: what did not happen is settled, and what did cannot be any more.
fn absent(effect: Effect) -> Resolved {
    match effect {
        Effect::DidNotHappen => Resolved::Settled,
        Effect::Happened | Effect::Unknown => Resolved::Refused(Code::NotFound.into()),
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
        let rules = KeyRules::new();
        let policy = Policy::Token(TokenRules::new().remember_by(rules.clone()));
        for (effect, then) in [(Effect::Happened, "replay"), (Effect::DidNotHappen, "run")] {
            let token = guard.issue(Duration::from_secs(60), Binding::none()).await.unwrap();
            let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
            let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("it is good") };
            let alive = guard.settle(&rules, &intent, None, effect, None).await.unwrap();
            assert_eq!(alive, Resolved::Refused(Code::InProgress.into()), "it is alive");
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
        let refused = guard.settle(&rules, &forged, None, Effect::Happened, None).await.unwrap();
        assert_eq!(refused, Resolved::Refused(Code::TokenMalformed.into()));
    }

    /// An operator settles the first run of an attempt twice, and the attempt has run again in between.
    #[tokio::test]
    async fn settling_a_run_twice_leaves_a_later_run_of_its_attempt_alone() {
        let (guard, _clock) = testing::guard();
        let rules = KeyRules::new().hold();
        let (key, attempt) = (Key::new("k").unwrap(), Attempt::new("one").unwrap());
        let intent = Intent::new("a", Subject::named("alice")).key(&key).attempt(&attempt);
        let mut runs = Vec::new();
        for _ in 0..2 {
            let checked = guard.check(&Policy::key(rules.clone()), &intent).await;
            let Ok(Verdict::Run(pass)) = checked else { panic!("it is free") };
            let run = pass.run_id().unwrap();
            pass.unknown().await.unwrap();
            runs.push(run);
            let settled = guard.settle(&rules, &intent, Some(runs[0]), Effect::DidNotHappen, None).await.unwrap();
            match runs.len() {
                1 => assert_eq!(settled, Resolved::Settled),
                _ => assert_eq!(settled, Resolved::Refused(Code::ClaimLost.into()), "that was another run"),
            }
        }
        assert_ne!(runs[0], runs[1]);
        assert_eq!(guard.look(&Policy::key(rules), &intent).await.unwrap(), Seen::Unknown(runs[1]));
    }

    #[tokio::test]
    async fn whoever_has_the_ticket_settles_what_is_unknown_and_nothing_that_lives() {
        let (guard, _clock) = testing::guard();
        let rules = KeyRules::new().hold();
        let policy = Policy::key(rules.clone());
        for (effect, then) in [(Effect::Happened, "replay"), (Effect::DidNotHappen, "run")] {
            let key = Key::new(then).unwrap();
            let intent = Intent::new("a", Subject::named("alice")).key(&key);
            let ticket = Ticket::of_key(&Subject::named("alice"), "a", &key);
            let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("it is free") };
            let settle = async |run| {
                guard.settle_ticket(&rules, ticket, run, effect, Some(Reply::new(201, "made"))).await.unwrap()
            };
            assert_eq!(settle(None).await, Resolved::Refused(Code::InProgress.into()), "it is alive");
            let run = pass.run_id();
            pass.unknown().await.unwrap();
            let other = Some(RunId::new());
            assert_eq!(settle(other).await, Resolved::Refused(Code::ClaimLost.into()), "that was another run");
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
        let happened = guard.settle_ticket(&rules, nobody, None, Effect::Happened, None).await.unwrap();
        assert_eq!(happened, Resolved::Refused(Code::NotFound.into()));
    }
}
