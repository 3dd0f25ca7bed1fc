//! The Rust SDK while a server refuses connections: a submission survives a restart, and fails at its deadline if the server stays down.

use std::time::Duration;

use onceward_client::{Error, Outcome, Response, RetryLimits};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::outlast;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::reserved_port::ReservedPort;
use onceward_tests::sdk_client::builder;
use onceward_tests::shop::ORDER;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::PEER;

/// Downtime of the server.
const RESTART: Duration = Duration::from_secs(2);

/// Sends an order with a plain token, a remembered token and a key, concurrently.
fn submit_each_way(port: &ReservedPort, deadline: Duration) -> JoinSet<(&'static str, Result<Response, Error>)> {
    let limits = RetryLimits::new().deadline(deadline);
    let (tokens, keys) = (builder().limits(limits), builder().limits(limits).with_keys());
    let (tokens, keys) = (tokens.build().unwrap(), keys.build().unwrap());
    let mut submissions = JoinSet::new();
    for (path, client) in [("/orders", tokens.clone()), ("/remembered/orders", tokens), ("/keyed/orders", keys)] {
        let submission = client.post(format!("{}{path}", port.url())).header(ORDER, path).body("tea");
        submissions.spawn(async move { (path, submission.send().await) });
    }
    submissions
}

#[tokio::test]
async fn submission_survives_a_two_second_restart_and_runs_once() {
    let (port, redis, ledger) = (ReservedPort::new(), RedisServer::start(), Ledger::new());
    let begun = Instant::now();
    let submissions = submit_each_way(&port, Duration::from_secs(10));
    outlast(RESTART).await;
    let _peer = Peer::start_at(&port, PEER, &redis.url(), &ledger);
    for (path, end) in submissions.join_all().await {
        let response = end.unwrap_or_else(|error| panic!("{path}: {error:?}"));
        assert_eq!(response.outcome(), Some(Outcome::Executed), "{path}: {response:?}");
        assert_eq!(ledger.count(path), 1, "{path}");
    }
    assert!(begun.elapsed() > RESTART, "{:?}", begun.elapsed());
    assert_eq!(ledger.runs().len(), 3);
}

#[tokio::test]
async fn dead_server_error_at_the_deadline_says_nothing_was_sent() {
    let (port, deadline, begun) = (ReservedPort::new(), Duration::from_secs(2), Instant::now());
    let mut submissions = submit_each_way(&port, deadline);
    while let Some(end) = submissions.join_next().await {
        let (path, end) = end.unwrap();
        let (error, elapsed) = (end.unwrap_err(), begun.elapsed());
        assert!(deadline <= elapsed && elapsed < deadline + Duration::from_secs(1), "{path}: {elapsed:?}");
        assert!(error.ran_nothing() && !error.is_unknown(), "{path}: {error:?}");
        assert_eq!(error.is_without_token(), path != "/keyed/orders", "{path}: {error:?}");
        for part in ["refused", "nothing was sent", "running"] {
            assert!(error.to_string().contains(part), "{path}: `{part}` is not in: {error}");
        }
    }
}
