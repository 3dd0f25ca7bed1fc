//! Malformed requests over a raw socket: each is rejected or its connection closed in time, no token is used by it, and the service
//! stays up.

use std::time::Duration;

use onceward_tests::client::{http, send, token};
use onceward_tests::service::OncewardServer;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Sends these bytes and returns the response, until the server closes the connection or pauses after responding.
async fn exchange(service: &OncewardServer, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(service.url.trim_start_matches("http://")).await.unwrap();
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(bytes).await;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    let silence = |answer: &Vec<u8>| if answer.is_empty() { LONG } else { SHORT };
    while let Ok(Ok(count @ 1..)) = timeout(silence(&answer), stream.read(&mut piece)).await {
        answer.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the status codes in an exchange.
fn statuses(answer: &str) -> Vec<u16> {
    answer.split("HTTP/1.1 ").skip(1).filter_map(|rest| rest.get(..3)?.parse().ok()).collect()
}

const SHORT: Duration = Duration::from_millis(400);
/// Time limit of an exchange; the request timeout is one second.
const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn malformed_requests_are_rejected_and_the_service_stays_up() {
    let service = OncewardServer::start(&["--demo", "off", "--request-timeout", "1s"]);
    let long = "a".repeat(300_000);
    let many: String = (0..500).map(|number| format!("x-{number}: 1\r\n")).collect();
    let odd: Vec<(&str, Vec<u8>)> = vec![
        ("only line ends", b"\r\n\r\n\r\n".to_vec()),
        ("a word", b"hello\r\n\r\n".to_vec()),
        ("HTTP/0.9", b"GET /\r\n\r\n".to_vec()),
        ("an invalid version", b"GET / HTTP/9.9\r\nhost: a\r\n\r\n".to_vec()),
        ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("the beginning of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        ("zeros", vec![0; 2048]),
        ("bytes above ASCII", vec![0xff; 2048]),
        ("a blank in the path", b"GET /a b HTTP/1.1\r\nhost: a\r\n\r\n".to_vec()),
        ("a NUL in a header", b"GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n".to_vec()),
        ("a blank before the colon", b"GET / HTTP/1.1\r\nhost : a\r\n\r\n".to_vec()),
        ("a folded header", b"GET / HTTP/1.1\r\nhost: a\r\nx: a\r\n b\r\n\r\n".to_vec()),
        ("a header without a colon", b"GET / HTTP/1.1\r\nhost\r\n\r\n".to_vec()),
        ("a very long method", format!("{long} / HTTP/1.1\r\n\r\n").into_bytes()),
        ("a very long path", format!("GET /{long} HTTP/1.1\r\nhost: a\r\n\r\n").into_bytes()),
        ("a very long header", format!("GET / HTTP/1.1\r\nhost: a\r\nx: {long}\r\n\r\n").into_bytes()),
        ("five hundred headers", format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n").into_bytes()),
        ("a length below zero", b"POST /token HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n".to_vec()),
        ("a length that is no number", b"POST /token HTTP/1.1\r\nhost: a\r\ncontent-length: 1x\r\n\r\n".to_vec()),
        ("an overflowing length", format!("POST /token HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", u128::MAX).into_bytes()),
        ("two lengths", b"POST /token HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\ncontent-length: 5\r\n\r\nhello".to_vec()),
        ("a chunk without a size", b"POST /token HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n".to_vec()),
        ("an overflowing chunk size", b"POST /token HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n".to_vec()),
        ("an unknown transfer coding", b"POST /token HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gizip\r\n\r\n".to_vec()),
        ("a tunnel", b"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n".to_vec()),
        ("an asterisk", b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n".to_vec()),
        ("a trace", b"TRACE /token HTTP/1.1\r\nhost: a\r\n\r\n".to_vec()),
        ("a path out of the root", b"GET /../../etc/passwd HTTP/1.1\r\nhost: a\r\n\r\n".to_vec()),
        ("a NUL in a path", b"GET /%00 HTTP/1.1\r\nhost: a\r\n\r\n".to_vec()),
        ("half a character in a path", b"GET /%c3 HTTP/1.1\r\nhost: a\r\n\r\n".to_vec()),
        ("no host", b"GET /healthz HTTP/1.1\r\n\r\n".to_vec()),
        ("a body of the wrong kind", b"POST /token/redeem HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n\xff\xfe".to_vec()),
        ("a deep body", format!("POST /token/redeem HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 15000\r\n\r\n{}", "[".repeat(15_000)).into_bytes()),
    ];
    for (what, bytes) in odd {
        let answer = exchange(&service, &bytes).await;
        let told = statuses(&answer);
        assert!(told.iter().all(|status| (400..500).contains(status)), "{what} is rejected: {answer}");
        // If the server closes while the client still sends, the response may be lost.
        let is_cut_short = bytes.len() > 100_000 && told.is_empty();
        assert!(told.len() == 1 || is_cut_short, "{what} gets one response: {answer}");
        assert!(!answer.contains("panicked") && !answer.contains("/src/"), "{what} leaks no internals: {answer}");
        assert_eq!(send(http().get(format!("{}/healthz", service.url))).await.status, 200, "after {what}");
    }
}

/// Request smuggling: with an ambiguous length, the hidden request is not executed and there is no second response.
#[tokio::test]
async fn ambiguous_length_smuggles_no_request() {
    let service = OncewardServer::start(&["--demo", "off"]);
    for (what, lines) in [
        ("a length and chunks", "content-length: 6\r\ntransfer-encoding: chunked\r\n"),
        ("chunks and a length", "transfer-encoding: chunked\r\ncontent-length: 6\r\n"),
        ("chunks under another name", "content-length: 6\r\ntransfer-encoding : chunked\r\n"),
        ("chunks twice", "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\ncontent-length: 6\r\n"),
        ("chunks with a tab", "transfer-encoding:\tchunked\r\ncontent-length: 6\r\n"),
    ] {
        let good = token(&service.url).await;
        let hidden = json!({ "token": good }).to_string();
        let bytes = format!(
            "POST /token HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n{lines}\r\n0\r\n\r\nGPOST /token/redeem HTTP/1.1\r\n\
             host: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{hidden}",
            hidden.len()
        );
        let answer = exchange(&service, bytes.as_bytes()).await;
        assert!(statuses(&answer).iter().all(|status| (400..500).contains(status)), "{what}: {answer}");
        let request = http().post(format!("{}/token/redeem", service.url)).header("content-type", "application/json");
        assert_eq!(send(request.body(hidden)).await.said(), "200 redeemed", "{what}: the token is still valid");
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_and_partial_ones_not() {
    let service = OncewardServer::start(&["--demo", "off"]);
    let three =
        exchange(&service, "POST /token HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n".repeat(3).as_bytes()).await;
    assert_eq!(statuses(&three), [201, 201, 201]);
    let good = token(&service.url).await;
    let body = json!({ "token": good }).to_string();
    let whole = format!(
        "POST /token/redeem HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for end in [10, 60, whole.len() - body.len(), whole.len() - 1] {
        let mut stream = TcpStream::connect(service.url.trim_start_matches("http://")).await.unwrap();
        stream.write_all(&whole.as_bytes()[..end]).await.unwrap();
        drop(stream);
    }
    let redeemed = exchange(&service, whole.as_bytes()).await;
    assert_eq!(statuses(&redeemed), [200], "the partial request was not executed: {redeemed}");
}
