//! The first run of a submission, and what its duplicates receive.

use onceward_api::header::{IDEMPOTENT_REPLAYED, TOKEN};
use onceward_tests::client::{Answer, send, token};
use onceward_tests::contract::contract_handler::RUN;
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::Stage;
use onceward_tests::key_routes::{KEY, SIZE};
use onceward_tests::shop::{STATUS, USER};

/// Returns the body without the id of the run: every byte.
fn binary(answer: &Answer) -> &[u8] {
    &answer.body[..256]
}

/// Returns the values of a header that is a list, in one or several lines.
fn values(answer: &Answer, name: &str) -> Vec<String> {
    let lines = answer.headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(|value| value.trim().to_owned()).collect()
}

pub(super) async fn first_run_executes_and_records_its_response(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    let first = send(stage.shop().submit("/orders", "k")).await;
    assert_eq!(first.said(), "201 executed", "{first:?}");
    assert_eq!(binary(&first), (0..=u8::MAX).collect::<Vec<_>>());
    assert!(!first.headers.contains_key(IDEMPOTENT_REPLAYED), "{first:?}");
    let run = first.headers[RUN].to_str().unwrap();
    assert_eq!(values(&first, "link"), [r#"</orders>; rel="collection""#, &format!(r#"</orders/{run}>; rel="self""#)]);
    assert_eq!(first.headers.get_all("set-cookie").iter().count(), 2, "a client reads one cookie from a line");
    assert_eq!(stage.ledger.runs(), ["order"]);
    assert_eq!(send(stage.shop().get("/orders")).await.body, "1");
}

pub(super) async fn duplicate_receives_status_headers_and_binary_body(stack: Stack) {
    let stage = Stage::of(stack).shops(2).open().await;
    for (path, key, status, size) in
        [("/orders", "a", 201, 0), ("/orders", "b", 202, 100_000), ("/retryable", "c", 200, 10)]
    {
        let request = |shop: usize| stage.shops[shop].submit(path, key).header(STATUS, status).header(SIZE, size);
        let first = send(request(0)).await;
        assert_eq!(first.said(), format!("{status} executed"), "{path}: {first:?}");
        for shop in [0, 1] {
            let second = send(request(shop)).await;
            assert_eq!(second.said(), format!("{status} replayed"), "{path}: {second:?}");
            assert_eq!(second.headers[IDEMPOTENT_REPLAYED], "true");
            assert_eq!(second.body, first.body);
            for kept in ["location", "content-type", "link"] {
                assert_eq!(values(&second, kept), values(&first, kept), "{kept}");
            }
            assert!(!second.headers.contains_key("set-cookie"), "a cookie belongs to the first client: {second:?}");
        }
    }
    assert_eq!(stage.ledger.count("order"), 3);
}

/// The response to a completed request has headers, and no body.
pub(super) async fn response_without_a_body_is_replayed_with_its_headers(stack: Stack) {
    let stage = Stage::of(stack).shops(2).open().await;
    let token = token(&stage.shop().url).await;
    for (path, name, value) in [("/orders", KEY, "k"), ("/retryable", KEY, "k"), ("/forms", TOKEN, &token)] {
        let request = |shop: usize| stage.shops[shop].post(path).header(name, value).header(STATUS, 204);
        let first = send(request(0)).await;
        assert_eq!((first.said().as_str(), first.body.len()), ("204 executed", 0), "{path}: {first:?}");
        for shop in [0, 1] {
            let second = send(request(shop)).await;
            assert_eq!((second.said().as_str(), second.body.len()), ("204 replayed", 0), "{path}: {second:?}");
            assert_eq!(second.headers[IDEMPOTENT_REPLAYED], "true");
            for kept in ["location", "link"] {
                assert_eq!(values(&second, kept), values(&first, kept), "{path}: {kept}");
            }
            assert!(!second.headers.contains_key("set-cookie"), "a cookie belongs to the first client: {second:?}");
        }
    }
    assert_eq!(stage.ledger.count("order"), 3);
}

pub(super) async fn other_content_under_the_key_is_rejected(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    assert_eq!(send(stage.shop().submit("/orders", "k")).await.said(), "201 executed");
    for other in [
        stage.shop().submit("/orders", "k").body(r#"{"item":"coffee"}"#),
        stage.shop().submit("/orders?gift=yes", "k"),
        stage.shop().post("/orders").header(KEY, "k").header("content-type", "text/plain").body(r#"{"item":"tea"}"#),
    ] {
        let refused = send(other).await;
        assert_eq!(refused.said(), "422 key_reused", "{refused:?}");
        assert_eq!((refused.headers["onceward-retry"].to_str().unwrap(), refused.problem().status), ("no", 422));
    }
    assert_eq!(stage.ledger.runs().len(), 1);
}

pub(super) async fn key_belongs_to_subject_and_action(stack: Stack) {
    let stage = Stage::of(stack).open().await;
    for (path, user) in [("/orders", "alice"), ("/orders", "bob"), ("/retryable", "alice")] {
        let request = || stage.shop().submit(path, "k").header(USER, user);
        assert_eq!(send(request()).await.said(), "201 executed", "{path} {user}");
        assert_eq!(send(request()).await.said(), "201 replayed", "{path} {user}");
    }
    assert_eq!(stage.ledger.runs().len(), 3);
}
