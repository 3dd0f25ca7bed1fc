//! Abandoned claims: the gauges, the log and the command line show them until they are settled.

use std::time::Duration;

use onceward_tests::metrics::Metrics;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{OncewardServer, run};
use onceward_tests::service_calls::post;
use serde_json::{Value, json};

const LONG: Duration = Duration::from_secs(20);

async fn claim(url: &str, action: &str, lease: &str) -> Value {
    let asked = json!({"key": "k", "action": action, "subject": "alice", "lease": lease});
    let answer = post(url, "/claim", &asked).await;
    let claimed: Value = serde_json::from_slice(&answer.body).expect("a JSON object");
    assert_eq!(claimed["outcome"], "run", "{answer:?}");
    json!({"pass": claimed["pass"]})
}

/// Returns the number of open and of overdue claims.
async fn counts(url: &str) -> (f64, f64) {
    let metrics = Metrics::of(url).await;
    (metrics.sum("onceward_claims_open", &[]), metrics.sum("onceward_claims_overdue", &[]))
}

async fn until_counts(what: &str, url: &str, expected: (f64, f64)) {
    until(what, LONG, || async { counts(url).await == expected }).await;
}

#[tokio::test]
async fn abandoned_claims_are_counted_and_logged_until_they_are_settled() {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url()]));
    let [here, there] = [&services[0].url, &services[1].url];
    assert_eq!(counts(here).await, (0.0, 0.0));
    let mut passes = Vec::new();
    for number in 0..30 {
        passes.push(claim(here, &format!("abandoned {number}"), "300ms").await);
    }
    let elsewhere = claim(here, "completed at the other process", "300ms").await;
    claim(here, "in flight", "1h").await;
    assert_eq!(post(there, "/claim/complete", &elsewhere).await.status, 204);
    until_counts("the abandoned ones are overdue", here, (31.0, 30.0)).await;
    assert_eq!(counts(there).await, (0.0, 0.0), "this process has issued no claim");

    assert_eq!(post(here, "/claim/complete", &passes[0]).await.status, 204);
    assert_eq!(post(here, "/claim/release", &passes[1]).await.status, 204);
    assert_eq!(counts(here).await, (29.0, 28.0));

    // The command in each log line runs as printed.
    let line = "neither renewed nor settled its claim";
    let logged = || services[0].log().into_iter().filter(|logged| logged.contains(line)).collect::<Vec<_>>();
    until("each has a line in the log", LONG, || std::future::ready(logged().len() == 30)).await;
    let lines = logged().into_iter().map(|line| serde_json::from_str::<Value>(&line).expect("a line of JSON"));
    let last = lines.into_iter().find(|line| line["action"] == "abandoned 29").expect("its line");
    let text = last["message"].as_str().expect("a message");
    let command = text.split("onceward ").last().and_then(|rest| rest.split(" (or").next()).expect("a command");
    let arguments: Vec<_> = command.split(' ').chain(["--store", &redis.url()]).map(str::to_owned).collect();
    let output = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(output.status.success(), "{command}: {output:?}");
    until_counts("the settled one is gone", here, (28.0, 27.0)).await;
}
