//! Runs the examples in `docs/backends`: backends in Python and Node that call the claim API of the service.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use onceward_api::header;
use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, RecordedRequest, smooth};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::{holds_for, outlast, until};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const EXAMPLES: [(&str, &str); 2] = [("python3", "payments.py"), ("node", "payments.mjs")];

/// A backend in a process of its own.
struct Backend {
    child: Child,
    url: String,
    log: NamedTempFile,
}

impl Backend {
    fn start(example: (&str, &str), onceward: &str, ledger: &Ledger) -> Self {
        Self::start_with(example, onceward, ledger, &[])
    }

    fn start_with((program, file): (&str, &str), onceward: &str, ledger: &Ledger, more: &[(&str, &str)]) -> Self {
        let path = format!("{}/../docs/backends/{file}", env!("CARGO_MANIFEST_DIR"));
        let log = NamedTempFile::new().unwrap();
        let mut child = Command::new(program)
            .arg(path)
            .envs([("ONCEWARD_URL", onceward), ("ONCEWARD_API_KEY", KEY)])
            .envs(more.iter().copied())
            .env("LEDGER", ledger.path())
            .env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/../client-sdk/python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.reopen().unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("could not start {program} ({error}): apt-get install python3 nodejs"));
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned(), log }
    }

    /// Kills the process, like a crash.
    fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("the process is a child of the test");
    }

    fn payment(&self, key: &str, order: &str, takes: f64) -> RequestBuilder {
        let body = json!({"order": order, "takes": takes}).to_string();
        http().post(format!("{}/payments", self.url)).header("idempotency-key", key).body(body)
    }

    async fn pay(&self, key: &str, order: &str, takes: f64) -> Answer {
        send(self.payment(key, order, takes)).await
    }

    /// Returns the request of a click on a page with this token, unsent.
    fn click(&self, token: &str, order: &str, takes: f64) -> RequestBuilder {
        let body = json!({"order": order, "takes": takes}).to_string();
        http().post(format!("{}/payments", self.url)).header(header::TOKEN, token).body(body)
    }

    /// Sends a payment, and retries it while the response says so.
    async fn pay_at_last(&self, key: &str, order: &str, takes: f64) -> Answer {
        Self::send_at_last(|| self.payment(key, order, takes)).await
    }

    async fn send_at_last(request: impl Fn() -> RequestBuilder) -> Answer {
        for _ in 0..200 {
            let answer = send(request()).await;
            if ![409, 503].contains(&answer.status) {
                return answer;
            }
            assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("still 409 or 503 after 200 attempts");
    }

    /// Sends half of a payment and closes the connection.
    async fn hang_up(&self, key: &str) {
        let mut client = TcpStream::connect(self.url.trim_start_matches("http://")).await.expect("the backend listens");
        let head =
            format!("POST /payments HTTP/1.1\r\nhost: shop\r\nidempotency-key: {key}\r\ncontent-length: 40\r\n\r\n");
        client.write_all(format!(r#"{head}{{"order":"#).as_bytes()).await.expect("the backend reads");
        client.shutdown().await.expect("the connection is open");
        let mut response = Vec::new();
        client.read_to_end(&mut response).await.expect("the backend closes the connection");
        // A server may respond with 400 before it closes.
        let is_rejected = [&b"HTTP/1.0 400"[..], b"HTTP/1.1 400"].iter().any(|line| response.starts_with(line));
        assert!(response.is_empty() || is_rejected, "{}", String::from_utf8_lossy(&response));
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const KEY: &str = "a-key-of-the-backends";
/// The lease that the examples request.
const LEASE: Duration = Duration::from_secs(2);

async fn state(service: &OncewardServer, key: &str) -> String {
    let body = json!({"key": key, "action": "POST /payments", "subject": "anonymous"}).to_string();
    let request = http().post(format!("{}/outcome", service.url)).bearer_auth(KEY);
    let answer = send(request.header("content-type", "application/json").body(body)).await;
    serde_json::from_slice::<Value>(&answer.body).unwrap()["state"].as_str().unwrap().to_owned()
}

async fn is_running(service: &OncewardServer, key: &str) -> bool {
    state(service, key).await == "running"
}

/// Truncates every response to a claim.
fn cut_off(seen: &RecordedRequest) -> HttpFault {
    if seen.line.ends_with(" /claim") { HttpFault::CutAnswer(95) } else { HttpFault::None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backend_in_another_language_pays_once() {
    let redis = RedisServer::start();
    for example in EXAMPLES {
        let ledger = Ledger::new();
        let service = OncewardServer::start(&["--store", &redis.url(), "--api-key", KEY, "--prefix", example.0]);
        let backends = [(); 2].map(|()| Backend::start(example, &service.url, &ledger));
        let racers = (0..32).map(|racer| backends[racer % 2].pay_at_last("k", "tea", 0.2));
        let responses = join_all(racers).await;
        let is_first = |answer: &&Answer| !answer.headers.contains_key("idempotent-replayed");
        assert_eq!(responses.iter().filter(is_first).count(), 1, "{example:?}: {responses:?}");
        assert!(responses.iter().all(|answer| answer.status == 201), "{responses:?}");
        let again = backends[1].pay("k", "tea", 0.2).await;
        assert_eq!((again.status, &again.headers["idempotent-replayed"]), (201, &"true".parse().unwrap()));
        assert_eq!(again.body, r#"{"paid": "tea"}"#.replace(' ', if example.0 == "node" { "" } else { " " }));
        assert_eq!(backends[0].pay("k", "coffee", 0.2).await.status, 422);
        assert_eq!(ledger.runs(), ["tea"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clicks_at_a_backend_receive_the_first_response() {
    let redis = RedisServer::start();
    for example in EXAMPLES {
        let ledger = Ledger::new();
        let service = OncewardServer::start(&["--store", &redis.url(), "--api-key", KEY, "--prefix", example.0]);
        let backends = [(); 2].map(|()| Backend::start(example, &service.url, &ledger));
        let token = token(&service.url).await;
        let clicks = (0..32).map(|click| {
            let (backend, token) = (&backends[click % 2], &token);
            Backend::send_at_last(move || backend.click(token, "tea", 0.2))
        });
        let responses = join_all(clicks).await;
        let is_first = |answer: &&Answer| !answer.headers.contains_key("idempotent-replayed");
        assert_eq!(responses.iter().filter(is_first).count(), 1, "{example:?}: {responses:?}");
        assert!(
            responses.iter().all(|answer| answer.status == 201 && answer.body == responses[0].body),
            "{responses:?}"
        );
        let changed = send(backends[0].click(&token, "coffee", 0.0)).await;
        assert_eq!((changed.status, ledger.runs()), (409, vec!["tea".to_owned()]), "{example:?}: {changed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_payment_is_rejected_and_frees_its_key() {
    for example in EXAMPLES {
        let (ledger, service) = (Ledger::new(), OncewardServer::start(&["--api-key", KEY]));
        let backend = Backend::start(example, &service.url, &ledger);
        for malformed in [r#"{"order": "#, "null", "{}", r#"{"order": 1}"#] {
            let rejected = send(backend.payment("k", "tea", 0.0).body(malformed)).await;
            let said = (rejected.status, &rejected.headers[header::OUTCOME]);
            assert_eq!(said, (400, &"not_applied".parse().unwrap()), "{example:?}: {malformed}: {rejected:?}");
            assert_eq!(state(&service, "k").await, "absent", "{example:?}: {malformed}");
        }
        assert_eq!(backend.pay("k", "tea", 0.0).await.status, 201, "{example:?}");
        assert_eq!(ledger.runs(), ["tea"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_retryable_backend_frees_its_key_and_slow_one_keeps_it() {
    let redis = RedisServer::start();
    for example in EXAMPLES {
        let ledger = Ledger::new();
        let service = OncewardServer::start(&["--store", &redis.url(), "--api-key", KEY, "--prefix", example.0]);
        let [mut one, other] =
            [(); 2].map(|()| Backend::start_with(example, &service.url, &ledger, &[("RETRYABLE", "1")]));
        // The run takes longer than the lease, so the claim is renewed.
        let (slow, ()) = tokio::join!(one.pay("slow", "slow", 5.0), async {
            until("the key is claimed", Duration::from_secs(5), || is_running(&service, "slow")).await;
            outlast(LEASE).await;
            let duplicate = other.pay("slow", "slow", 5.0).await;
            assert_eq!(duplicate.status, 409, "{example:?}: {duplicate:?}");
            assert!(is_running(&service, "slow").await, "{example:?}: still in flight");
        });
        assert_eq!(slow.status, 201, "{example:?}");

        let cut_off = tokio::spawn(one.payment("dead", "dead", 60.0).send());
        until("the key is claimed", Duration::from_secs(5), || is_running(&service, "dead")).await;
        one.kill();
        assert!(cut_off.await.unwrap().is_err());
        let early = other.pay("dead", "dead", 60.0).await;
        assert_eq!(early.status, 409, "{example:?}: {early:?}");
        let is_free = || async { state(&service, "dead").await == "absent" };
        until("the lease has expired", Duration::from_secs(6), is_free).await;
        let next = tokio::spawn(other.payment("dead", "dead", 60.0).send());
        until("the next request runs", Duration::from_secs(5), || is_running(&service, "dead")).await;
        next.abort();
        assert_eq!(ledger.runs(), ["slow"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_backend_leaves_an_unknown_outcome() {
    let redis = RedisServer::start();
    for example in EXAMPLES {
        let ledger = Ledger::new();
        let service = OncewardServer::start(&["--store", &redis.url(), "--api-key", KEY, "--prefix", example.0]);
        let [mut one, other] = [(); 2].map(|()| Backend::start(example, &service.url, &ledger));
        let cut_off = tokio::spawn(one.payment("dead", "dead", 60.0).send());
        until("the key is claimed", Duration::from_secs(5), || is_running(&service, "dead")).await;
        one.kill();
        assert!(cut_off.await.unwrap().is_err());
        let is_unknown = || async { state(&service, "dead").await == "unknown" };
        until("the lease has expired", Duration::from_secs(6), is_unknown).await;
        let rejected = other.pay("dead", "dead", 60.0).await;
        let problem: Value = serde_json::from_slice(&rejected.body).unwrap();
        assert_eq!((rejected.status, &problem["code"]), (409, &json!("outcome_unknown")), "{example:?}");
        assert_eq!(other.pay("another", "another", 0.0).await.status, 201, "{example:?}");
        assert_eq!(ledger.runs(), ["another"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_disconnect_disturbs_no_other_payment() {
    for example in EXAMPLES {
        let (ledger, service) = (Ledger::new(), OncewardServer::start(&["--api-key", KEY]));
        let backend = Backend::start(example, &service.url, &ledger);
        let (first, ()) = tokio::join!(backend.pay("k", "tea", 1.0), async {
            until("the key is claimed", Duration::from_secs(5), || is_running(&service, "k")).await;
            backend.hang_up("cut").await;
        });
        assert_eq!(first.status, 201, "{example:?}");
        let again = backend.pay("k", "tea", 1.0).await;
        assert!(again.headers.contains_key("idempotent-replayed"), "{example:?}: {again:?}");
        assert_eq!(state(&service, "cut").await, "absent", "{example:?}: half a request claims nothing");
        assert_eq!(ledger.runs(), ["tea"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_response_of_onceward_runs_nothing() {
    for example in EXAMPLES {
        let (ledger, service) = (Ledger::new(), OncewardServer::start(&["--api-key", KEY]));
        let proxy = FaultyHttpProxy::to(&service.url, cut_off).await;
        let backend = Backend::start_with(example, &proxy.url, &ledger, &[("RETRYABLE", "1")]);
        // The first truncated response is a verdict to run, the second a rejection.
        for _ in 0..2 {
            let failed = backend.pay("k", "tea", 0.0).await;
            assert_eq!((failed.status, &failed.headers["retry-after"]), (503, &"1".parse().unwrap()), "{example:?}");
        }
        proxy.plan(smooth);
        let paid = backend.pay_at_last("k", "tea", 0.0).await;
        assert_eq!(paid.status, 201, "{example:?}");
        assert_eq!(ledger.runs(), ["tea"], "{example:?}");
    }
}

/// A backend retries a claim with a lost response under the same attempt. If all retries are lost, it releases the claim in the background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_with_truncated_response_is_retried_and_pays_once() {
    for example in EXAMPLES {
        let (ledger, service) = (Ledger::new(), OncewardServer::start(&["--api-key", KEY]));
        let cut = AtomicUsize::new(0);
        let twice = move |seen: &RecordedRequest| {
            if cut.fetch_add(1, Ordering::SeqCst) < 2 { cut_off(seen) } else { HttpFault::None }
        };
        let proxy = FaultyHttpProxy::to(&service.url, twice).await;
        let backend = Backend::start(example, &proxy.url, &ledger);
        let paid = backend.pay("k", "tea", 0.0).await;
        assert_eq!(
            (paid.status, proxy.seen().len()),
            (201, 4),
            "{example:?}: three claims and one completion: {paid:?}"
        );

        proxy.plan(cut_off);
        let failed = backend.pay("lost", "coffee", 0.0).await;
        assert_eq!((failed.status, &failed.headers["retry-after"]), (503, &"1".parse().unwrap()), "{example:?}");
        proxy.plan(smooth);
        // A response without `Retry-After`, such as that of an unknown outcome, ends the retries with a panic.
        assert_eq!(backend.pay_at_last("lost", "coffee", 0.0).await.status, 201, "{example:?}");
        assert_eq!(ledger.runs(), ["tea", "coffee"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_renewal_does_not_lose_the_claim() {
    let redis = RedisServer::start();
    for example in EXAMPLES {
        let ledger = Ledger::new();
        let service = OncewardServer::start(&["--store", &redis.url(), "--api-key", KEY, "--prefix", example.0]);
        let stuck = AtomicBool::new(false);
        let proxy = FaultyHttpProxy::to(&service.url, move |seen| {
            match seen.line.contains("/claim/renew") && !stuck.swap(true, Ordering::SeqCst) {
                true => HttpFault::Stall(Duration::from_secs(6)),
                false => HttpFault::None,
            }
        })
        .await;
        let (one, other) =
            (Backend::start(example, &proxy.url, &ledger), Backend::start(example, &service.url, &ledger));
        let (first, duplicate) = tokio::join!(one.pay("k", "tea", 5.0), async {
            until("the key is claimed", Duration::from_secs(5), || is_running(&service, "k")).await;
            outlast(LEASE).await;
            // If a busy store replies too late, nothing has run, and the client retries.
            loop {
                let duplicate = other.pay("k", "tea", 5.0).await;
                if duplicate.status != 503 {
                    break duplicate;
                }
            }
        });
        assert_eq!((first.status, duplicate.status), (201, 409), "{example:?}: {duplicate:?}");
        assert_eq!(ledger.runs(), ["tea"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_completion_is_retried_and_the_key_stays_claimed() {
    for example in EXAMPLES {
        let (ledger, service) = (Ledger::new(), OncewardServer::start(&["--api-key", KEY]));
        let lost = |seen: &RecordedRequest| {
            if seen.line.contains("/claim/complete") { HttpFault::Instead(503) } else { HttpFault::None }
        };
        let proxy = FaultyHttpProxy::to(&service.url, lost).await;
        let backend = Backend::start(example, &proxy.url, &ledger);
        assert_eq!(
            backend.pay("k", "tea", 0.0).await.status,
            201,
            "{example:?}: the payment was made, and the client receives 201"
        );
        let is_kept = || async { backend.pay("k", "tea", 0.0).await.status == 409 };
        holds_for("the key stays claimed for longer than its lease", LEASE * 3 / 2, is_kept).await;
        proxy.plan(smooth);
        let is_replayed = || async { backend.pay("k", "tea", 0.0).await.headers.contains_key("idempotent-replayed") };
        until("the completion is stored", Duration::from_secs(5), is_replayed).await;
        assert_eq!(ledger.runs(), ["tea"], "{example:?}");
    }
}

/// Returns the line of the service's log about a request without the right API key.
fn warned(service: &OncewardServer) -> Option<Value> {
    let lines = service.log().into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    { lines }.find(|line| line["level"] == "WARN" && line["key"].is_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_api_key_is_logged_and_hidden_from_the_customer() {
    for (example, (given, flaw)) in EXAMPLES
        .into_iter()
        .flat_map(|example| [("a-wrong-key-canary", "wrong"), ("", "missing")].map(|key| (example, key)))
    {
        let (ledger, service) = (Ledger::new(), OncewardServer::start(&["--api-key", KEY]));
        let backend = Backend::start_with(example, &service.url, &ledger, &[("ONCEWARD_API_KEY", given)]);
        let answer = backend.pay("k", "tea", 0.0).await;
        assert_eq!(answer.status, 503, "{example:?}: {answer:?}");
        assert!(answer.headers.contains_key("retry-after") && !answer.headers.contains_key("www-authenticate"));
        assert!(ledger.runs().is_empty(), "{example:?}");
        let log = std::fs::read_to_string(backend.log.path()).unwrap();
        assert!(log.contains("ONCEWARD_API_KEY is missing or wrong"), "{example:?}: {log}");
        until("the service has logged it", Duration::from_secs(5), || std::future::ready(warned(&service).is_some()))
            .await;
        let line = warned(&service).unwrap();
        assert_eq!((&line["key"], &line["path"], &line["peer"]), (&flaw.into(), &"/claim".into(), &"127.0.0.1".into()));
        assert!(!log.contains("canary") && !service.log().iter().any(|line| line.contains("canary")), "{line}");
    }
}
