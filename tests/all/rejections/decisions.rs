//! The SDKs decide by the headers of a rejection: the same in every format, for every code.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::post;
use futures_util::future::join_all;
use onceward::Guard;
use onceward::http::{GuardResponse, Preferences};
use onceward::store::Memory;
use onceward_api::Code;
use onceward_client::{Error, Key};
use onceward_tests::sdk_client::builder;
use onceward_tests::test_server::TestServer;

use super::formats::Format;

/// Responds to `POST /FORMAT/CODE` with that rejection, and to `POST /token`.
fn rejections() -> TestServer {
    let guard = Guard::new(Memory::new());
    let reject = move |Path((format, code)): Path<(String, String)>, headers: HeaderMap| async move {
        let format = Format::ALL.into_iter().find(|known| known.name() == format).expect("a format");
        let code = Code::ALL.into_iter().find(|known| known.as_str() == code).expect("a code");
        let preferences = Preferences::none().accept(headers.get("accept").map(|value| value.as_bytes()));
        GuardResponse::formatted(&format.of_library(), &guard, &code.into(), "/orders", preferences).into_response()
    };
    let token = async || (StatusCode::CREATED, r#"{"token":"t","expires_at":"2100-01-01T00:00:00Z","expires_in":60}"#);
    let router = Router::new().route("/{format}/{code}", post(reject)).route("/token", post(token));
    TestServer::run_router(router)
}

/// The decision that an application derives from an error of the Rust SDK.
fn decision(error: &Error) -> String {
    let retry = error.problem().map(|problem| problem.retry);
    format!(
        "{:?} {retry:?} duplicate {} unknown {} in progress {} ran nothing {} attempts {}",
        error.code(),
        error.is_duplicate(),
        error.is_unknown(),
        error.is_in_progress(),
        error.ran_nothing(),
        error.attempts()
    )
}

#[tokio::test]
async fn rust_sdk_decides_alike_in_every_format() {
    let (served, client) = (rejections(), builder().build().unwrap());
    let numbers = Arc::new(AtomicUsize::new(0));
    let submit = async |format: Format, code: Code, accept: &'static str| {
        let key = Key::new(format!("{}", numbers.fetch_add(1, Ordering::Relaxed))).unwrap();
        let url = format!("{}/{}/{code}", served.url, format.name());
        let sent = client.post(url).header("accept", accept).key(key).send().await;
        decision(&sent.expect_err("a rejection is no response of the application"))
    };
    // Each code retries with a backoff of its own.
    join_all(Code::ALL.map(async |code| {
        let default = submit(Format::Problem, code, "application/json").await;
        assert!(default.starts_with(&format!("Some({code:?}) Some({:?})", code.retry())), "{default}");
        for format in Format::ALL {
            for accept in ["application/json", "text/html"] {
                assert_eq!(submit(format, code, accept).await, default, "{code} as {} {accept}", format.name());
            }
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browser_sdk_decides_alike_in_every_format() {
    let served = rejections();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/all/rejections/decisions.mjs");
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../client-sdk/web/dist/onceward.mjs");
    let codes = Code::ALL.map(Code::as_str).join(",");
    let names = Format::ALL.map(Format::name).join(",");
    let arguments = [script, module, &served.url, &codes, &names].map(str::to_owned);
    let run = tokio::task::spawn_blocking(move || Command::new("node").args(arguments).output()).await.unwrap();
    let output = run.expect("node is not installed: apt-get install nodejs");
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{wrong}");
    let decisions: Vec<Vec<String>> = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(decisions.len(), Code::ALL.len());
    for (code, by_format) in Code::ALL.into_iter().zip(decisions) {
        assert_eq!(by_format.len(), Format::ALL.len());
        for decision in &by_format {
            assert!(decision.ends_with(&format!(" {code} {}", code.retry().as_str())), "{code}: {by_format:?}");
            assert_eq!(decision, &by_format[0], "{code}: {by_format:?}");
            assert!(!decision.starts_with("executed"), "{code}: {decision}");
        }
    }
}
