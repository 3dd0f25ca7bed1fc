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
}

impl Guard {
    /// Tells what is recorded under a ticket, as a log names it, and changes nothing. What it says may be over a moment later.
    ///
    /// # Errors
    /// If the store could not be asked.
    pub async fn examine(&self, ticket: &Ticket) -> Result<Examined, StoreError> {
        let Some(bytes) = self.store().look(ticket).await? else {
            return Ok(Examined { seen: Seen::Absent, run: None, doubt: None });
        };
        let record = Record::decode(&bytes).map_err(StoreError::not_executed)?;
        let (run, doubt) = match &record {
            Record::Claimed(claimed) => {
                let now = self.clock().wall();
                let over = claimed.held.map_or(now, |held| held.renewed_at).saturating_add(claimed.lease);
                let doubt = claimed.is_running(now).then(|| Duration::from_millis(over.saturating_sub(now)));
                (Some(claimed.run), doubt)
            }
            Record::Done(done) => (Some(done.run), None),
            Record::Issued | Record::Attempted(_) => (None, None),
        };
        Ok(Examined { seen: self.seen(record), run, doubt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Verdict;
    use crate::intent::{Intent, Subject};
    use crate::key::Key;
    use crate::policy::{KeyRules, Policy};
    use crate::reply::Reply;
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

        let held = Policy::key(KeyRules::new().lease(LEASE).hold());
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
        assert_eq!((done.seen, done.run, done.doubt), (Seen::Done(Some(Reply::new(201, "made"))), run, None));
    }
}
