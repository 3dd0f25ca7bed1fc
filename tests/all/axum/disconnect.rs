//! Clients that disconnect, on HTTP/1 and HTTP/2.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
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
    let (ledger, watched) = (ledger.clone(), ledger.clone());
    let handler = move |key: axum::http::HeaderMap| async move {
        let key = key[KEY].to_str().unwrap().to_owned();
        ledger.record(&format!("{key} begun"));
        tokio::time::sleep(SLOW).await;
        ledger.record(&format!("{key} ended"));
        (StatusCode::CREATED, key)
    };
    let protect = Protect::key(guard, SubjectFrom::anonymous(), KeyRules::at_most_once());
    let watch = from_fn(move |request: Request, next: Next| {
        let watch = DropWatch { key: request.headers()[KEY].to_str().unwrap().to_owned(), ledger: watched.clone() };
        async move {
            let response = next.run(request).await;
            std::mem::forget(watch);
            response
        }
    });
    AxumServer::serve(Router::new().route("/it", post(entered(handler)).layer((watch, protect))))
}

/// Records that the server has dropped a request before its response: it has noticed that the client left.
struct DropWatch {
    key: String,
    ledger: Ledger,
}

impl Drop for DropWatch {
    fn drop(&mut self) {
        self.ledger.record(&format!("{} dropped", self.key));
    }
}

async fn recorded(ledger: &Ledger, line: &str) {
    until(line, PATIENCE, || async { ledger.count(line) == 1 }).await;
}

/// Asserts that the handler ran to its end once, and that its response is stored.
async fn assert_stored(served: &AxumServer, ledger: &Ledger, key: &str) {
    recorded(ledger, &format!("{key} ended")).await;
    let of_key: Vec<_> = ledger.runs().into_iter().filter(|run| run.starts_with(key)).collect();
    assert_eq!(of_key, ["begun", "dropped", "ended"].map(|step| format!("{key} {step}")));
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
    let of_key: Vec<_> = ledger.runs().into_iter().filter(|run| run.starts_with("k ")).collect();
    assert_eq!(of_key, ["k begun", "k dropped", "k ended"], "the server has noticed the reset");
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
