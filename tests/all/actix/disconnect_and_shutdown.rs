//! A client that hangs up and a server that is told to stop: what has begun comes to its end, once.

use std::net::SocketAddr;
use std::time::Duration;

use onceward::store::{Memory, Redis};
use onceward::{Binding, Guard, Intent, Policy, Subject, Verdict};
use onceward_tests::client::{http, order, send, submit, token};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{Shop, TAKES};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::PEER;

const LONG: Duration = Duration::from_secs(10);

/// Sends a request as it stands, and leaves the connection open.
async fn begin(url: &str, head: &str, body: &str) -> TcpStream {
    begin_at(url, "/orders", head, body).await
}

async fn begin_at(url: &str, path: &str, head: &str, body: &str) -> TcpStream {
    let address: SocketAddr = url.trim_start_matches("http://").parse().expect("an address");
    let mut stream = TcpStream::connect(address).await.expect("the shop is open");
    stream
        .write_all(format!("POST {path} HTTP/1.1\r\nHost: shop\r\n{head}\r\n{body}").as_bytes())
        .await
        .expect("it listens");
    stream
}

fn slow_order(token: &str, order: &str, takes: u64) -> String {
    format!("Onceward-Token: {token}\r\nX-Order: {order}\r\nX-Takes: {takes}\r\nContent-Length: 0\r\n")
}

/// Breaks the connection, so that the other side sees a reset and no end.
fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("an open socket");
    drop(stream);
}

#[tokio::test]
async fn a_handler_whose_client_resets_the_connection_finishes_once() {
    let redis = RedisServer::start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap());
    let token = token(shop.url()).await;
    let client = begin(shop.url(), &slow_order(&token, "a", 200), "").await;
    until("it has begun", LONG, || async { shop.ledger.count("begun") == 1 }).await;
    reset(client);
    assert_eq!(order(shop.url(), &token, "a").await.said(), "409 token_used", "while it still runs");
    until("it has finished", LONG, || async { shop.ledger.count("a") == 1 }).await;
    assert_eq!(order(shop.url(), &token, "a").await.said(), "409 token_used");
    assert_eq!(shop.ledger.count("a"), 1);
}

#[tokio::test]
async fn a_connection_reset_at_any_moment_leaves_either_one_effect_or_a_good_token() {
    let redis = RedisServer::start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap());
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

#[tokio::test]
async fn a_body_that_breaks_off_gives_the_token_back() {
    let shop = Shop::on(Memory::new());
    let token = token(shop.url()).await;
    let head = format!("Onceward-Token: {token}\r\nX-Order: a\r\nContent-Length: 1000\r\n");
    reset(begin(shop.url(), &head, "only this").await);
    let is_accepted = || async { order(shop.url(), &token, "a").await.status == 200 };
    until("the token works", LONG, is_accepted).await;
    assert_eq!(shop.ledger.runs(), ["a"]);
}

/// A handler has begun that takes so many milliseconds, its client is gone, and the process is told to stop: how often did it
/// finish?
async fn told_to_stop(kind: &str, takes: u64) -> usize {
    let ledger = Ledger::new();
    let mut peer = Peer::start(PEER, kind, "memory:", &ledger);
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

/// The warnings of a process that was told to stop while three handlers ran, whose clients are gone or still there.
async fn warnings_at_stop(kind: &str, stop: fn(&Peer), are_gone: bool) -> Vec<String> {
    let (ledger, log) = (Ledger::new(), tempfile::NamedTempFile::new().unwrap());
    let mut peer = Peer::start_logging(PEER, kind, "memory:", &ledger, log.path());
    let mut clients = Vec::new();
    for number in 0..3 {
        let token = token(&peer.url).await;
        clients.push(begin(&peer.url, &slow_order(&token, &number.to_string(), 1500), "").await);
        until("it has begun", LONG, || async { ledger.count("begun") == number + 1 }).await;
    }
    if are_gone {
        clients.drain(..).for_each(reset);
        // The server notices it.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop(&peer);
    until("the process has ended", LONG, || std::future::ready(peer.ended().is_some())).await;
    let lines = std::fs::read_to_string(log.path()).unwrap();
    let is_warning = |line: &&str| line.contains("WARN") && line.contains("onceward::actix::serve");
    lines.lines().filter(is_warning).map(str::to_owned).collect()
}

#[tokio::test]
async fn server_that_drops_handlers_at_shutdown_warns_once() {
    for (stop, are_gone) in [(Peer::terminate as fn(&Peer), true), (Peer::interrupt, true), (Peer::interrupt, false)] {
        let warnings = warnings_at_stop("undrained", stop, are_gone).await;
        let [warning] = &warnings[..] else { panic!("one warning: {warnings:?}") };
        assert!(warning.contains("WARN") && warning.contains("HttpServer::run"), "{warning}");
        let none = warnings_at_stop("onceward", stop, are_gone).await;
        assert!(none.is_empty(), "it waits for handlers: {none:?}");
    }
}

#[tokio::test]
async fn a_handler_without_a_client_finishes_before_the_process_ends() {
    assert_eq!(told_to_stop("onceward", 700).await, 1);
    // Longer than a busy machine takes to end the process.
    assert_eq!(
        told_to_stop("undrained", 5000).await,
        0,
        "without draining it is cut: otherwise this would prove nothing"
    );
}

#[tokio::test]
async fn a_client_that_waits_gets_its_answer_from_a_server_that_stops() {
    let ledger = Ledger::new();
    let mut peer = Peer::start(PEER, "onceward", "memory:", &ledger);
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

#[tokio::test]
async fn a_connection_that_is_kept_open_and_idle_does_not_hold_up_the_end() {
    let ledger = Ledger::new();
    let mut peer = Peer::start(PEER, "onceward", "memory:", &ledger);
    let token = token(&peer.url).await;
    let idle = http();
    let answer = idle.post(format!("{}/orders", peer.url)).header("onceward-token", &token).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.bytes().await.unwrap();
    peer.terminate();
    until("the process has ended", LONG, || std::future::ready(peer.ended() == Some(0))).await;
    drop(idle);
}

#[tokio::test]
async fn a_body_that_never_comes_does_not_hold_up_the_end() {
    let ledger = Ledger::new();
    let mut peer = Peer::start(PEER, "impatient", "memory:", &ledger);
    let token = token(&peer.url).await;
    let head = format!("Onceward-Token: {token}\r\nX-Order: a\r\nContent-Length: 10\r\n");
    let client = begin_at(&peer.url, "/streamed", &head, "").await;
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    peer.terminate();
    until("the process has ended", LONG, || std::future::ready(peer.ended() == Some(0))).await;
    assert_eq!(ledger.count("a"), 0);
    drop(client);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let ledger = Ledger::new();
    let mut peer = Peer::start(PEER, "onceward", "memory:", &ledger);
    let token = token(&peer.url).await;
    let waiting = submit(&peer.url, "/orders", &token, "a").header(TAKES, "60000");
    let waiting = tokio::spawn(async move { waiting.send().await });
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    peer.terminate();
    // Both may be seen as one if they come at the same moment, so it is told again until it listens.
    let mut code = None;
    until("the process has ended", LONG, || {
        code = peer.ended();
        if code.is_none() {
            peer.terminate();
        }
        std::future::ready(code.is_some())
    })
    .await;
    assert_eq!(code, Some(0), "cut off, and still in good order");
    assert!(waiting.await.unwrap().is_err(), "its client gets no answer");
    assert_eq!(ledger.count("a"), 0);
}

#[tokio::test]
async fn a_guard_that_was_drained_lets_nothing_begin_and_uses_nothing_up() {
    let guard = Guard::new(Memory::new());
    let token = guard.issue(LONG, Binding::none()).await.unwrap();
    let other = guard.issue(LONG, Binding::none()).await.unwrap();
    let policy = Policy::token();
    let present = |token: &onceward::Token| token.as_str().to_owned();
    let (token, other) = (present(&token), present(&other));
    let intent = |token| Intent::new("a", Subject::anonymous()).credential(token);
    let Ok(Verdict::Run(first)) = guard.check(&policy, &intent(&token)).await else { panic!("it is good") };

    guard.begin_draining();
    let Ok(Verdict::Run(second)) = guard.check(&policy, &intent(&other)).await else { panic!("it is not lost") };
    let draining = guard.clone();
    let drained = tokio::spawn(async move { draining.drain().await });
    first.complete(None).await.unwrap();
    tokio::task::yield_now().await;
    assert!(!drained.is_finished());
    second.release().await.unwrap();
    drained.await.unwrap();

    let Ok(Verdict::Reject(rejection)) = guard.check(&policy, &intent(&other)).await else { panic!("too late") };
    assert_eq!(rejection.code(), onceward_api::Code::Overloaded);
    assert_eq!(guard.look(&policy, &intent(&other)).await.unwrap().state, onceward::RecordState::Issued);
}
