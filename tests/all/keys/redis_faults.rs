//! A Redis that freezes, dies, forgets or loses what it says, in the middle of a run under a key.

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
/// A moment between two tries.
const MOMENT: Duration = Duration::from_millis(30);
/// How long a client waits that was told so by a store that is away.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// What is said of a store that does not answer, with when to come back.
const UNAVAILABLE: (&str, &str) = ("503 store_unavailable", "1");
/// Who tries again while a Redis is frozen.
#[derive(Clone, Copy, PartialEq)]
enum Retries {
    Nobody,
    /// Once, and then not before it was told to.
    Polite,
    /// All the time.
    Storm,
}

/// A Redis is frozen for longer than the lease while a handler runs.
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
        assert!(is_harmless, "beside a run that is alive: {said}");
        sleep(MOMENT).await;
    }
    let first: Answer = first.await.unwrap();
    assert_eq!(first.said(), "200 executed");
    let replay = buy(pair.other(), path, "k", "effect").await;
    assert_eq!((replay.said().as_str(), replay.body), ("200 replayed", first.body));
    assert_eq!(pair.ledger.count("effect"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_was_frozen_for_longer_than_the_lease_leaves_one_effect() {
    tokio::join!(frozen("/keyed/orders", Retries::Nobody), frozen("/keyed/held", Retries::Nobody));
}

/// The retry's own claim is written when the Redis thaws, although nobody waits for it any more: it is taken back, and must not
/// have cost the run that is alive its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_was_frozen_leaves_one_effect_although_somebody_tried_again_meanwhile() {
    tokio::join!(frozen("/keyed/orders", Retries::Polite), frozen("/keyed/held", Retries::Polite));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_was_frozen_leaves_one_effect_at_most_once_however_often_somebody_tries_again() {
    frozen("/keyed/held", Retries::Storm).await;
}

/// It happened, and cannot be written down: the answer is sent, marked, and later it is on record.
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
    until("it is on record", LEASE * 5, || async { look().await.body == first.body }).await;
    let replay = buy(pair.other(), path, "k", "effect").await;
    assert_eq!((replay.said().as_str(), replay.body), ("200 replayed", first.body));
    assert_eq!(pair.ledger.count("effect"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_written_down_is_on_record_once_the_store_is_back() {
    for path in ["/keyed/orders", "/keyed/held"] {
        let at_once = completes_late(path, async |pair: &mut Pair| pair.redis.thaw());
        let late = completes_late(path, async |pair: &mut Pair| {
            outlast(LEASE).await;
            pair.redis.thaw();
        });
        // One that has lost everything is told again.
        let anew = completes_late(path, async |pair: &mut Pair| {
            pair.redis.kill();
            pair.redis.restart();
        });
        tokio::join!(at_once, late, anew);
    }
}

/// The same with a retry that nobody waits for any more when it is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_written_down_is_on_record_although_somebody_tried_again_meanwhile() {
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
async fn a_claim_that_nobody_knows_of_is_taken_back_and_a_retry_runs() {
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
            // Long enough for whatever is still taken back: it is not the retry's.
            outlast(LEASE).await;
            assert_eq!(buy(pair.one(), path, "k", "effect").await.said(), "200 replayed", "{command} {fate:?}");
            assert_eq!((pair.ledger.count("lost"), pair.ledger.count("effect")), (0, 1));
        }))
        .await;
    }
}

/// A reply may be kept for a shorter time than a lease lasts. A run that is alive is alive all the same.
#[tokio::test]
async fn at_most_once_a_run_that_is_alive_keeps_its_claim_however_briefly_replies_are_kept() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let rules = KeyRules::at_most_once().lease(LEASE * 3).unwrap().retain(Duration::from_millis(300));
    let served = serve_one(&ledger, Protect::key(&guard, SubjectFrom::anonymous(), rules));
    let slow = tokio::spawn(send(under(&served.url, "/it", "k", "effect").header(TAKES, 1_000)));
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    while !slow.is_finished() {
        let said = buy(&served.url, "/it", "k", "effect").await.said();
        assert!(["409 in_progress", "200 replayed"].contains(&said.as_str()), "beside a run that is alive: {said}");
        sleep(MOMENT).await;
    }
    assert_eq!((slow.await.unwrap().said().as_str(), ledger.count("effect")), ("200 executed", 1));
}

/// The store has lost everything while a handler ran, and the handler cannot tell how it ended.
#[tokio::test]
async fn at_most_once_an_unknown_end_is_on_record_although_the_store_has_lost_the_claim() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let rules = KeyRules::at_most_once().lease(LEASE * 3).unwrap();
    let served = serve_one(&ledger, Protect::key(&guard, SubjectFrom::anonymous(), rules));
    let slow = send(under(&served.url, "/it", "k", "effect").header(TAKES, 200).header(STATUS, 504));
    let slow = tokio::spawn(slow);
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    redis.ask::<()>("FLUSHALL");
    assert_eq!(slow.await.unwrap().said(), "504 unknown");
    assert_eq!(buy(&served.url, "/it", "k", "effect").await.said(), "409 outcome_unknown");
    assert_eq!(ledger.count("effect"), 1);
}

#[tokio::test]
async fn a_full_redis_refuses_what_is_new_and_what_happened_is_on_record_once_there_is_room() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let served =
        serve_one(&ledger, Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable().lease(LEASE).unwrap()));
    let begin = |key: &str, status: u16| {
        tokio::spawn(send(under(&served.url, "/it", key, key).header(TAKES, 200).header(STATUS, status)))
    };
    let (happened, not) = (begin("happened", 200), begin("not", 503));
    until("both have begun", LONG, || async { ledger.count("begun") == 2 }).await;
    redis.ask::<()>("CONFIG SET maxmemory 1");
    assert_eq!(buy(&served.url, "/it", "new", "new").await.said(), "503 store_unavailable");
    let happened = happened.await.unwrap();
    assert_eq!(happened.said(), "200 unprotected");
    assert_eq!(not.await.unwrap().said(), "503 not_applied");
    outlast(LEASE).await;
    redis.ask::<()>("CONFIG SET maxmemory 0");
    let look = async || send(under(&served.url, "/it", "happened", "").header(LOOK, "true")).await;
    until("it is on record", LEASE, || async { look().await.body == happened.body }).await;
    assert_eq!(buy(&served.url, "/it", "happened", "happened").await.said(), "200 replayed");
    assert_eq!(buy(&served.url, "/it", "not", "not").await.said(), "200 executed");
    assert_eq!((ledger.count("happened"), ledger.count("not"), ledger.count("new")), (1, 2, 0));
}

#[tokio::test]
async fn a_run_that_outlasts_its_ceiling_is_taken_for_lost() {
    let ledger = Ledger::new();
    for (rules, expected) in
        [(KeyRules::retryable(), "200 executed"), (KeyRules::at_most_once(), "409 outcome_unknown")]
    {
        let rules = rules.lease(BRIEF).unwrap().ceiling(BRIEF);
        let guard = Guard::new(Memory::new());
        let served = serve_one(&ledger, Protect::key(&guard, SubjectFrom::anonymous(), rules));
        let slow = tokio::spawn(send(under(&served.url, "/it", "k", "slow").header(TAKES, 2_000)));
        let begun = ledger.count("begun");
        until("it has begun", LONG, || async { ledger.count("begun") > begun }).await;
        until("it is taken for lost", Duration::from_millis(1_900), || async {
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
