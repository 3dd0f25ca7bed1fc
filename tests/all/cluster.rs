//! Redis Cluster: redirects are followed, nothing is executed twice, and a token that was used does not come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use onceward::store::laws::Laws;
use onceward::store::{Compared, Redis, Store as _};
use onceward::{Binding, Guard, Intent, Key, KeyRules, Kind, Policy, Subject, Ticket, Verdict};
use onceward_tests::client::{http, send};
use onceward_tests::redis_cluster::RedisCluster;
use onceward_tests::redis_server::{Monitor, free_port};
use onceward_tests::service::{OncewardServer, run};
use onceward_tests::shop::Shop;
use onceward_tests::tally::{How, Tally, Told, present, times};
use onceward_tests::tour::every_policy;
use onceward_tests::wait::until;
use redis::cluster::ClusterClient;
use serde_json::json;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::Instant;

use crate::reigns::{BACK, Both};

const MINUTE: Duration = Duration::from_secs(60);
const PATIENT: Duration = Duration::from_secs(5);

async fn issues(guard: &Guard) -> bool {
    guard.issue(MINUTE, Binding::none()).await.is_ok()
}

/// A connection that an application has made for itself.
async fn of_the_application(cluster: &RedisCluster) -> redis::cluster_async::ClusterConnection {
    let nodes = cluster.nodes[..3].iter().map(|node| node.proxy.url());
    let client = ClusterClient::builder(nodes).retries(0).build().unwrap();
    client.get_async_connection().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_laws_and_every_policy_hold_on_a_cluster_however_it_is_reached() {
    let cluster = RedisCluster::start().await;
    Laws::of(Redis::open(&cluster.address()).unwrap().timeout(PATIENT)).hold().await;
    Laws::of(Redis::over_cluster(of_the_application(&cluster).await).prefix("own").timeout(PATIENT)).hold().await;
    let stores = [
        Redis::open(&cluster.address()).unwrap().prefix("a"),
        Redis::open(&cluster.list()).unwrap().prefix("b"),
        Redis::over_cluster(of_the_application(&cluster).await).prefix("c"),
    ];
    for store in stores {
        every_policy(&Shop::on(store.timeout(PATIENT))).await;
    }
    for node in &cluster.nodes[..3] {
        let keys = node.server.keys();
        assert!(!keys.is_empty(), "every master has its share");
        assert!(keys.iter().all(|key| node.server.ask::<i64>(&format!("TTL {key}")) != -1), "no key without an expiry");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_node_that_answers_is_enough_to_find_the_cluster_and_the_service_runs_on_it() {
    let cluster = RedisCluster::start().await;
    let first = format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", free_port(), cluster.nodes[4].proxy.port());
    let guard = Guard::new(Redis::open(&first).unwrap());
    until("it is found", PATIENT, || issues(&guard)).await;

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

/// How often each verb was executed with this key, on all masters together.
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

/// Does everything that can be done with a ticket, once.
async fn every_verb(store: &Redis, ticket: &Ticket) {
    assert_eq!(store.look(ticket).await.unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(store.insert(ticket, b"other", MINUTE).await.unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(store.swap(ticket, b"one", b"two", MINUTE).await.unwrap(), Compared::Done);
    assert_eq!(store.remove(ticket, b"two").await.unwrap(), Compared::Done);
    assert_eq!(store.insert(ticket, b"three", MINUTE).await.unwrap(), None);
    assert_eq!(store.take(ticket).await.unwrap().as_deref(), Some(&b"three"[..]));
    assert_eq!(store.take(ticket).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_redirect_is_followed_and_what_it_was_about_is_executed_once() {
    let cluster = RedisCluster::start().await;
    let own = Redis::over_cluster(of_the_application(&cluster).await);
    for (number, store) in [Redis::open(&cluster.address()).unwrap(), own].into_iter().enumerate() {
        let store = store.timeout(PATIENT);
        for (kind, name) in [(Kind::Key, "asked"), (Kind::Key, "moved")] {
            let ticket = Ticket::of(kind, format!("{name} {number}").as_bytes());
            let key = ticket.name("onceward");
            let slot = cluster.slot(&key);
            let from = cluster.nodes[..3].iter().position(|node| {
                redis::cmd("GET").arg(&key).query::<Option<String>>(&mut node.server.connection()).is_ok()
            });
            let (from, to) = (from.unwrap(), (from.unwrap() + 1) % 3);
            store.insert(&ticket, b"one", MINUTE).await.unwrap();
            let mut moving = cluster.moving(from, to);
            moving.begin(slot);
            assert_eq!(moving.carry(slot, 100), 1);
            if name == "moved" {
                moving.end(slot);
            }
            let monitors: Vec<_> = cluster.nodes[..3].iter().map(|node| node.server.monitor()).collect();
            every_verb(&store, &ticket).await;
            let mut names = executed(&monitors, &key);
            // A script that a server does not know is sent with its text.
            names.retain(|name| name != "EVALSHA" && name != "EVAL");
            assert_eq!(names, ["GET", "GETDEL", "GETDEL", "SET", "SET"], "{name}");
            if name == "asked" {
                moving.end(slot);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn while_slots_are_moved_no_token_is_accepted_twice_and_no_key_runs_twice() {
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
                    let token = token.expect("slots that move serve all the same");
                    let present = async || present(&guard, token.as_str(), &How::by(number)).await;
                    for told in <[Told; 3]>::from(tokio::join!(present(), present(), present())) {
                        tally.note(token.as_str(), told);
                    }
                }
                let key = Key::of_parts(["caller", &caller.to_string(), &number.to_string()]).unwrap();
                let intent = Intent::new("a", Subject::anonymous()).key(&key);
                let policy = Policy::key(KeyRules::new());
                let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("a new key runs") };
                pass.complete(None).await.unwrap();
                let again = guard.check(&policy, &intent).await.unwrap();
                assert!(!matches!(again, Verdict::Run(_)), "a key that has run");
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
    assert!(tally.count(Told::Accepted) > 100 && keys_run.load(Ordering::SeqCst) > 10);
    assert_eq!((tally.count(Told::Unknown), tally.count(Told::NotExecuted)), (0, 0), "{tally}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_token_that_was_used_is_not_brought_back_by_the_replica_of_its_slot() {
    let mut cluster = RedisCluster::start().await;
    let mut both = Both::on(&cluster.address());
    for round in 0..times(1, 30) {
        until("all is well", BACK, || both.pinned.gets_through()).await;
        both.issue(30).await;
        let master = cluster.masters()[round % 3];
        let replica = cluster.replica_of(master);
        redis::cmd("WAIT").arg(1).arg(5_000).exec(&mut cluster.nodes[master].server.connection()).unwrap();
        until("the replica has it all", MINUTE, || async {
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
        // Every slot, not just those that had not been lost.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_of_the_application_is_led_to_the_new_master_too() {
    let mut cluster = RedisCluster::start().await;
    let store = Redis::over_cluster(of_the_application(&cluster).await).timeout(PATIENT);
    let tickets: Vec<_> = (0..30_u8).map(|number| Ticket::of(Kind::Key, &[number])).collect();
    let all_are_answered = || async {
        join_all(tickets.iter().map(|ticket| store.insert(ticket, b"x", MINUTE))).await.iter().all(Result::is_ok)
    };
    until("all is well", PATIENT, all_are_answered).await;
    // In good order, and then without a word.
    cluster.fail_over(cluster.replica_of(0)).await;
    until("all is well again", PATIENT, all_are_answered).await;
    let replica = cluster.replica_of(1);
    cluster.nodes[1].server.kill();
    until("its replica takes over", MINUTE, || async { cluster.nodes[replica].is_master() }).await;
    until("all is well once more", Duration::from_secs(10), all_are_answered).await;
}

/// What belongs to the others goes on, and what belongs to the frozen one is answered in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_frozen_master_holds_up_its_own_slots_and_nobody_else_s() {
    let cluster = RedisCluster::start().await;
    let store = Redis::open(&cluster.address()).unwrap();
    let tickets: Vec<_> = (0..30_u8).map(|number| Ticket::of(Kind::Key, &[number])).collect();
    for ticket in &tickets {
        store.insert(ticket, b"x", MINUTE).await.unwrap();
    }
    let is_of_first = |ticket: &Ticket| cluster.slot(&ticket.name("onceward")) < 5_461;
    let (frozen, others): (Vec<_>, Vec<_>) = tickets.iter().partition(|ticket| is_of_first(ticket));
    let replica = cluster.replica_of(0);
    cluster.nodes[replica].server.freeze();
    cluster.nodes[0].server.freeze();
    // Before the others have noticed: then no slot is served at all, until a replica has taken over.
    let begun = Instant::now();
    let (late, well) = tokio::join!(
        join_all(frozen.iter().map(|ticket| store.look(ticket))),
        join_all(others.iter().map(|ticket| store.look(ticket)))
    );
    let took = begun.elapsed();
    cluster.nodes[0].server.thaw();
    cluster.nodes[replica].server.thaw();
    assert!(took < Duration::from_millis(900), "{took:?}");
    assert!(late.iter().all(Result::is_err) && !late.is_empty());
    assert!(well.iter().all(Result::is_ok) && !well.is_empty(), "{well:?}");
    cluster.settled().await;
    until("all is well", BACK, || async {
        join_all(tickets.iter().map(|ticket| store.look(ticket))).await.iter().all(Result::is_ok)
    })
    .await;
}
