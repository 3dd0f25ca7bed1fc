//! Failures of the application: a submission that may have taken effect is not repeated, and one that has not can be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use onceward_api::{Code, header};
use onceward_tests::client::{http, send};
use onceward_tests::command_output::{parsed, said};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first};
use onceward_tests::legacy_shop::{LegacyShop, proxy_to};
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{run, run_with};
use onceward_tests::tls_redis::Authority;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::submission::{LONG, form, keyed, order, token, tokened};

#[tokio::test]
async fn server_error_releases_the_token() {
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, first([HttpFault::Instead(500), HttpFault::Instead(422)])).await;
    let proxy = proxy_to(&upstream.url, &[]);
    let token = token(&proxy).await;
    for (said, orders) in [("500 not_applied", 0), ("422 not_applied", 0), ("201 executed", 1), ("201 replayed", 1)] {
        let answer = send(form(&proxy, "/orders", &token)).await;
        assert_eq!((answer.said().as_str(), shop.orders().len()), (said, orders));
    }
    assert_eq!(upstream.seen().len(), 3);
}

#[tokio::test]
async fn server_error_leaves_the_outcome_of_a_key_unknown() {
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, first([HttpFault::Instead(500)])).await;
    let proxy = proxy_to(&upstream.url, &[]);
    for said in ["500 unknown", "409 outcome_unknown", "409 outcome_unknown"] {
        assert_eq!(send(keyed(&proxy, "/orders", "k")).await.said(), said);
    }
    assert_eq!((upstream.seen().len(), shop.orders().len()), (1, 0));
}

/// The proxy itself sends no 408 after a request has reached the application, so that this one is judged by its status.
#[tokio::test]
async fn application_408_releases_a_token_and_leaves_a_key_unknown() {
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, first([HttpFault::Instead(408), HttpFault::Instead(408)])).await;
    let proxy = proxy_to(&upstream.url, &[]);
    let token = token(&proxy).await;
    for (said, orders) in [("408 not_applied", 0), ("408 not_applied", 0), ("201 executed", 1), ("201 replayed", 1)] {
        let answer = send(form(&proxy, "/orders", &token)).await;
        assert_eq!((answer.said().as_str(), shop.orders().len()), (said, orders), "{answer:?}");
    }
    assert_eq!(upstream.seen().len(), 3);
    // The application has written the order, and responds with 408.
    for said in ["408 unknown", "409 outcome_unknown", "409 outcome_unknown"] {
        let answer = send(keyed(&proxy, "/orders?fail=408", "k")).await;
        assert_eq!((answer.said().as_str(), shop.orders().len()), (said, 2), "{answer:?}");
    }
    assert_eq!(upstream.seen().len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_after_sending_is_unknown_and_not_repeated() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--upstream-read-timeout", "1s"]);
    let cases = [
        ("504", "504 unknown"),
        ("502", "502 unknown"),
        ("reset", "502 unknown"),
        ("broken", "502 unknown"),
        ("silent", "504 unknown"),
    ];
    for (failure, said) in cases {
        let (token, target) = (token(&proxy).await, format!("/orders?fail={failure}"));
        for request in [tokened(&proxy, &target, &token), keyed(&proxy, &target, failure)] {
            let before = shop.orders().len();
            let again = request.try_clone().unwrap();
            let first = send(request).await;
            assert_eq!(first.said(), said, "{failure}: {first:?}");
            assert!(!String::from_utf8_lossy(&first.body).contains("half of"), "{failure}: {first:?}");
            let second = send(again).await;
            assert_eq!(second.said(), "409 outcome_unknown", "{failure}: {second:?}");
            assert_eq!(shop.orders().len() - before, 1, "{failure}");
        }
    }
}

#[tokio::test]
async fn failed_unprotected_submission_is_never_sent_again() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--upstream-read-timeout", "1s"]);
    for (failure, said) in [("reset", "502 unprotected"), ("silent", "504 unprotected"), ("500", "500 not_applied")] {
        let answer = send(order(&proxy, &format!("/orders?fail={failure}"), "tea")).await;
        assert_eq!(answer.said(), said, "{answer:?}");
    }
    assert_eq!(shop.orders().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_looks_up_and_settles_an_unknown_outcome() {
    let (shop, redis) = (LegacyShop::start(), RedisServer::start());
    let upstream = FaultyHttpProxy::to(&shop.url, first([HttpFault::CutBefore, HttpFault::After(504)])).await;
    let proxy = proxy_to(&upstream.url, &["--store", &redis.url(), "--store-timeout", "5s"]);
    let key = |arguments: &[&str]| {
        parsed(&run(&[&["key"], arguments, &["--action", "POST /orders", "--json", "--store", &redis.url()]].concat()))
    };
    for (name, said) in [("lost", "502 unknown"), ("taken", "504 unknown")] {
        assert_eq!(send(keyed(&proxy, "/orders", name)).await.said(), said);
        assert_eq!(key(&["look", name])["state"], "unknown");
        assert_eq!(send(keyed(&proxy, "/orders", name)).await.said(), "409 outcome_unknown");
    }
    assert_eq!(shop.orders().len(), 1);
    assert_eq!(key(&["settle", "lost", "--not-applied"])["event"], "released");
    assert_eq!(send(keyed(&proxy, "/orders", "lost")).await.said(), "201 executed");
    key(&["settle", "taken", "--applied"]);
    assert_eq!(send(keyed(&proxy, "/orders", "taken")).await.said(), "409 reply_not_kept");
    assert_eq!(shop.orders().len(), 2);
}

#[tokio::test]
async fn unreachable_upstream_applies_nothing_and_releases_the_claim() {
    let mut shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let token = token(&proxy).await;
    shop.kill();
    for _ in 0..2 {
        for request in [tokened(&proxy, "/orders", &token), keyed(&proxy, "/orders", "k")] {
            let answer = send(request).await;
            assert_eq!(answer.said(), "502 not_applied", "{answer:?}");
            assert_eq!(answer.problem().code, Code::UpstreamUnavailable);
        }
    }
    shop.restart();
    for (count, request) in [tokened(&proxy, "/orders", &token), keyed(&proxy, "/orders", "k")].iter().enumerate() {
        assert_eq!(send(request.try_clone().unwrap()).await.said(), "201 executed");
        assert_eq!(send(request.try_clone().unwrap()).await.said(), "201 replayed");
        assert_eq!(shop.orders().len(), count + 1);
    }
}

/// A TCP proxy in front of an upstream with TLS. It accepts every connection, and is silent on each until it is opened.
struct SilentProxy {
    url: String,
    is_open: Arc<AtomicBool>,
    accepted: Arc<AtomicUsize>,
}

impl SilentProxy {
    async fn to(upstream: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (is_open, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (opened, counted) = (Arc::clone(&is_open), Arc::clone(&accepted));
        let upstream = upstream.trim_start_matches("https://").to_owned();
        tokio::spawn(async move {
            let mut silent = Vec::new();
            while let Ok((mut client, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                if opened.load(Ordering::SeqCst) {
                    let mut server = TcpStream::connect(&upstream).await.unwrap();
                    tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
                } else {
                    silent.push(client);
                }
            }
        });
        Self { url, is_open, accepted }
    }
}

/// The application has received nothing before the TLS handshake is complete, whichever timeout is the shortest.
async fn assert_unfinished_handshake_applies_nothing(limit: [&str; 2]) {
    let authority = Authority::new();
    let shop = LegacyShop::start_with_tls(&authority);
    let upstream = SilentProxy::to(&shop.url).await;
    let ca = authority.certificate();
    let proxy = proxy_to(&upstream.url, &[&["--upstream-ca", ca.to_str().unwrap()], &limit[..]].concat());
    let token = token(&proxy).await;
    for request in [tokened(&proxy, "/orders", &token), keyed(&proxy, "/orders", "k")] {
        let before = upstream.accepted.load(Ordering::SeqCst);
        let answer = send(request).await;
        assert_eq!(answer.said(), "502 not_applied", "{limit:?}: {answer:?}");
        assert_eq!(answer.problem().code, Code::UpstreamUnavailable);
        assert!(upstream.accepted.load(Ordering::SeqCst) > before, "a connection was accepted");
    }
    upstream.is_open.store(true, Ordering::SeqCst);
    for (count, request) in [tokened(&proxy, "/orders", &token), keyed(&proxy, "/orders", "k")].into_iter().enumerate()
    {
        let answer = send(request).await;
        assert_eq!((answer.said().as_str(), shop.orders().len()), ("201 executed", count + 1), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_without_a_tls_handshake_applies_nothing() {
    assert_unfinished_handshake_applies_nothing(["--upstream-connect-timeout", "1s"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshake_longer_than_the_read_timeout_applies_nothing() {
    assert_unfinished_handshake_applies_nothing(["--upstream-read-timeout", "1s"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshake_longer_than_the_total_timeout_applies_nothing() {
    assert_unfinished_handshake_applies_nothing(["--upstream-timeout", "1s"]).await;
}

/// Without a certain outcome, a client must not send the same request again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_rejections_state_the_advice_for_retries() {
    let mut shop = LegacyShop::start();
    let proxy = shop.proxy(&["--upstream-read-timeout", "1s"]);
    let cases =
        [("fail=reset", Code::UpstreamFailed), ("fail=silent", Code::UpstreamTimeout), ("", Code::UpstreamUnavailable)];
    for (number, (query, code)) in cases.into_iter().enumerate() {
        if code == Code::UpstreamUnavailable {
            shop.kill();
        }
        let target = format!("/orders?{query}");
        for request in [keyed(&proxy, &target, &format!("k{number}")), order(&proxy, &target, "tea")] {
            let answer = send(request).await;
            assert_eq!(answer.problem().code, code, "{answer:?}");
            assert_eq!(answer.headers[header::RETRY], code.retry().as_str(), "{answer:?}");
        }
    }
}

/// A log of the proxy, as `onceward audit` reads it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_lists_an_unknown_outcome_of_the_proxy_and_how_to_settle_it() {
    let (shop, redis) = (LegacyShop::start(), RedisServer::start());
    let upstream = FaultyHttpProxy::to(&shop.url, first([HttpFault::After(504)])).await;
    let proxy = proxy_to(&upstream.url, &["--store", &redis.url(), "--store-timeout", "5s"]);
    assert_eq!(send(keyed(&proxy, "/orders", "k")).await.said(), "504 unknown");
    assert_eq!(send(keyed(&proxy, "/orders", "other")).await.said(), "201 executed");
    let is_logged = || std::future::ready(proxy.log().iter().any(|line| line.contains("\"completed\"")));
    until("the second run is logged", LONG, is_logged).await;
    let log = proxy.log().join("\n") + "\n";
    let audit = |more: &[&str]| run_with(&[&["audit", "--wait", "--store", &redis.url()], more].concat(), &log);
    let listed = parsed(&audit(&["--json"]));
    let claims = listed["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 1, "{listed:#}");
    assert_eq!((&claims[0]["fate"], &claims[0]["action"]), (&json!("unknown"), &json!("POST /orders")), "{listed:#}");
    let (code, text) = said(&audit(&[]));
    assert!(code == 1 && text.contains("then: onceward key settle"), "{text}");
    let command = text.split("then: onceward ").nth(1).unwrap().split(" (or --not-applied)").next().unwrap();
    let command: Vec<_> = command.split(' ').chain(["--status", "202", "--store"]).collect();
    let (code, settled) = said(&run(&[&command[..], &[&redis.url()]].concat()));
    assert_eq!(code, 0, "the printed command works: {settled}");
    assert_eq!(send(keyed(&proxy, "/orders", "k")).await.said(), "202 replayed");
    assert_eq!((audit(&[]).status.code(), shop.orders().len()), (Some(0), 2));
}

/// An upstream that keeps its connections open, and closes one when it receives a POST that is not the first request on it.
async fn closing_upstream() -> (String, Arc<AtomicUsize>) {
    const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (url, posts) = (format!("http://{}", listener.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&posts);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut is_pooled = false;
                loop {
                    let is_post = read_head(&mut stream).await?.starts_with("POST");
                    counted.fetch_add(usize::from(is_post), Ordering::SeqCst);
                    if is_post && is_pooled {
                        return Some(());
                    }
                    stream.write_all(RESPONSE).await.ok()?;
                    is_pooled = true;
                }
            });
        }
    });
    (url, posts)
}

/// Reads the head of a request without a body.
async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&read).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submission_on_a_pooled_connection_that_closes_is_never_sent_again() {
    let (url, posts) = closing_upstream().await;
    let proxy = proxy_to(&url, &["--upstream-keep-alive", "30s"]);
    // One connection of the client, so that one worker uses its pool for both requests.
    let client = http();
    for (kind, said) in [("x-kind", "502 unprotected"), (header::IDEMPOTENCY_KEY, "502 unknown")] {
        let mut heard = Vec::new();
        // The pool may receive a connection only after the next request has opened another one.
        while heard.len() < 20 && !heard.iter().any(|heard| heard == said) {
            send(client.get(&proxy.url)).await;
            let before = posts.load(Ordering::SeqCst);
            let answer = send(client.post(&proxy.url).header(kind, heard.len())).await;
            assert_eq!(posts.load(Ordering::SeqCst) - before, 1, "{answer:?}");
            heard.push(answer.said());
        }
        assert_eq!(heard.last().map(String::as_str), Some(said), "{heard:?}");
    }
}
