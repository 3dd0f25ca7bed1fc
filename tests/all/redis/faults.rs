//! Redis crashes, freezes or is full: nothing runs twice, every request gets a response, and the store recovers.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use onceward::store::{Redis, Store as _, StoreError};
use onceward::{Binding, Guard, Intent, Key, KeyRules, Kind, Policy, Subject, Ticket, Verdict};
use onceward_tests::client::{ask_token, http, order, send, submit, token};
use onceward_tests::concurrent_orders::flood;
use onceward_tests::faulty_tcp_proxy::{Delay, Proxy};
use onceward_tests::ledger::Ledger;
use onceward_tests::listening_port::free_port;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{STATUS, Shop};
use onceward_tests::verdict_tally::{Presentation, Tally, TokenOutcome, present, times};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::PEER;

const MINUTE: Duration = Duration::from_secs(60);
/// Store timeout; long compared with the delays of two busy cores.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);
/// Upper bound for a response within the timeout; less than two timeouts.
pub(crate) const IN_TIME: Duration = Duration::from_millis(1_900);

async fn recovers(url: &str) {
    until("a token is issued again", Duration::from_secs(2), || async { ask_token(url, "").await.status == 201 }).await;
}

#[tokio::test]
async fn killed_redis_is_reported_in_time_and_reconnected() {
    let mut redis = RedisServer::start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap().timeout(TIMEOUT));
    let outstanding = token(shop.url()).await;
    for _ in 0..3 {
        redis.kill();
        let begun = Instant::now();
        let (issue, redeem) = tokio::join!(ask_token(shop.url(), ""), order(shop.url(), &outstanding, "down"));
        assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
        assert_eq!(issue.said(), "503 store_unavailable");
        assert!(["store_unavailable", "redeem_unknown"].contains(&redeem.outcome.as_str()), "{redeem:?}");
        assert_eq!((redeem.status, &redeem.headers["retry-after"]), (503, &"1".parse().unwrap()));

        redis.restart();
        recovers(shop.url()).await;
        let fresh = token(shop.url()).await;
        assert_eq!(order(shop.url(), &fresh, "up").await.said(), "200 executed");
    }
    assert_eq!(shop.ledger.runs(), ["up"; 3]);
}

#[tokio::test]
async fn lost_idle_connection_is_reopened_before_it_is_needed() {
    let redis = RedisServer::start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap());
    let token = token(shop.url()).await;
    redis.ask::<i64>("CLIENT KILL TYPE normal");
    let is_back = || async { redis.ask::<String>("CLIENT LIST").lines().count() >= 2 };
    until("the store has connected again", Duration::from_secs(2), is_back).await;
    assert_eq!(order(shop.url(), &token, "a").await.said(), "200 executed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_redis_under_load_bounds_waiting_and_memory() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let peer = Peer::start(PEER, "patient", &redis.url(), &ledger);
    let mut tokens = Vec::new();
    for _ in 0..200 {
        tokens.push(token(&peer.url).await);
    }
    let client = http();
    let refused = async |round: usize| {
        for (answer, took) in flood(&client, &peer.url, &tokens).await {
            assert_eq!(answer.status, 503, "round {round}: {answer:?}");
            assert!(answer.outcome == "redeem_unknown" || answer.outcome == "store_unavailable", "{answer:?}");
            assert!(took < IN_TIME, "round {round}: {took:?}");
        }
    };
    flood_of_garbage(&peer.url, &client).await;
    redis.freeze();
    for round in 0..4 {
        refused(round).await;
    }
    let (before, rounds) = (peer.memory(), times(8, 40));
    for round in 0..rounds {
        refused(round).await;
    }
    is_bounded(peer.memory().saturating_sub(before), rounds * tokens.len());

    redis.thaw();
    recovers(&peer.url).await;
    assert!(ledger.runs().is_empty(), "no handler ran without a reply of the store");
    // Commands sent before the freeze was noticed have been executed since; other tokens are still valid. Either way no token
    // runs twice.
    for token in &tokens {
        let mut ran = 0;
        for _ in 0..2 {
            ran += usize::from(order(&peer.url, token, token).await.status == 200);
        }
        assert_eq!(ledger.count(token), ran);
        assert!(ran <= 1, "{ran} effects");
    }
}

/// The memory of a process levels off at about one MiB. An unanswered command takes several hundred bytes.
pub(crate) fn is_bounded(grown: u64, requests: usize) {
    println!("{requests} unanswered requests: {grown} bytes");
    assert!(grown < (1 << 20) + 400 * requests as u64, "{requests} unanswered requests have cost {grown} bytes");
}

/// Warms up everything that grows only once: buffers, connections, the allocator.
async fn flood_of_garbage(url: &str, client: &reqwest::Client) {
    let mut answers = JoinSet::new();
    for _ in 0..200 {
        answers.spawn(client.post(format!("{url}/orders")).header(onceward_api::header::TOKEN, "x").send());
    }
    answers.join_all().await;
}

#[tokio::test]
async fn full_redis_issues_nothing_but_redeems_issued_tokens() {
    let redis = RedisServer::start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap());
    let (first, second, third) = (token(shop.url()).await, token(shop.url()).await, token(shop.url()).await);
    redis.ask::<()>("CONFIG SET maxmemory 1");

    assert_eq!(ask_token(shop.url(), "").await.said(), "503 store_unavailable");
    assert_eq!(order(shop.url(), &first, "a").await.said(), "200 executed");
    assert_eq!(order(shop.url(), &first, "a").await.said(), "409 token_used");
    let mistaken = send(submit(shop.url(), "/orders", &second, "mistaken").header(STATUS, "422")).await;
    assert_eq!(mistaken.said(), "422 not_applied", "a token is released on a full Redis too");
    assert_eq!(order(shop.url(), &second, "again").await.said(), "200 executed");
    assert_eq!(order(shop.url(), &second, "again").await.said(), "409 token_used");

    let newcomer = Shop::on(Redis::open(&redis.url()).unwrap());
    assert_eq!(order(newcomer.url(), &third, "b").await.said(), "200 executed", "it can read the shared secret");

    redis.ask::<()>("CONFIG SET maxmemory 0");
    assert_eq!(ask_token(shop.url(), "").await.status, 201);
    assert_eq!(shop.ledger.runs(), ["a", "mistaken", "again"]);
}

#[tokio::test]
async fn evicted_token_is_called_used_and_evicted_key_reruns() {
    let redis = RedisServer::start_with(&["--maxmemory-policy", "allkeys-random"]);
    let guard = Guard::new(Redis::open(&redis.url()).unwrap().timeout(TIMEOUT));
    let tally = Tally::default();
    let key = Key::new("k").unwrap();
    let intent = Intent::new("a", Subject::anonymous()).key(&key);
    let policy = Policy::key(KeyRules::at_most_once());
    let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("a new key") };
    pass.complete(None).await.unwrap();
    let mut tokens = Vec::new();
    for number in 0..6 {
        let token = guard.issue(MINUTE, Binding::none()).await.unwrap().as_str().to_owned();
        if number < 3 {
            assert_eq!(
                tally.note(&token, present(&guard, &token, &Presentation::by(number)).await),
                TokenOutcome::Accepted
            );
        }
        tokens.push(token);
    }

    redis.ask::<()>("CONFIG SET maxmemory 1");
    until("all is evicted", Duration::from_secs(5), || async { redis.ask::<usize>("DBSIZE") == 0 }).await;
    redis.ask::<()>("CONFIG SET maxmemory 0");
    for (number, token) in tokens.iter().enumerate() {
        let told = tally.note(token, present(&guard, token, &Presentation::by(number)).await);
        assert_eq!(told, TokenOutcome::Used, "{number}: a missing record counts as used");
    }
    assert_eq!((tally.count(TokenOutcome::Accepted), tally.doubles()), (3, 0), "{tally}");
    let again = guard.check(&policy, &intent).await.unwrap();
    assert!(matches!(again, Verdict::Run(_)), "documented limit: the key runs again: {again:?}");
}

#[tokio::test]
async fn blocking_handler_does_not_stop_the_store() {
    let redis = RedisServer::start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap());
    let mut blocked = JoinSet::new();
    for _ in 0..2 {
        let token = token(shop.url()).await;
        blocked.spawn(send(submit(shop.url(), "/block", &token, "block").header("x-takes", "1500")));
    }
    let is_blocking = || async { shop.ledger.count("blocking") >= 1 };
    until("a worker is blocked", Duration::from_secs(5), is_blocking).await;
    // From another thread, like another worker.
    while shop.ledger.count("unblocked") == 0 {
        let token = shop.guard.issue(MINUTE, Binding::none()).await.expect("the store answers");
        let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
        let Ok(Verdict::Run(pass)) = shop.guard.check(&Policy::token(), &intent).await else { panic!("valid token") };
        pass.complete(None).await.unwrap();
    }
    assert!(blocked.join_all().await.iter().all(|answer| answer.status == 200));
}

/// Creates a store in a runtime whose only thread then blocks, and uses the store from outside.
async fn asked_while_its_maker_is_blocked(
    make: impl AsyncFnOnce(String) -> Redis + Send + 'static,
) -> Result<(), StoreError> {
    let redis = RedisServer::start();
    let url = redis.url();
    let (give, given) = mpsc::channel();
    let (unblock, blocked) = mpsc::channel::<()>();
    let maker = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let store = Arc::new(make(url).await);
            let warm = store.look(&Ticket::of(Kind::Key, b"x")).await;
            warm.expect("the store answers before the thread blocks");
            give.send(store).expect("the receiver waits");
            // Blocks the thread, so no task of this runtime makes progress.
            let _ = blocked.recv();
        });
    });
    let store = given.recv().expect("a store");
    let answer = store.look(&Ticket::of(Kind::Key, b"x")).await.map(drop);
    drop(unblock);
    maker.join().expect("the thread ends");
    answer
}

#[tokio::test]
async fn only_an_application_connection_stops_with_its_runtime() {
    asked_while_its_maker_is_blocked(async |url| Redis::open(&url).unwrap()).await.unwrap();
    let handed = asked_while_its_maker_is_blocked(async |url| {
        Redis::over(redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap())
    });
    let error = handed.await.unwrap_err();
    assert!(matches!(error, StoreError::Unknown(_)), "{error}");
}

#[tokio::test]
async fn application_connection_manager_reconnects() {
    let mut redis = RedisServer::start();
    let manager = redis::Client::open(redis.url()).unwrap().get_connection_manager().await.unwrap();
    let guard = Guard::new(Redis::over(manager));
    guard.issue(MINUTE, Binding::none()).await.unwrap();
    redis.kill();
    assert!(guard.issue(MINUTE, Binding::none()).await.is_err());
    redis.restart();
    until("it has", Duration::from_secs(5), || async { guard.issue(MINUTE, Binding::none()).await.is_ok() }).await;
}

/// True if a new guard accepts a token that another guard issued.
async fn a_newcomer_accepts(redis: &RedisServer, issued_by: &Guard) -> bool {
    let token = issued_by.issue(MINUTE, Binding::none()).await.unwrap();
    let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
    let newcomer = Guard::new(Redis::open(&redis.url()).unwrap());
    let Ok(Verdict::Run(pass)) = newcomer.check(&Policy::token(), &intent).await else { return false };
    pass.complete(None).await.is_ok()
}

fn secrets(redis: &RedisServer) -> usize {
    redis.keys().iter().filter(|key| key.starts_with("onceward:secret:")).count()
}

#[tokio::test]
async fn shared_secret_is_restored_after_a_redis_restart() {
    let mut redis = RedisServer::start();
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    assert!(a_newcomer_accepts(&redis, &guard).await);
    redis.kill();
    redis.restart();
    // Well before the periodic refresh, which happens every minute.
    until("the secret is stored", Duration::from_secs(5), || async { secrets(&redis) == 1 }).await;
    assert!(a_newcomer_accepts(&redis, &guard).await);
}

#[tokio::test]
async fn shared_secret_is_restored_after_flushall() {
    let redis = RedisServer::start();
    let guard = Guard::builder(Redis::open(&redis.url()).unwrap()).share_every(Duration::from_millis(20)).build();
    assert!(a_newcomer_accepts(&redis, &guard).await);
    redis.ask::<()>("FLUSHALL");
    until("the secret is stored", Duration::from_secs(5), || async { secrets(&redis) == 1 }).await;
    assert!(a_newcomer_accepts(&redis, &guard).await);
}

#[tokio::test]
async fn dropped_guard_closes_its_connections() {
    let redis = RedisServer::start();
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    guard.issue(MINUTE, Binding::none()).await.unwrap();
    let clients = || redis.ask::<String>("CLIENT LIST").lines().count();
    let are_there = || async { clients() == 4 };
    until("the guard's two connections, this thread's, and the test's are open", Duration::from_secs(5), are_there)
        .await;
    drop(guard);
    until("the guard's connections are closed", Duration::from_secs(5), || async { clients() == 1 }).await;
}

#[tokio::test]
async fn absent_redis_is_reported_in_time() {
    let nowhere = format!("redis://127.0.0.1:{}", free_port());
    let shop = Shop::on(Redis::open(&nowhere).unwrap().timeout(TIMEOUT));
    let other = Shop::on(onceward::store::Memory::new());
    let token = token(other.url()).await;
    let begun = Instant::now();
    let (issue, redeem, none) =
        tokio::join!(ask_token(shop.url(), ""), order(shop.url(), &token, "a"), order(shop.url(), "x", "a"));
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    let said = [issue.said(), redeem.said(), none.said()];
    assert_eq!(said, ["503 store_unavailable", "503 store_unavailable", "400 token_malformed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_refuses_commands_gets_backoff() {
    let redis = RedisServer::start();
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    guard.issue(MINUTE, Binding::none()).await.unwrap();
    let connections = || {
        let stats: String = redis.ask("INFO stats");
        let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.and_then(|count| count.trim().parse::<usize>().ok()).expect("a number of connections")
    };
    redis.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", free_port()));
    let (before, begun) = (connections(), Instant::now());
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let guard = guard.clone();
        callers.spawn(async move {
            while begun.elapsed() < Duration::from_secs(1) {
                guard.issue(MINUTE, Binding::none()).await.expect_err("the server is a replica");
            }
        });
    }
    callers.join_all().await;
    let (made, took) = (connections() - before - 1, begun.elapsed());
    // Backoff from 10 to 500 ms, jittered down to one half: seven connections in the first 565 ms, then four a second. The
    // background thread adds one for each connection that lasts 100 ms.
    let most = 8 + (14.0 * took.as_secs_f64()) as usize;
    assert!((3..=most).contains(&made), "{made} connections in {took:?}: each is replaced, with backoff");
    redis.ask::<()>("REPLICAOF NO ONE");
    let is_well = || async { guard.issue(MINUTE, Binding::none()).await.is_ok() };
    until("the store works again", Duration::from_secs(2), is_well).await;
}

/// One address that always points to the master: existing connections stay with the former master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_master_address_is_followed_from_a_replica() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let proxy = Proxy::before(servers[0].port()).await;
    let guard = Guard::new(Redis::open(&proxy.url()).unwrap());
    guard.issue(MINUTE, Binding::none()).await.unwrap();
    let demote = |one: usize| servers[one].ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", servers[1 - one].port()));
    let is_told = || async {
        let error = guard.issue(MINUTE, Binding::none()).await.expect_err("the server is a replica");
        error.to_string().contains("is a replica")
    };

    // Under constant requests, all of them to issue a token, which reads the epoch first.
    demote(0);
    until("the replica is detected", Duration::from_secs(5), is_told).await;
    proxy.move_before(servers[1].port());
    let is_well = || async { guard.issue(MINUTE, Binding::none()).await.is_ok() };
    until("the new master is found", Duration::from_secs(2), is_well).await;

    // Without any request.
    let clients = || servers[0].ask::<String>("CLIENT LIST TYPE normal").lines().count();
    until("only the test is connected to the former master", Duration::from_secs(5), || async { clients() == 1 }).await;
    servers[0].ask::<()>("REPLICAOF NO ONE");
    demote(1);
    proxy.move_before(servers[0].port());
    let is_there = || async { clients() >= 2 };
    until("the store has connected to the new master by itself", Duration::from_secs(5), is_there).await;
    until("the store works there", Duration::from_secs(2), is_well).await;
}

#[tokio::test]
async fn slow_connection_setup_does_not_discard_the_connection() {
    let redis = RedisServer::start();
    let delay = Delay { connect: Duration::from_millis(500), answer: Duration::from_millis(200) };
    let proxy = Proxy::slowly_before(redis.port(), delay).await;
    let store = Redis::open(&proxy.url()).unwrap().timeout(TIMEOUT);
    // Opening the connection takes 900 ms, handshake included: too little is left for a reply that takes 200 ms.
    let mut hasty = JoinSet::new();
    for _ in 0..20 {
        let store = store.clone();
        hasty.spawn(async move { store.look(&Ticket::of(Kind::Key, b"x")).await });
    }
    assert!(hasty.join_all().await.iter().any(|answer| matches!(answer, Err(StoreError::Unknown(_)))));
    for _ in 0..3 {
        store.look(&Ticket::of(Kind::Key, b"x")).await.expect("the connection works");
    }
    assert!(proxy.accepted() <= 2, "the shared connection and this thread's");
}
