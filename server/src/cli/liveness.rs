//! Whether the owner of a claim is alive, without trusting that its clock and ours agree.

use std::time::Duration;

use onceward::store::StoreError;
use onceward::{Guard, RecordState, Snapshot, Ticket};
use tokio::time::{Instant, sleep_until};

use super::output::meanwhile;
use super::token::lasting;

/// What is waited beyond a lease, so that a renewal that is due has come.
pub(super) const BEYOND: Duration = Duration::from_millis(300);

/// How long to wait before looking again at a claim that looks as if its owner were gone. `None` if nobody has to: it is not
/// one, or its owner has said so itself.
pub(super) fn silence(seen: &Snapshot) -> Option<Duration> {
    seen.lease.filter(|_| matches!(seen.state, RecordState::Unknown(_)))
}

/// Whether a claim that looks as if its owner were gone is renewed all the same, which takes a lease to see.
pub(super) async fn is_alive(guard: &Guard, ticket: &Ticket, seen: &Snapshot) -> Result<bool, StoreError> {
    let Some(lease) = silence(seen) else { return Ok(false) };
    wait(Instant::now(), lease).await;
    Ok(guard.look_at(ticket).await?.is_renewed_since(seen))
}

/// Waits until this long after the first look, and says so where it takes a while.
pub(super) async fn wait(begun: Instant, lease: Duration) {
    if lease > Duration::from_secs(2) {
        meanwhile(&format!("looking twice, {} apart: whoever is alive is heard of in between", lasting(lease)));
    }
    sleep_until(begun + lease + BEYOND).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onceward::store::Memory;
    use onceward::{Intent, Key, KeyRules, ManualClock, Policy, Subject, Verdict};

    use super::*;

    /// Two machines, and the clock of whoever asks is far ahead.
    #[tokio::test]
    async fn a_run_that_is_alive_is_left_alone_also_if_our_clock_is_ahead_of_its_owner_s() {
        let (store, ahead) = (Arc::new(Memory::new()), ManualClock::new());
        ahead.advance(Duration::from_secs(20 * 365 * 24 * 60 * 60));
        let owner = Guard::new(Arc::clone(&store));
        let operator = Guard::builder(store).clock((&ahead).into()).build();
        let key = Key::new("k").unwrap();
        let ticket = Ticket::of_key(&Subject::anonymous(), "a", &key);
        let intent = Intent::new("a", Subject::anonymous()).key(&key);
        let policy = Policy::key(KeyRules::at_most_once().lease(Duration::from_millis(300)).unwrap());
        let Ok(Verdict::Run(pass)) = owner.check(&policy, &intent).await else { panic!("it is free") };
        let seen = operator.look_at(&ticket).await.unwrap();
        assert!(matches!(seen.state, RecordState::Unknown(_)), "by its clock it is gone: {seen:?}");
        assert!(is_alive(&operator, &ticket, &seen).await.unwrap());
        pass.unknown().await.unwrap();
        let seen = operator.look_at(&ticket).await.unwrap();
        assert_eq!(silence(&seen), None, "its owner has said so: nobody waits");
        assert!(!is_alive(&operator, &ticket, &seen).await.unwrap());
    }
}
