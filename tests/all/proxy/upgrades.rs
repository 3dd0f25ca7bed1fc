//! Connections that switch to another protocol.

use std::time::Duration;

use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault};
use onceward_tests::legacy_shop::{LegacyShop, proxy_to};
use onceward_tests::polling::until;
use onceward_tests::raw_http;
use onceward_tests::service::OncewardServer;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::submission::{LONG, keyed};

const HANDSHAKE: &str = "GET /socket HTTP/1.1\r\nhost: shop\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\
                         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// The answer to that key, from RFC 6455.
const ACCEPT: &str = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Reads until the end of a head.
async fn head(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        let byte = timeout(LONG, stream.read_u8()).await.expect("a response in time").expect("a whole head");
        read.push(byte);
    }
    String::from_utf8(read).unwrap()
}

async fn open(proxy: &OncewardServer) -> TcpStream {
    let mut stream = raw_http::connect(&proxy.url).await;
    stream.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    let head = head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 101") && head.contains(ACCEPT), "{head}");
    assert!(head.contains("upgrade: websocket\r\n") && head.contains("connection: upgrade\r\n"), "{head}");
    stream
}

/// Returns a masked frame.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        short @ ..126 => frame.push(0x80 | short as u8),
        long => {
            frame.push(0x80 | 126);
            frame.extend((long as u16).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// Reads an unmasked frame.
async fn read_frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let read = async {
        let (opcode, length) = (stream.read_u8().await.unwrap(), stream.read_u8().await.unwrap());
        let length = if length == 126 { stream.read_u16().await.unwrap() as usize } else { length as usize };
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.unwrap();
        (opcode & 0x0f, payload)
    };
    timeout(LONG, read).await.expect("a frame in time")
}

#[tokio::test]
async fn websocket_frames_pass_in_both_directions() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let mut stream = open(&proxy).await;
    for payload in [&b""[..], b"hello", &[7; 125], &[8; 126], &[9; 60_000]] {
        stream.write_all(&frame(2, payload)).await.unwrap();
        assert_eq!(read_frame(&mut stream).await, (2, payload.to_vec()));
    }
    stream.write_all(&[frame(1, b"one"), frame(1, b"two"), frame(8, b"")].concat()).await.unwrap();
    for expected in [(1, b"one".to_vec()), (1, b"two".to_vec()), (8, Vec::new())] {
        assert_eq!(read_frame(&mut stream).await, expected);
    }
    assert_eq!(timeout(LONG, stream.read(&mut [0])).await.unwrap().unwrap(), 0, "the upstream has closed");
}

/// A client may send its first frame with the handshake.
#[tokio::test]
async fn frame_in_the_segment_of_the_handshake_is_not_lost() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let mut stream = raw_http::connect(&proxy.url).await;
    stream.write_all(&[HANDSHAKE.as_bytes(), &frame(1, b"early")].concat()).await.unwrap();
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 101"));
    assert_eq!(read_frame(&mut stream).await, (1, b"early".to_vec()));
}

#[tokio::test]
async fn refused_upgrade_passes_and_the_connection_stays_usable() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let mut stream = raw_http::connect(&proxy.url).await;
    for request in
        ["GET /socket HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), HANDSHAKE.replace("websocket\r\n", "other\r\n")]
    {
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 426"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap();
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        assert!(String::from_utf8_lossy(&body).contains("upgrade required"));
    }
}

/// The headers that the upstream receives with an upgrade to these protocols, each line of `Upgrade` as one of them.
async fn received(proxy: &OncewardServer, protocols: &[&str], connection: &str) -> Vec<(String, String)> {
    let others = [("connection", connection), ("http2-settings", "AAMAAABkAARAAAAAAAIAAAAA")];
    let upgrades = protocols.iter().map(|protocol| ("upgrade", *protocol));
    let headers: Vec<_> = others.into_iter().chain(upgrades).collect();
    let answer = raw_http::request("GET", &proxy.url, "/headers", &headers, "").await;
    assert_eq!(answer.status, 200, "{protocols:?}: {answer:?}");
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    body["headers"].as_array().unwrap().iter().map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

/// After a switch to another version of HTTP or to TLS, submissions would pass in a tunnel that the proxy does not read.
#[tokio::test]
async fn upgrade_to_http_2_or_tls_is_not_forwarded() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    for connection in ["upgrade", "upgrade, http2-settings"] {
        for protocols in [
            &["h2c"][..],
            &["H2C"],
            &["h2c, foo"],
            &["foo, h2c"],
            &["websocket, h2c"],
            &["websocket,h2c"],
            &["h2c", "websocket"],
            &["websocket", "h2c"],
            &["HTTP/2.0"],
            &["http/2.0"],
            &["websocket, HTTP/2.0"],
            &["TLS/1.3"],
            &["TLS/1.2, HTTP/1.1"],
        ] {
            let lines = received(&proxy, protocols, connection).await;
            let is_left = |(name, value): &(String, String)| {
                ["upgrade", "http2-settings"].contains(&name.as_str())
                    || name == "connection" && value.to_lowercase().contains("upgrade")
            };
            assert!(!lines.iter().any(is_left), "{protocols:?}: {lines:?}");
        }
        let lines = received(&proxy, &["websocket"], connection).await;
        assert!(lines.contains(&("upgrade".to_owned(), "websocket".to_owned())), "{lines:?}");
        assert!(!lines.iter().any(|(name, _)| name == "http2-settings"), "{lines:?}");
    }
}

#[tokio::test]
async fn switch_to_h2c_that_the_upstream_makes_is_not_passed_on() {
    let switched = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, |_| HttpFault::Raw(switched.as_bytes().to_vec())).await;
    let proxy = proxy_to(&upstream.url, &[]);
    for protocol in ["h2c", "websocket"] {
        let headers = [("connection", "upgrade"), ("upgrade", protocol)];
        let answer = raw_http::request("GET", &proxy.url, "/headers", &headers, "").await;
        assert_eq!(answer.status, 502, "{protocol}: {answer:?}");
    }
}

/// The request in flight has no response until then, so that only the limit ends the shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_and_request_in_flight_end_with_the_drain_limit() {
    const LAST_CALL: Duration = Duration::from_millis(50);
    const LIMIT: Duration = Duration::from_secs(3);
    /// Time for the process to end. Shorter than `LIMIT`, so that waiting for the limit twice fails.
    const ENDING: Duration = Duration::from_secs(2);
    let shop = LegacyShop::start();
    let mut proxy = shop.proxy(&["--drain-limit", "3s", "--last-call", "50ms"]);
    let mut stream = open(&proxy).await;
    stream.write_all(&frame(1, b"before")).await.unwrap();
    assert_eq!(read_frame(&mut stream).await, (1, b"before".to_vec()));
    let silent = tokio::spawn(keyed(&proxy, "/orders?fail=silent", "k").send());
    until("the request is in flight", LONG, || std::future::ready(shop.orders().len() == 1)).await;
    let begun = Instant::now();
    proxy.terminate();
    until("it ends", LONG, || std::future::ready(proxy.ended().is_some())).await;
    let took = begun.elapsed();
    assert!(took >= LIMIT && took < LAST_CALL + LIMIT + ENDING, "{took:?}");
    assert!(!matches!(timeout(LONG, stream.read(&mut [0])).await.unwrap(), Ok(1..)), "the WebSocket is closed");
    let answer = timeout(LONG, silent).await.expect("its connection is closed").unwrap();
    assert!(!answer.is_ok_and(|answer| answer.status().is_success()), "the request has not succeeded");
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn open_websocket_alone_ends_within_the_drain_limit() {
    const LIMIT: Duration = Duration::from_secs(3);
    /// Time for the process to end.
    const ENDING: Duration = Duration::from_secs(2);
    let shop = LegacyShop::start();
    let mut proxy = shop.proxy(&["--drain-limit", "3s", "--last-call", "50ms"]);
    let mut stream = open(&proxy).await;
    let begun = Instant::now();
    proxy.terminate();
    until("it ends", LONG, || std::future::ready(proxy.ended().is_some())).await;
    assert!(begun.elapsed() < LIMIT + ENDING, "{:?}", begun.elapsed());
    assert_eq!(proxy.ended(), Some(0));
    assert!(!matches!(timeout(LONG, stream.read(&mut [0])).await.unwrap(), Ok(1..)), "the connection is closed");
}

/// A WebSocket counts as a connection of its client: otherwise the limit would not hold.
#[tokio::test]
async fn open_websockets_count_as_connections() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--max-connections", "8", "--max-connections-per-client", "2"]);
    let mut sockets = Vec::new();
    for _ in 0..4 {
        sockets.push(open(&proxy).await);
    }
    let refused = || async {
        let mut stream = raw_http::connect(&proxy.url).await;
        let _ = stream.write_all(HANDSHAKE.as_bytes()).await;
        let read = timeout(LONG, stream.read(&mut [0; 16])).await.expect("a response or the end");
        !matches!(read, Ok(1..))
    };
    assert!(refused().await, "the fifth connection is closed");
    for socket in &mut sockets {
        socket.write_all(&frame(1, b"still open")).await.unwrap();
        assert_eq!(read_frame(socket).await.1, b"still open");
    }
    sockets.clear();
    until("a place is free", LONG, || async { !refused().await }).await;
}
