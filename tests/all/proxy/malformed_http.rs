//! Malformed and ambiguous requests over a raw socket: the upstream receives none of them, or exactly the one that the client sent.

use std::time::Duration;

use onceward_tests::client::{http, send};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, smooth};
use onceward_tests::legacy_shop::{LegacyShop, proxy_to};
use onceward_tests::polling::holds_for;
use onceward_tests::raw_http;
use onceward_tests::service::OncewardServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// Time in which a further response would arrive.
const SHORT: Duration = Duration::from_millis(250);
/// Time limit of an exchange; a request timeout is one second at most.
const LONG: Duration = Duration::from_secs(10);

/// The bytes that a client received.
#[derive(Debug)]
struct Received {
    text: String,
    /// True if the proxy has closed the connection, false if it paused.
    is_closed: bool,
}

impl Received {
    /// Returns whether the proxy has rejected the request: with one 4xx, or by closing the connection without a response. A connection that
    /// stays open without a response is no rejection.
    fn is_rejection(&self) -> bool {
        match statuses(&self.text).as_slice() {
            [status] => (400..500).contains(status),
            [] => self.text.is_empty() && self.is_closed,
            _ => false,
        }
    }
}

/// Sends these bytes, and reads until the proxy closes the connection or pauses.
async fn receive(proxy: &OncewardServer, bytes: &[u8]) -> Received {
    let mut stream = raw_http::connect(&proxy.url).await;
    // The proxy may close the connection before it has read everything.
    let _ = stream.write_all(bytes).await;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    let is_closed = loop {
        let silence = if answer.is_empty() { LONG } else { SHORT };
        match timeout(silence, stream.read(&mut piece)).await {
            Ok(Ok(count @ 1..)) => answer.extend_from_slice(&piece[..count]),
            // A reset closes the connection, too.
            Ok(Ok(0) | Err(_)) => break true,
            Err(_) => break false,
        }
    };
    Received { text: String::from_utf8_lossy(&answer).into_owned(), is_closed }
}

/// Sends these bytes, and returns the responses.
async fn exchange(proxy: &OncewardServer, bytes: &[u8]) -> String {
    receive(proxy, bytes).await.text
}

fn statuses(answer: &str) -> Vec<u16> {
    answer.split("HTTP/1.1 ").skip(1).filter_map(|rest| rest.get(..3)?.parse().ok()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_request_is_rejected_before_the_upstream() {
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, smooth).await;
    let proxy = proxy_to(&upstream.url, &["--request-timeout", "1s"]);
    let long = "a".repeat(600_000);
    let post = |lines: &str, body: &str| format!("POST /orders HTTP/1.1\r\n{lines}\r\n{body}").into_bytes();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("two lengths", post("host: a\r\ncontent-length: 0\r\ncontent-length: 5\r\n", "hello")),
        ("two lengths in one line", post("host: a\r\ncontent-length: 0, 5\r\n", "hello")),
        ("a negative length", post("host: a\r\ncontent-length: -1\r\n", "")),
        ("a length with a sign", post("host: a\r\ncontent-length: +5\r\n", "hello")),
        ("identity after chunked", post("host: a\r\ntransfer-encoding: chunked, identity\r\n", "0\r\n\r\n")),
        ("an unknown coding", post("host: a\r\ntransfer-encoding: xchunked\r\n", "0\r\n\r\n")),
        ("a chunk without a size", post("host: a\r\ntransfer-encoding: chunked\r\nidempotency-key: k\r\n", "xyz\r\n")),
        (
            "an overflowing chunk",
            post("host: a\r\ntransfer-encoding: chunked\r\nidempotency-key: k\r\n", "ffffffffffffffffff\r\n"),
        ),
        ("a folded header", post("host: a\r\nx: a\r\n b\r\ncontent-length: 0\r\n", "")),
        ("a space before the colon", post("host: a\r\ncontent-length : 5\r\n", "hello")),
        ("a header without a colon", post("host: a\r\ncontent-length\r\n", "")),
        ("a NUL in a header", post("host: a\r\nx: a\0b\r\ncontent-length: 0\r\n", "")),
        ("a carriage return in a header", post("host: a\r\nx: a\rb: c\r\ncontent-length: 0\r\n", "")),
        ("two hosts", post("host: a\r\nhost: b\r\ncontent-length: 0\r\n", "")),
        ("no host", post("content-length: 0\r\n", "")),
        ("a host with a user", post("host: a@b\r\ncontent-length: 0\r\n", "")),
        ("a huge head", post(&format!("host: a\r\nx: {long}\r\ncontent-length: 0\r\n"), "")),
        ("a huge target", format!("GET /{long} HTTP/1.1\r\nhost: a\r\n\r\n").into_bytes()),
        ("too many headers", post(&"x: 1\r\n".repeat(2000), "")),
        ("a tunnel", b"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n".to_vec()),
        ("a trace", b"TRACE /orders HTTP/1.1\r\nhost: a\r\n\r\n".to_vec()),
        ("a space in the target", b"GET /a b HTTP/1.1\r\nhost: a\r\n\r\n".to_vec()),
        ("a wrong version", b"GET / HTTP/9.9\r\nhost: a\r\n\r\n".to_vec()),
        ("HTTP/0.9", b"GET /\r\n\r\n".to_vec()),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
    ];
    for (what, bytes) in cases {
        let received = receive(&proxy, &bytes).await;
        assert!(received.is_rejection(), "{what} is rejected: {received:?}");
        assert!(!received.text.contains("panicked") && !received.text.contains("/src/"), "{what}: {received:?}");
        assert_eq!((upstream.seen().len(), shop.orders().len()), (0, 0), "{what} reaches nothing: {received:?}");
    }
    assert_eq!(send(http().get(format!("{}/", proxy.url))).await.status, 200);
}

/// The upstream would receive a body without the coding that it has, or a host with a user name that the client did not mean.
#[tokio::test]
async fn other_transfer_coding_or_user_info_is_a_bad_request() {
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, smooth).await;
    let proxy = proxy_to(&upstream.url, &[]);
    let coded = |lines: &str| format!("POST /orders HTTP/1.1\r\nhost: a\r\n{lines}\r\n0\r\n\r\n");
    for bytes in [
        coded("transfer-encoding: gzip, chunked\r\n"),
        coded("transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n"),
        coded("transfer-encoding: identity, chunked\r\n"),
        coded("transfer-encoding: gzip, chunked\r\nidempotency-key: k\r\n"),
        "GET http://u@a.example/ HTTP/1.1\r\nhost: a.example\r\n\r\n".to_owned(),
        "GET http://u:p@a.example/headers HTTP/1.1\r\nhost: a.example\r\n\r\n".to_owned(),
    ] {
        let answer = exchange(&proxy, bytes.as_bytes()).await;
        assert_eq!(statuses(&answer), [400], "{bytes:?}: {answer}");
        assert_eq!((upstream.seen().len(), shop.orders().len()), (0, 0), "{bytes:?}: {answer}");
    }
}

/// Request smuggling: a second request hides in the body of the first, and two servers that disagree about its length would run both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_length_smuggles_no_request() {
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, smooth).await;
    let proxy = proxy_to(&upstream.url, &[]);
    let hidden = "POST /smuggled HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    let length = hidden.len() + 5;
    for (what, lines) in [
        ("a length and chunks", format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n")),
        ("chunks and a length", format!("transfer-encoding: chunked\r\ncontent-length: {length}\r\n")),
        ("a short length and chunks", "content-length: 3\r\ntransfer-encoding: chunked\r\n".to_owned()),
        ("chunks with a tab", format!("transfer-encoding:\tchunked\r\ncontent-length: {length}\r\n")),
        ("chunks in capitals", format!("Transfer-Encoding: CHUNKED\r\ncontent-length: {length}\r\n")),
        (
            "chunks twice",
            format!("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\ncontent-length: {length}\r\n"),
        ),
        (
            "chunks, then identity",
            format!("transfer-encoding: chunked\r\ntransfer-encoding: identity\r\ncontent-length: {length}\r\n"),
        ),
        ("a blank before the colon", format!("content-length: {length}\r\ntransfer-encoding : chunked\r\n")),
        ("a length that Connection names", format!("connection: content-length\r\ncontent-length: {length}\r\n")),
        ("chunks that Connection names", "connection: transfer-encoding\r\ntransfer-encoding: chunked\r\n".to_owned()),
    ] {
        for key in ["", "idempotency-key: k\r\n"] {
            let (seen, orders) = (upstream.seen().len(), shop.orders().len());
            // If the chunks count, the hidden request follows the message. As a second one on the connection, it is not hidden.
            let bytes = format!("POST /orders HTTP/1.1\r\nhost: a\r\n{key}{lines}\r\n0\r\n\r\n{hidden}");
            let answer = exchange(&proxy, bytes.as_bytes()).await;
            let lines: Vec<_> = upstream.seen()[seen..].iter().map(|seen| seen.line.clone()).collect();
            // The proxy and the upstream agree: each request of the upstream has its own response.
            assert_eq!(lines.len(), shop.orders().len() - orders, "{what}: {answer}");
            let answered = statuses(&answer).iter().filter(|status| **status == 201).count();
            assert!(answered >= lines.len(), "{what}: {lines:?} {answer}");
            let both = upstream.seen()[seen..].iter().any(|seen| {
                seen.headers.contains_key("content-length") && seen.headers.contains_key("transfer-encoding")
            });
            assert!(!both, "{what}: the upstream receives one length");
        }
    }
}

/// Of two lengths, the chunks count, and the bytes after them are no request (RFC 9112, section 6.1).
#[tokio::test]
async fn message_with_two_lengths_is_the_last_on_its_connection() {
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, smooth).await;
    let proxy = proxy_to(&upstream.url, &[]);
    let hidden = "POST /smuggled HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    for lines in
        ["content-length: 5\r\ntransfer-encoding: chunked\r\n", "transfer-encoding: chunked\r\ncontent-length: 5\r\n"]
    {
        let bytes = format!("POST /orders HTTP/1.1\r\nhost: a\r\n{lines}\r\n2\r\n{{}}\r\n0\r\n\r\n{hidden}");
        let answer = exchange(&proxy, bytes.as_bytes()).await;
        assert_eq!(statuses(&answer), [201], "{answer}");
    }
    let lines: Vec<_> = upstream.seen().iter().map(|seen| seen.line.clone()).collect();
    assert_eq!((lines, shop.orders().len()), (vec!["POST /orders".to_owned(); 2], 2));
}

#[tokio::test]
async fn absolute_form_replaces_the_host_and_stays_at_the_upstream() {
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, smooth).await;
    let proxy = proxy_to(&upstream.url, &[]);
    let bytes = "GET http://shop.example/headers?a HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    let answer = exchange(&proxy, bytes.as_bytes()).await;
    assert_eq!(statuses(&answer), [200], "{answer}");
    let seen = upstream.seen();
    assert_eq!((seen.len(), seen[0].line.as_str(), seen[0].header("host")), (1, "GET /headers?a", "shop.example"));
    assert!(!answer.contains("evil"), "{answer}");
}

/// A bare line feed ends a line (RFC 9112, section 2.2): the upstream receives the same headers, with regular line ends.
#[tokio::test]
async fn bare_line_feeds_hide_no_header() {
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, smooth).await;
    let proxy = proxy_to(&upstream.url, &[]);
    // A server for which the line goes on would not see the forged header, and would pass it on.
    for (count, bytes) in [
        "POST /orders HTTP/1.1\nhost: a\nx: 1\nonceward-run: forged\ncontent-length: 2\nconnection: close\n\n{}",
        "POST /orders HTTP/1.1\r\nhost: a\r\nx: 1\nonceward-run: forged\r\ncontent-length: 2\r\n\
         connection: close\r\n\r\n{}",
    ]
    .into_iter()
    .enumerate()
    {
        let answer = exchange(&proxy, bytes.as_bytes()).await;
        assert_eq!(statuses(&answer), [201], "{answer}");
        let seen = upstream.seen();
        assert_eq!((seen.len(), shop.orders().len()), (count + 1, count + 1), "{answer}");
        assert_eq!((seen[count].header("x"), seen[count].body.as_slice()), ("1", &b"{}"[..]), "{seen:?}");
        assert!(!seen[count].headers.contains_key("onceward-run"), "{seen:?}");
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, smooth).await;
    let proxy = proxy_to(&upstream.url, &[]);
    let order = "POST /orders HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\"item\":\"1\"}";
    let answer = exchange(&proxy, order.repeat(3).as_bytes()).await;
    assert_eq!(statuses(&answer), [201, 201, 201], "{answer}");
    let places: Vec<_> = (1..=3).map(|number| answer.find(&format!("<h1>Order {number}<")).unwrap()).collect();
    assert!(places.is_sorted(), "{answer}");
    assert_eq!(shop.orders().len(), 3);
}

#[tokio::test]
async fn partial_request_runs_nothing() {
    /// Longer than the request timeout, after which the proxy closes the connection of a partial request.
    const AFTER_TIMEOUT: Duration = Duration::from_secs(1);
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, smooth).await;
    let proxy = proxy_to(&upstream.url, &["--request-timeout", "500ms"]);
    let whole = "POST /orders HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ncontent-type: application/json\r\n\
                 content-length: 14\r\n\r\n{\"item\":\"tea\"}";
    for end in [20, 60, whole.len() - 14, whole.len() - 1] {
        let received = receive(&proxy, &whole.as_bytes()[..end]).await;
        assert!(received.is_rejection(), "{end}: {received:?}");
        // This client disconnects at once.
        let mut stream = raw_http::connect(&proxy.url).await;
        stream.write_all(&whole.as_bytes()[..end]).await.unwrap();
    }
    let is_idle = || std::future::ready((upstream.seen().len(), shop.orders().len()) == (0, 0));
    holds_for("nothing runs", AFTER_TIMEOUT, is_idle).await;
    let answer = exchange(&proxy, whole.as_bytes()).await;
    assert!(statuses(&answer) == [201] && answer.contains("onceward-outcome: executed"), "{answer}");
    assert_eq!(shop.orders().len(), 1);
}
