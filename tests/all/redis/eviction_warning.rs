//! A library on a Redis that may evict records: the operator reads so in the log, once.

use std::time::Duration;

use onceward_tests::key_routes::buy;
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use serde_json::Value;

use crate::PEER;

const LONG: Duration = Duration::from_secs(10);
const WARNING: &str = "may evict records";

/// An application in a process of its own on a Redis with this policy, with the warnings of its log once it was asked for its policy.
async fn warnings_on(policy: &str) -> Vec<Value> {
    let keeps_commands = ["--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000"];
    let redis = RedisServer::start_with(&[&["--maxmemory-policy", policy], &keeps_commands[..]].concat());
    let (ledger, folder) = (Ledger::new(), tempfile::tempdir().unwrap());
    let log = folder.path().join("peer.log");
    let peer = Peer::start_logging(PEER, "onceward", &redis.url(), &ledger, &log);
    assert_eq!(buy(&peer.url, "/keyed/orders", "k", "tea").await.said(), "200 executed", "it is used all the same");
    until("it has asked", LONG, || std::future::ready(was_asked(&redis))).await;
    let read = || std::fs::read_to_string(&log).unwrap();
    if policy != "noeviction" {
        until("it is logged", LONG, || std::future::ready(read().contains(WARNING))).await;
    }
    // Each event of this request is behind what was logged before it.
    assert_eq!(buy(&peer.url, "/keyed/orders", "last", "last").await.said(), "200 executed");
    until("the last event is logged", LONG, || std::future::ready(read().matches("\"completed\"").count() == 2)).await;
    let lines = read();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["level"] == "WARN")
        .collect()
}

/// Whether somebody has asked this server for its memory, by its own list of commands.
fn was_asked(redis: &RedisServer) -> bool {
    commands(redis).contains("memory")
}

/// The commands that this server has executed.
fn commands(redis: &RedisServer) -> String {
    let commands: redis::Value = redis.ask("SLOWLOG GET 10000");
    format!("{commands:?}")
}

#[tokio::test]
async fn evicting_redis_is_warned_of_once_and_used_all_the_same() {
    let warned = warnings_on("allkeys-lru").await;
    let [line] = &warned[..] else { panic!("one warning: {warned:#?}") };
    let fields = &line["fields"];
    assert_eq!(fields["policy"], "allkeys-lru");
    let said = fields["message"].as_str().unwrap();
    assert!(said.contains(WARNING) && said.contains("noeviction"), "{said}");
}

#[tokio::test]
async fn redis_that_evicts_nothing_is_not_warned_of() {
    assert!(warnings_on("noeviction").await.is_empty());
}

#[tokio::test]
async fn service_that_is_allowed_to_run_on_an_evicting_redis_warns_once() {
    let keeps_commands = ["--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000"];
    let redis = RedisServer::start_with(&[&["--maxmemory-policy", "allkeys-lru"], &keeps_commands[..]].concat());
    let service = OncewardServer::start(&["--store", &redis.url(), "--allow-eviction"]);
    let warned = || service.log().into_iter().filter(|line| line.contains("\"WARN\"")).collect::<Vec<_>>();
    // The library would ask for the policy before it reads the replication id, which it does every second.
    let reads = || commands(&redis).matches("replication").count();
    let before = reads();
    until("the library has read it several times", LONG, || std::future::ready(reads() >= before + 5)).await;
    let lines = warned();
    assert!(lines.len() == 1 && lines[0].contains("allkeys-lru"), "{lines:#?}");
}
