//! Thousands of random schedules: a few processes handle the same submission over a store with faults of every kind, while the
//! clock jumps. In some schedules each caller names its attempt, receives a signed pass, and repeats the release of its first run
//! while its second one runs. In some schedules the callers redeem one token, on remembering and on plain routes. The guarantees of
//! keys and tokens must hold in every schedule.
//!
//! A seed determines a schedule. A failure names its seed; to run only that schedule:
//!
//! ```text
//! ONCEWARD_SEED=17 cargo test -p onceward simulator::guarantees_of_keys_and_tokens_hold -- --nocapture
//! ```
//!
//! `ONCEWARD_SCHEDULES=100000` sets the number of schedules, for a longer run.

mod fault_store;
mod history;
mod world;

use std::task::Poll;

use self::fault_store::Flaw;
use self::world::World;

/// Default number of schedules.
const SCHEDULES: u64 = 5_000;

/// Yields this many times, so that other tasks can run.
async fn pause(mut times: u8) {
    std::future::poll_fn(move |_| match times {
        0 => Poll::Ready(()),
        _ => {
            times -= 1;
            Poll::Pending
        }
    })
    .await;
}

/// Returns the reason if a schedule breaks a guarantee.
fn broken(seed: u64, flaw: Option<Flaw>) -> Option<String> {
    World::new(seed, flaw).run().err()
}

/// Reads a number from an environment variable.
#[expect(clippy::disallowed_methods, reason = "it is no setting")]
fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().unwrap())
}

#[test]
fn guarantees_of_keys_and_tokens_hold() {
    let seeds = match given("ONCEWARD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..given("ONCEWARD_SCHEDULES").unwrap_or(SCHEDULES),
    };
    for seed in seeds {
        if let Some(reason) = broken(seed, None) {
            panic!("ONCEWARD_SEED={seed}: {reason}");
        }
    }
}

#[test]
fn same_seed_gives_the_same_schedule() {
    for seed in 0..50 {
        let (one, other) = (World::new(seed, None), World::new(seed, None));
        assert_eq!(one.events(), other.events(), "seed {seed}");
    }
}

/// For each rule that the store breaks, some schedule fails: a test that cannot fail proves nothing.
#[test]
fn store_that_breaks_a_rule_fails_a_schedule() {
    for (flaw, reason) in [
        (Flaw::InsertLooksFirst, "effects"),
        (Flaw::SwapDoesNotCompare, "two runs were recorded as done"),
        (Flaw::HoldLapses, "effects"),
        (Flaw::RemoveForgets, "no run began"),
        (Flaw::UnknownIsDuplicate, "without a cause"),
        (Flaw::SwapForgetsReply, "is not replayed"),
        (Flaw::RemoveGoesByAttempt, "effects"),
        (Flaw::RemoveDoesNotCompare, "effects"),
    ] {
        let found = (0..SCHEDULES).any(|seed| broken(seed, Some(flaw)).is_some_and(|found| found.contains(reason)));
        assert!(found, "no schedule fails with {flaw:?}: {reason}");
    }
}
