//! Detects whether the owner of a claim is alive, without relying on synchronized clocks.

use std::time::Duration;

use onceward::store::StoreError;
use onceward::{Guard, RecordState, Snapshot, Ticket};
use tokio::time::{Instant, sleep_until};

use super::output::meanwhile;
use super::token::lasting;

/// Additional time to wait after a lease, so that a due renewal has arrived.
pub(super) const BEYOND: Duration = Duration::from_millis(300);

/// Returns the time to wait before the second read of a claim whose owner seems to be gone. `None` if no second read is needed: the owner is
/// not gone, or has itself recorded that the outcome is unknown.
pub(super) fn silence(seen: &Snapshot) -> Option<Duration> {
    seen.lease.filter(|_| matches!(seen.state, RecordState::Unknown(_)))
}

/// Returns true if a claim whose owner seems to be gone is still renewed. This takes up to a lease.
pub(super) async fn is_alive(guard: &Guard, ticket: &Ticket, seen: &Snapshot) -> Result<bool, StoreError> {
    let Some(lease) = silence(seen) else { return Ok(false) };
    wait(Instant::now(), lease).await;
    Ok(guard.look_at(ticket).await?.is_renewed_since(seen))
}

/// Waits until a lease after the first read, and says so if that takes a while.
pub(super) async fn wait(begun: Instant, lease: Duration) {
    if lease > Duration::from_secs(2) {
        meanwhile(&format!(
            "reading the record twice, {} apart: a live owner renews its claim in between",
            lasting(lease)
        ));
    }
    sleep_until(begun + lease + BEYOND).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onceward::store::Memory;
    use onceward::{Intent, Key, KeyRules, ManualClock, Policy, Subject, Verdict};

    use super::*;

    /// Two machines; the operator's clock is far ahead.
    #[tokio::test]
    async fn live_run_is_recognized_despite_clock_skew() {
        let (store, ahead) = (Arc::new(Memory::new()), ManualClock::new());
        ahead.advance(Duration::from_secs(20 * 365 * 24 * 60 * 60));
        let owner = Guard::new(Arc::clone(&store));
        let operator = Guard::builder(store).clock((&ahead).into()).build();
        let key = Key::new("k").unwrap();
        let ticket = Ticket::of_key(&Subject::anonymous(), "a", &key);
        let intent = Intent::new("a", Subject::anonymous()).key(&key);
        let policy = Policy::key(KeyRules::at_most_once().lease(Duration::from_millis(300)).unwrap());
        let Ok(Verdict::Run(pass)) = owner.check(&policy, &intent).await else { panic!("the key is free") };
        let seen = operator.look_at(&ticket).await.unwrap();
        assert!(matches!(seen.state, RecordState::Unknown(_)), "by the operator's clock the owner is gone: {seen:?}");
        assert!(is_alive(&operator, &ticket, &seen).await.unwrap());
        pass.unknown().await.unwrap();
        let seen = operator.look_at(&ticket).await.unwrap();
        assert_eq!(silence(&seen), None, "the owner has recorded it: no wait");
        assert!(!is_alive(&operator, &ticket, &seen).await.unwrap());
    }
}
