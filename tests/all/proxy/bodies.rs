//! Bodies: streams and large responses pass through, chunked responses are stored, and a protected request has a limit.

use std::sync::atomic::Ordering;
use std::time::Duration;

use onceward_api::header;
use onceward_tests::client::{Answer, MULTIPART, URLENCODED, http, multipart, send};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, smooth};
use onceward_tests::legacy_shop::{LegacyShop, proxy_to};
use onceward_tests::polling::holds_for;
use onceward_tests::raw_http;
use reqwest::RequestBuilder;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::counted_connections::count_connections;
use super::submission::{LONG, SettingsFile, keyed, order, token, tokened};

const MEGABYTES: usize = 3_000_000;

#[tokio::test]
async fn event_stream_arrives_as_it_is_sent_and_is_not_stored() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let token = token(&proxy).await;
    let target = "/orders?reply=events&count=3&seconds=0.4";
    for request in [tokened(&proxy, target, &token), keyed(&proxy, target, "k"), order(&proxy, target, "tea")] {
        let before = shop.orders().len();
        let is_protected = request.try_clone().unwrap().build().unwrap().headers().len() > 1;
        let mut response = request.try_clone().unwrap().send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let first = response.chunk().await.unwrap().unwrap();
        assert_eq!(first, "data: 0\n\n", "the first event arrives before the last is sent");
        assert_eq!(Answer::of(response).await.body, "data: 1\n\ndata: 2\n\n");
        if is_protected {
            assert_eq!(send(request).await.said(), "409 reply_not_kept");
        }
        assert_eq!(shop.orders().len() - before, 1);
    }
}

#[tokio::test]
async fn response_over_the_limit_passes_through_and_is_not_stored() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    for (number, chunked) in ["", "&chunked=1"].iter().enumerate() {
        let target = format!("/orders?reply=big&bytes={MEGABYTES}{chunked}");
        let token = token(&proxy).await;
        for request in [tokened(&proxy, &target, &token), keyed(&proxy, &target, &format!("k{number}"))] {
            let before = shop.orders().len();
            let first = send(request.try_clone().unwrap()).await;
            assert_eq!((first.said().as_str(), first.body.len()), ("200 executed", MEGABYTES), "{target}");
            assert!(first.body.iter().all(|byte| *byte == b'x'));
            assert_eq!(send(request).await.said(), "409 reply_not_kept", "{target}");
            assert_eq!(shop.orders().len() - before, 1);
        }
    }
}

#[tokio::test]
async fn chunked_response_is_stored_and_replayed() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    for said in ["200 executed", "200 replayed"] {
        let answer = send(keyed(&proxy, "/orders?reply=chunked", "k")).await;
        assert_eq!((answer.said().as_str(), &answer.body[..]), (said, &b"order 1: tea"[..]));
    }
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn protected_body_over_the_limit_is_rejected_before_the_upstream() {
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, smooth).await;
    let proxy = proxy_to(&upstream.url, &["--body-limit", "64KiB"]);
    let large = || "x".repeat(100_000);
    let token = token(&proxy).await;
    let cases = [
        ("JSON with a key", keyed(&proxy, "/orders", "k").body(format!("{{\"item\":\"{}\"}}", large()))),
        (
            "bytes with a key",
            order(&proxy, "/orders", "")
                .header(header::IDEMPOTENCY_KEY, "b")
                .header("content-type", "image/png")
                .body(large()),
        ),
        ("JSON with a token", tokened(&proxy, "/orders", &token).body(format!("{{\"item\":\"{}\"}}", large()))),
        (
            "a form with its token first",
            http().post(format!("{}/orders", proxy.url)).form(&[("_onceward", &token), ("item", &large())]),
        ),
        (
            "a form with its token last",
            http().post(format!("{}/orders", proxy.url)).form(&[("item", &large()), ("_onceward", &token)]),
        ),
    ];
    for (what, request) in cases {
        let answer = send(request).await;
        assert_eq!(answer.said(), "413 body_too_large", "{what}: {answer:?}");
    }
    assert_eq!((upstream.seen().len(), shop.orders().len()), (0, 0));
    assert_eq!(send(tokened(&proxy, "/orders", &token)).await.said(), "201 executed", "the token is still valid");
    assert_eq!(send(keyed(&proxy, "/orders", "k")).await.said(), "201 executed", "the key is still free");
}

/// The limit protects the memory of the proxy, and a body that is not read needs none.
#[tokio::test]
async fn unprotected_upload_has_no_limit() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--body-limit", "64KiB"]);
    let upload = |kind: &str, body: Vec<u8>| {
        send(http().post(format!("{}/sink", proxy.url)).header("content-type", kind).body(body))
    };
    let whole = multipart(&[("file", &vec![b'x'; MEGABYTES])]);
    for (kind, body) in [("application/octet-stream", vec![b'x'; MEGABYTES]), (MULTIPART, whole)] {
        let length = body.len();
        let answer = upload(kind, body).await;
        assert_eq!(answer.said(), "200 unprotected", "{answer:?}");
        assert_eq!(serde_json::from_slice::<Value>(&answer.body).unwrap()["bytes"], length);
    }
}

#[tokio::test]
async fn body_of_unknown_length_reaches_the_upstream() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let chunks = || futures_util::stream::iter(["{\"item\"", ":\"te", "a\"}"].map(Ok::<_, std::io::Error>));
    let chunked = || reqwest::Body::wrap_stream(chunks());
    assert_eq!(send(order(&proxy, "/orders", "").body(chunked())).await.said(), "201 unprotected");
    for said in ["201 executed", "201 replayed"] {
        assert_eq!(send(keyed(&proxy, "/orders", "k").body(chunked())).await.said(), said);
    }
    let items: Vec<_> = shop.orders().iter().map(|order| order["item"].clone()).collect();
    assert_eq!(items, ["tea", "tea"]);
}

/// Routes that compare no content: the guard itself would not read their bodies.
const UNCOMPARED: &str = r#"body_limit = "64KiB"

[[proxy.route]]
path = "/token"
policy = "token"

[[proxy.route]]
path = "/interval"
policy = "interval"
every = "1m"
key_from = { header = "X-Name" }
"#;

#[tokio::test]
async fn uncompared_body_over_the_limit_is_rejected_before_the_upstream() {
    let (shop, file) = (LegacyShop::start(), SettingsFile::new(UNCOMPARED));
    let (url, connections) = count_connections(&shop.url).await;
    let proxy = proxy_to(&url, &["--config", file.path()]);
    let (token, large) = (token(&proxy).await, "x".repeat(100_000));
    let chunks =
        || futures_util::stream::iter(std::iter::repeat_n("x".repeat(10_000), 10).map(Ok::<_, std::io::Error>));
    let chunked = |request: RequestBuilder| request.body(reqwest::Body::wrap_stream(chunks()));
    let named = || order(&proxy, "/interval", "tea").header("x-name", "a");
    let post = || http().post(format!("{}/token", proxy.url));
    let cases = [
        ("a token in the header", tokened(&proxy, "/token", &token).body(large.clone())),
        ("a token in the header, with chunks", chunked(tokened(&proxy, "/token", &token))),
        ("a form with its token first", post().form(&[("_onceward", &token), ("item", &large)])),
        (
            "a multipart form",
            post()
                .header("content-type", MULTIPART)
                .body(multipart(&[("_onceward", token.as_bytes()), ("file", large.as_bytes())])),
        ),
        ("an interval", named().body(large.clone())),
        ("an interval, with chunks", chunked(named())),
    ];
    for (what, request) in cases {
        let answer = send(request).await;
        assert_eq!(answer.said(), "413 body_too_large", "{what}: {answer:?}");
    }
    assert_eq!((connections.load(Ordering::SeqCst), shop.orders().len()), (0, 0));
    // 64 KiB is the limit, and not over it.
    let allowed = |path: &str, name: &str, value: &str| {
        http().post(format!("{}{path}", proxy.url)).header(name, value).body("x".repeat(64 * 1024))
    };
    for request in [allowed("/token", header::TOKEN, &token), allowed("/interval", "x-name", "a")] {
        let answer = send(request).await;
        assert_eq!(answer.said(), "201 executed", "the token or name is still valid: {answer:?}");
    }
    assert_eq!(shop.orders().len(), 2);
}

/// A client that waits for `100 Continue` need not send its body.
#[tokio::test]
async fn body_over_the_limit_is_rejected_by_its_length() {
    let (shop, file) = (LegacyShop::start(), SettingsFile::new(UNCOMPARED));
    let proxy = shop.proxy(&["--config", file.path()]);
    let token = token(&proxy).await;
    for (path, line) in [
        ("/token", format!("onceward-token: {token}")),
        ("/interval", "x-name: a".to_owned()),
        ("/other", "idempotency-key: k".to_owned()),
        ("/other", format!("onceward-token: {token}")),
    ] {
        let mut stream = raw_http::connect(&proxy.url).await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: shop\r\n{line}\r\nexpect: 100-continue\r\ncontent-length: 50000000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut start = [0; 12];
        timeout(LONG, stream.read_exact(&mut start)).await.expect("a response without the body").unwrap();
        assert_eq!(&start, b"HTTP/1.1 413", "{path} {line}");
    }
    assert_eq!(send(tokened(&proxy, "/token", &token)).await.said(), "201 executed", "the token is still valid");
    assert_eq!(shop.orders().len(), 1);
}

/// Otherwise the application would receive the beginning of a request, and might act on it.
#[tokio::test]
async fn protected_request_of_a_client_that_disconnects_is_not_forwarded() {
    /// Time in which the proxy would forward the request.
    const SHORT: Duration = Duration::from_millis(300);
    let (shop, file) = (LegacyShop::start(), SettingsFile::new(UNCOMPARED));
    let (url, connections) = count_connections(&shop.url).await;
    let proxy = proxy_to(&url, &["--config", file.path(), "--request-timeout", "500ms"]);
    let token = token(&proxy).await;
    let form = format!("_onceward={token}&item=tea");
    for (path, lines, half) in [
        ("/token", format!("onceward-token: {token}\r\ncontent-length: 1000\r\n"), "half of"),
        ("/token", format!("content-type: {URLENCODED}\r\ncontent-length: 1000\r\n"), form.as_str()),
        ("/token", format!("onceward-token: {token}\r\ntransfer-encoding: chunked\r\n"), "3\r\nabc\r\n"),
        ("/interval", "x-name: a\r\ncontent-length: 1000\r\n".to_owned(), "half of"),
        ("/other", "idempotency-key: k\r\ncontent-length: 1000\r\n".to_owned(), "half of"),
    ] {
        let request = format!("POST {path} HTTP/1.1\r\nhost: shop\r\n{lines}\r\n{half}");
        let mut gone = raw_http::connect(&proxy.url).await;
        gone.write_all(request.as_bytes()).await.unwrap();
        let mut silent = raw_http::connect(&proxy.url).await;
        silent.write_all(request.as_bytes()).await.unwrap();
        let is_idle = || std::future::ready(connections.load(Ordering::SeqCst) == 0);
        holds_for("nothing is forwarded", SHORT, is_idle).await;
        drop(gone);
        let mut start = [0; 12];
        timeout(LONG, silent.read_exact(&mut start)).await.expect("a response to half of a request").unwrap();
        assert_eq!(&start, b"HTTP/1.1 400", "{path} {lines}");
        assert!(is_idle().await, "{path} {lines}");
    }
    for request in [
        tokened(&proxy, "/token", &token),
        order(&proxy, "/interval", "tea").header("x-name", "a"),
        keyed(&proxy, "/other", "k"),
    ] {
        let answer = send(request).await;
        assert_eq!(answer.said(), "201 executed", "nothing was claimed: {answer:?}");
    }
    assert_eq!(shop.orders().len(), 3);
}

#[tokio::test]
async fn body_of_any_method_reaches_the_upstream() {
    const BODY: &str = "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
    let response = b"HTTP/1.1 204 No Content\r\n\r\n";
    let upstream = FaultyHttpProxy::to("http://127.0.0.1:1", |_| HttpFault::Raw(response.to_vec())).await;
    let proxy = proxy_to(&upstream.url, &[]);
    for method in ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] {
        for (line, body) in [("transfer-encoding: chunked", BODY), ("content-length: 5", "hello"), ("accept: */*", "")]
        {
            let mut stream = raw_http::connect(&proxy.url).await;
            let request =
                format!("{method} /search HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{line}\r\n\r\n{body}");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            timeout(LONG, stream.read_to_string(&mut answer)).await.expect("a response").unwrap();
            assert!(answer.starts_with("HTTP/1.1 204"), "{method} {line}: {answer}");
            let seen = upstream.seen().pop().unwrap();
            let (name, value) = line.split_once(": ").unwrap();
            assert_eq!(seen.header(name), value, "{method}: {seen:?}");
            let text = String::from_utf8_lossy(&seen.body);
            let is_whole = text == body || (body == BODY && text == "5\r\nhello\r\n0\r\n\r\n");
            assert!(is_whole, "{method} {line}: {seen:?}");
            let lengths =
                ["transfer-encoding", "content-length"].map(|name| usize::from(seen.headers.contains_key(name)));
            assert!(lengths.iter().sum::<usize>() <= 1, "{method} {line}: {seen:?}");
        }
    }
}
