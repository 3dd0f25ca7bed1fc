//! Operating the service: health checks, logs, shutdown, and several processes on one Redis.

use std::fs::File;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::polling::{until, until_blocking};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{OncewardServer, ServiceProcess};
use onceward_tests::service_calls::get;
use onceward_tests::service_calls::post;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::service::graceful_shutdown::{STOPS, rounds};

const SECOND: Duration = Duration::from_secs(1);

async fn redeem(url: &str, token: &str) -> String {
    post(url, "/token/redeem", &json!({ "token": token })).await.said()
}

#[tokio::test]
async fn service_is_ready_only_while_the_store_answers() {
    let mut redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url()]);
    let url = &service.url;
    assert_eq!((get(url, "/healthz").await.status, get(url, "/readyz").await.status), (200, 200));
    redis.kill();
    until("the service is not ready", 5 * SECOND, || async { get(url, "/readyz").await.status == 503 }).await;
    let answer = get(url, "/readyz").await;
    assert_eq!(
        (answer.said().as_str(), &answer.headers["retry-after"]),
        ("503 store_unavailable", &"1".parse().unwrap())
    );
    assert!(!answer.problem().detail.contains("127.0.0.1"), "the address of the store is not shown: {answer:?}");
    assert_eq!(get(url, "/healthz").await.status, 200);
    let refused = post(url, "/token", &json!({})).await;
    assert_eq!((refused.said().as_str(), refused.headers.contains_key("retry-after")), ("503 store_unavailable", true));
    redis.restart();
    until("the service is ready again", 5 * SECOND, || async { get(url, "/readyz").await.status == 200 }).await;
    let fresh = token(url).await;
    assert_eq!(redeem(url, &fresh).await, "200 redeemed");
}

/// Readiness checks need no key and have no rate limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_checks_share_one_store_command() {
    let redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url()]);
    let monitor = redis.monitor();
    let begun = Instant::now();
    let mut all = JoinSet::new();
    for _ in 0..200 {
        let url = service.url.clone();
        all.spawn(async move { get(&url, "/readyz").await.status });
    }
    assert_eq!(all.join_all().await, [200; 200]);
    let most = begun.elapsed().as_millis() / 200 + 2;
    let asked = monitor.commands().iter().filter(|command| command.contains("\"PX\" \"1\"")).count();
    assert!((1..=most).contains(&(asked as u128)), "{asked} times within {:?}", begun.elapsed());
}

#[tokio::test]
async fn request_log_has_the_response_id_and_no_query() {
    let service = OncewardServer::start(&[]);
    let mut ids = Vec::new();
    let too_long = "0".repeat(129);
    for (path, given) in [
        ("/token?_onceward=canary", None),
        ("/healthz?canary", None),
        ("/nowhere?x=canary#canary", None),
        ("/token/redeem?token=canary", Some("my-own-id-4711")),
        ("/docs/?canary=1", Some("not an id")),
        ("/docs?canary=1", Some("a\"b")),
        ("/problems/token_used?canary=1", Some("")),
        ("/readyz?canary", Some(too_long.as_str())),
    ] {
        let request = http().get(format!("{}{path}", service.url));
        let answer = send(given.into_iter().fold(request, |request, id| request.header("x-request-id", id))).await;
        let id = answer.headers["x-request-id"].to_str().unwrap().to_owned();
        assert_eq!(given == Some(id.as_str()), given == Some("my-own-id-4711"), "{given:?}: {id}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("canary"), "{path}");
        ids.push((id, path.split(['?', '#']).next().unwrap().to_owned()));
    }
    // Bytes that are not HTTP are not logged either.
    let address = service.url.trim_start_matches("http://");
    for garbage in
        ["GET /?canary HTTP/9.9\r\n\r\n", "canary\r\n\r\n", "GET /?canary HTTP/1.1\r\ncan ary: canary\r\n\r\n"]
    {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(garbage.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(SECOND, stream.read_to_end(&mut answer)).await;
        assert!(String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 400"), "{answer:?}");
    }
    let is_logged = |id: &str| service.log().iter().any(|line| line.contains(id));
    let last = &ids.last().unwrap().0;
    until("the last request is logged", 5 * SECOND, || std::future::ready(is_logged(last))).await;
    let log = service.log();
    for line in &log {
        assert!(serde_json::from_str::<Value>(line).is_ok_and(|line| line.is_object()), "{line}");
        assert!(!line.contains("canary"), "{line}");
    }
    for (id, path) in &ids {
        let own: Vec<Value> =
            log.iter().filter(|line| line.contains(id)).map(|line| serde_json::from_str(line).unwrap()).collect();
        // The redirect from /docs to /docs/ gets its own id.
        assert_eq!(own.len(), 1, "{path}: {own:?}");
        assert_eq!(own[0]["span"]["id"], id.as_str(), "{own:?}");
        assert!(own[0]["path"].as_str().unwrap().starts_with(path.as_str()), "{own:?}");
        assert!(own[0]["status"].is_u64() && own[0]["method"] == "GET" && own[0]["timestamp"].is_string(), "{own:?}");
    }
}

#[tokio::test]
async fn log_line_has_its_request_id_at_every_level() {
    let mut redis = RedisServer::start();
    let log = NamedTempFile::new().unwrap();
    let appended = || File::options().append(true).open(log.path()).unwrap().into();
    let arguments = ["--store", &redis.url(), "--log", "json", "--log-level", "warn"];
    let service = ServiceProcess::start(&arguments, &[], appended(), appended());
    get(&service.url, "/healthz").await;
    redis.kill();
    let id = tokio::sync::OnceCell::new();
    let is_not_ready = || async {
        let answer = get(&service.url, "/readyz").await;
        // The first failure is logged, and those shortly after it are counted.
        answer.status == 503 && id.set(answer.headers["x-request-id"].to_str().unwrap().to_owned()).is_ok()
    };
    until("the service is not ready", 5 * SECOND, is_not_ready).await;
    let id = id.into_inner().unwrap();
    let said = || std::fs::read_to_string(log.path()).unwrap();
    until("the failure is logged", 5 * SECOND, || std::future::ready(said().contains(&id))).await;
    let said = said();
    assert!(
        said.contains("the store does not answer") && !said.contains("INFO") && !said.contains("answered"),
        "{said}"
    );
}

/// Requests tokens on one connection until a response closes it. Every request must get a response.
async fn keep_asking(address: String, answered: Arc<AtomicUsize>) -> Result<(), String> {
    let stream = TcpStream::connect(address).await.map_err(|error| format!("connecting: {error}"))?;
    let mut stream = BufReader::new(stream);
    for number in 0.. {
        let lost = |what: &str| format!("request {number}: {what}");
        let request = b"POST /token HTTP/1.1\r\nhost: onceward\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(request).await.map_err(|error| lost(&error.to_string()))?;
        let (mut length, mut is_last, mut status) = (0, false, String::new());
        loop {
            let mut line = String::new();
            let read = stream.read_line(&mut line).await.map_err(|error| lost(&error.to_string()))?;
            if read == 0 {
                return Err(lost("no answer"));
            }
            let line = line.trim_end().to_lowercase();
            if line.is_empty() {
                break;
            }
            if status.is_empty() {
                status = line;
            } else if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().map_err(|_| lost("a length"))?;
            } else if line == "connection: close" {
                is_last = true;
            }
        }
        if status != "http/1.1 201 created" {
            return Err(lost(&status));
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.map_err(|error| lost(&error.to_string()))?;
        answered.fetch_add(1, Ordering::SeqCst);
        if is_last {
            return Ok(());
        }
    }
    Ok(())
}

/// Stops a service under load. No request may be lost.
async fn stop_under_load(store: String, after: usize) -> Result<(), String> {
    let arguments = ["--store", &store, "--rate-limit", "off", "--rate-limit-total", "off"];
    let mut service = tokio::task::block_in_place(|| OncewardServer::start(&arguments));
    let answered = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        let address = service.url.trim_start_matches("http://").to_owned();
        clients.spawn(keep_asking(address, Arc::clone(&answered)));
    }
    until("the service is under load", 10 * SECOND, || std::future::ready(answered.load(Ordering::SeqCst) >= after))
        .await;
    service.terminate();
    for client in clients.join_all().await {
        client?;
    }
    let mut code = None;
    until("it ends", 20 * SECOND, || {
        code = service.ended();
        std::future::ready(code.is_some())
    })
    .await;
    if code == Some(0) { Ok(()) } else { Err(format!("the service exited with {code:?}: {:#?}", service.log().last())) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_shutdowns_under_load_lose_no_request() {
    let redis = RedisServer::start();
    for (number, round) in rounds().into_iter().enumerate() {
        let mut stops = JoinSet::new();
        for (after, store) in round.into_iter().zip(["memory:".to_owned(), redis.url()].into_iter().cycle()) {
            stops.spawn(stop_under_load(store, after));
        }
        for stopped in stops.join_all().await {
            assert_eq!(stopped, Ok(()), "round {number}");
        }
    }
    println!("{STOPS} shutdowns under load over keep-alive connections: no request lost");
}

#[tokio::test]
async fn service_is_not_ready_during_shutdown() {
    let mut service = OncewardServer::start(&[]);
    let client = http();
    let ready = || client.get(format!("{}/readyz", service.url));
    assert_eq!(send(ready()).await.status, 200);
    service.terminate();
    let mut seen = Vec::new();
    for _ in 0..100 {
        let Ok(answer) = ready().send().await else { break };
        seen.push(Answer::of(answer).await.said());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(seen.contains(&"503 overloaded".to_owned()), "{seen:?}");
    assert!(seen.iter().skip_while(|said| said.as_str() == "200 ").all(|said| said == "503 overloaded"), "{seen:?}");
    assert!(until_blocking(10 * SECOND, || service.ended().is_some()));
    assert_eq!(service.ended(), Some(0));
}

#[tokio::test]
async fn services_on_one_store_redeem_each_others_tokens() {
    let redis = RedisServer::start();
    let [one, two] = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url()]));
    for (issuer, redeemer) in [(&one, &two), (&two, &one)] {
        let token = token(&issuer.url).await;
        assert_eq!(redeem(&redeemer.url, &token).await, "200 redeemed");
        for service in [&one, &two] {
            assert_eq!(redeem(&service.url, &token).await, "409 token_used");
        }
    }
    let old = [token(&one.url).await, token(&two.url).await];
    redis.ask::<String>("FLUSHALL");
    for token in &old {
        for service in [&one, &two] {
            let said = redeem(&service.url, token).await;
            assert!(["409 token_used", "410 token_stale"].contains(&said.as_str()), "{said}");
        }
    }
    for (issuer, redeemer) in [(&one, &two), (&two, &one), (&one, &one)] {
        let token = token(&issuer.url).await;
        assert_eq!(redeem(&redeemer.url, &token).await, "200 redeemed");
        assert_eq!(redeem(&issuer.url, &token).await, "409 token_used");
    }
}

#[tokio::test]
async fn services_agree_on_the_secret_within_one_refresh() {
    let redis = RedisServer::start();
    let often = ["--store", &redis.url(), "--share-every", "200ms"];
    let [one, two] = [(); 2].map(|()| OncewardServer::start(&often));
    // A process that does not refresh during this test, to see the state before a refresh.
    let late = OncewardServer::start(&["--store", &redis.url(), "--share-every", "1h"]);
    let mut before = Vec::new();
    for service in [&one, &two, &late] {
        before.push(token(&service.url).await);
    }
    // Paused, so that they do not restore the secret before the third process starts.
    one.freeze();
    two.freeze();
    let secrets: Vec<String> = redis.keys().into_iter().filter(|key| key.contains(":secret:")).collect();
    assert_eq!(secrets.len(), 1, "{secrets:?}");
    redis.ask::<usize>(&format!("DEL {}", secrets[0]));
    let third = OncewardServer::start(&["--store", &redis.url()]);
    let foreign = token(&third.url).await;
    assert_eq!(redeem(&late.url, &foreign).await, "403 token_invalid");
    assert_eq!(redeem(&third.url, &before[2]).await, "403 token_invalid");
    let fresh = token(&late.url).await;
    assert_eq!(redeem(&third.url, &fresh).await, "403 token_invalid");
    assert_eq!(redeem(&late.url, &fresh).await, "200 redeemed", "the token was not used");
    one.thaw();
    two.thaw();

    for service in [&one, &two] {
        let from_third = token(&third.url).await;
        until("the process accepts tokens of the third", 5 * SECOND, || async {
            let said = redeem(&service.url, &from_third).await;
            assert!(["200 redeemed", "403 token_invalid"].contains(&said.as_str()), "{said}");
            said == "200 redeemed"
        })
        .await;
        let to_third = token(&service.url).await;
        assert_eq!(redeem(&third.url, &to_third).await, "200 redeemed", "it signs with the third's secret now");
    }
    for (service, token) in [(&one, &before[1]), (&two, &before[0]), (&two, &before[2])] {
        assert_eq!(redeem(&service.url, token).await, "200 redeemed", "tokens signed before are still valid");
    }
    assert_eq!(redeem(&third.url, &foreign).await, "200 redeemed", "the rejection elsewhere has not used the token");
}

/// Returns the number of forged tokens; `make forged` sends many more than `make test`.
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
fn forged(usual: usize) -> usize {
    std::env::var("FORGED").map_or(usual, |forged| forged.parse().expect("FORGED is a number"))
}

/// Returns the count of each command, without those of this test.
fn commands(redis: &RedisServer) -> Vec<String> {
    let own = ["cmdstat_info", "cmdstat_client", "cmdstat_hello", "cmdstat_monitor", "cmdstat_echo", "cmdstat_command"];
    let info: String = redis.ask("INFO commandstats");
    let lines = info.lines().filter(|line| line.starts_with("cmdstat_"));
    let lines = lines.filter(|line| !own.iter().any(|own| line.starts_with(own)));
    lines.filter_map(|line| line.split_once(',')).map(|(calls, _)| calls.to_owned()).collect()
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Returns the token with some characters changed; a different one for each number.
fn forge(token: &str, number: usize) -> String {
    let mut bytes = token.as_bytes().to_vec();
    let place = 5 + number % 56;
    for (at, shift) in (place..place + 4).zip([0, 6, 12, 18]) {
        bytes[at] = ALPHABET[(number >> shift) % 64];
    }
    if bytes == token.as_bytes() {
        bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_tokens_are_rejected_without_store_commands() {
    let count = forged(2_000);
    let redis = RedisServer::start();
    let arguments = ["--store", &redis.url(), "--share-every", "1d", "--log", "json"];
    let service = ServiceProcess::start(&arguments, &[], Stdio::null(), Stdio::null());
    let good = token(&service.url).await;
    let monitor = (count <= 10_000).then(|| redis.monitor());
    let before = commands(&redis);
    let (client, next) = (http(), Arc::new(AtomicUsize::new(0)));
    let mut senders = JoinSet::new();
    for _ in 0..16 {
        let (client, next, good) = (client.clone(), Arc::clone(&next), good.clone());
        let url = format!("{}/token/redeem", service.url);
        senders.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    break;
                }
                let forged = forge(&good, number);
                let body = match number % 3 {
                    0 => json!({ "token": forged }),
                    1 => json!({"token": forged, "attempt": "one"}),
                    _ => json!({"token": forged, "action": "POST /orders", "subject": "alice", "bound": true}),
                };
                let request = client.post(&url).header("content-type", "application/json").body(body.to_string());
                let answer = send(request).await;
                assert_eq!(answer.said(), "403 token_invalid", "{number}: {forged}");
            }
        });
    }
    while let Some(sender) = senders.join_next().await {
        sender.unwrap();
    }
    if let Some(monitor) = monitor {
        let own = |line: &String| line.contains(":secret:") || line.starts_with("\"INFO\"");
        let sent: Vec<_> = monitor.commands().into_iter().filter(|line| !own(line)).collect();
        let sent: Vec<_> = sent.iter().filter(|line| !line.starts_with("\"CLIENT\"")).collect();
        assert!(sent.is_empty(), "{sent:#?}");
    }
    assert_eq!(commands(&redis), before);
    assert_eq!(redeem(&service.url, &good).await, "200 redeemed", "the original token is still valid");
    println!("{count} forged tokens: {count} responses 403, no store command");
}
