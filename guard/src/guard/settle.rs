//! Settles runs whose outcome is unknown, on request of the application or an operator.

use std::time::Duration;

use onceward_api::Code;

use crate::audit;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::intent::Intent;
use crate::metrics::PolicyLabel;
use crate::policy::KeyRules;
use crate::record::{ClaimRecord, DoneRecord, Record};
use crate::reply::{NoReply, Reply};
use crate::run_id::RunId;
use crate::settled::Settled;
use crate::store::{Compared, Room, StoreError};
use crate::ticket::{Kind, Ticket};
use crate::token::{Credential, TokenFields};

/// The submission to settle.
pub(super) struct Target<'a> {
    pub(super) ticket: Ticket,
    pub(super) token: Option<TokenFields>,
    /// The action, for the audit log.
    pub(super) action: &'a str,
}

/// The outcome to record for a run.
pub(super) struct Settlement {
    /// The run to settle, or `None` for any run.
    pub(super) run: Option<RunId>,
    pub(super) effect: Effect,
    pub(super) reply: Option<Reply>,
}

/// Maximum number of tries. After a conflict with a concurrent settlement, the record is read again.
const TRIES: usize = 4;

pub(super) async fn settle_intent(
    engine: &Engine,
    rules: &KeyRules,
    intent: &Intent<'_>,
    settlement: Settlement,
) -> Result<Settled, StoreError> {
    let (ticket, token) = match (intent.key, &intent.credential) {
        (Some(key), _) => (Ticket::of_key(&intent.subject, &intent.action, key), None),
        (None, Credential::Missing) => return Ok(Settled::Rejected(Code::KeyMissing.into())),
        (None, _) => match super::check::verify(&*engine.mint().await?, false, intent) {
            Ok(token) => (Ticket::of_token(token.id), Some(token)),
            Err(rejection) => return Ok(Settled::Rejected(rejection)),
        },
    };
    settle(engine, rules, &Target { ticket, token, action: &intent.action }, settlement).await
}

pub(super) async fn settle(
    engine: &Engine,
    rules: &KeyRules,
    target: &Target<'_>,
    Settlement { run, effect, reply }: Settlement,
) -> Result<Settled, StoreError> {
    let Target { ticket, token, action } = target;
    let reply = rules.kept(reply.ok_or(NoReply::Settled));
    for _ in 0..TRIES {
        let Some(held) = engine.store.look(ticket).await? else { return Ok(absent(ticket.kind(), effect)) };
        let claimed = match Record::decode(&held).map_err(StoreError::not_executed)? {
            Record::Claimed(claimed) if claimed.is_running(engine.clock.wall()) => {
                return Ok(Settled::Rejected(Code::InProgress.into()));
            }
            Record::Claimed(claimed) if run.is_some_and(|run| run != claimed.run) => {
                return Ok(Settled::Lost);
            }
            Record::Claimed(claimed) => claimed,
            Record::Done(_) if effect == Effect::Applied => return Ok(Settled::Final),
            Record::Issued if effect == Effect::NotApplied => return Ok(Settled::Released),
            _ => return Ok(Settled::Lost),
        };
        let retain = retention(engine, ticket.kind(), &claimed, rules);
        let deadline = engine.clock.wall().saturating_add(retain.as_millis() as u64);
        let ClaimRecord { run, fingerprint, asker, .. } = claimed;
        let done = DoneRecord { run, fingerprint, asker, deadline, reply: reply.clone() };
        let life = token.and_then(|token| TokenFields::worth_putting_back(token.expires_at, &engine.clock));
        let written = match effect {
            Effect::Applied => engine.store.swap(ticket, &held, &done.encode(), retain, Room::Free, None).await?,
            Effect::NotApplied => free(engine, ticket, &held, life).await?,
            Effect::Unknown => Compared::Done,
        };
        if written == Compared::Done {
            engine.metrics.claim(label(ticket.kind()), audit::end(effect));
            audit::claim(audit::end(effect), action, ticket, run);
            let is_released = effect == Effect::NotApplied && (ticket.kind() != Kind::Token || life.is_some());
            return Ok(if is_released { Settled::Released } else { Settled::Final });
        }
    }
    Err(StoreError::not_executed("gave up after 4 compare-and-swap conflicts on the record to settle"))
}

fn label(kind: Kind) -> PolicyLabel {
    match kind {
        Kind::Token => PolicyLabel::Remembered,
        Kind::Interval => PolicyLabel::Interval,
        Kind::Key | Kind::Secret => PolicyLabel::Key,
    }
}

/// Returns how long the outcome is stored. That of an interval expires with it.
fn retention(engine: &Engine, kind: Kind, claimed: &ClaimRecord, rules: &KeyRules) -> Duration {
    match claimed.heartbeat.filter(|_| kind == Kind::Interval) {
        Some(heartbeat) => Duration::from_millis(heartbeat.deadline.saturating_sub(engine.clock.wall()).max(1)),
        None => rules.retain,
    }
}

/// Frees a key, or makes a token valid again for `life`.
async fn free(engine: &Engine, ticket: &Ticket, held: &[u8], life: Option<Duration>) -> Result<Compared, StoreError> {
    match life {
        Some(life) => engine.store.swap(ticket, held, &Record::ISSUED, life, Room::Reserved, None).await,
        None => engine.store.remove(ticket, held, None).await,
    }
}

/// Returns the result if there is no record: a key is free, a token is used, and a run that took effect can no longer be recorded.
fn absent(kind: Kind, effect: Effect) -> Settled {
    match (kind, effect) {
        (Kind::Token, Effect::NotApplied) => Settled::Final,
        (_, Effect::NotApplied) => Settled::Released,
        (_, Effect::Applied | Effect::Unknown) => Settled::Rejected(Code::NotFound.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Attempt;
    use crate::binding::Binding;
    use crate::key::Key;
    use crate::policy::{Policy, TokenRules};
    use crate::snapshot::RecordState;
    use crate::subject::Subject;
    use crate::testing;
    use crate::verdict::Verdict;

    #[tokio::test]
    async fn unknown_remembered_token_is_settled_either_way() {
        let (guard, _clock) = testing::guard();
        let rules = KeyRules::retryable();
        let policy = Policy::Token(TokenRules::new().remember_by(rules.clone()));
        for (effect, then) in [(Effect::Applied, "replay"), (Effect::NotApplied, "run")] {
            let token = guard.issue(Duration::from_secs(60), Binding::none()).await.unwrap();
            let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
            let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("valid token rejected") };
            let alive = guard.settle(&rules, &intent, None, effect, None).await.unwrap();
            assert_eq!(alive, Settled::Rejected(Code::InProgress.into()), "the run is in flight");
            pass.unknown().await.unwrap();
            let RecordState::Unknown(run) = guard.look(&policy, &intent).await.unwrap().state else {
                panic!("the outcome is not unknown")
            };
            for _ in 0..2 {
                let settled = guard.settle(&rules, &intent, Some(run), effect, Some(Reply::new(201, "made"))).await;
                assert_eq!(settled.unwrap().into_result(), Ok(()));
            }
            let verdict = match guard.check(&policy, &intent).await.unwrap() {
                Verdict::Replay(reply) if reply.status() == 201 => "replay",
                Verdict::Run(pass) => {
                    pass.complete(None).await.unwrap();
                    "run"
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(verdict, then);
        }
        let forged = Intent::new("a", Subject::anonymous()).credential("ow1_x");
        let rejected = guard.settle(&rules, &forged, None, Effect::Applied, None).await.unwrap();
        assert_eq!(rejected, Settled::Rejected(Code::TokenMalformed.into()));
    }

    /// An operator settles the first run of an attempt twice, and the attempt has run again in between.
    #[tokio::test]
    async fn settling_a_run_again_leaves_a_later_run_unchanged() {
        let (guard, _clock) = testing::guard();
        let rules = KeyRules::at_most_once();
        let (key, attempt) = (Key::new("k").unwrap(), Attempt::new("one").unwrap());
        let intent = Intent::new("a", Subject::named("alice")).key(&key).attempt(&attempt);
        let mut runs = Vec::new();
        for _ in 0..2 {
            let checked = guard.check(&Policy::key(rules.clone()), &intent).await;
            let Ok(Verdict::Run(pass)) = checked else { panic!("free key rejected") };
            let run = pass.run_id().unwrap();
            pass.unknown().await.unwrap();
            runs.push(run);
            let settled = guard.settle(&rules, &intent, Some(runs[0]), Effect::NotApplied, None).await.unwrap();
            match runs.len() {
                1 => assert_eq!(settled, Settled::Released),
                _ => assert_eq!(settled, Settled::Lost, "the run id is of another run"),
            }
        }
        assert_ne!(runs[0], runs[1]);
        assert_eq!(guard.look(&Policy::key(rules), &intent).await.unwrap().state, RecordState::Unknown(runs[1]));
    }

    #[tokio::test]
    async fn ticket_settles_an_unknown_run_and_no_live_one() {
        let (guard, _clock) = testing::guard();
        let rules = KeyRules::at_most_once();
        let policy = Policy::key(rules.clone());
        for (effect, then) in [(Effect::Applied, "replay"), (Effect::NotApplied, "run")] {
            let key = Key::new(then).unwrap();
            let intent = Intent::new("a", Subject::named("alice")).key(&key);
            let ticket = Ticket::of_key(&Subject::named("alice"), "a", &key);
            let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("free key rejected") };
            let settle = async |run| {
                guard.settle_ticket(&rules, ticket, run, effect, Some(Reply::new(201, "made"))).await.unwrap()
            };
            assert_eq!(settle(None).await, Settled::Rejected(Code::InProgress.into()), "the run is in flight");
            let run = pass.run_id();
            pass.unknown().await.unwrap();
            let other = Some(RunId::new());
            assert_eq!(settle(other).await, Settled::Lost, "the run id is of another run");
            for _ in 0..2 {
                assert_eq!(settle(run).await.into_result(), Ok(()));
            }
            let verdict = match guard.check(&policy, &intent).await.unwrap() {
                Verdict::Replay(reply) if reply.status() == 201 => "replay",
                Verdict::Run(_) => "run",
                other => panic!("{other:?}"),
            };
            assert_eq!(verdict, then);
        }
        let unknown = Ticket::of(Kind::Key, b"unknown");
        let applied = guard.settle_ticket(&rules, unknown, None, Effect::Applied, None).await.unwrap();
        assert_eq!(applied, Settled::Rejected(Code::NotFound.into()));
    }
}
