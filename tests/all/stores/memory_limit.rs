//! The limit of the memory store holds for stored bytes, from any request, and bounds the resident memory of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::iter;
use onceward_tests::client::{Answer, send};
use onceward_tests::key_routes::{KEY, SIZE, buy};
use onceward_tests::ledger::Ledger;
use onceward_tests::metrics::Metrics;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::post;
use onceward_tests::shop::{ORDER, TAKES};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::PEER;

const MIB: u64 = 1024 * 1024;
/// Size of a response in the attacks that these tests simulate.
const BODY: usize = 1_000_000;
const NO_ROOM: &str = "no room for its response";

/// Maximum resident memory of a process whose memory store has this limit.
const fn most(limit: u64) -> u64 {
    2 * limit + 64 * MIB
}

/// Number of claims to complete with a large response: the variable `COMPLETED`, or 150.
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
fn completed() -> usize {
    std::env::var("COMPLETED").map_or(150, |completed| completed.parse().expect("COMPLETED is a number"))
}

/// The peak resident memory of a process, sampled every few milliseconds until this is dropped.
struct Peak {
    largest: Arc<AtomicU64>,
    watch: tokio::task::JoinHandle<()>,
}

impl Peak {
    fn of(resident: impl Fn() -> u64 + Send + 'static) -> Self {
        let largest = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&largest);
        let watch = tokio::spawn(async move {
            loop {
                seen.fetch_max(resident(), Ordering::SeqCst);
                sleep(Duration::from_millis(5)).await;
            }
        });
        Self { largest, watch }
    }

    fn get(&self) -> u64 {
        self.largest.load(Ordering::SeqCst)
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Returns the bytes in the memory store by the service's metric.
async fn stored_bytes(service: &OncewardServer) -> u64 {
    Metrics::of(&service.url).await.sum("onceward_memory_bytes", &[]) as u64
}

fn pass_of(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_slice::<Value>(&answer.body).unwrap()["pass"].take()
}

/// Returns true if a duplicate received the stored response. Otherwise asserts that the rejection names the lack of room.
fn is_kept(answer: &Answer) -> bool {
    if answer.status == 200 {
        return true;
    }
    let problem = answer.problem();
    assert_eq!((answer.status, problem.code.as_str()), (409, "reply_not_kept"), "{problem:?}");
    assert!(
        problem.detail.contains("It was carried out; no response was stored") && problem.detail.contains(NO_ROOM),
        "{problem:?}"
    );
    false
}

/// A service with 8 MiB has 1,500 open claims, and many of them are completed with 1 MB each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_completed_claims_stay_within_the_memory_limit() {
    const LIMIT: u64 = 8 * MIB;
    let service = Arc::new(OncewardServer::start(&["--memory-limit", "8MiB"]));
    let body = |key: usize| json!({"key": key.to_string(), "action": "pay", "subject": "alice", "retain": "1d"});
    let claim = async |key: usize| post(&service.url, "/claim", &body(key)).await;
    let peak = Peak::of({
        let service = Arc::clone(&service);
        move || service.memory()
    });
    let before = service.memory();
    let passes: Vec<_> =
        iter(0..1_500).map(|key| async move { pass_of(&claim(key).await) }).buffered(8).collect().await;
    let large = "QUFB".repeat(BODY / 3);
    let count = completed();
    let complete = async |pass: &Value| {
        let body = json!({"pass": pass, "reply": {"status": 200, "body": large}});
        post(&service.url, "/claim/complete", &body).await.status
    };
    let answers: Vec<_> = iter(&passes[..count]).map(&complete).buffered(4).collect().await;
    assert_eq!(answers, vec![204; count], "a full store does not reject completions");
    let bobs = json!({"key": "1", "action": "pay", "subject": "bob"});
    assert_eq!(complete(&pass_of(&post(&service.url, "/claim", &bobs).await)).await, 204);
    assert!(is_kept(&post(&service.url, "/claim", &bobs).await), "alice's responses leave room for bob's");
    let (stored, after) = (stored_bytes(&service).await, service.memory());
    let (mut kept, mut asked) = (0, 0);
    for key in (0..count).rev().step_by(count / 50) {
        let answer = claim(key).await;
        assert_ne!(serde_json::from_slice::<Value>(&answer.body).unwrap()["outcome"], "run", "{key} ran twice");
        (kept, asked) = (kept + usize::from(is_kept(&answer)), asked + 1);
    }
    let mut new = Vec::new();
    for key in passes.len()..passes.len() + 100 {
        new.push(claim(key).await.status);
    }
    println!(
        "{count} of 1,500 claims completed with 1 MB each, limit {} MiB: resident {} MiB before, {} MiB after, {} MiB at most; \
         stored, by its metric, {:.1} MiB; of {asked} duplicates {kept} got the response, of 100 new keys {} were \
         claimed",
        LIMIT / MIB,
        before / MIB,
        after / MIB,
        peak.get() / MIB,
        stored as f64 / MIB as f64,
        new.iter().filter(|status| **status == 200).count()
    );
    assert_eq!(new, vec![200; 100], "a new key has room");
    assert!(stored <= LIMIT / 8 * 3, "the share of keys holds {stored} bytes");
    assert!(peak.get() <= most(LIMIT), "{} MiB", peak.get() / MIB);
}

/// 600 anonymous requests are in flight at once in an application with the default limit, each with a response of 1 MB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_responses_in_flight_stay_within_the_memory_limit() {
    const LIMIT: u64 = 256 * MIB;
    const REQUESTS: usize = 600;
    let ledger = Ledger::new();
    let peer = Arc::new(Peer::start(PEER, "onceward", "memory:", &ledger));
    let peak = Peak::of({
        let peer = Arc::clone(&peer);
        move || peer.memory()
    });
    let http = onceward_tests::client::http();
    let all = (0..REQUESTS).map(|key| {
        let request = http.post(format!("{}/keyed/patient", peer.url)).header(KEY, key).header(ORDER, "large");
        tokio::spawn(send(request.header(TAKES, 8_000).header(SIZE, BODY)))
    });
    let all: Vec<_> = all.collect();
    until("all are in flight", Duration::from_secs(60), || async { ledger.count("begun") == REQUESTS }).await;
    assert_eq!(ledger.count("large"), 0, "all requests are in flight at the same time");
    for answer in all {
        assert_eq!(answer.await.unwrap().said(), "200 executed");
    }
    let (after, mut new) = (peer.memory(), Vec::new());
    for key in 0..100 {
        new.push(buy(&peer.url, "/keyed/patient", &format!("new-{key}"), "new").await.said());
    }
    let mut kept = 0;
    for key in (0..REQUESTS).step_by(6) {
        kept += usize::from(is_kept(&buy(&peer.url, "/keyed/patient", &key.to_string(), "large").await));
    }
    println!(
        "{REQUESTS} requests in flight with 1 MB responses, limit {} MiB: resident {} MiB after, {} MiB at most; \
        of 100 duplicates {kept} received the response, of 100 new keys {} ran",
        LIMIT / MIB,
        after / MIB,
        peak.get() / MIB,
        ledger.count("new")
    );
    assert_eq!(new, vec!["200 executed"; 100], "a new key has room");
    assert_eq!((ledger.count("large"), ledger.count("new")), (REQUESTS, 100), "nothing ran twice");
    assert!(kept > 0 && kept < 100, "{kept} of 100");
    assert!(peak.get() <= most(LIMIT), "{} MiB", peak.get() / MIB);
}
