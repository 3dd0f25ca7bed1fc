//! Timeouts of the upstream while bodies are sent: a response that stops or drips, and an upload that makes progress.

use std::time::Duration;

use onceward_api::Code;
use onceward_tests::client::send;
use onceward_tests::legacy_shop::{LegacyShop, proxy_to};
use onceward_tests::raw_http;
use onceward_tests::service::OncewardServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use super::submission::{LONG, keyed, order, token, tokened};

/// The timeout in each of these tests.
const LIMIT: Duration = Duration::from_secs(1);
/// Pause between two parts of a body that makes progress, shorter than the timeout.
const BETWEEN_PARTS: Duration = Duration::from_millis(250);
/// Number of parts of a body that takes longer than the timeout.
const PARTS: usize = 8;

/// An upstream that begins each response and sends a byte of its body at each interval, or none.
async fn dripping(parts: usize) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(drip(stream, parts));
        }
    });
    url
}

/// Responds to one request, with a body that does not end before these parts.
async fn drip(mut stream: TcpStream, parts: usize) -> Option<()> {
    let mut request = [0; 4096];
    stream.read(&mut request).await.ok().filter(|count| *count > 0)?;
    let length = PARTS + 1;
    let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(b"x").await.ok()?;
    for _ in 0..parts {
        sleep(BETWEEN_PARTS).await;
        stream.write_all(b"x").await.ok()?;
    }
    // The connection stays open until the proxy closes it.
    let _ = stream.read(&mut request).await;
    Some(())
}

/// Asserts that a protected request times out after the limit, and that its outcome is unknown.
async fn assert_times_out(proxy: &OncewardServer) {
    let token = token(proxy).await;
    for request in [keyed(proxy, "/orders", "k"), tokened(proxy, "/orders", &token)] {
        let begun = Instant::now();
        let answer = send(request.try_clone().unwrap()).await;
        assert_eq!(answer.said(), "504 unknown", "{answer:?}");
        assert_eq!(answer.problem().code, Code::UpstreamTimeout);
        assert!(begun.elapsed() >= LIMIT && begun.elapsed() < LONG, "{:?}", begun.elapsed());
        assert_eq!(send(request).await.said(), "409 outcome_unknown");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_that_stops_in_its_body_is_a_timeout() {
    let proxy = proxy_to(&dripping(0).await, &["--upstream-read-timeout", "1s"]);
    assert_times_out(&proxy).await;
    // The head of an unprotected response has been sent, so its body breaks off.
    let begun = Instant::now();
    let response = order(&proxy, "/orders", "tea").send().await.unwrap();
    assert_eq!(response.status(), 200);
    let body = timeout(LONG, response.bytes()).await.expect("the body breaks off");
    assert!(body.is_err() && begun.elapsed() >= LIMIT, "{body:?} after {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dripping_response_exceeds_the_total_timeout_of_a_protected_request() {
    let proxy = proxy_to(&dripping(PARTS).await, &["--upstream-timeout", "1s"]);
    assert_times_out(&proxy).await;
    let begun = Instant::now();
    let answer = send(order(&proxy, "/orders", "tea")).await;
    assert_eq!((answer.said().as_str(), answer.body.len()), ("200 unprotected", PARTS + 1));
    assert!(begun.elapsed() > LIMIT, "other requests have no total timeout: {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dripping_response_is_within_the_read_timeout() {
    let proxy = proxy_to(&dripping(PARTS).await, &["--upstream-read-timeout", "1s"]);
    for request in [keyed(&proxy, "/orders", "k"), order(&proxy, "/orders", "tea")] {
        let answer = send(request).await;
        assert_eq!((answer.status, answer.body.len()), (200, PARTS + 1), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_that_makes_progress_exceeds_the_read_timeout() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--upstream-read-timeout", "1s"]);
    let mut stream = raw_http::connect(&proxy.url).await;
    let head = format!("POST /sink HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: {PARTS}\r\n\r\n");
    let begun = Instant::now();
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..PARTS {
        sleep(BETWEEN_PARTS).await;
        stream.write_all(b"x").await.unwrap();
    }
    let mut answer = String::new();
    timeout(LONG, stream.read_to_string(&mut answer)).await.expect("a response").unwrap();
    assert!(begun.elapsed() > LIMIT, "{:?}", begun.elapsed());
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(&format!("\"bytes\": {PARTS}")), "{answer}");
}
