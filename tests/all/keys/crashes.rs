//! A process that is killed in the middle of a run under a key.

use std::time::Duration;

use futures_util::future::join_all;
use onceward_api::header::LOOK;
use onceward_tests::client::send;
use onceward_tests::key_routes::{LEASE, THEN, buy, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::{holds_for, outlast, until};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::TAKES;
use tokio::time::{Instant, sleep};

use crate::PEER;

const LONG: Duration = Duration::from_secs(10);
/// A moment between two tries.
const MOMENT: Duration = Duration::from_millis(30);
/// How many processes are killed at the same time.
const ABREAST: usize = 3;

/// How many processes are killed: `make faults` asks for more than `make test` does.
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
fn crashes() -> usize {
    std::env::var("FAULTS").map_or(3, |faults| faults.parse().expect("FAULTS is a number"))
}

/// Two parts of one Redis: what is killed, and what goes on.
struct Crash {
    redis: RedisServer,
    ledger: Ledger,
    survivor: Peer,
}

impl Crash {
    fn new() -> Self {
        let (redis, ledger) = (RedisServer::start(), Ledger::new());
        let survivor = Peer::start(PEER, "onceward", &redis.url(), &ledger);
        Self { redis, ledger, survivor }
    }

    /// Begins an order on a process that is then killed, at a moment that `wait` waits for.
    async fn kill_within(&self, path: &str, name: &str, takes: u64, wait: impl AsyncFnOnce()) {
        let mut victim = Peer::start(PEER, "onceward", &self.redis.url(), &self.ledger);
        let lost = under(&victim.url, path, name, name).header(TAKES, takes).header(THEN, 20);
        let lost = tokio::spawn(async move { lost.send().await });
        wait().await;
        victim.kill();
        // It may have been answered before.
        let _ = lost.await.unwrap();
    }

    async fn retry(&self, path: &str, name: &str) -> String {
        buy(&self.survivor.url, path, name, name).await.said()
    }
}

/// Runs what a number of crashes ask for, a few at a time.
async fn for_each_crash<F: Future<Output = ()>>(crash: impl Fn(usize) -> F) {
    let numbers: Vec<_> = (0..crashes()).collect();
    for some in numbers.chunks(ABREAST) {
        join_all(some.iter().map(|number| crash(*number))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_in_the_middle_of_a_handler_a_retry_runs_within_the_lease_and_a_second() {
    let bed = Crash::new();
    for_each_crash(async |number| {
        let (path, name) = ("/keyed/orders", format!("free-{number}"));
        let look = async || send(under(&bed.survivor.url, path, &name, "").header(LOOK, "true")).await.outcome;
        bed.kill_within(path, &name, 60_000, async || {
            until("it runs", LONG, || async { look().await == "in_progress" }).await;
        })
        .await;
        let killed = Instant::now();
        while bed.retry(path, &name).await != "200 executed" {
            assert!(killed.elapsed() < LEASE + Duration::from_secs(1), "{:?}", killed.elapsed());
            sleep(MOMENT).await;
        }
        assert_eq!(bed.ledger.count(&name), 1);
        assert_eq!(bed.retry(path, &name).await, "200 replayed");
    })
    .await;
    println!("{} processes killed in the middle of a handler: each retry ran within the lease and a second", crashes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_once_a_crash_at_any_moment_never_makes_two_effects() {
    let bed = Crash::new();
    let path = "/keyed/held";
    let told = std::sync::Mutex::new(Vec::new());
    for_each_crash(async |number| {
        let name = format!("held-{number}");
        // Before it is claimed, before its effect, after it, after its completion: whatever comes first.
        let moment = Duration::from_millis(fastrand::u64(0..60));
        bed.kill_within(path, &name, fastrand::u64(0..30), async || sleep(moment).await).await;
        let killed = Instant::now();
        let said = loop {
            match bed.retry(path, &name).await.as_str() {
                "409 in_progress" => {}
                said => break said.to_owned(),
            }
            assert!(killed.elapsed() < LEASE * 3, "a dead run is in progress for {:?}", killed.elapsed());
            sleep(MOMENT).await;
        };
        assert!(["200 executed", "200 replayed", "409 outcome_unknown"].contains(&said.as_str()), "{said}");
        assert!(bed.ledger.count(&name) <= 1, "{name}: two effects, told {said}");
        told.lock().unwrap().push((name, said));
    })
    .await;
    outlast(LEASE).await;
    let told = told.into_inner().unwrap();
    for (name, said) in &told {
        let again = bed.retry(path, name).await;
        let expected = if said == "409 outcome_unknown" { said.as_str() } else { "200 replayed" };
        assert_eq!((again.as_str(), bed.ledger.count(name) <= 1), (expected, true), "{name}");
    }
    let unknown = told.iter().filter(|(_, said)| said == "409 outcome_unknown").count();
    println!("{} processes killed at any moment under hold: no second effect, {unknown} unknown outcomes", told.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_once_a_crash_after_the_effect_is_told_as_unknown() {
    let bed = Crash::new();
    for_each_crash(async |number| {
        let (path, name) = ("/keyed/held", format!("done-{number}"));
        let mut victim = Peer::start(PEER, "onceward", &bed.redis.url(), &bed.ledger);
        let lost = under(&victim.url, path, &name, &name).header(THEN, 60_000);
        let lost = tokio::spawn(async move { lost.send().await });
        until("the effect is there", LONG, || async { bed.ledger.count(&name) == 1 }).await;
        victim.kill();
        assert!(lost.await.unwrap().is_err());
        let is_unknown = || async {
            let said = bed.retry(path, &name).await;
            assert!(["409 in_progress", "409 outcome_unknown"].contains(&said.as_str()), "{said}");
            said == "409 outcome_unknown"
        };
        until("nobody can tell", LEASE + Duration::from_secs(1), is_unknown).await;
        holds_for("nobody can tell after another lease", LEASE + MOMENT, is_unknown).await;
        assert_eq!(bed.ledger.count(&name), 1);
    })
    .await;
}
