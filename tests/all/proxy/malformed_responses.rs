//! Responses of the upstream whose length is ambiguous: the client receives exactly one response to each request, or an error.

use onceward_tests::client::send;
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault};
use onceward_tests::legacy_shop::proxy_to;
use onceward_tests::raw_http;
use onceward_tests::service::OncewardServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::submission::{LONG, keyed, order, token, tokened};

/// A body that contains a response: a client that takes a wrong length would read it as the response to its next request.
const BODY: &str = "abcHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged";

/// Starts a proxy in front of an upstream that always sends these bytes.
async fn proxy_of(response: String) -> (FaultyHttpProxy, OncewardServer) {
    let nowhere = "http://127.0.0.1:1";
    let upstream = FaultyHttpProxy::to(nowhere, move |_| HttpFault::Raw(response.clone().into_bytes())).await;
    let proxy = proxy_to(&upstream.url, &[]);
    (upstream, proxy)
}

/// Returns the response with these header lines, whose body is sent in one chunk.
fn chunked(lines: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}\r\n{:x}\r\n{BODY}\r\n0\r\n\r\n", BODY.len())
}

/// A response, as a client reads it that trusts the first framing that it finds.
#[derive(Debug)]
struct ReadResponse {
    head: String,
    body: Vec<u8>,
}

impl ReadResponse {
    /// Reads one response from the front of these bytes. Ambiguous framing panics.
    fn take(bytes: &mut &[u8], has_body: bool) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let end = text.find("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}")) + 4;
        let head = text[..end].to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 "), "{text:?}");
        *bytes = &bytes[end..];
        let values =
            |name: &str| head.lines().filter_map(|line| line.strip_prefix(name)).map(str::trim).collect::<Vec<_>>();
        let (lengths, codings) = (values("content-length:"), values("transfer-encoding:"));
        assert!(lengths.len() + codings.len() <= 1, "one framing: {head}");
        let body = match (has_body, lengths.first(), codings.first()) {
            (false, ..) => Vec::new(),
            (true, Some(length), _) => Self::cut(bytes, length.parse().unwrap_or_else(|_| panic!("{head}"))),
            (true, None, Some(_)) => Self::chunks(bytes),
            (true, None, None) => panic!("no framing: {head}"),
        };
        Self { head, body }
    }

    fn cut(bytes: &mut &[u8], length: usize) -> Vec<u8> {
        let (taken, rest) = bytes.split_at_checked(length).expect("a whole body");
        *bytes = rest;
        taken.to_vec()
    }

    fn chunks(bytes: &mut &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let end = bytes.windows(2).position(|window| window == b"\r\n").expect("the size of a chunk");
            let size = usize::from_str_radix(std::str::from_utf8(&Self::cut(bytes, end)).unwrap(), 16).unwrap();
            Self::cut(bytes, 2);
            body.extend(Self::cut(bytes, size));
            assert_eq!(Self::cut(bytes, 2), b"\r\n");
            if size == 0 {
                return body;
            }
        }
    }
}

/// Sends two requests with this method and these header lines on one connection, and returns both responses.
async fn twice(proxy: &OncewardServer, method: &str, lines: &str) -> [ReadResponse; 2] {
    let mut stream = raw_http::connect(&proxy.url).await;
    let request = |more: &str| format!("{method} /orders HTTP/1.1\r\nhost: shop\r\n{lines}{more}\r\n");
    let both = [request(""), request("connection: close\r\n")].concat();
    stream.write_all(both.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    timeout(LONG, stream.read_to_end(&mut read)).await.expect("the connection is closed").unwrap();
    let mut left = &read[..];
    let responses = [(); 2].map(|()| ReadResponse::take(&mut left, method != "HEAD"));
    assert!(left.is_empty(), "nothing follows: {}", String::from_utf8_lossy(&read));
    responses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn length_beside_chunks_splits_no_response() {
    let (short, long) = ("content-length: 3\r\n", "content-length: 5000\r\n");
    let chunks = "transfer-encoding: chunked\r\n";
    for lines in [
        [short, chunks].concat(),
        [chunks, short].concat(),
        [long, chunks].concat(),
        [short, long, chunks].concat(),
        ["connection: content-length\r\n", short, chunks].concat(),
        ["connection: transfer-encoding\r\n", chunks, short].concat(),
        ["x-accel-buffering: no\r\n", short, chunks].concat(),
    ] {
        let (_upstream, proxy) = proxy_of(chunked(&lines)).await;
        let token = token(&proxy).await;
        let submission = |line: &str| format!("{line}content-length: 0\r\n");
        for (method, sent) in [
            ("GET", String::new()),
            ("POST", submission("")),
            // The second is a replay, if the first is no stream.
            ("POST", submission("idempotency-key: k\r\n")),
            ("POST", submission(&format!("onceward-token: {token}\r\n"))),
        ] {
            let [first, second] = twice(&proxy, method, &sent).await;
            assert_eq!(String::from_utf8_lossy(&first.body), BODY, "{lines:?} {method} {sent:?}: {first:?}");
            let is_stored = !lines.contains("x-accel") || !sent.contains(':') || sent == submission("");
            assert!(!is_stored || second.body == BODY.as_bytes(), "{lines:?} {method} {sent:?}: {second:?}");
        }
        for response in twice(&proxy, "HEAD", "").await {
            assert!(!response.head.contains("content-length"), "{lines:?}: {response:?}");
        }
        assert!(proxy.log().iter().all(|line| !line.contains("panicked")), "{:?}", proxy.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_lengths_become_one_and_different_ones_are_no_response() {
    for lines in [
        "content-length: 5\r\n",
        "content-length: 5\r\ncontent-length: 5\r\n",
        "content-length: 5, 5\r\n",
        "connection: content-length\r\ncontent-length: 5\r\n",
    ] {
        let (_upstream, proxy) = proxy_of(format!("HTTP/1.1 200 OK\r\n{lines}\r\nhello")).await;
        for (method, sent) in [("GET", ""), ("POST", "content-length: 0\r\nidempotency-key: k\r\n")] {
            for response in twice(&proxy, method, sent).await {
                assert!(response.head.contains("content-length: 5\r\n"), "{lines:?}: {response:?}");
                assert_eq!(response.body, b"hello", "{lines:?} {method}: {response:?}");
            }
        }
    }
    for lines in [
        "content-length: 3\r\ncontent-length: 5\r\n",
        "content-length: 5\r\ncontent-length: 3\r\n",
        "content-length: 3, 5\r\n",
        "content-length: +5\r\n",
        "content-length: five\r\n",
    ] {
        let (_upstream, proxy) = proxy_of(format!("HTTP/1.1 200 OK\r\n{lines}\r\nhello")).await;
        assert_eq!(send(keyed(&proxy, "/orders", "k")).await.said(), "502 unknown", "{lines:?}");
        assert_eq!(send(order(&proxy, "/orders", "tea")).await.said(), "502 unprotected", "{lines:?}");
    }
}

/// hyper does not read the length of a message that has no body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn different_lengths_of_a_response_without_body_are_removed() {
    for (status, method) in [("200 OK", "HEAD"), ("304 Not Modified", "HEAD")] {
        let lines = "content-length: 3\r\ncontent-length: 5\r\n";
        let (_upstream, proxy) = proxy_of(format!("HTTP/1.1 {status}\r\n{lines}\r\n")).await;
        for response in twice(&proxy, method, "").await {
            assert!(!response.head.contains("content-length"), "{response:?}");
        }
        let (_upstream, proxy) = proxy_of(format!("HTTP/1.1 {status}\r\ncontent-length: 5\r\n\r\n")).await;
        for response in twice(&proxy, method, "").await {
            assert!(status != "200 OK" || response.head.contains("content-length: 5\r\n"), "{response:?}");
        }
    }
}

/// RFC 9112, section 6.1: such a message is malformed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_of_http_1_0_are_no_response() {
    let response = chunked("transfer-encoding: chunked\r\ncontent-length: 3\r\n").replace("HTTP/1.1", "HTTP/1.0");
    let (_upstream, proxy) = proxy_of(response).await;
    let token = token(&proxy).await;
    assert_eq!(send(tokened(&proxy, "/orders", &token)).await.said(), "502 unknown");
    assert_eq!(send(order(&proxy, "/orders", "tea")).await.said(), "502 unprotected");
}

#[tokio::test]
async fn response_head_far_over_64_kib_is_an_unknown_outcome() {
    for (size, said) in [(60_000, "200 executed"), (200_000, "502 unknown")] {
        let lines = format!("x-large: {}\r\ncontent-length: {}\r\n", "a".repeat(size), BODY.len());
        let (_upstream, proxy) = proxy_of(format!("HTTP/1.1 200 OK\r\n{lines}\r\n{BODY}")).await;
        assert_eq!(send(keyed(&proxy, "/orders", "k")).await.said(), said, "{size}");
    }
}
