//! Log lines for the operator: shutdown, store outages, requests, events, and callers without the API key.

use std::time::Duration;

use futures_util::future::join_all;
use onceward_tests::client::{http, send, token};
use onceward_tests::command_output::said;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{OncewardServer, ServiceProcess, command, run_with};
use onceward_tests::service_calls::{get, post};
use serde_json::{Value, json};
use tokio::time::Instant;

const LONG: Duration = Duration::from_secs(10);

/// Starts the service with only these arguments and a free port.
fn start(arguments: &[&str]) -> OncewardServer {
    OncewardServer::spawn(command(&[&["--listen", "127.0.0.1:0"], arguments].concat()))
}

/// Waits until this message is in the log and returns its lines.
async fn logged(service: &OncewardServer, message: &str) -> Vec<Value> {
    until(message, LONG, || std::future::ready(!service.lines(message).is_empty())).await;
    service.lines(message)
}

/// Returns the paths of the logged responses.
fn answered(service: &OncewardServer) -> Vec<String> {
    let paths = service.lines("answered").into_iter().map(|line| line["path"].as_str().unwrap().to_owned());
    paths.collect()
}

fn warnings(service: &OncewardServer) -> Vec<String> {
    service.log().into_iter().filter(|line| line.contains("\"WARN\"") || line.contains("\"ERROR\"")).collect()
}

#[tokio::test]
async fn graceful_shutdown_logs_signal_drain_and_end() {
    let mut service = start(&["--last-call", "50ms", "--drain-limit", "7s"]);
    service.terminate();
    until("it ends", LONG, || std::future::ready(service.ended() == Some(0))).await;
    let stopped = logged(&service, "the server has stopped").await;
    let only = |message: &str| {
        let lines = service.lines(message);
        assert_eq!((lines.len(), &lines[0]["level"]), (1, &"INFO".into()), "{message}: {:#?}", service.log());
        lines[0].clone()
    };
    assert_eq!(only("signal received")["signal"], "SIGTERM");
    assert_eq!(only("graceful shutdown started")["last_call"], "50ms");
    let begun = only("drain started");
    assert_eq!((&begun["in_flight"], &begun["drain_limit"]), (&0.into(), &"7s".into()));
    assert!(only("drain ended")["took_ms"].is_u64());
    assert_eq!(stopped.len(), 1);
    assert!(warnings(&service).is_empty(), "{:#?}", service.log());
}

#[tokio::test]
async fn second_signal_logs_a_warning() {
    let mut service = start(&["--last-call", "1h"]);
    service.terminate();
    logged(&service, "graceful shutdown started").await;
    service.terminate();
    until("it ends", LONG, || std::future::ready(service.ended() == Some(0))).await;
    let warned = logged(&service, "second signal received").await;
    assert_eq!((&warned[0]["level"], &warned[0]["signal"]), (&"WARN".into(), &"SIGTERM".into()));
    assert!(service.lines("drain started").is_empty(), "{:#?}", service.log());
}

/// Redis is killed and restarted under load: the log has few lines about it and counts the other failures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_outage_logs_one_warning_and_one_recovery() {
    let mut redis = RedisServer::start();
    let service = start(&["--store", &redis.url()]);
    let ask = async || {
        let statuses = (0..20).map(|_| async { post(&service.url, "/token", &json!({})).await.status });
        join_all(statuses).await
    };
    assert_eq!(ask().await, [201; 20]);
    redis.kill();
    let (mut failed, killed) = (0, Instant::now());
    while killed.elapsed() < Duration::from_secs(2) {
        failed += ask().await.into_iter().filter(|status| *status == 503).count();
    }
    let away = service.lines("the store does not answer");
    assert_eq!((away.len(), warnings(&service).len()), (1, 1), "{:#?}", service.log());
    assert!(failed > 20 && away[0]["error"].is_string() && away[0]["span"]["id"].is_string(), "{failed} {away:?}");
    redis.restart();
    let is_back = || async {
        ask().await;
        !service.lines("the store answers again").is_empty()
    };
    until("the store is back", LONG, is_back).await;
    let back = service.lines("the store answers again");
    assert_eq!((back.len(), &back[0]["level"]), (1, &"INFO".into()));
    let (away_ms, counted) = (back[0]["away_ms"].as_u64().unwrap(), back[0]["failed_requests"].as_u64().unwrap());
    assert!((1_500..20_000).contains(&away_ms), "{back:?}");
    assert!(counted >= failed as u64, "{counted} of {failed}");
    assert_eq!(warnings(&service).len(), 1, "{:#?}", service.log());
}

#[tokio::test]
async fn full_redis_logs_one_warning_and_no_outage() {
    let redis = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    let service = start(&["--store", &redis.url()]);
    assert_eq!(post(&service.url, "/token", &json!({})).await.status, 201);
    redis.ask::<()>("CONFIG SET maxmemory 1");
    for _ in 0..20 {
        assert_eq!(post(&service.url, "/token", &json!({})).await.status, 503);
    }
    let warned = logged(&service, "the store answers, but a command failed").await;
    assert!(warned.len() == 1 && warned[0]["error"].as_str().unwrap().contains("OOM"), "{warned:?}");
    assert_eq!(warnings(&service).len(), 1, "{:#?}", service.log());
    assert!(service.lines("answers again").is_empty());
}

/// Sends requests that succeed, one that is rejected, and one to an unknown path.
async fn ask_well_and_badly(service: &OncewardServer) {
    let url = &service.url;
    let spent = token(url).await;
    let redeem = async || post(url, "/token/redeem", &json!({ "token": spent })).await.said();
    assert_eq!((redeem().await, redeem().await), ("200 redeemed".into(), "409 token_used".into()));
    assert_eq!(post(url, "/claim", &json!({"key": "", "action": "pay", "subject": "alice"})).await.status, 400);
    assert_eq!(get(url, "/nowhere").await.status, 404);
    assert_eq!(get(url, "/healthz").await.status, 200);
}

#[tokio::test]
async fn errors_are_logged_with_code_and_policy_without_a_terminal() {
    for arguments in [&[][..], &["--request-log", "auto"], &["--request-log", "errors"]] {
        let service = start(arguments);
        ask_well_and_badly(&service).await;
        until("the last error is logged", LONG, || std::future::ready(answered(&service).len() == 3)).await;
        let lines = service.lines("answered");
        let told = |name: &str| lines.iter().map(|line| line[name].clone()).collect::<Vec<_>>();
        assert_eq!(told("path"), ["/token/redeem", "/claim", "/nowhere"]);
        assert_eq!(told("code"), ["token_used", "key_malformed", "not_found"]);
        assert_eq!(told("policy"), [Value::from("token"), "key".into(), Value::Null]);
        assert_eq!(told("status"), [409, 400, 404]);
    }
}

#[tokio::test]
async fn request_log_has_every_response_or_none() {
    let all = start(&["--request-log", "all"]);
    ask_well_and_badly(&all).await;
    until("the last response is logged", LONG, || std::future::ready(answered(&all).len() == 6)).await;
    let issued = &all.lines("answered")[0];
    assert_eq!(
        (&issued["path"], &issued["policy"], &issued["code"]),
        (&"/token".into(), &"token".into(), &Value::Null)
    );
    let quiet = start(&["--request-log", "off", "--api-key", "a-key-of-the-backends"]);
    for _ in 0..3 {
        assert_eq!(get(&quiet.url, "/nowhere").await.status, 404);
    }
    // A later line is logged, so earlier ones are not merely delayed.
    assert_eq!(post(&quiet.url, "/claim", &json!({})).await.status, 401);
    logged(&quiet, "without the API key").await;
    assert_eq!(answered(&quiet), [""; 0]);
}

#[tokio::test]
async fn audit_finds_abandoned_run_in_an_errors_only_log() {
    let redis = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onceward.log");
    let log = || std::fs::File::options().create(true).append(true).open(&path).unwrap().into();
    let arguments = ["--store", &redis.url(), "--log", "json", "--log-level", "error"];
    let service = ServiceProcess::start(&arguments, &[], log(), log());
    let asked = json!({"key": "k", "action": "pay", "subject": "alice", "lease": "500ms"});
    assert_eq!(post(&service.url, "/claim", &asked).await.status, 200);
    assert_eq!(get(&service.url, "/nowhere").await.status, 404);
    let read = || std::fs::read_to_string(&path).unwrap();
    until("the event is logged", LONG, || std::future::ready(read().contains("\"claimed\""))).await;
    let written = read();
    let lines: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["event"].is_string()), "only events: {written}");
    let (code, text) = said(&run_with(&["audit", "--wait", "--store", &redis.url()], &written));
    assert!(code == 1 && text.contains("1 claim(s) whose owner is gone") && text.contains("  pay\n"), "{text}");
}

#[tokio::test]
async fn missing_api_key_logs_one_warning_per_ten_seconds() {
    let service = start(&["--api-key", "a-key-of-the-backends"]);
    for _ in 0..20 {
        let wrong = http().post(format!("{}/token/redeem", service.url)).bearer_auth("canary-wrong");
        assert_eq!(send(wrong).await.status, 401);
        assert_eq!(post(&service.url, "/claim", &json!({})).await.status, 401);
    }
    let warned = logged(&service, "without the API key").await;
    let line = &warned[0];
    assert_eq!((warned.len(), warnings(&service).len()), (1, 1), "{:#?}", service.log());
    assert_eq!((&line["key"], &line["path"]), (&"wrong".into(), &"/token/redeem".into()));
    assert_eq!((&line["peer"], &line["suppressed"]), (&"127.0.0.1".into(), &0.into()));
    assert!(!service.log().concat().contains("canary"), "{:#?}", service.log());
    // A browser that fetches a token needs no key.
    let open = start(&["--api-key", "a-key-of-the-backends"]);
    token(&open.url).await;
    assert_eq!(get(&open.url, "/nowhere").await.status, 404);
    logged(&open, "answered").await;
    assert!(warnings(&open).is_empty(), "{:#?}", open.log());
}
