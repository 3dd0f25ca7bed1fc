//! A process that is killed during a run under a key.

use std::time::Duration;

use futures_util::future::join_all;
use onceward_api::header::LOOK;
use onceward_tests::client::send;
use onceward_tests::key_routes::{LEASE, THEN, buy, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::peer::Peer;
use onceward_tests::polling::{holds_for, outlast, until};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::TAKES;
use onceward_tests::web_framework::WebFramework;
use tokio::time::{Instant, sleep};

use crate::PEER;

on_every_framework! {
    retry_after_a_crash_runs_within_lease_plus_one_second (threads),
    at_most_once_crash_at_any_moment_has_one_effect (threads),
    at_most_once_crash_after_the_effect_is_unknown (threads),
}

const LONG: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const MOMENT: Duration = Duration::from_millis(30);
/// Number of processes that are killed concurrently.
const ABREAST: usize = 3;

/// Returns the number of processes to kill; `make faults` sets more than `make test`.
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
fn crashes() -> usize {
    std::env::var("FAULTS").map_or(3, |faults| faults.parse().expect("FAULTS is a number"))
}

/// Two processes on one Redis: the one that is killed, and the survivor.
struct Crash {
    redis: RedisServer,
    ledger: Ledger,
    survivor: Peer,
}

impl Crash {
    fn new<F: WebFramework>() -> Self {
        let (redis, ledger) = (RedisServer::start(), Ledger::new());
        let survivor = Peer::start(PEER, &F::peer("onceward"), &redis.url(), &ledger);
        Self { redis, ledger, survivor }
    }

    /// Starts an order on a process and kills the process when `wait` returns.
    async fn kill_within<F: WebFramework>(&self, path: &str, name: &str, takes: u64, wait: impl AsyncFnOnce()) {
        let mut victim = Peer::start(PEER, &F::peer("onceward"), &self.redis.url(), &self.ledger);
        let lost = under(&victim.url, path, name, name).header(TAKES, takes).header(THEN, 20);
        let lost = tokio::spawn(async move { lost.send().await });
        wait().await;
        victim.kill();
        // The response may have arrived before the kill.
        let _ = lost.await.unwrap();
    }

    async fn retry(&self, path: &str, name: &str) -> String {
        buy(&self.survivor.url, path, name, name).await.said()
    }
}

/// Runs the crashes, a few at a time.
async fn for_each_crash<F: Future<Output = ()>>(crash: impl Fn(usize) -> F) {
    let numbers: Vec<_> = (0..crashes()).collect();
    for some in numbers.chunks(ABREAST) {
        join_all(some.iter().map(|number| crash(*number))).await;
    }
}

async fn retry_after_a_crash_runs_within_lease_plus_one_second<F: WebFramework>() {
    let bed = Crash::new::<F>();
    for_each_crash(async |number| {
        let (path, name) = ("/keyed/orders", format!("free-{number}"));
        let look = async || send(under(&bed.survivor.url, path, &name, "").header(LOOK, "true")).await.outcome;
        bed.kill_within::<F>(path, &name, 60_000, async || {
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
    println!("{} processes killed during a handler: each retry ran within the lease plus one second", crashes());
}

async fn at_most_once_crash_at_any_moment_has_one_effect<F: WebFramework>() {
    let bed = Crash::new::<F>();
    let path = "/keyed/held";
    let told = std::sync::Mutex::new(Vec::new());
    for_each_crash(async |number| {
        let name = format!("held-{number}");
        // Before the claim, before the effect, after the effect or after completion, depending on timing.
        let moment = Duration::from_millis(fastrand::u64(0..60));
        bed.kill_within::<F>(path, &name, fastrand::u64(0..30), async || sleep(moment).await).await;
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
        assert!(bed.ledger.count(&name) <= 1, "{name}: two effects, response {said}");
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
    println!("{} processes killed at random, at most once: no second effect, {unknown} unknown outcomes", told.len());
}

async fn at_most_once_crash_after_the_effect_is_unknown<F: WebFramework>() {
    let bed = Crash::new::<F>();
    for_each_crash(async |number| {
        let (path, name) = ("/keyed/held", format!("done-{number}"));
        let mut victim = Peer::start(PEER, &F::peer("onceward"), &bed.redis.url(), &bed.ledger);
        let lost = under(&victim.url, path, &name, &name).header(THEN, 60_000);
        let lost = tokio::spawn(async move { lost.send().await });
        until("the effect has happened", LONG, || async { bed.ledger.count(&name) == 1 }).await;
        victim.kill();
        assert!(lost.await.unwrap().is_err());
        let is_unknown = || async {
            let said = bed.retry(path, &name).await;
            assert!(["409 in_progress", "409 outcome_unknown"].contains(&said.as_str()), "{said}");
            said == "409 outcome_unknown"
        };
        until("the outcome is unknown", LEASE + Duration::from_secs(1), is_unknown).await;
        holds_for("the outcome stays unknown", LEASE + MOMENT, is_unknown).await;
        assert_eq!(bed.ledger.count(&name), 1);
    })
    .await;
}
