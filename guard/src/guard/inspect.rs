//! Reads records: by intent, by a ticket from a log, or by token.

use onceward_api::Code;

use super::check::{ticket, verify};
use crate::claim::used_with_other_content;
use crate::clock;
use crate::engine::Engine;
use crate::intent::Intent;
use crate::policy::{Policy, TokenRules};
use crate::record::Record;
use crate::snapshot::{RecordState, Snapshot, TokenInfo};
use crate::store::StoreError;
use crate::ticket::Ticket;
use crate::token::TokenFields;

pub(super) async fn look(engine: &Engine, policy: &Policy, intent: &Intent<'_>) -> Result<Snapshot, StoreError> {
    let rejected = match policy {
        Policy::Token(rules) => match verify(&*engine.mint().await?, rules.bound, intent) {
            Ok(token) => return look_at_token(engine, rules, intent, &token).await,
            Err(rejection) => rejection,
        },
        Policy::Interval(_) if !policy.keeps_replies() => Code::NotFound.into(),
        Policy::Key(_) if intent.key.is_none() => Code::KeyMissing.into(),
        Policy::Key(_) | Policy::Interval(_) => match ticket(engine, policy, intent).await? {
            Some(ticket) => return look_at_content(engine, intent, &ticket).await,
            None => Code::NotFound.into(),
        },
    };
    Ok(RecordState::Rejected(rejected).into())
}

/// Reads the record of a key, or of an interval. Only a request with the content of the first one may see its reply, if the intent has a
/// fingerprint. The ticket of an interval without a name contains the fingerprint itself.
async fn look_at_content(engine: &Engine, intent: &Intent<'_>, ticket: &Ticket) -> Result<Snapshot, StoreError> {
    let record = engine.record(ticket).await?;
    let named = intent.key.zip(intent.fingerprint);
    let ours = named.map(|(name, content)| content.keyed(name.as_bytes(), ticket.digest()));
    if has_other_content(record.as_ref(), ours) {
        return Ok(RecordState::Rejected(Code::KeyReused.into()).into());
    }
    Ok(Snapshot::of(record, engine.clock.wall()))
}

/// Returns whether the first request had other content. Unknown, and false, if one of them has no fingerprint.
fn has_other_content(record: Option<&Record>, ours: Option<[u8; 16]>) -> bool {
    record.and_then(Record::fingerprint).zip(ours).is_some_and(|(theirs, ours)| theirs != ours)
}

pub(super) async fn look_at(engine: &Engine, ticket: &Ticket) -> Result<Snapshot, StoreError> {
    Ok(Snapshot::of(engine.record(ticket).await?, engine.clock.wall()))
}

async fn look_at_token(
    engine: &Engine,
    rules: &TokenRules,
    intent: &Intent<'_>,
    token: &TokenFields,
) -> Result<Snapshot, StoreError> {
    let ticket = Ticket::of_token(token.id);
    let late = engine.lateness(token, &ticket).await?;
    // A remembered reply is stored for longer than the token is valid.
    if let (Some(late), None) = (&late, &rules.remember) {
        return Ok(RecordState::Rejected(late.clone()).into());
    }
    let record = engine.record(&ticket).await?;
    // Only the subject that sent the first request may see its reply, and only with the same content.
    if let Some(found) = &record
        && found.asker().is_some_and(|asker| asker != intent.asker(token.id))
    {
        return Ok(RecordState::Rejected(found.used().into()).into());
    }
    let ours = intent.fingerprint.map(|content| content.keyed(token.id.as_bytes(), ticket.digest()));
    if has_other_content(record.as_ref(), ours) {
        return Ok(RecordState::Rejected(used_with_other_content()).into());
    }
    let snapshot = Snapshot::of(record, engine.clock.wall());
    Ok(match late {
        Some(late) if matches!(snapshot.state, RecordState::Issued | RecordState::Absent) => {
            RecordState::Rejected(late).into()
        }
        _ => snapshot,
    })
}

pub(super) async fn inspect(engine: &Engine, intent: &Intent<'_>) -> Result<Option<TokenInfo>, StoreError> {
    let Some(&fields) = intent.credential.fields() else { return Ok(None) };
    let ticket = Ticket::of_token(fields.id);
    Ok(Some(TokenInfo {
        ticket,
        names_action: fields.names_action(),
        names_subject: fields.names_subject(),
        expires_at: clock::system_time(fields.expires_at),
        is_ours: verify(&*engine.mint().await?, false, intent).is_ok(),
        late: engine.lateness(&fields, &ticket).await?,
        snapshot: look_at(engine, &ticket).await?,
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;
    use crate::guard::Guard;
    use crate::intent::Intent;
    use crate::key::Key;
    use crate::policy::{KeyRules, Policy};
    use crate::reply::Reply;
    use crate::store::Memory;
    use crate::subject::Subject;
    use crate::testing;
    use crate::verdict::Verdict;

    const LEASE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn lookup_by_ticket_shows_state_run_and_doubt() {
        let (guard, clock) = testing::guard();
        let key = Key::new("k").unwrap();
        let ticket = Ticket::of_key(&Subject::anonymous(), "a", &key);
        let intent = Intent::new("a", Subject::anonymous()).key(&key);
        let absent = guard.look_at(&ticket).await.unwrap();
        assert_eq!((absent.state, absent.run, absent.doubt), (RecordState::Absent, None, None));

        let held = Policy::key(KeyRules::at_most_once().lease(LEASE).unwrap());
        let Ok(Verdict::Run(pass)) = guard.check(&held, &intent).await else { panic!("free key rejected") };
        let run = pass.run_id();
        let alive = guard.look_at(&ticket).await.unwrap();
        assert_eq!((alive.run, alive.doubt), (run, Some(LEASE)));
        assert!(matches!(alive.state, RecordState::Running(_)), "{alive:?}");

        pass.unknown().await.unwrap();
        let ended = guard.look_at(&ticket).await.unwrap();
        assert_eq!((Some(ended.state), ended.run, ended.doubt), (run.map(RecordState::Unknown), run, None));

        clock.advance(Duration::from_secs(25 * 60 * 60));
        let Ok(Verdict::Run(pass)) = guard.check(&held, &intent).await else { panic!("free key rejected") };
        let run = pass.run_id();
        pass.complete(Some(Reply::new(201, "made"))).await.unwrap();
        let done = guard.look_at(&ticket).await.unwrap();
        assert_eq!((done.state, done.run, done.doubt), (RecordState::Done(Ok(Reply::new(201, "made"))), run, None));
    }

    /// The clock of the operator's machine is ahead of the owner's.
    #[tokio::test]
    async fn renewal_shows_live_owner_despite_clock_skew() {
        let (owner, ahead) = (ManualClock::new(), ManualClock::new());
        ahead.advance(LEASE * 100);
        let store = Arc::new(Memory::with_clock((&owner).into()));
        let guard = Guard::builder(Arc::clone(&store)).clock((&owner).into()).build();
        let operator = Guard::builder(store).clock((&ahead).into()).build();
        let key = Key::new("k").unwrap();
        let ticket = Ticket::of_key(&Subject::anonymous(), "a", &key);
        let intent = Intent::new("a", Subject::anonymous()).key(&key);
        let held = Policy::key(KeyRules::at_most_once().lease(LEASE).unwrap());
        let Ok(Verdict::Run(pass)) = guard.check(&held, &intent).await else { panic!("free key rejected") };
        let first = operator.look_at(&ticket).await.unwrap();
        assert!(matches!(first.state, RecordState::Unknown(_)), "expired by the operator's clock: {first:?}");
        assert_eq!(first.lease, Some(LEASE));
        assert!(!operator.look_at(&ticket).await.unwrap().is_renewed_since(&first));
        owner.advance(LEASE / 2);
        let mut now = operator.look_at(&ticket).await.unwrap();
        for _ in 0..500 {
            if now.is_renewed_since(&first) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            now = operator.look_at(&ticket).await.unwrap();
        }
        assert!(now.is_renewed_since(&first), "{now:?}");
        pass.unknown().await.unwrap();
        let given_up = operator.look_at(&ticket).await.unwrap();
        assert_eq!((given_up.lease, given_up.is_renewed_since(&now)), (None, false));
    }
}
