//! Redis freezes, crashes, loses data or loses replies during a run under a key.

use std::time::Duration;

use futures_util::future::join_all;
use onceward::actix::{Protect, SubjectFrom};
use onceward::store::{Memory, Redis};
use onceward::{Guard, KeyRules};
use onceward_api::header::LOOK;
use onceward_tests::client::{Answer, send};
use onceward_tests::faulty_tcp_proxy::TcpFault;
use onceward_tests::key_routes::{BRIEF, LEASE, Pair, buy, serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::{outlast, until};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{STATUS, TAKES};
use tokio::time::{Instant, sleep};

use crate::PEER;

const LONG: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const MOMENT: Duration = Duration::from_millis(30);
/// Time that `Retry-After` asks a client to wait while the store is unavailable.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Response and `Retry-After` while the store does not answer.
const UNAVAILABLE: (&str, &str) = ("503 store_unavailable", "1");
/// Retries of a client while Redis is frozen.
#[derive(Clone, Copy, PartialEq)]
enum Retries {
    Never,
    /// One retry, then only as `Retry-After` allows.
    Polite,
    /// Constant retries.
    Storm,
}

/// Freezes Redis for longer than the lease while a handler runs.
async fn frozen(path: &str, retries: Retries) {
    let pair = Pair::start(PEER, "onceward").await;
    assert_eq!(buy(pair.other(), path, "warm", "warm").await.status, 200);
    let first = under(pair.one(), path, "k", "effect").header(TAKES, 4_000);
    let first = tokio::spawn(send(first));
    pair.begun(1).await;
    pair.redis.freeze();
    let frozen = Instant::now();
    if retries == Retries::Polite {
        let answer = buy(pair.other(), path, "k", "effect").await;
        assert_eq!((answer.said().as_str(), answer.headers["retry-after"].to_str().unwrap()), UNAVAILABLE);
    }
    while frozen.elapsed() < LEASE * 3 / 2 {
        if retries == Retries::Storm {
            assert_eq!(buy(pair.other(), path, "k", "effect").await.said(), "503 store_unavailable");
        }
        sleep(MOMENT).await;
    }
    pair.redis.thaw();
    if retries != Retries::Storm {
        sleep(RETRY_AFTER).await;
    }
    while !first.is_finished() {
        let said = buy(pair.other(), path, "k", "effect").await.said();
        let is_harmless = said.starts_with("503 ") || said.starts_with("409 ") || said == "200 replayed";
        assert!(is_harmless, "beside a live run: {said}");
        sleep(MOMENT).await;
    }
    let first: Answer = first.await.unwrap();
    assert_eq!(first.said(), "200 executed");
    let replay = buy(pair.other(), path, "k", "effect").await;
    assert_eq!((replay.said().as_str(), replay.body), ("200 replayed", first.body));
    assert_eq!(pair.ledger.count("effect"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_frozen_beyond_the_lease_leaves_one_effect() {
    tokio::join!(frozen("/keyed/orders", Retries::Never), frozen("/keyed/held", Retries::Never));
}

/// Redis executes the retry's claim when it thaws, although that request has timed out. The claim is removed again, and must not
/// displace the claim of the run in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_redis_with_one_retry_leaves_one_effect() {
    tokio::join!(frozen("/keyed/orders", Retries::Polite), frozen("/keyed/held", Retries::Polite));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_redis_at_most_once_survives_constant_retries() {
    frozen("/keyed/held", Retries::Storm).await;
}

/// The handler took effect and its response cannot be stored: it is sent, marked as unprotected, and stored later.
async fn completes_late(path: &str, end: impl AsyncFnOnce(&mut Pair)) {
    let mut pair = Pair::start(PEER, "onceward").await;
    assert_eq!(buy(pair.one(), path, "warm", "warm").await.status, 200);
    let first = tokio::spawn(send(under(pair.one(), path, "k", "effect").header(TAKES, 150)));
    pair.begun(1).await;
    pair.redis.freeze();
    let first = tokio::time::timeout(Duration::from_secs(5), first).await.expect("in time").unwrap();
    assert_eq!(first.said(), "200 unprotected", "{path}");
    end(&mut pair).await;
    let look = async || send(under(pair.other(), path, "k", "").header(LOOK, "true")).await;
    until("it is stored", LEASE * 5, || async { look().await.body == first.body }).await;
    let replay = buy(pair.other(), path, "k", "effect").await;
    assert_eq!((replay.said().as_str(), replay.body), ("200 replayed", first.body));
    assert_eq!(pair.ledger.count("effect"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsaved_response_is_stored_once_redis_recovers() {
    for path in ["/keyed/orders", "/keyed/held"] {
        let at_once = completes_late(path, async |pair: &mut Pair| pair.redis.thaw());
        let late = completes_late(path, async |pair: &mut Pair| {
            outlast(LEASE).await;
            pair.redis.thaw();
        });
        // A store that has lost its data receives the record again.
        let emptied = completes_late(path, async |pair: &mut Pair| {
            pair.redis.kill();
            pair.redis.restart();
        });
        tokio::join!(at_once, late, emptied);
    }
}

/// The same with a retry whose claim is executed after its request has timed out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsaved_response_is_stored_despite_a_concurrent_retry() {
    for path in ["/keyed/orders", "/keyed/held"] {
        completes_late(path, async |pair: &mut Pair| {
            let retry = buy(pair.other(), path, "k", "effect").await;
            assert_eq!(retry.said(), "503 store_unavailable");
            outlast(LEASE).await;
            pair.redis.thaw();
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_with_a_lost_reply_is_removed_and_a_retry_runs() {
    for fate in [TcpFault::LoseRequest, TcpFault::LoseAnswer, TcpFault::SwallowAnswer] {
        let commands = [("/keyed/orders", "insert"), ("/keyed/held", "insert"), ("/keyed/held", "swap")];
        join_all(commands.map(async |(path, command)| {
            let pair = Pair::start(PEER, "onceward").await;
            assert_eq!(buy(pair.one(), path, "warm", "warm").await.status, 200);
            pair.proxy.next(if command == "swap" { pair.redis.compare_commands().swap_word() } else { "NX\r\n" }, fate);
            let lost = buy(pair.one(), path, "k", "lost").await;
            let said = (lost.said(), lost.headers["retry-after"].to_str().unwrap());
            assert_eq!(((said.0.as_str(), said.1), pair.proxy.struck()), (UNAVAILABLE, 1), "{command} {fate:?}");
            until("a retry runs", LEASE * 3, || async {
                let said = buy(pair.other(), path, "k", "effect").await.said();
                assert!(["409 in_progress", "200 executed"].contains(&said.as_str()), "{command} {fate:?}: {said}");
                said == "200 executed"
            })
            .await;
            // Long enough for pending removals: none removes the retry's claim.
            outlast(LEASE).await;
            assert_eq!(buy(pair.one(), path, "k", "effect").await.said(), "200 replayed", "{command} {fate:?}");
            assert_eq!((pair.ledger.count("lost"), pair.ledger.count("effect")), (0, 1));
        }))
        .await;
    }
}

/// Replies may be retained for less than a lease. A live run keeps its claim nevertheless.
#[tokio::test]
async fn at_most_once_claim_outlives_a_short_retention() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let rules = KeyRules::at_most_once().lease(LEASE * 3).unwrap().retain(Duration::from_millis(300));
    let served = serve_one(&ledger, Protect::key(&guard, SubjectFrom::anonymous(), rules));
    let slow = tokio::spawn(send(under(&served.url, "/it", "k", "effect").header(TAKES, 1_000)));
    until("the handler runs", LONG, || async { ledger.count("begun") == 1 }).await;
    while !slow.is_finished() {
        let said = buy(&served.url, "/it", "k", "effect").await.said();
        assert!(["409 in_progress", "200 replayed"].contains(&said.as_str()), "beside a live run: {said}");
        sleep(MOMENT).await;
    }
    assert_eq!((slow.await.unwrap().said().as_str(), ledger.count("effect")), ("200 executed", 1));
}

/// The store loses its data while a handler runs, and the handler reports an unknown outcome.
#[tokio::test]
async fn at_most_once_unknown_outcome_is_stored_without_its_claim() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let rules = KeyRules::at_most_once().lease(LEASE * 3).unwrap();
    let served = serve_one(&ledger, Protect::key(&guard, SubjectFrom::anonymous(), rules));
    let slow = send(under(&served.url, "/it", "k", "effect").header(TAKES, 200).header(STATUS, 504));
    let slow = tokio::spawn(slow);
    until("the handler runs", LONG, || async { ledger.count("begun") == 1 }).await;
    redis.ask::<()>("FLUSHALL");
    assert_eq!(slow.await.unwrap().said(), "504 unknown");
    assert_eq!(buy(&served.url, "/it", "k", "effect").await.said(), "409 outcome_unknown");
    assert_eq!(ledger.count("effect"), 1);
}

#[tokio::test]
async fn full_redis_rejects_new_runs_and_stores_finished_ones_later() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let served =
        serve_one(&ledger, Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable().lease(LEASE).unwrap()));
    let begin = |key: &str, status: u16| {
        tokio::spawn(send(under(&served.url, "/it", key, key).header(TAKES, 200).header(STATUS, status)))
    };
    let (happened, not) = (begin("happened", 200), begin("not", 503));
    until("both handlers have started", LONG, || async { ledger.count("begun") == 2 }).await;
    redis.ask::<()>("CONFIG SET maxmemory 1");
    assert_eq!(buy(&served.url, "/it", "new", "new").await.said(), "503 store_unavailable");
    let happened = happened.await.unwrap();
    assert_eq!(happened.said(), "200 unprotected");
    assert_eq!(not.await.unwrap().said(), "503 not_applied");
    outlast(LEASE).await;
    redis.ask::<()>("CONFIG SET maxmemory 0");
    let look = async || send(under(&served.url, "/it", "happened", "").header(LOOK, "true")).await;
    until("it is stored", LEASE, || async { look().await.body == happened.body }).await;
    assert_eq!(buy(&served.url, "/it", "happened", "happened").await.said(), "200 replayed");
    assert_eq!(buy(&served.url, "/it", "not", "not").await.said(), "200 executed");
    assert_eq!((ledger.count("happened"), ledger.count("not"), ledger.count("new")), (1, 2, 0));
}

#[tokio::test]
async fn run_beyond_its_ceiling_counts_as_lost() {
    let ledger = Ledger::new();
    for (rules, expected) in
        [(KeyRules::retryable(), "200 executed"), (KeyRules::at_most_once(), "409 outcome_unknown")]
    {
        let rules = rules.lease(BRIEF).unwrap().ceiling(BRIEF);
        let guard = Guard::new(Memory::new());
        let served = serve_one(&ledger, Protect::key(&guard, SubjectFrom::anonymous(), rules));
        let slow = tokio::spawn(send(under(&served.url, "/it", "k", "slow").header(TAKES, 2_000)));
        let begun = ledger.count("begun");
        until("the handler runs", LONG, || async { ledger.count("begun") > begun }).await;
        until("the run counts as lost", Duration::from_millis(1_900), || async {
            let said = buy(&served.url, "/it", "k", "other").await.said();
            assert!(["409 in_progress", expected].contains(&said.as_str()), "{said}");
            said == expected
        })
        .await;
        let is_held = expected != "200 executed";
        let late = slow.await.unwrap();
        assert_eq!(late.said(), if is_held { "200 executed" } else { "200 unprotected" });
        let replay = buy(&served.url, "/it", "k", "other").await;
        assert_eq!((replay.said().as_str(), replay.body == late.body), ("200 replayed", is_held));
    }
    assert_eq!((ledger.count("slow"), ledger.count("other")), (2, 1));
}
