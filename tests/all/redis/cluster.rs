//! Redis Cluster: redirects are followed, no command is executed twice, and a used token is not accepted again after a failover.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use onceward::store::laws::Laws;
use onceward::store::{Compared, Redis, Room, Store as _, StoreError};
use onceward::{Binding, Guard, Intent, Key, KeyRules, Kind, Policy, Subject, Ticket, Verdict};
use onceward_tests::client::{ask_token, http, send};
use onceward_tests::faulty_tcp_proxy::Proxy;
use onceward_tests::ledger::Ledger;
use onceward_tests::listening_port::free_port;
use onceward_tests::peer::Peer;
use onceward_tests::policy_walkthrough::every_policy;
use onceward_tests::polling::until;
use onceward_tests::redis_cluster::RedisCluster;
use onceward_tests::redis_server::{Monitor, RedisServer};
use onceward_tests::service::{OncewardServer, run};
use onceward_tests::shop::Shop;
use onceward_tests::verdict_tally::{Presentation, Tally, TokenOutcome, present, redeem, times};
use serde_json::json;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};

use crate::PEER;
use crate::redis::epochs::{BACK, GuardPair};
use crate::redis::faults::{IN_TIME, TIMEOUT};

const MINUTE: Duration = Duration::from_secs(60);
const PATIENT: Duration = Duration::from_secs(5);

async fn issues(guard: &Guard) -> bool {
    guard.issue(MINUTE, Binding::none()).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn laws_and_every_policy_hold_on_a_cluster() {
    let cluster = RedisCluster::start().await;
    Laws::of(Redis::open(&cluster.address()).unwrap().timeout(PATIENT)).hold().await;
    let stores =
        [Redis::open(&cluster.address()).unwrap().prefix("a"), Redis::open(&cluster.list()).unwrap().prefix("b")];
    for store in stores {
        every_policy(&Shop::on(store.timeout(PATIENT))).await;
    }
    for node in &cluster.nodes[..3] {
        let keys = node.server.keys();
        assert!(!keys.is_empty(), "every master has some keys");
        assert!(keys.iter().all(|key| node.server.ask::<i64>(&format!("TTL {key}")) != -1), "no key without an expiry");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_reachable_node_is_enough_to_find_the_cluster() {
    let cluster = RedisCluster::start().await;
    let first = format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", free_port(), cluster.nodes[4].proxy.port());
    let guard = Guard::new(Redis::open(&first).unwrap());
    until("the cluster is found", PATIENT, || issues(&guard)).await;

    let service = OncewardServer::start(&["--store", &cluster.address()]);
    let tokens = send(http().post(format!("{}/tokens", service.url)).json(&json!({ "count": 20 }))).await;
    let tokens: serde_json::Value = serde_json::from_slice(&tokens.body).unwrap();
    for issued in tokens["tokens"].as_array().unwrap() {
        let redeem =
            || send(http().post(format!("{}/token/redeem", service.url)).json(&json!({ "token": issued["token"] })));
        assert_eq!((redeem().await.status, redeem().await.status), (200, 409));
    }
    let output = run(&["check", "--store", &cluster.address()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Returns the commands with this key that all masters executed.
fn executed(monitors: &[Monitor], key: &str) -> Vec<String> {
    let name = |command: &String| command.split('"').nth(1).unwrap_or_default().to_owned();
    let mut names: Vec<_> = monitors
        .iter()
        .flat_map(Monitor::commands)
        .filter(|command| command.contains(key) && !command.contains("MIGRATE") && !command.contains("RESTORE"))
        .map(|command| name(&command))
        .collect();
    names.sort();
    names
}

/// Runs every store verb once with this ticket.
async fn every_verb(store: &Redis, ticket: &Ticket) {
    assert_eq!(store.look(ticket).await.unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(store.insert(ticket, b"other", MINUTE, Room::Free).await.unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(store.swap(ticket, b"one", b"two", MINUTE, Room::Free, None).await.unwrap(), Compared::Done);
    assert_eq!(store.remove(ticket, b"two", None).await.unwrap(), Compared::Done);
    assert_eq!(store.insert(ticket, b"three", MINUTE, Room::Free).await.unwrap(), None);
    assert_eq!(store.remove(ticket, b"three", None).await.unwrap(), Compared::Done);
    assert_eq!(store.remove(ticket, b"three", None).await.unwrap(), Compared::Gone);
}

/// Writes until every node with native compare commands uses them: the store probes for them in the background.
async fn every_node_is_known(cluster: &RedisCluster, store: &Redis) {
    if cluster.nodes[0].server.compare_commands().remove == "EVALSHA" {
        return;
    }
    until("the commands of every node are known", PATIENT, || async {
        let monitors: Vec<_> = cluster.nodes[..3].iter().map(|node| node.server.monitor()).collect();
        for number in 0..60_u8 {
            let ticket = Ticket::of(Kind::Token, &[number]);
            store.insert(&ticket, b"x", MINUTE, Room::Free).await.unwrap();
            store.swap(&ticket, b"x", b"y", MINUTE, Room::Free, None).await.unwrap();
            store.remove(&ticket, b"y", None).await.unwrap();
        }
        !monitors.iter().flat_map(Monitor::commands).any(|command| command.starts_with("\"EVAL"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redirected_command_is_executed_once() {
    let cluster = RedisCluster::start().await;
    for (number, address) in [cluster.address(), cluster.list()].into_iter().enumerate() {
        let store = Redis::open(&address).unwrap().timeout(PATIENT);
        for (kind, name) in [(Kind::Key, "asked"), (Kind::Key, "moved")] {
            let ticket = Ticket::of(kind, format!("{name} {number}").as_bytes());
            let key = ticket.name("onceward");
            let slot = cluster.slot(&key);
            let from = cluster.nodes[..3].iter().position(|node| {
                redis::cmd("GET").arg(&key).query::<Option<String>>(&mut node.server.connection()).is_ok()
            });
            let (from, to) = (from.unwrap(), (from.unwrap() + 1) % 3);
            every_node_is_known(&cluster, &store).await;
            store.insert(&ticket, b"one", MINUTE, Room::Free).await.unwrap();
            let mut moving = cluster.moving(from, to);
            moving.begin(slot);
            assert_eq!(moving.carry(slot, 100), 1);
            if name == "moved" {
                moving.end(slot);
            }
            let monitors: Vec<_> = cluster.nodes[..3].iter().map(|node| node.server.monitor()).collect();
            every_verb(&store, &ticket).await;
            let mut names = executed(&monitors, &key);
            // A script that the server has not loaded is sent with its text.
            names.retain(|name| name != "EVALSHA" && name != "EVAL");
            let commands = cluster.nodes[0].server.compare_commands();
            // The lookup after a native command that changed nothing.
            let looks = usize::from(commands.remove != "EVALSHA");
            let mut expected =
                [vec!["GET"; 1 + looks], vec!["SET"; 2], vec![commands.remove; 3], vec![commands.swap]].concat();
            expected.retain(|name| *name != "EVALSHA");
            expected.sort_unstable();
            assert_eq!(names, expected, "{name}");
            if name == "asked" {
                moving.end(slot);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slot_migration_accepts_and_runs_nothing_twice() {
    let cluster = Arc::new(RedisCluster::start().await);
    let tally = Arc::new(Tally::default());
    let (is_over, keys_run) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut callers = JoinSet::new();
    for caller in 0..4 {
        let guard = Guard::new(Redis::open(&cluster.address()).unwrap().timeout(PATIENT));
        let (tally, is_over, keys_run) = (Arc::clone(&tally), Arc::clone(&is_over), Arc::clone(&keys_run));
        callers.spawn(async move {
            let mut number = 0;
            while !is_over.load(Ordering::SeqCst) {
                number += 1;
                let tokens = join_all((0..8).map(|_| guard.issue(MINUTE, Binding::none()))).await;
                for (number, token) in tokens.into_iter().enumerate() {
                    let token = token.expect("slots in migration still serve");
                    let present = async || present(&guard, token.as_str(), &Presentation::by(number)).await;
                    for told in <[TokenOutcome; 3]>::from(tokio::join!(present(), present(), present())) {
                        tally.note(token.as_str(), told);
                    }
                }
                let key = Key::of_parts(["caller", &caller.to_string(), &number.to_string()]).unwrap();
                let intent = Intent::new("a", Subject::anonymous()).key(&key);
                let policy = Policy::key(KeyRules::retryable());
                let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("a new key runs") };
                pass.complete(None).await.unwrap();
                let again = guard.check(&policy, &intent).await.unwrap();
                assert!(!matches!(again, Verdict::Run(_)), "the key has run");
                keys_run.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let moved = u16::try_from(times(1_000, 5_461)).unwrap();
    let resharding = Arc::clone(&cluster);
    spawn_blocking(move || resharding.reshard(0, 1, 0..=moved - 1)).await.unwrap();
    is_over.store(true, Ordering::SeqCst);
    callers.join_all().await;
    println!("{moved} slots moved: {tally}, {} keys", keys_run.load(Ordering::SeqCst));
    tally.is_clean();
    assert!(tally.count(TokenOutcome::Accepted) > 100 && keys_run.load(Ordering::SeqCst) > 10);
    assert!(
        tally.count(TokenOutcome::Stale) < tally.count(TokenOutcome::Accepted) / 4,
        "few are issued during a migration: {tally}"
    );
    assert_eq!((tally.count(TokenOutcome::Unknown), tally.count(TokenOutcome::NotExecuted)), (0, 0), "{tally}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn token_of_a_moved_slot_is_stale_not_used() {
    let cluster = RedisCluster::start().await;
    for number in 0..3 {
        let prefix = format!("p{number}");
        let guard = Guard::new(Redis::open(&cluster.address()).unwrap().prefix(&prefix).timeout(PATIENT));
        let token = guard.issue(MINUTE, Binding::none()).await.unwrap();
        let is_token = |key: &String| key.starts_with(&prefix) && !key.contains(":secret:");
        let keys = |node: usize| cluster.nodes[node].server.keys().into_iter().find(is_token);
        let (from, key) = (0..3).find_map(|node| Some((node, keys(node)?))).expect("one node has the key");
        let slot = cluster.slot(&key);
        cluster.reshard(from, (from + 1) % 3, slot..=slot);
        for _ in 0..2 {
            assert_eq!(
                present(&guard, token.as_str(), &Presentation::by(number)).await,
                TokenOutcome::Stale,
                "{number}"
            );
        }
        // Once the client knows the new slot owners, new tokens are no longer stale.
        let gets_through = || async {
            let tokens = join_all((0..20).map(|_| guard.issue(MINUTE, Binding::none()))).await;
            let told = join_all(tokens.iter().flatten().map(|token| redeem(&guard, token.as_str()))).await;
            told.iter().filter(|told| **told == TokenOutcome::Accepted).count() == 20
        };
        until("all tokens are accepted", BACK, gets_through).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn used_token_stays_used_after_a_cluster_failover() {
    let mut cluster = RedisCluster::start().await;
    let mut both = GuardPair::on(&cluster.address());
    for round in 0..times(1, 30) {
        until("the cluster serves", BACK, || both.pinned.gets_through()).await;
        both.issue(30).await;
        let master = cluster.masters()[round % 3];
        let replica = cluster.replica_of(master);
        cluster.nodes[master].replicated().await;
        until("the replica is in sync", MINUTE, || async {
            cluster.nodes[master].server.ask::<i64>("DBSIZE") == cluster.nodes[replica].server.ask::<i64>("DBSIZE")
        })
        .await;
        cluster.nodes[master].cut_off().await;
        both.everybody(2).join_all().await;
        cluster.nodes[master].server.kill();
        let serves =
            |number: usize| cluster.nodes[number].server.ask::<String>("CLUSTER INFO").contains("cluster_state:ok");
        let serve =
            || async { cluster.nodes[replica].is_master() && (0..6).filter(|number| *number != master).all(serves) };
        until("the cluster serves again", MINUTE, serve).await;
        // Every slot, including those that were lost.
        for _ in 0..10 {
            both.is_back().await;
        }
        both.everybody(2).join_all().await;
        cluster.nodes[master].proxy.mend();
        cluster.nodes[master].server.restart();
        cluster.settled().await;
    }
    both.judge("failovers in a cluster");
}

/// Only the master of a token's slot determines the token's epoch, also after its connection was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn token_is_not_stale_after_a_lost_connection() {
    let cluster = RedisCluster::start().await;
    let guard = Guard::new(Redis::open(&cluster.address()).unwrap().timeout(PATIENT));
    until("the cluster serves", BACK, || issues(&guard)).await;
    let mut accepted = 0;
    for round in 0..100 {
        cluster.nodes[round % 3].proxy.reset();
        let tokens = join_all((0..8).map(|_| guard.issue(MINUTE, Binding::none()))).await;
        for token in tokens.into_iter().flatten() {
            let told = redeem(&guard, token.as_str()).await;
            assert_ne!(told, TokenOutcome::Stale, "no epoch has ended");
            accepted += usize::from(told == TokenOutcome::Accepted);
        }
    }
    assert!(accepted > 100, "{accepted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn store_follows_a_failover_and_a_killed_master() {
    let mut cluster = RedisCluster::start().await;
    let store = Redis::open(&cluster.address()).unwrap().timeout(PATIENT);
    let tickets: Vec<_> = (0..30_u8).map(|number| Ticket::of(Kind::Key, &[number])).collect();
    let all_are_answered = || async {
        join_all(tickets.iter().map(|ticket| store.insert(ticket, b"x", MINUTE, Room::Free)))
            .await
            .iter()
            .all(Result::is_ok)
    };
    until("the cluster serves", PATIENT, all_are_answered).await;
    // First a manual failover, then a crash.
    cluster.fail_over(cluster.replica_of(0)).await;
    until("the cluster serves after the failover", PATIENT, all_are_answered).await;
    let replica = cluster.replica_of(1);
    cluster.nodes[1].server.kill();
    until("its replica takes over", MINUTE, || async { cluster.nodes[replica].is_master() }).await;
    until("the cluster serves after the crash", Duration::from_secs(10), all_are_answered).await;
}

/// With a long timeout, a waiting command succeeds as soon as there is a new master.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_command_moves_on_to_the_new_master() {
    let mut cluster = RedisCluster::start().await;
    let store = Redis::open(&cluster.address()).unwrap().timeout(MINUTE);
    let tickets: Vec<_> = (0..30_u8).map(|number| Ticket::of(Kind::Key, &[number])).collect();
    for ticket in &tickets {
        store.insert(ticket, b"x", MINUTE, Room::Free).await.unwrap();
    }
    cluster.nodes[0].replicated().await;
    cluster.nodes[0].server.kill();
    let begun = Instant::now();
    // Commands sent before the client notices the broken connection fail with it.
    let answered = join_all(tickets.iter().map(async |ticket| {
        loop {
            match store.look(ticket).await {
                Err(StoreError::Unknown(_)) => sleep(Duration::from_millis(10)).await,
                other => return other,
            }
        }
    }));
    for answer in answered.await {
        assert_eq!(answer.unwrap().as_deref(), Some(&b"x"[..]));
    }
    assert!(begun.elapsed() < MINUTE / 2, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rejecting_nodes_get_backoff_and_one_warning() {
    let redis = RedisServer::start_with(&["--requirepass", "right"]);
    let (proxy, ledger) = (Proxy::before(redis.port()).await, Ledger::new());
    // The second node does not exist, which is the less useful error.
    let address = format!("redis+cluster://:wrong@127.0.0.1:{},127.0.0.1:{}", proxy.port(), free_port());
    let log = ledger.path().with_extension("log");
    let (begun, peer) = (Instant::now(), Peer::start_logging(PEER, "onceward", &address, &ledger, &log));
    while begun.elapsed() < Duration::from_secs(2) {
        assert_eq!(ask_token(&peer.url, "").await.said(), "503 store_unavailable");
    }
    let (made, took) = (proxy.accepted(), begun.elapsed());
    drop(peer);
    // Backoff from 10 to 500 ms, jittered down to one half: seven connections in the first 565 ms, then four a second.
    let most = 8 + (4.0 * took.as_secs_f64()) as usize;
    assert!((3..=most).contains(&made), "{made} connections in {took:?}");
    let log = std::fs::read_to_string(log).unwrap();
    let told: Vec<_> = log.lines().filter(|line| line.contains("rejects the password")).collect();
    assert!(told.len() == 1 && told[0].contains("WARN"), "{log}");

    let store = Redis::open(&address).unwrap();
    let error = store.look(&Ticket::of(Kind::Key, b"x")).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::NotExecuted(why) if why.to_string().contains("rejects the password")),
        "{error}"
    );
}

/// Slots of other masters still serve, and commands for the frozen one fail within the timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn frozen_master_delays_only_its_own_slots() {
    let cluster = RedisCluster::start().await;
    // Shorter than the node timeout of the cluster.
    let store = Redis::open(&cluster.address()).unwrap().timeout(TIMEOUT);
    let tickets: Vec<_> = (0..30_u8).map(|number| Ticket::of(Kind::Key, &[number])).collect();
    for ticket in &tickets {
        store.insert(ticket, b"x", MINUTE, Room::Free).await.unwrap();
    }
    let is_of_first = |ticket: &Ticket| cluster.slot(&ticket.name("onceward")) < 5_461;
    let (frozen, others): (Vec<_>, Vec<_>) = tickets.iter().partition(|ticket| is_of_first(ticket));
    let replica = cluster.replica_of(0);
    cluster.nodes[replica].server.freeze();
    cluster.nodes[0].server.freeze();
    // Before the other nodes notice: after that, no slot is served until a replica has taken over.
    let begun = Instant::now();
    let (late, well) = tokio::join!(
        join_all(frozen.iter().map(|ticket| store.look(ticket))),
        join_all(others.iter().map(|ticket| store.look(ticket)))
    );
    let took = begun.elapsed();
    cluster.nodes[0].server.thaw();
    cluster.nodes[replica].server.thaw();
    assert!(took < IN_TIME, "{took:?}");
    assert!(late.iter().all(Result::is_err) && !late.is_empty());
    assert!(well.iter().all(Result::is_ok) && !well.is_empty(), "{well:?}");
    cluster.settled().await;
    until("the cluster serves", BACK, || async {
        join_all(tickets.iter().map(|ticket| store.look(ticket))).await.iter().all(Result::is_ok)
    })
    .await;
}
