//! Clients that disconnect, on HTTP/1 and HTTP/2.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use onceward::axum::{Protect, SubjectFrom, entered};
use onceward::store::Memory;
use onceward::{Guard, KeyRules};
use onceward_tests::axum_server::AxumServer;
use onceward_tests::client::Answer;
use onceward_tests::key_routes::{KEY, buy};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::until;
use onceward_tests::raw_http::connect;
use tokio::io::AsyncWriteExt as _;

/// Duration of the handler; the client leaves before.
const SLOW: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(10);

fn serve(guard: &Guard, ledger: &Ledger) -> AxumServer {
    let ledger = ledger.clone();
    let handler = move |key: axum::http::HeaderMap| async move {
        let key = key[KEY].to_str().unwrap().to_owned();
        ledger.record(&format!("{key} begun"));
        tokio::time::sleep(SLOW).await;
        ledger.record(&format!("{key} ended"));
        (StatusCode::CREATED, key)
    };
    let protect = Protect::key(guard, SubjectFrom::anonymous(), KeyRules::at_most_once());
    AxumServer::serve(Router::new().route("/it", post(entered(handler)).layer(protect)))
}

async fn recorded(ledger: &Ledger, line: &str) {
    until(line, PATIENCE, || async { ledger.count(line) == 1 }).await;
}

/// Asserts that the handler ran to its end once, and that its response is stored.
async fn assert_stored(served: &AxumServer, ledger: &Ledger, key: &str) {
    recorded(ledger, &format!("{key} ended")).await;
    until("the response is stored", PATIENCE, || async {
        buy(&served.url, "/it", key, "").await.said() == "201 replayed"
    })
    .await;
    assert_eq!(ledger.count(&format!("{key} begun")), 1);
}

#[tokio::test]
async fn handler_runs_to_its_end_after_http2_reset() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = serve(&guard, &ledger);
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let ask = |key: &str| client.post(format!("{}/it", served.url)).header(KEY, key);
    // The connection stays open for other streams, so the client resets this stream only.
    let other = tokio::spawn(ask("other").send());
    recorded(&ledger, "other begun").await;
    let dropped = tokio::spawn(ask("k").send());
    recorded(&ledger, "k begun").await;
    dropped.abort();
    assert_eq!(Answer::of(other.await.unwrap().unwrap()).await.said(), "201 executed");
    recorded(&ledger, "k ended").await;
    until("the response is stored", PATIENCE, || async {
        Answer::of(ask("k").send().await.unwrap()).await.said() == "201 replayed"
    })
    .await;
    assert_eq!((ledger.count("k begun"), ledger.count("k ended")), (1, 1));
}

/// How a client leaves.
#[derive(Debug, Clone, Copy)]
enum Leave {
    Close,
    Reset,
}

#[tokio::test]
async fn handler_runs_to_its_end_after_http1_close_and_reset() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = serve(&guard, &ledger);
    for leave in [Leave::Close, Leave::Reset] {
        let key = format!("{leave:?}");
        let mut stream = connect(&served.url).await;
        let head = format!("POST /it HTTP/1.1\r\nhost: shop\r\n{KEY}: {key}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        recorded(&ledger, &format!("{key} begun")).await;
        if matches!(leave, Leave::Reset) {
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(stream);
        assert_stored(&served, &ledger, &key).await;
    }
}
