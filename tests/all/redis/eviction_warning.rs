//! The library on a Redis that may evict records logs one warning for the operator.

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

/// Runs an application in its own process on a Redis with this policy, and returns its warnings after it has read the policy.
async fn warnings_on(policy: &str) -> Vec<Value> {
    let keeps_commands = ["--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000"];
    let redis = RedisServer::start_with(&[&["--maxmemory-policy", policy], &keeps_commands[..]].concat());
    let (ledger, folder) = (Ledger::new(), tempfile::tempdir().unwrap());
    let log = folder.path().join("peer.log");
    let peer = Peer::start_logging(PEER, "onceward", &redis.url(), &ledger, &log);
    assert_eq!(buy(&peer.url, "/keyed/orders", "k", "tea").await.said(), "200 executed", "the store is still used");
    until("the policy was read", LONG, || std::future::ready(was_asked(&redis))).await;
    let read = || std::fs::read_to_string(&log).unwrap();
    if policy != "noeviction" {
        until("the warning is logged", LONG, || std::future::ready(read().contains(WARNING))).await;
    }
    // The log is in order, so the events of this request follow any earlier warning.
    assert_eq!(buy(&peer.url, "/keyed/orders", "last", "last").await.said(), "200 executed");
    until("the last event is logged", LONG, || std::future::ready(read().matches("\"completed\"").count() == 2)).await;
    let lines = read();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["level"] == "WARN")
        .collect()
}

/// True if a client has sent `INFO memory` to this server.
fn was_asked(redis: &RedisServer) -> bool {
    commands(redis).contains("memory")
}

/// The commands that this server has executed.
fn commands(redis: &RedisServer) -> String {
    let commands: redis::Value = redis.ask("SLOWLOG GET 10000");
    format!("{commands:?}")
}

#[tokio::test]
async fn evicting_redis_is_used_with_one_warning() {
    let warned = warnings_on("allkeys-lru").await;
    let [line] = &warned[..] else { panic!("one warning: {warned:#?}") };
    let fields = &line["fields"];
    assert_eq!(fields["policy"], "allkeys-lru");
    let said = fields["message"].as_str().unwrap();
    assert!(said.contains(WARNING) && said.contains("noeviction"), "{said}");
}

#[tokio::test]
async fn redis_without_eviction_logs_no_warning() {
    assert!(warnings_on("noeviction").await.is_empty());
}

#[tokio::test]
async fn service_allowed_on_an_evicting_redis_warns_once() {
    let keeps_commands = ["--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000"];
    let redis = RedisServer::start_with(&[&["--maxmemory-policy", "allkeys-lru"], &keeps_commands[..]].concat());
    let service = OncewardServer::start(&["--store", &redis.url(), "--allow-eviction"]);
    let warned = || service.log().into_iter().filter(|line| line.contains("\"WARN\"")).collect::<Vec<_>>();
    // The library would ask for the policy before it reads the replication id, which it does every second.
    let reads = || commands(&redis).matches("replication").count();
    let before = reads();
    until("the library has read the replication id several times", LONG, || std::future::ready(reads() >= before + 5))
        .await;
    let lines = warned();
    assert!(lines.len() == 1 && lines[0].contains("allkeys-lru"), "{lines:#?}");
}
