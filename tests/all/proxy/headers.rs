//! Headers of forwarded requests and responses, `Expect`, `HEAD`, keep-alive and the access log.

use std::sync::atomic::Ordering;

use onceward_api::header;
use onceward_tests::client::{http, send};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, smooth};
use onceward_tests::legacy_shop::{LegacyShop, proxy_to};
use onceward_tests::polling::until;
use onceward_tests::raw_http;
use onceward_tests::service::OncewardServer;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::counted_connections::count_connections;
use super::submission::{LONG, SettingsFile, keyed, order, token, tokened};

/// The headers that the upstream received, each as `name: value`.
async fn received(proxy: &OncewardServer, headers: &[(&str, &str)]) -> Vec<String> {
    let answer = raw_http::request("GET", &proxy.url, "/headers?a=1", headers, "").await;
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    assert_eq!(body["path"], "/headers?a=1");
    let line = |pair: &Value| format!("{}: {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
    body["headers"].as_array().unwrap().iter().map(line).collect()
}

#[track_caller]
fn expect(lines: &[String], has: &[&str], lacks: &[&str]) {
    for line in has {
        assert!(lines.iter().any(|own| own == line), "{line} is not in {lines:#?}");
    }
    for name in lacks {
        assert!(!lines.iter().any(|own| own.starts_with(name)), "{name} is in {lines:#?}");
    }
}

#[tokio::test]
async fn hop_by_hop_headers_of_a_request_are_removed() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let sent = [
        ("connection", "x-hop, Keep-Alive"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("proxy-authorization", "Basic c2VjcmV0"),
        ("proxy-connection", "close"),
        ("upgrade", "h2c"),
        ("x-end-to-end", "1"),
        ("authorization", "Bearer a"),
        ("cookie", "user=alice"),
    ];
    let lines = received(&proxy, &sent).await;
    let gone = ["connection:", "x-hop:", "keep-alive:", "te:", "proxy-authorization:", "proxy-connection:", "upgrade:"];
    expect(&lines, &["x-end-to-end: 1", "authorization: Bearer a", "cookie: user=alice", "host: shop"], &gone);
}

#[tokio::test]
async fn hop_by_hop_headers_of_a_response_are_removed() {
    let shop = LegacyShop::start();
    let response = "HTTP/1.1 200 OK\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\
                    proxy-authenticate: Basic\r\nx-end-to-end: 1\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\
                    content-length: 2\r\n\r\nok";
    let upstream = FaultyHttpProxy::to(&shop.url, |_| HttpFault::Raw(response.as_bytes().to_vec())).await;
    let proxy = proxy_to(&upstream.url, &[]);
    for request in [http().get(format!("{}/", proxy.url)), keyed(&proxy, "/orders", "k")] {
        let answer = send(request).await;
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
        for name in ["x-hop", "keep-alive", "proxy-authenticate", "connection", "transfer-encoding"] {
            assert!(!answer.headers.contains_key(name), "{name}: {answer:?}");
        }
        assert_eq!(answer.headers["x-end-to-end"], "1");
        assert_eq!(
            answer.headers.get_all("set-cookie").iter().count(),
            2,
            "the client of the run receives its cookies"
        );
    }
}

#[tokio::test]
async fn forwarding_headers_of_an_untrusted_client_are_replaced() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let spoofed = [
        ("host", "shop.example"),
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-prefix", "/evil"),
        ("x_forwarded_for", "6.6.6.6"),
        ("forwarded", "for=6.6.6.6"),
        ("x-real-ip", "6.6.6.6"),
    ];
    let lines = received(&proxy, &spoofed).await;
    let has = [
        "host: shop.example",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: http",
        "x-forwarded-host: shop.example",
        "forwarded: for=127.0.0.1;host=\"shop.example\";proto=http",
        "x-real-ip: 127.0.0.1",
        "via: 1.1 onceward",
    ];
    expect(&lines, &has, &["x-forwarded-prefix", "x_forwarded_for"]);
    assert!(!lines.iter().any(|line| line.contains("6.6.6.6") || line.contains("evil")), "{lines:#?}");
}

#[tokio::test]
async fn forwarding_headers_of_a_trusted_proxy_are_extended() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--trusted-proxies", "127.0.0.1"]);
    let sent = [
        ("x-forwarded-for", "203.0.113.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.example"),
        ("x-real-ip", "6.6.6.6"),
        ("via", "1.1 edge"),
    ];
    let lines = received(&proxy, &sent).await;
    let has = [
        "x-forwarded-for: 203.0.113.1, 127.0.0.1",
        "x-forwarded-proto: https",
        "x-forwarded-host: shop.example",
        "x-real-ip: 203.0.113.1",
        "via: 1.1 edge, 1.1 onceward",
    ];
    expect(&lines, &has, &["forwarded:"]);
    let forwarded = [("forwarded", "for=203.0.113.1;host=shop.example;proto=https")];
    let has = [
        "forwarded: for=203.0.113.1;host=shop.example;proto=https, for=127.0.0.1",
        "x-real-ip: 203.0.113.1",
        "via: 1.1 onceward",
    ];
    expect(&received(&proxy, &forwarded).await, &has, &["x-forwarded-"]);
    let both = [&sent[..], &forwarded].concat();
    let has = [
        "forwarded: for=203.0.113.1;host=shop.example;proto=https, for=127.0.0.1;proto=https",
        "x-forwarded-for: 203.0.113.1, 127.0.0.1",
        "x-forwarded-proto: https",
    ];
    expect(&received(&proxy, &both).await, &has, &[]);
}

#[tokio::test]
async fn host_is_that_of_the_client_or_of_the_upstream() {
    let shop = LegacyShop::start();
    let upstream = format!("host: {}", shop.url.trim_start_matches("http://"));
    for (policy, expected) in [("client", "host: shop.example"), ("upstream", upstream.as_str())] {
        let proxy = shop.proxy(&["--upstream-host", policy]);
        let lines = received(&proxy, &[("host", "shop.example")]).await;
        expect(&lines, &[expected, "x-forwarded-host: shop.example"], &[]);
        assert_eq!(lines.iter().filter(|line| line.starts_with("host:")).count(), 1, "{lines:#?}");
    }
}

#[tokio::test]
async fn http_1_0_request_without_host_receives_that_of_the_upstream() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let mut stream = raw_http::connect(&proxy.url).await;
    stream.write_all(b"GET /headers HTTP/1.0\r\n\r\n").await.unwrap();
    let answer = read_until(&mut stream, "]]}").await;
    let host = format!("[\"host\", \"{}\"]", shop.url.trim_start_matches("http://"));
    assert!(answer.starts_with("HTTP/1.0 200") && answer.contains(&host), "{answer}");
}

#[tokio::test]
async fn request_id_is_passed_on_and_returned() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let longest = "a".repeat(128);
    for id in ["trace-1", "trace_1", "Root=1-67891233-abcdef012345678912345678;Sampled=1", longest.as_str()] {
        let own = raw_http::request("GET", &proxy.url, "/headers", &[("x-request-id", id)], "").await;
        assert_eq!(own.headers[header::REQUEST_ID], id);
        assert!(String::from_utf8_lossy(&own.body).contains(&format!("\"x-request-id\", \"{id}\"")), "{own:?}");
        let is_logged = || std::future::ready(proxy.log().iter().any(|line| line.contains(id)));
        until("the id is in the log", LONG, is_logged).await;
    }
    let too_long = "a".repeat(129);
    for replaced in ["", "a b", "a\"b", "a\\b", too_long.as_str()] {
        let new = raw_http::request("GET", &proxy.url, "/headers", &[("x-request-id", replaced)], "").await;
        let id = new.headers[header::REQUEST_ID].to_str().unwrap();
        assert!(id != replaced && id.len() == 36, "{new:?}");
        assert!(String::from_utf8_lossy(&new.body).contains(id), "{new:?}");
    }
}

/// A retry may accept other encodings than the first request, and receives its response.
#[tokio::test]
async fn protected_request_asks_for_an_unencoded_response() {
    let shop = LegacyShop::start();
    let file = SettingsFile::new("[[proxy.route]]\npath = \"/plain\"\npolicy = \"token\"\n");
    let upstream = FaultyHttpProxy::to(&shop.url, smooth).await;
    let proxy = proxy_to(&upstream.url, &["--config", file.path()]);
    let tokens = [token(&proxy).await, token(&proxy).await];
    for (request, expected) in [
        (keyed(&proxy, "/orders", "k"), "identity"),
        (tokened(&proxy, "/orders", &tokens[0]), "identity"),
        (tokened(&proxy, "/plain", &tokens[1]), "identity"),
        (order(&proxy, "/orders", "tea"), "gzip, br"),
        (http().get(format!("{}/headers", proxy.url)), "gzip, br"),
    ] {
        let answer = send(request.header("accept-encoding", "gzip, br")).await;
        assert!(answer.status < 300, "{answer:?}");
        let seen = upstream.seen().pop().unwrap();
        assert_eq!(seen.header("accept-encoding"), expected, "{seen:?}");
    }
}

/// Reads from a connection until this text has arrived.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(text) {
        let mut piece = [0; 4096];
        let count = timeout(LONG, stream.read(&mut piece)).await.expect("a response in time").unwrap();
        assert!(count > 0, "{text} is not in {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&read).into_owned()
}

#[tokio::test]
async fn head_response_has_no_body_and_the_connection_stays_usable() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let mut stream = raw_http::connect(&proxy.url).await;
    for _ in 0..3 {
        stream.write_all(b"HEAD /login HTTP/1.1\r\nhost: shop\r\n\r\n").await.unwrap();
        let head = read_until(&mut stream, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(head.contains("content-length: ") && !head.contains("content-length: 0\r\n"), "{head}");
        stream.write_all(b"GET /login HTTP/1.1\r\nhost: shop\r\n\r\n").await.unwrap();
        let page = read_until(&mut stream, "</html>\n").await;
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    }
}

#[tokio::test]
async fn client_that_waits_for_100_continue_receives_it() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let token = token(&proxy).await;
    for line in [String::new(), format!("onceward-token: {token}\r\n")] {
        let mut stream = raw_http::connect(&proxy.url).await;
        let head = format!(
            "POST /sink HTTP/1.1\r\nhost: shop\r\n{line}expect: 100-continue\r\ncontent-length: 5\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let asked = read_until(&mut stream, "\r\n\r\n").await;
        assert_eq!(asked, "HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(b"hello").await.unwrap();
        let answer = read_until(&mut stream, "\"bytes\": 5").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[tokio::test]
async fn upstream_that_ignores_expect_receives_the_body() {
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, smooth).await;
    let proxy = proxy_to(&upstream.url, &[]);
    let mut stream = raw_http::connect(&proxy.url).await;
    let head = "POST /sink HTTP/1.1\r\nhost: shop\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read_until(&mut stream, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hello").await.unwrap();
    let seen = || std::future::ready(upstream.seen().iter().any(|seen| seen.body == b"hello"));
    until("the upstream receives the body", LONG, seen).await;
}

#[tokio::test]
async fn body_that_the_upstream_rejects_by_its_head_is_not_requested() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    for _ in 0..20 {
        let mut stream = raw_http::connect(&proxy.url).await;
        let head = "POST /reject HTTP/1.1\r\nhost: shop\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, "not allowed").await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
    assert_eq!(shop.orders().len(), 0);
    assert_eq!(send(http().get(format!("{}/", proxy.url))).await.status, 200);
}

#[tokio::test]
async fn access_log_contains_no_secret() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--log-level", "debug"]);
    let token = token(&proxy).await;
    let secret = |request: reqwest::RequestBuilder| {
        request.header("cookie", "session=canary-cookie").header("authorization", "Bearer canary-bearer")
    };
    let target = format!("/orders?_onceward={token}&card=canary-query");
    for request in [
        order(&proxy, &target, "canary-body"),
        keyed(&proxy, "/orders?card=canary-query", "canary-key"),
        keyed(&proxy, "/orders?card=canary-query&fail=reset", "canary-key-2"),
        tokened(&proxy, "/orders?card=canary-query", &token),
    ] {
        send(secret(request)).await;
    }
    let count = || std::future::ready(proxy.lines("answered").len() == 5);
    until("every response is logged", LONG, count).await;
    for line in proxy.log() {
        assert!(!line.contains("canary") && !line.contains(&token), "{line}");
    }
    let line = &proxy.lines("answered")[1];
    assert_eq!((line["path"].as_str(), line["status"].as_u64()), (Some("/orders"), Some(201)), "{line}");
    assert_eq!((line["method"].as_str(), line["outcome"].as_str()), (Some("POST"), Some("executed")), "{line}");
}

#[tokio::test]
async fn connections_to_the_upstream_are_reused() {
    let shop = LegacyShop::start();
    for (keep_alive, most) in [("1s", 12), ("0s", 40)] {
        let (url, count) = count_connections(&shop.url).await;
        let proxy = proxy_to(&url, &["--upstream-keep-alive", keep_alive]);
        let client = http();
        for number in 0..40 {
            let request = client.post(format!("{}/orders", proxy.url)).header(header::IDEMPOTENCY_KEY, number);
            let answer =
                send(if number % 2 == 0 { client.get(format!("{}/headers", proxy.url)) } else { request }).await;
            assert!(answer.status < 300, "{answer:?}");
        }
        let opened = count.load(Ordering::SeqCst);
        assert!(opened <= most && (opened == 40) == (keep_alive == "0s"), "{keep_alive}: {opened}");
    }
    assert_eq!(shop.orders().len(), 40);
}
