//! Bodies: streams and large responses pass through, chunked responses are stored, and a protected request has a limit.

use onceward_api::header;
use onceward_tests::client::{Answer, MULTIPART, http, multipart, send};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, smooth};
use onceward_tests::legacy_shop::{LegacyShop, proxy_to};
use serde_json::Value;

use super::submission::{keyed, order, token, tokened};

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
