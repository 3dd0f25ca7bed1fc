//! A store on a transport that answers late, or never.

use std::sync::atomic::Ordering;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::deadline::Deadline;
use super::replication_id::ReplicationId;
use super::*;

const TIMEOUT: Duration = Duration::from_secs(1);

/// Tells what it is asked about itself after a while, and answers no command.
struct SlowTransport {
    tells_after: Duration,
}

impl SlowTransport {
    async fn tell<T>(&self, what: T, deadline: Deadline) -> Result<T, TransportError> {
        let told = tokio::time::timeout_at(deadline.at, tokio::time::sleep(self.tells_after)).await;
        told.map(|()| what).map_err(|_| TransportError::TimedOut)
    }
}

#[async_trait]
impl Transport for SlowTransport {
    async fn send(&self, _question: Request, deadline: Deadline) -> Result<Response, TransportError> {
        tokio::time::sleep_until(deadline.at).await;
        Err(TransportError::TimedOut)
    }

    fn known(&self, _key: &KeyName<'_>) -> Option<(ReplicationId, Epoch)> {
        None
    }

    async fn learn(&self, _key: &KeyName<'_>, deadline: Deadline) -> Result<(ReplicationId, Epoch), TransportError> {
        self.tell((ReplicationId::Hidden, Epoch::default()), deadline).await
    }

    fn forget(&self, _key: &KeyName<'_>) {}

    fn refuses_scripts(&self) -> Option<bool> {
        None
    }

    async fn learn_scripts(&self, _key: &KeyName<'_>, deadline: Deadline) -> Result<bool, TransportError> {
        self.tell(false, deadline).await
    }

    fn admit(&self, _: &KeyName<'_>, _: Duration) -> Admission {
        Admission::Accept
    }

    fn slow(&self) -> usize {
        0
    }

    async fn reconnected(&self) {}
}

fn store(tells_after: Duration) -> Redis {
    Redis { max_in_flight: 4, ..Redis::on(SlowTransport { tells_after }).timeout(TIMEOUT) }
}

/// Everything that may ask for something first.
async fn ask(store: &Redis, what: usize) -> Result<(), StoreError> {
    let ticket = Ticket::of(Kind::Key, b"x");
    match what {
        0 => store.look(&ticket).await.map(drop),
        1 => store.insert(&ticket, b"x", TIMEOUT).await.map(drop),
        2 => store.ask_epoch(&ticket).await.map(drop),
        _ => store.swap_under(&ticket, Epoch::default(), b"x", b"y", TIMEOUT).await.map(drop),
    }
}

/// Asks ten times at once, where four may wait.
async fn ask_ten(what: usize) {
    let (store, begun, mut asked) = (store(Duration::MAX), Instant::now(), JoinSet::new());
    for _ in 0..10 {
        let store = store.clone();
        asked.spawn(async move { (ask(&store, what).await.expect_err("nobody answers"), begun.elapsed()) });
    }
    let (waited, refused): (Vec<_>, Vec<_>) =
        asked.join_all().await.into_iter().partition(|(_, took)| *took >= TIMEOUT);
    assert_eq!((refused.len(), waited.len()), (6, 4), "{what}");
    assert!(refused.iter().all(|(error, _)| matches!(error, StoreError::NotExecuted(_))), "{refused:?}");
    assert_eq!(store.in_flight.load(Ordering::Relaxed), 0, "nobody is counted who does not wait");
}

#[tokio::test]
async fn of_more_than_may_wait_the_others_are_refused_at_once_whatever_they_ask() {
    tokio::join!(ask_ten(0), ask_ten(1), ask_ten(2), ask_ten(3));
}

#[tokio::test]
async fn a_verb_that_asks_for_something_first_takes_no_longer_than_any_other() {
    let store = store(TIMEOUT * 9 / 10);
    let begun = Instant::now();
    let asked = tokio::join!(ask(&store, 0), ask(&store, 1), ask(&store, 3));
    assert!(asked.0.is_err() && asked.1.is_err() && asked.2.is_err(), "no command is answered");
    assert!(begun.elapsed() < TIMEOUT * 3 / 2, "nine tenths more: {:?}", begun.elapsed());
}
