//! A process that is paused during a run for longer than its lease, as with SIGSTOP or a live migration of a virtual machine. It renews
//! nothing while paused, and then continues the run.

use std::time::Duration;

use onceward_tests::client::send;
use onceward_tests::key_routes::{LEASE, Pair, buy, under};
use onceward_tests::polling::until;
use onceward_tests::shop::TAKES;
use tokio::time::{Instant, sleep};

use crate::PEER;

const LONG: Duration = Duration::from_secs(30);
/// Pause between two attempts.
const MOMENT: Duration = Duration::from_millis(50);

/// Returns the responses of the other process during the pause, the response of the paused process, and the number of effects.
async fn paused(path: &str, takes: Duration) -> (Vec<String>, String, usize) {
    let pair = Pair::start(PEER, "onceward").await;
    let first = tokio::spawn(send(under(pair.one(), path, "k", "effect").header(TAKES, takes.as_millis() as u64)));
    pair.begun(1).await;
    pair.peers[0].freeze();
    let (paused, mut told) = (Instant::now(), Vec::new());
    while paused.elapsed() < LEASE * 2 || told.last().is_some_and(|said: &String| said.starts_with("503 ")) {
        told.push(buy(pair.other(), path, "k", "effect").await.said());
        sleep(MOMENT).await;
    }
    pair.peers[0].thaw();
    let first = tokio::time::timeout(LONG, first).await.expect("in time").unwrap().said();
    until("it is replayed", LONG, || async { buy(pair.other(), path, "k", "effect").await.said() == "200 replayed" })
        .await;
    (told, first, pair.ledger.count("effect"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_process_beyond_its_lease_may_be_overtaken() {
    let (told, first, effects) = paused("/keyed/orders", LEASE * 4).await;
    assert!(told.contains(&"200 executed".to_owned()), "the key is free after the lease: {told:?}");
    assert_eq!((first.as_str(), effects), ("200 unprotected", 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_at_most_once_process_is_not_overtaken() {
    let (told, first, effects) = paused("/keyed/held", LEASE * 4).await;
    assert!(told.contains(&"409 outcome_unknown".to_owned()), "{told:?}");
    assert!(told.iter().all(|said| said.starts_with("409 ") || said.starts_with("503 ")), "{told:?}");
    assert_eq!((first.as_str(), effects), ("200 executed", 1));
}
