//! Failures of the application: a submission that may have taken effect is not repeated, and one that has not can be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use onceward_tests::client::send;
use onceward_tests::command_output::parsed;
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first};
use onceward_tests::legacy_shop::{LegacyShop, proxy_to};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::run;
use onceward_tests::tls_redis::Authority;
use tokio::net::{TcpListener, TcpStream};

use super::submission::{form, keyed, order, token, tokened};

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
            assert_eq!(answer.problem().code, onceward_api::Code::UpstreamUnavailable);
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

/// The application has received nothing before the TLS handshake is complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_without_a_tls_handshake_applies_nothing() {
    let authority = Authority::new();
    let shop = LegacyShop::start_with_tls(&authority);
    let upstream = SilentProxy::to(&shop.url).await;
    let ca = authority.certificate();
    let proxy = proxy_to(&upstream.url, &["--upstream-ca", ca.to_str().unwrap(), "--upstream-connect-timeout", "1s"]);
    let token = token(&proxy).await;
    for request in [tokened(&proxy, "/orders", &token), keyed(&proxy, "/orders", "k")] {
        let before = upstream.accepted.load(Ordering::SeqCst);
        let answer = send(request).await;
        assert_eq!(answer.said(), "502 not_applied", "{answer:?}");
        assert_eq!(answer.problem().code, onceward_api::Code::UpstreamUnavailable);
        assert!(upstream.accepted.load(Ordering::SeqCst) > before, "a connection was accepted");
    }
    upstream.is_open.store(true, Ordering::SeqCst);
    for (count, request) in [tokened(&proxy, "/orders", &token), keyed(&proxy, "/orders", "k")].into_iter().enumerate()
    {
        let answer = send(request).await;
        assert_eq!((answer.said().as_str(), shop.orders().len()), ("201 executed", count + 1), "{answer:?}");
    }
}
