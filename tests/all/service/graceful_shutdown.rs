//! Graceful shutdown while clients still connect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward_tests::client::token;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn shutdown_refuses_new_connections_while_requests_are_in_flight() {
    let redis = RedisServer::start();
    let patient = ["--store", &redis.url(), "--store-timeout", "8s", "--last-call", "500ms"];
    let mut service = OncewardServer::start(&patient);
    let address = service.url.trim_start_matches("http://").to_owned();
    token(&service.url).await;
    redis.freeze();
    let mut last = TcpStream::connect(&address).await.unwrap();
    last.write_all(b"POST /token HTTP/1.1\r\nhost: onceward\r\nconnection: close\r\n\r\n").await.unwrap();
    service.terminate();
    until("new connections are refused", LONG, || async { TcpStream::connect(&address).await.is_err() }).await;
    assert_eq!(service.ended(), None, "the last request is still in flight");
    redis.thaw();
    let mut answer = String::new();
    last.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    until("it ends", LONG, || std::future::ready(service.ended() == Some(0))).await;
}

fn request(path: &str, body: &str) -> String {
    let head = format!("POST {path} HTTP/1.1\r\nhost: onceward\r\nconnection: close\r\ncontent-type: application/json");
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// True if this is a complete response, including its body.
fn is_whole(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    head.starts_with("HTTP/1.1 ") && length == Some(body.len())
}

/// Sends one request on this connection and reads until it is closed.
async fn ask(mut stream: TcpStream, request: &str) -> Result<(), String> {
    let mut answer = String::new();
    let read = match stream.write_all(request.as_bytes()).await {
        Ok(()) => stream.read_to_string(&mut answer).await.map(drop),
        error => error,
    };
    if is_whole(&answer) { Ok(()) } else { Err(format!("{read:?} after {answer:?}")) }
}

/// Sends requests, each on a new connection, until connections are refused. Returns the errors of requests without a response.
async fn keep_coming(address: String, request: String, answered: Arc<AtomicUsize>) -> Vec<String> {
    let mut lost = Vec::new();
    // The kernel accepts or refuses a local connection at once.
    while let Ok(Ok(stream)) = timeout(Duration::from_millis(300), TcpStream::connect(&address)).await {
        match ask(stream, &request).await {
            Ok(()) => drop(answered.fetch_add(1, Ordering::SeqCst)),
            Err(how) => lost.push(how),
        }
    }
    lost
}

/// Sends SIGTERM after this many responses. Returns the errors of unanswered requests and the number of responses.
async fn stop(store: String, after: usize) -> (Vec<String>, usize) {
    let arguments = ["--store", &store, "--rate-limit", "off", "--rate-limit-total", "off", "--last-call", "50ms"];
    let mut service = tokio::task::block_in_place(|| OncewardServer::start(&arguments));
    let answered = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    let redeem = request("/token/redeem", r#"{"token": "ow1_none", "attempt": "one"}"#);
    for request in [request("/token", "{}"), redeem].iter().cycle().take(8) {
        let address = service.url.trim_start_matches("http://").to_owned();
        clients.spawn(keep_coming(address, request.clone(), Arc::clone(&answered)));
    }
    let count = || answered.load(Ordering::SeqCst);
    until("the service is under load", LONG, || std::future::ready(count() >= after)).await;
    service.terminate();
    let lost = clients.join_all().await.concat();
    until("it ends", LONG, || std::future::ready(service.ended() == Some(0))).await;
    (lost, count())
}

/// Number of shutdowns.
pub(crate) const STOPS: usize = 50;

/// Groups of concurrent shutdowns, each with the number of requests after which it happens.
pub(crate) fn rounds() -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..STOPS).collect();
    all.chunks(4).map(|round| round.iter().map(|number| 8 + 10 * (number % 20)).collect()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_shutdowns_answer_every_accepted_connection() {
    let redis = RedisServer::start();
    let (mut lost, mut answered) = (Vec::new(), 0);
    for round in rounds() {
        let mut stops = JoinSet::new();
        for (after, store) in round.into_iter().zip(["memory:", &redis.url()].into_iter().cycle()) {
            stops.spawn(stop(store.to_owned(), after));
        }
        for (lost_here, answered_here) in stops.join_all().await {
            lost.extend(lost_here);
            answered += answered_here;
        }
    }
    assert!(lost.is_empty(), "{} of {}: {lost:#?}", lost.len(), lost.len() + answered);
    println!("{answered} requests, each on a new connection, and {STOPS} shutdowns: all answered");
}
