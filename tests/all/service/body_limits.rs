//! The documented sizes of request bodies, to the byte.

use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::post;
use reqwest::Body;
use serde_json::{Value, json};
use uuid::Uuid;

/// The sizes that the README names: of any request, and of `/claim/complete`.
fn documented() -> [usize; 2] {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/service.md")).unwrap();
    let line =
        readme.lines().find(|line| line.starts_with("- A request to the service has a body of ")).expect("a limit");
    let before = |unit: &str| -> usize {
        let number = line.split(unit).next().and_then(|text| text.trim_end().rsplit(' ').next()).expect("a number");
        number.parse().expect("a number")
    };
    assert!(line.contains("`/claim/complete`"), "{line}");
    [before(" KiB") * 1024, before(" MiB") * 1024 * 1024]
}

/// Sends this request padded with whitespace to this size, once with `Content-Length` and once chunked.
async fn sized(url: &str, path: &str, body: &Value, size: usize) -> [Answer; 2] {
    let text = body.to_string();
    let text = text.clone() + &" ".repeat(size - text.len());
    let request = || http().post(format!("{url}{path}")).header("content-type", "application/json");
    let pieces: Vec<_> =
        text.as_bytes().chunks(8 * 1024).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
    let chunked = Body::wrap_stream(futures_util::stream::iter(pieces));
    [send(request().body(text.clone())).await, send(request().body(chunked)).await]
}

#[tokio::test]
async fn body_is_read_to_the_documented_byte_and_no_further() {
    let service = OncewardServer::start(&[]);
    let url = &service.url;
    let [usual, completed] = documented();
    let key = json!({"key": "k", "action": "pay", "subject": "alice"});
    let claimed: Value = serde_json::from_slice(&post(url, "/claim", &key).await.body).unwrap();
    let pass = json!({"pass": claimed["pass"]});
    let redeem = json!({"token": token(url).await, "attempt": "one"});
    let requests = [
        ("/token", json!({}), usual),
        ("/tokens", json!({"count": 1}), usual),
        ("/token/redeem", redeem.clone(), usual),
        (
            "/token/release",
            json!({"token": redeem["token"], "attempt": "one", "run_id": Uuid::new_v4().to_string()}),
            usual,
        ),
        ("/claim", json!({"key": "j", "action": "pay", "subject": "alice", "attempt": "one"}), usual),
        ("/claim/renew", pass.clone(), usual),
        ("/outcome", key, usual),
        ("/claim/complete", pass.clone(), completed),
        ("/claim/release", pass, usual),
    ];
    for (path, body, limit) in requests {
        for answer in sized(url, path, &body, limit + 1).await {
            assert_eq!(answer.said(), "413 body_too_large", "{path}");
        }
        for answer in sized(url, path, &body, limit).await {
            assert!(answer.status != 413, "{path}: {answer:?}");
            assert!(
                !["bad_request", "internal", "unsupported_media_type"].contains(&&*answer.outcome),
                "{path}: {answer:?}"
            );
        }
    }
}

/// The service does not read the body of a gateway request, so its size is not limited.
#[tokio::test]
async fn body_of_a_gateway_request_has_no_limit() {
    let service = OncewardServer::start(&[]);
    let [_, largest] = documented();
    let request = http().post(format!("{}/forward-auth/orders", service.url)).body(vec![b'x'; largest + 1]);
    let answer = send(request.header(onceward_api::header::TOKEN, token(&service.url).await)).await;
    assert_eq!(answer.said(), "200 redeemed");
}
