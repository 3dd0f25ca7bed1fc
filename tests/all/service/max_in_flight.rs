//! `max_in_flight` counts only requests that are authenticated and whose body has arrived.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::metrics::Metrics;
use onceward_tests::polling::until;
use onceward_tests::service::OncewardServer;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const KEY: &str = "a-key-of-the-backends";
const LONG: Duration = Duration::from_secs(20);
/// Every path that requires the API key.
const FOR_BACKENDS: [&str; 10] = [
    "/token/redeem",
    "/token/release",
    "/claim",
    "/claim/complete",
    "/claim/release",
    "/claim/renew",
    "/outcome",
    "/forward-auth",
    "/forward-auth?style=nginx",
    "/forward-auth/orders",
];

/// Starts a request that announces a body of one length and sends only part of it.
async fn begin(url: &str, path: &str, key: Option<&str>, announced: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await.expect("the service listens");
    let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: onceward\r\n{key}content-type: application/json\r\ncontent-length: {announced}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The service may respond and close before it has read everything.
    let _ = stream.write_all("x".repeat(sent).as_bytes()).await;
    stream
}

/// Reads the head of the response.
async fn head(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 1024];
        match timeout(LONG, stream.read(&mut piece)).await.expect("a response in time") {
            Ok(read) if read > 0 => answer.extend_from_slice(&piece[..read]),
            ended => panic!("{ended:?} after {:?}", String::from_utf8_lossy(&answer)),
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

async fn as_backend(url: &str) -> Answer {
    let asked = json!({"key": "k", "action": "buy", "subject": "alice"});
    send(http().post(format!("{url}/outcome")).bearer_auth(KEY).json(&asked)).await
}

#[tokio::test]
async fn request_without_the_key_is_rejected_before_its_body() {
    let service = OncewardServer::start(&["--api-key", KEY, "--request-timeout", "60s"]);
    for path in FOR_BACKENDS {
        for sent in [0, 100, 20_000] {
            let begun = Instant::now();
            let mut stream = begin(&service.url, path, Some("another"), 60_000, sent).await;
            let answer = head(&mut stream).await;
            // The client behind a gateway cannot send the API key.
            let (status, outcome) =
                if path.starts_with("/forward-auth") { (403, "redeem_unknown") } else { (401, "unauthorized") };
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
            assert!(answer.contains(&format!("onceward-outcome: {outcome}\r\n")), "{path}: {answer}");
            assert!(begun.elapsed() < Duration::from_millis(900), "{path} took {:?}", begun.elapsed());
        }
    }
}

/// Sends requests with endless bodies to `/forward-auth`, without the key.
async fn besiege(url: String, tries: Arc<AtomicUsize>) {
    loop {
        let mut stream = begin(&url, "/forward-auth", None, 60_000, 20_000).await;
        let mut answer = Vec::new();
        let _ = timeout(Duration::from_secs(2), stream.read_buf(&mut answer)).await;
        tries.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_the_key_use_no_capacity() {
    let service = OncewardServer::start(&["--api-key", KEY, "--max-in-flight", "8", "--admin-listen", "127.0.0.1:0"]);
    let (tries, mut attack) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for _ in 0..32 {
        attack.spawn(besiege(service.url.clone(), Arc::clone(&tries)));
    }
    until("the attack has started", LONG, || std::future::ready(tries.load(Ordering::SeqCst) >= 32)).await;
    let (mut served, mut overloaded) = (0, 0);
    for _ in 0..200 {
        match as_backend(&service.url).await.said().as_str() {
            "200 " => served += 1,
            "503 overloaded" => overloaded += 1,
            other => panic!("{other}"),
        }
    }
    let tries = tries.load(Ordering::SeqCst);
    println!(
        "during {tries} requests without the key: {served} requests with it are served, {overloaded} are overloaded"
    );
    attack.shutdown().await;
    assert_eq!((served, overloaded), (200, 0));
    assert_eq!(Metrics::of(&service.admin()).await.sum("onceward_http_requests_shed_total", &[]), 0.0);
}

#[tokio::test]
async fn incoming_body_uses_no_capacity() {
    let arguments = ["--api-key", KEY, "--max-in-flight", "1", "--request-timeout", "20s"];
    let service = OncewardServer::start(&arguments);
    let mut slow = Vec::new();
    for (path, sent) in [("/claim/complete", 100_000), ("/claim/complete", 20_000), ("/claim", 1_000), ("/outcome", 10)]
    {
        slow.push(begin(&service.url, path, Some(KEY), 200_000, sent).await);
    }
    for _ in 0..20 {
        token(&service.url).await;
        assert_eq!(as_backend(&service.url).await.status, 200);
        assert_eq!(Metrics::of(&service.url).await.sum("onceward_http_requests_in_flight", &[]), 0.0);
    }
    // The first body is completed and gets its response.
    slow[0].write_all("x".repeat(100_000).as_bytes()).await.unwrap();
    assert!(head(&mut slow[0]).await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn disconnected_waiting_client_frees_its_capacity() {
    let service = OncewardServer::start(&["--max-in-flight", "2"]);
    let url = &service.url;
    let asked = json!({"key": "k", "action": "buy", "subject": "alice", "wait": "30s"}).to_string();
    let claim = http().post(format!("{url}/claim")).header("content-type", "application/json").body(asked.clone());
    assert_eq!(send(claim).await.status, 200);
    let in_flight = || async { Metrics::of(url).await.sum("onceward_http_requests_in_flight", &[]) };
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut stream = begin(url, "/claim", None, asked.len(), 0).await;
        stream.write_all(asked.as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    until("both wait", LONG, || async { in_flight().await == 2.0 }).await;
    // One client closes its connection; the other only shuts down its sending side and gets a response.
    let mut other = waiting.pop().unwrap();
    drop(waiting);
    other.shutdown().await.unwrap();
    until("no request is in flight", Duration::from_secs(5), || async { in_flight().await == 0.0 }).await;
    let answer = head(&mut other).await;
    assert!(answer.starts_with("HTTP/1.1 409 ") && answer.contains("onceward-outcome: in_progress\r\n"), "{answer}");
    token(url).await;
}

#[tokio::test]
async fn gateway_body_uses_no_capacity_and_is_not_awaited() {
    let service = OncewardServer::start(&["--api-key", KEY, "--max-in-flight", "4", "--request-timeout", "20s"]);
    for sent in [0, 100, 20_000] {
        let begun = Instant::now();
        let mut slow = Vec::new();
        for _ in 0..4 {
            slow.push(begin(&service.url, "/forward-auth/orders", Some(KEY), 60_000, sent).await);
        }
        while begun.elapsed() < Duration::from_millis(800) {
            assert_eq!(as_backend(&service.url).await.status, 200);
        }
        for stream in &mut slow {
            let answer = head(stream).await;
            assert!(
                answer.starts_with("HTTP/1.1 400 ") && answer.contains("onceward-outcome: token_missing"),
                "{answer}"
            );
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}
