//! Requests that never reach the handler, and those that are never claimed.

use bytes::Bytes;
use onceward_tests::client::{send, token};
use onceward_tests::contract::contract_handler::STREAM;
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::Stage;
use onceward_tests::key_routes::KEY;
use onceward_tests::shop::EFFECT;
use reqwest::Method;

/// More than a middleware reads to compare two requests.
const TOO_LARGE: usize = 300 * 1024;

pub(super) async fn request_without_key_or_token_is_rejected(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    for (path, code, retry) in [
        ("/orders", "key_missing", "no"),
        ("/retryable", "key_missing", "no"),
        ("/forms", "token_missing", "new_token"),
    ] {
        let refused = send(stage.shop().post(path).body("{}")).await;
        assert_eq!(refused.said(), format!("400 {code}"), "{path}: {refused:?}");
        assert_eq!(refused.headers["onceward-retry"], retry, "{path}");
        assert_eq!(refused.problem().status, 400);
    }
    assert_eq!(stage.ledger.runs(), [""; 0]);
}

pub(super) async fn malformed_key_or_token_is_rejected(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    for key in ["a b", &"k".repeat(256)] {
        let refused = send(stage.shop().post("/orders").header(KEY, key)).await;
        assert_eq!(refused.said(), "400 key_malformed", "{key}: {refused:?}");
    }
    let issued = token(&stage.shop().url).await;
    let forged = format!("{}AAAA", &issued[..issued.len() - 4]);
    for (token, said) in [("nonsense", "400 token_malformed"), (forged.as_str(), "403 token_invalid")] {
        let refused = send(stage.shop().post("/forms").header("onceward-token", token)).await;
        assert_eq!(refused.said(), said, "{refused:?}");
        assert_eq!(refused.headers["onceward-retry"], "new_token");
    }
    assert_eq!(stage.ledger.runs(), [""; 0]);
}

pub(super) async fn body_above_the_limit_is_rejected(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    let refused = send(stage.shop().submit("/orders", "k").body(vec![b'x'; TOO_LARGE])).await;
    assert_eq!(refused.said(), "413 body_too_large", "{refused:?}");
    assert_eq!(stage.ledger.runs(), [""; 0]);
}

pub(super) async fn chunked_body_equals_the_same_body_with_a_length(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    let pieces = || futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from("one ")), Ok(Bytes::from("two"))]);
    let chunked = || stage.shop().submit("/orders", "k").body(reqwest::Body::wrap_stream(pieces()));
    assert_eq!(send(chunked()).await.said(), "201 executed");
    assert_eq!(send(chunked()).await.said(), "201 replayed");
    let said = send(stage.shop().submit("/orders", "k").body("one two")).await.said();
    assert_eq!(said, if stack.reads_chunked_bodies() { "201 replayed" } else { "422 key_reused" });
    assert_eq!(send(stage.shop().submit("/orders", "k").body("one 2")).await.said(), "422 key_reused");
    assert_eq!(stage.ledger.runs().len(), 1);
}

pub(super) async fn safe_methods_are_never_claimed(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    for _ in 0..2 {
        let counted = send(stage.shop().get("/orders").header(KEY, "k")).await;
        assert_eq!((counted.status, &counted.body[..]), (200, &b"0"[..]), "{counted:?}");
        assert_eq!(counted.outcome, "");
        for method in [Method::HEAD, Method::OPTIONS] {
            // A framework may respond to these itself, or not support them.
            let answer = send(stage.shop().request(method.clone(), "/orders").header(KEY, "k")).await;
            assert_eq!(answer.outcome, "", "{method}: {answer:?}");
            assert!([200, 204, 404, 405].contains(&answer.status), "{method}: {answer:?}");
        }
    }
    assert_eq!(stage.ledger.runs(), [""; 0]);
    assert_eq!(send(stage.shop().submit("/orders", "k")).await.said(), "201 executed", "the key is free");
}

pub(super) async fn unprotected_route_runs_every_request(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    for _ in 0..2 {
        let answer = send(stage.shop().submit("/open", "k")).await;
        assert_eq!((answer.status, answer.outcome.as_str()), (201, ""), "{answer:?}");
    }
    let streamed = send(stage.shop().submit("/open", "k").header(STREAM, 3)).await;
    assert_eq!(streamed.body, "chunk 0\nchunk 1\nchunk 2\n");
    assert_eq!(stage.ledger.runs().len(), 3);
}

/// The benchmark compares each shop with this one.
pub(super) async fn shop_without_middleware_runs_every_request(stack: Stack) {
    let stage = Stage::of(stack).without_protection().open().await;
    for path in ["/orders", "/orders", "/retryable", "/forms"] {
        let answer = send(stage.shop().submit(path, "k").header(EFFECT, "unknown")).await;
        assert_eq!((answer.status, answer.outcome.as_str()), (201, ""), "{path}: {answer:?}");
    }
    assert_eq!(stage.ledger.runs().len(), 4);
}
