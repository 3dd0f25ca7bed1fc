//! Thousands of random schedules: a few processes ask for the same submission over a store that fails in every way a store
//! can, while time passes in leaps. In some of them each caller names its attempt, is given its pass in writing, and repeats the
//! release of its first run while its second one runs. In some they ask for one token, some on a route that remembers and some on a
//! route that does not. Whatever happens, the promises of a key and of a token hold.
//!
//! Each schedule is made from a seed alone. One that fails names its seed; to run only that one:
//!
//! ```text
//! ONCEWARD_SEED=17 cargo test -p onceward simulator::the_promises_of_keys_and_tokens_hold -- --nocapture
//! ```
//!
//! `ONCEWARD_SCHEDULES=100000` tries as many, for a longer run.

mod fault_store;
mod history;
mod world;

use std::task::Poll;

use self::fault_store::Flaw;
use self::world::World;

/// How many schedules every run of the tests tries.
const SCHEDULES: u64 = 5_000;

/// Lets others come in between, this often.
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

/// Why a schedule is no good, if it is not.
fn broken(seed: u64, flaw: Option<Flaw>) -> Option<String> {
    World::new(seed, flaw).run().err()
}

/// A number that whoever runs this by hand has given.
#[expect(clippy::disallowed_methods, reason = "it is no setting")]
fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().unwrap())
}

#[test]
fn the_promises_of_keys_and_tokens_hold() {
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
fn the_same_seed_is_the_same_schedule() {
    for seed in 0..50 {
        let (one, other) = (World::new(seed, None), World::new(seed, None));
        assert_eq!(one.told(), other.told(), "seed {seed}");
    }
}

/// Each rule, broken on its own, is found out by some schedule: a test that cannot fail proves nothing.
#[test]
fn a_broken_rule_is_found_out() {
    for (flaw, reason) in [
        (Flaw::InsertLooksFirst, "effects"),
        (Flaw::SwapDoesNotCompare, "two runs were recorded as done"),
        (Flaw::HoldLapses, "effects"),
        (Flaw::RemoveForgets, "nothing ever ran"),
        (Flaw::UnknownIsDuplicate, "without a cause"),
        (Flaw::SwapForgetsReply, "is not on record"),
        (Flaw::RemoveGoesByAttempt, "effects"),
        (Flaw::RemoveDoesNotCompare, "effects"),
    ] {
        let found = (0..SCHEDULES).any(|seed| broken(seed, Some(flaw)).is_some_and(|found| found.contains(reason)));
        assert!(found, "{flaw:?} is not found out: {reason}");
    }
}
