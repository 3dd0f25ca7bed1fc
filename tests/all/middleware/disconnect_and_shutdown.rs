//! Client disconnects and graceful shutdown: a handler that has begun finishes, once.
//!
//! The test of a drained guard, without HTTP, runs once: it tests the engine, not an adapter.

use std::net::SocketAddr;
use std::time::Duration;

use onceward::store::{Memory, Redis};
use onceward::{Binding, Guard, Intent, Policy, Subject, Verdict};
use onceward_tests::client::{http, order, send, submit, token};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::TAKES;
use onceward_tests::web_framework::WebFramework;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::PEER;

on_every_framework! {
    handler_finishes_once_after_a_connection_reset,
    connection_reset_leaves_one_effect_or_a_valid_token,
    truncated_body_gives_the_token_back,
    server_that_drops_handlers_at_shutdown_warns_once,
    graceful_shutdown_waits_for_handlers_without_a_client,
    graceful_shutdown_sends_pending_responses,
    graceful_shutdown_ignores_idle_connections,
    graceful_shutdown_ends_despite_a_missing_body,
    second_signal_ends_the_process_immediately,
}

const LONG: Duration = Duration::from_secs(10);

/// Sends a raw request and leaves the connection open.
async fn begin(url: &str, head: &str, body: &str) -> TcpStream {
    begin_at(url, "/orders", head, body).await
}

async fn begin_at(url: &str, path: &str, head: &str, body: &str) -> TcpStream {
    let address: SocketAddr = url.trim_start_matches("http://").parse().expect("an address");
    let mut stream = TcpStream::connect(address).await.expect("the shop accepts connections");
    stream
        .write_all(format!("POST {path} HTTP/1.1\r\nHost: shop\r\n{head}\r\n{body}").as_bytes())
        .await
        .expect("the request is sent");
    stream
}

fn slow_order(token: &str, order: &str, takes: u64) -> String {
    format!("Onceward-Token: {token}\r\nX-Order: {order}\r\nX-Takes: {takes}\r\nContent-Length: 0\r\n")
}

/// Resets the connection instead of closing it.
fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("an open socket");
    drop(stream);
}

async fn handler_finishes_once_after_a_connection_reset<F: WebFramework>() {
    let redis = RedisServer::start();
    let shop = F::shop(Redis::open(&redis.url()).unwrap());
    let token = token(shop.url()).await;
    let client = begin(shop.url(), &slow_order(&token, "a", 200), "").await;
    until("it has begun", LONG, || async { shop.ledger.count("begun") == 1 }).await;
    reset(client);
    assert_eq!(order(shop.url(), &token, "a").await.said(), "409 token_used", "the handler still runs");
    until("it has finished", LONG, || async { shop.ledger.count("a") == 1 }).await;
    assert_eq!(order(shop.url(), &token, "a").await.said(), "409 token_used");
    assert_eq!(shop.ledger.count("a"), 1);
}

async fn connection_reset_leaves_one_effect_or_a_valid_token<F: WebFramework>() {
    let redis = RedisServer::start();
    let shop = F::shop(Redis::open(&redis.url()).unwrap());
    for number in 0..100_u64 {
        let (token, name) = (token(shop.url()).await, number.to_string());
        let client = begin(shop.url(), &slow_order(&token, &name, 5), "").await;
        tokio::time::sleep(Duration::from_micros(number * 60)).await;
        reset(client);
        let answer = order(shop.url(), &token, &name).await;
        match answer.said().as_str() {
            "200 executed" => {}
            "409 token_used" => until("the first has finished", LONG, || async { shop.ledger.count(&name) == 1 }).await,
            other => panic!("{number}: {other}"),
        }
        assert_eq!(order(shop.url(), &token, &name).await.said(), "409 token_used");
        assert_eq!(shop.ledger.count(&name), 1, "{number}");
    }
}

async fn truncated_body_gives_the_token_back<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let token = token(shop.url()).await;
    let head = format!("Onceward-Token: {token}\r\nX-Order: a\r\nContent-Length: 1000\r\n");
    reset(begin(shop.url(), &head, "only this").await);
    let is_accepted = || async { order(shop.url(), &token, "a").await.status == 200 };
    until("the token is valid again", LONG, is_accepted).await;
    assert_eq!(shop.ledger.runs(), ["a"]);
}

/// Sends SIGTERM while a handler of `takes` milliseconds runs whose client is gone. Returns the number of finished runs.
async fn finished_at_shutdown<F: WebFramework>(kind: &str, takes: u64) -> usize {
    let ledger = Ledger::new();
    let mut peer = Peer::start(PEER, &F::peer(kind), "memory:", &ledger);
    let token = token(&peer.url).await;
    let client = begin(&peer.url, &slow_order(&token, "a", takes), "").await;
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    reset(client);
    peer.terminate();
    let mut code = None;
    until("the process has ended", LONG, || {
        code = peer.ended();
        std::future::ready(code.is_some())
    })
    .await;
    assert_eq!(code, Some(0));
    ledger.count("a")
}

/// Returns the warnings of a process that is stopped while three handlers run, whose clients are gone or still connected.
async fn warnings_at_stop<F: WebFramework>(kind: &str, stop: fn(&Peer), are_gone: bool) -> Vec<String> {
    let (ledger, log) = (Ledger::new(), tempfile::NamedTempFile::new().unwrap());
    let mut peer = Peer::start_logging(PEER, &F::peer(kind), "memory:", &ledger, log.path());
    let mut clients = Vec::new();
    for number in 0..3 {
        let token = token(&peer.url).await;
        clients.push(begin(&peer.url, &slow_order(&token, &number.to_string(), 1500), "").await);
        until("it has begun", LONG, || async { ledger.count("begun") == number + 1 }).await;
    }
    if are_gone {
        clients.drain(..).for_each(reset);
        // The server notices the reset.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop(&peer);
    until("the process has ended", LONG, || std::future::ready(peer.ended().is_some())).await;
    let lines = std::fs::read_to_string(log.path()).unwrap();
    let is_warning = |line: &&str| line.contains("WARN") && line.contains("a shutdown waits for handlers");
    lines.lines().filter(is_warning).map(str::to_owned).collect()
}

async fn server_that_drops_handlers_at_shutdown_warns_once<F: WebFramework>() {
    for (stop, are_gone) in [(Peer::terminate as fn(&Peer), true), (Peer::interrupt, true), (Peer::interrupt, false)] {
        let warnings = warnings_at_stop::<F>("undrained", stop, are_gone).await;
        let [warning] = &warnings[..] else { panic!("one warning: {warnings:?}") };
        assert!(warning.contains(F::SERVE) && warning.contains("HttpServer::run"), "{warning}");
        let none = warnings_at_stop::<F>("onceward", stop, are_gone).await;
        assert!(none.is_empty(), "a graceful shutdown does not warn: {none:?}");
    }
}

async fn graceful_shutdown_waits_for_handlers_without_a_client<F: WebFramework>() {
    assert_eq!(finished_at_shutdown::<F>("onceward", 700).await, 1);
    // Longer than a busy machine takes to end the process.
    assert_eq!(
        finished_at_shutdown::<F>("undrained", 5000).await,
        0,
        "without draining the handler is aborted: otherwise this test would prove nothing"
    );
}

async fn graceful_shutdown_sends_pending_responses<F: WebFramework>() {
    let ledger = Ledger::new();
    let mut peer = Peer::start(PEER, &F::peer("onceward"), "memory:", &ledger);
    let token = token(&peer.url).await;
    let waiting = tokio::spawn(send(submit(&peer.url, "/orders", &token, "a").header(TAKES, "400")));
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    peer.terminate();
    let answer = waiting.await.unwrap();
    assert_eq!(answer.said(), "200 executed");
    assert_eq!(answer.headers["connection"], "close");
    until("the process has ended", LONG, || std::future::ready(peer.ended() == Some(0))).await;
    assert_eq!(ledger.count("a"), 1);
}

async fn graceful_shutdown_ignores_idle_connections<F: WebFramework>() {
    let ledger = Ledger::new();
    let mut peer = Peer::start(PEER, &F::peer("onceward"), "memory:", &ledger);
    let token = token(&peer.url).await;
    let idle = http();
    let answer = idle.post(format!("{}/orders", peer.url)).header("onceward-token", &token).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.bytes().await.unwrap();
    peer.terminate();
    until("the process has ended", LONG, || std::future::ready(peer.ended() == Some(0))).await;
    drop(idle);
}

async fn graceful_shutdown_ends_despite_a_missing_body<F: WebFramework>() {
    let ledger = Ledger::new();
    let mut peer = Peer::start(PEER, &F::peer("impatient"), "memory:", &ledger);
    let token = token(&peer.url).await;
    let head = format!("Onceward-Token: {token}\r\nX-Order: a\r\nContent-Length: 10\r\n");
    let client = begin_at(&peer.url, "/streamed", &head, "").await;
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    peer.terminate();
    until("the process has ended", LONG, || std::future::ready(peer.ended() == Some(0))).await;
    assert_eq!(ledger.count("a"), 0);
    drop(client);
}

async fn second_signal_ends_the_process_immediately<F: WebFramework>() {
    let ledger = Ledger::new();
    let mut peer = Peer::start(PEER, &F::peer("onceward"), "memory:", &ledger);
    let token = token(&peer.url).await;
    let waiting = submit(&peer.url, "/orders", &token, "a").header(TAKES, "60000");
    let waiting = tokio::spawn(async move { waiting.send().await });
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    peer.terminate();
    // Two signals at the same moment may arrive as one, so the signal is repeated.
    let mut code = None;
    until("the process has ended", LONG, || {
        code = peer.ended();
        if code.is_none() {
            peer.terminate();
        }
        std::future::ready(code.is_some())
    })
    .await;
    assert_eq!(code, Some(0), "the exit code is 0 although a handler was aborted");
    assert!(waiting.await.unwrap().is_err(), "its client receives no response");
    assert_eq!(ledger.count("a"), 0);
}

#[tokio::test]
async fn drained_guard_rejects_and_keeps_the_token_valid() {
    let guard = Guard::new(Memory::new());
    let token = guard.issue(LONG, Binding::none()).await.unwrap();
    let other = guard.issue(LONG, Binding::none()).await.unwrap();
    let policy = Policy::token();
    let present = |token: &onceward::Token| token.as_str().to_owned();
    let (token, other) = (present(&token), present(&other));
    let intent = |token| Intent::new("a", Subject::anonymous()).credential(token);
    let Ok(Verdict::Run(first)) = guard.check(&policy, &intent(&token)).await else { panic!("the token is valid") };

    guard.begin_draining();
    let Ok(Verdict::Run(second)) = guard.check(&policy, &intent(&other)).await else {
        panic!("draining does not reject yet")
    };
    let draining = guard.clone();
    let drained = tokio::spawn(async move { draining.drain().await });
    first.complete(None).await.unwrap();
    tokio::task::yield_now().await;
    assert!(!drained.is_finished());
    second.release().await.unwrap();
    drained.await.unwrap();

    let Ok(Verdict::Reject(rejection)) = guard.check(&policy, &intent(&other)).await else {
        panic!("a drained guard rejects")
    };
    assert_eq!(rejection.code(), onceward_api::Code::Overloaded);
    assert_eq!(guard.look(&policy, &intent(&other)).await.unwrap().state, onceward::RecordState::Issued);
}
