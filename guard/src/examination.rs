//! Looking at a record by its ticket, for people who have a log and nothing else.

use std::time::Duration;

use crate::guard::{Guard, Seen};
use crate::record::Record;
use crate::run_id::RunId;
use crate::store::StoreError;
use crate::ticket::Ticket;

/// What is on record under a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Examined {
    /// What it says.
    pub seen: Seen,
    /// Whose record it is; `None` unless it is that of a run.
    pub run: Option<RunId>,
    /// Of a run that may be at work: how long it takes at most until its record says so again, or is gone, or says that nobody
    /// can tell how it ended. Until then a process that has died looks like one that works.
    pub doubt: Option<Duration>,
    /// Of a claim that nobody has given up: within which time its owner renews it, if it lives.
    pub lease: Option<Duration>,
    /// Of a claim that is held: when its owner has last renewed it, by the owner's own clock.
    renewed_at: Option<u64>,
}

impl Examined {
    /// Whether the owner of this claim has renewed it since that was seen: then it is alive, whatever any clock says. Whoever
    /// looks twice, a [`lease`](Self::lease) apart, and does not see this, sees a claim whose owner is gone.
    pub fn is_renewed_since(&self, before: &Self) -> bool {
        self.run == before.run && self.renewed_at.is_some_and(|renewed| before.renewed_at != Some(renewed))
    }
}

impl Guard {
    /// Tells what is recorded under a ticket, as a log names it, and changes nothing. What it says may be over a moment later.
    ///
    /// # Errors
    /// If the store could not be asked.
    pub async fn examine(&self, ticket: &Ticket) -> Result<Examined, StoreError> {
        let Some(bytes) = self.store().look(ticket).await? else {
            return Ok(Examined { seen: Seen::Absent, run: None, doubt: None, lease: None, renewed_at: None });
        };
        let record = Record::decode(&bytes).map_err(StoreError::not_executed)?;
        let (mut run, mut doubt, mut lease, mut renewed_at) = (None, None, None, None);
        match &record {
            Record::Claimed(claimed) => {
                let now = self.clock().wall();
                let over =
                    claimed.heartbeat.map_or(now, |heartbeat| heartbeat.renewed_at).saturating_add(claimed.lease);
                run = Some(claimed.run);
                doubt = claimed.is_running(now).then(|| Duration::from_millis(over.saturating_sub(now)));
                let is_given_up = claimed.heartbeat.is_some_and(|heartbeat| heartbeat.renewed_at == 0);
                lease = (!is_given_up).then(|| Duration::from_millis(claimed.lease));
                renewed_at = claimed.heartbeat.map(|heartbeat| heartbeat.renewed_at).filter(|renewed| *renewed > 0);
            }
            Record::Done(done) => run = Some(done.run),
            Record::Issued | Record::Attempted(_) => {}
        }
        Ok(Examined { seen: self.seen(record), run, doubt, lease, renewed_at })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::ManualClock;
    use crate::guard::Verdict;
    use crate::intent::{Intent, Subject};
    use crate::key::Key;
    use crate::policy::{KeyRules, Policy};
    use crate::reply::Reply;
    use crate::store::Memory;
    use crate::testing;

    const LEASE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_ticket_tells_whose_record_it_is_and_how_long_that_is_in_doubt() {
        let (guard, clock) = testing::guard();
        let key = Key::new("k").unwrap();
        let ticket = Ticket::of_key(&Subject::anonymous(), "a", &key);
        let intent = Intent::new("a", Subject::anonymous()).key(&key);
        let absent = guard.examine(&ticket).await.unwrap();
        assert_eq!((absent.seen, absent.run, absent.doubt), (Seen::Absent, None, None));

        let held = Policy::key(KeyRules::at_most_once().lease(LEASE));
        let Ok(Verdict::Run(pass)) = guard.check(&held, &intent).await else { panic!("it is free") };
        let run = pass.run_id();
        let alive = guard.examine(&ticket).await.unwrap();
        assert_eq!((alive.run, alive.doubt), (run, Some(LEASE)));
        assert!(matches!(alive.seen, Seen::Running(_)), "{alive:?}");

        pass.unknown().await.unwrap();
        let ended = guard.examine(&ticket).await.unwrap();
        assert_eq!((Some(ended.seen), ended.run, ended.doubt), (run.map(Seen::Unknown), run, None));

        clock.advance(Duration::from_secs(25 * 60 * 60));
        let Ok(Verdict::Run(pass)) = guard.check(&held, &intent).await else { panic!("it is free again") };
        let run = pass.run_id();
        pass.complete(Some(Reply::new(201, "made"))).await.unwrap();
        let done = guard.examine(&ticket).await.unwrap();
        assert_eq!((done.seen, done.run, done.doubt), (Seen::Done(Ok(Reply::new(201, "made"))), run, None));
    }

    /// The clock of whoever looks need not be that of the owner.
    #[tokio::test]
    async fn whoever_is_alive_is_seen_to_be_whatever_the_clock_of_the_one_who_looks_says() {
        let (owner, ahead) = (ManualClock::new(), ManualClock::new());
        ahead.advance(LEASE * 100);
        let store = Arc::new(Memory::with_clock((&owner).into()));
        let guard = Guard::builder(Arc::clone(&store)).clock((&owner).into()).build();
        let operator = Guard::builder(store).clock((&ahead).into()).build();
        let key = Key::new("k").unwrap();
        let ticket = Ticket::of_key(&Subject::anonymous(), "a", &key);
        let intent = Intent::new("a", Subject::anonymous()).key(&key);
        let held = Policy::key(KeyRules::at_most_once().lease(LEASE));
        let Ok(Verdict::Run(pass)) = guard.check(&held, &intent).await else { panic!("it is free") };
        let first = operator.examine(&ticket).await.unwrap();
        assert!(matches!(first.seen, Seen::Unknown(_)), "by the clock its owner is gone: {first:?}");
        assert_eq!(first.lease, Some(LEASE));
        assert!(!operator.examine(&ticket).await.unwrap().is_renewed_since(&first));
        owner.advance(LEASE / 2);
        let mut now = operator.examine(&ticket).await.unwrap();
        for _ in 0..500 {
            if now.is_renewed_since(&first) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            now = operator.examine(&ticket).await.unwrap();
        }
        assert!(now.is_renewed_since(&first), "{now:?}");
        pass.unknown().await.unwrap();
        let given_up = operator.examine(&ticket).await.unwrap();
        assert_eq!((given_up.lease, given_up.is_renewed_since(&now)), (None, false));
    }
}
