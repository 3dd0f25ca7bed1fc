//! Bodies in every HTTP/1 framing, and responses without a body.
//!
//! The test without HTTP runs once: it tests the engine, not an adapter.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use onceward::http::{Protect, SubjectSource as SubjectFrom};
use onceward::store::Memory;
use onceward::{Effect, Guard, Intent, Key, KeyRules, Policy, RecordState, Reply, Settled, Subject, Verdict};
use onceward_api::Code;
use onceward_tests::call::Call;
use onceward_tests::client::send;
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::{BRIEF, buy, serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::routes::Routes;
use onceward_tests::shop::STATUS;
use onceward_tests::shop_handlers::order;
use onceward_tests::web_framework::WebFramework;
use tokio::time::timeout;

on_every_framework! {
    body_is_equal_in_every_http_framing,
    truncated_body_runs_nothing_and_claims_no_key,
    response_without_body_replays_without_body,
    invalid_stored_header_is_never_sent,
}

const LONG: Duration = Duration::from_secs(5);

/// Sends raw bytes and returns everything the server sends back. The client closes its sending half if it receives a response then.
fn raw<F: WebFramework>(url: &str, parts: &[&str]) -> String {
    exchange(url, parts, F::ANSWERS_HALF_CLOSED)
}

fn exchange(url: &str, parts: &[&str], closes: bool) -> String {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    for part in parts {
        stream.write_all(part.as_bytes()).unwrap();
        stream.flush().unwrap();
    }
    if closes {
        stream.shutdown(Shutdown::Write).unwrap();
    }
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

fn outcome(said: &str) -> String {
    let head = said.to_ascii_lowercase();
    let line = head.lines().find_map(|line| line.strip_prefix("onceward-outcome: ").map(str::to_owned));
    line.unwrap_or_else(|| format!("none in {said:?}"))
}

async fn body_is_equal_in_every_http_framing<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = serve_one(&ledger, Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()));
    let url = served.url.clone();
    let said = tokio::task::spawn_blocking(move || {
        let head = "Host: x\r\nIdempotency-Key: k\r\n";
        [
            raw::<F>(&url, &[&format!("POST /it HTTP/1.1\r\n{head}Connection: close\r\nContent-Length: 3\r\n\r\ntea")]),
            raw::<F>(&url, &[&format!("POST /it HTTP/1.0\r\n{head}Content-Length: 3\r\n\r\ntea")]),
            raw::<F>(
                &url,
                &[
                    &format!("POST /it HTTP/1.1\r\n{head}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"),
                    "1\r\nt\r\n",
                    "2\r\nea\r\n0\r\n\r\n",
                ],
            ),
            raw::<F>(
                &url,
                &[
                    &format!(
                        "POST /it HTTP/1.1\r\n{head}Connection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
                    ),
                    "tea",
                ],
            ),
            raw::<F>(&url, &[&format!("POST http://x/it HTTP/1.1\r\n{head}Connection: close\r\nContent-Length: 3\r\n\r\ntea")]),
            raw::<F>(&url, &[&format!("POST /it HTTP/1.1\r\n{head}Connection: close\r\nContent-Length: 2\r\n\r\ntea")]),
        ]
    })
    .await
    .unwrap();
    let told: Vec<_> = said.iter().map(|said| outcome(said)).collect();
    assert_eq!(told, ["executed", "replayed", "replayed", "replayed", "replayed", "key_reused"], "{said:#?}");
    assert_eq!(ledger.runs().len(), 1);
}

async fn truncated_body_runs_nothing_and_claims_no_key<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = serve_one(&ledger, Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()));
    for head in [
        "Content-Length: 9\r\n\r\ntea",
        "Transfer-Encoding: chunked\r\n\r\n5\r\ntea",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let (url, text) = (served.url.clone(), format!("POST /it HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n{head}"));
        tokio::task::spawn_blocking(move || exchange(&url, &[&text], true)).await.unwrap();
    }
    assert!(ledger.runs().is_empty());
    assert_eq!(send(under(&served.url, "/it", "k", "a").body("tea")).await.said(), "200 executed");
}

async fn response_without_body_replays_without_body<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect = Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
    let bare = async |call: Call| order(call).await.header("etag", "\"1\"").body("");
    let served = F::serve(&ledger, Routes::new().post("/it", protect, Handler::of_head(bare)));
    let url = served.url.clone();
    tokio::task::spawn_blocking(move || {
        for status in [200, 201, 204, 205, 304, 404, 410] {
            let ask = || {
                let head = format!("Idempotency-Key: k-{status}\r\nX-Status: {status}\r\nContent-Length: 0\r\n");
                // Two requests on one connection: an extra body would be read as the second response.
                let one = format!("POST /it HTTP/1.1\r\nHost: x\r\n{head}\r\n");
                let last = format!("POST /it HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{head}\r\n");
                raw::<F>(&url, &[&one, &last])
            };
            let said = ask();
            let starts: Vec<_> = said.match_indices("HTTP/1.1 ").map(|(at, _)| &said[at + 9..at + 12]).collect();
            assert_eq!(starts, [status.to_string().as_str(); 2], "{said}");
            assert!(said.ends_with("\r\n\r\n"), "{said}");
            assert_eq!(said.matches("etag: \"1\"").count(), 2, "{said}");
            assert!(said.contains("idempotent-replayed: true"), "{said}");
        }
    })
    .await
    .unwrap();
    assert_eq!(ledger.runs().len(), 7);
}

async fn invalid_stored_header_is_never_sent<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let rules = KeyRules::at_most_once().lease(BRIEF).unwrap();
    let served = serve_one(&ledger, Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), rules.clone()));
    let answer = send(under(&served.url, "/it", "k", "a").header(STATUS, 504)).await;
    assert_eq!(answer.said(), "504 unknown");
    let key = Key::new("k").unwrap();
    let intent = Intent::new("POST /it", Subject::anonymous()).key(&key);
    let split = Reply::new(200, "booked").header("location", "/a\r\nset-cookie: stolen=1");
    assert_eq!(guard.settle(&rules, &intent, None, Effect::Applied, Some(split)).await.unwrap(), Settled::Final);
    let replay = buy(&served.url, "/it", "k", "a").await;
    assert!(!replay.headers.contains_key("set-cookie"), "{replay:?}");
    assert_eq!(ledger.runs().len(), 1);
}

#[tokio::test]
async fn thousand_released_runs_leave_no_state() {
    let guard = Guard::new(Memory::new());
    let rules = KeyRules::retryable().lease(BRIEF).unwrap();
    let (policy, key) = (Policy::key(rules), Key::new("k").unwrap());
    let intent = Intent::new("pay", Subject::anonymous()).key(&key);
    for _ in 0..1_000 {
        let Verdict::Run(pass) = guard.check(&policy, &intent).await.unwrap() else { panic!("a free key") };
        pass.release().await.unwrap();
    }
    assert_eq!(guard.look(&policy, &intent).await.unwrap().state, RecordState::Absent);
    timeout(LONG, guard.drain()).await.unwrap();
    let late = guard.check(&policy, &intent).await.unwrap();
    assert!(matches!(late, Verdict::Reject(rejection) if rejection.code() == Code::Overloaded));
}
