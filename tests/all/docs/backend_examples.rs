//! Backends in other languages, made idempotent by the claim API: the examples in `docs/backends`, as they stand.

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
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.reopen().unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{program} does not start ({error}): apt-get install python3 nodejs"));
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned(), log }
    }

    /// Kills it, as a crash would.
    fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("its own child");
    }

    fn payment(&self, key: &str, order: &str, takes: f64) -> RequestBuilder {
        let body = json!({"order": order, "takes": takes}).to_string();
        http().post(format!("{}/payments", self.url)).header("idempotency-key", key).body(body)
    }

    async fn pay(&self, key: &str, order: &str, takes: f64) -> Answer {
        send(self.payment(key, order, takes)).await
    }

    /// A click on a page that has fetched a token, not sent yet.
    fn click(&self, token: &str, order: &str, takes: f64) -> RequestBuilder {
        let body = json!({"order": order, "takes": takes}).to_string();
        http().post(format!("{}/payments", self.url)).header(header::TOKEN, token).body(body)
    }

    /// As a client does that comes again as long as it is told to.
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
        panic!("it is told to come again, again and again");
    }

    /// Begins to send a payment, and hangs up in the middle of it.
    async fn hang_up(&self, key: &str) {
        let mut client = TcpStream::connect(self.url.trim_start_matches("http://")).await.expect("it listens");
        let head =
            format!("POST /payments HTTP/1.1\r\nhost: shop\r\nidempotency-key: {key}\r\ncontent-length: 40\r\n\r\n");
        client.write_all(format!(r#"{head}{{"order":"#).as_bytes()).await.expect("it reads");
        client.shutdown().await.expect("it is there");
        // It says nothing, and hangs up in turn.
        let mut said = Vec::new();
        client.read_to_end(&mut said).await.expect("it hangs up");
        // Node may say that this was no request, which is as good.
        assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&said));
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const KEY: &str = "a-key-of-the-backends";
/// The lease that the examples ask for.
const LEASE: Duration = Duration::from_secs(2);

async fn state(service: &OncewardServer, key: &str) -> String {
    let asked = json!({"key": key, "action": "POST /payments", "subject": "anonymous"}).to_string();
    let request = http().post(format!("{}/outcome", service.url)).bearer_auth(KEY);
    let answer = send(request.header("content-type", "application/json").body(asked)).await;
    serde_json::from_slice::<Value>(&answer.body).unwrap()["state"].as_str().unwrap().to_owned()
}

async fn is_running(service: &OncewardServer, key: &str) -> bool {
    state(service, key).await == "running"
}

/// Cuts off every answer to a claim.
fn cut_off(seen: &RecordedRequest) -> HttpFault {
    if seen.line.ends_with(" /claim") { HttpFault::CutAnswer(95) } else { HttpFault::None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_server_in_another_language_pays_once() {
    let redis = RedisServer::start();
    for example in EXAMPLES {
        let ledger = Ledger::new();
        let service = OncewardServer::start(&["--store", &redis.url(), "--api-key", KEY, "--prefix", example.0]);
        let backends = [(); 2].map(|()| Backend::start(example, &service.url, &ledger));
        let racers = (0..32).map(|racer| backends[racer % 2].pay_at_last("k", "tea", 0.2));
        let told = join_all(racers).await;
        let is_first = |answer: &&Answer| !answer.headers.contains_key("idempotent-replayed");
        assert_eq!(told.iter().filter(is_first).count(), 1, "{example:?}: {told:?}");
        assert!(told.iter().all(|answer| answer.status == 201), "{told:?}");
        let again = backends[1].pay("k", "tea", 0.2).await;
        assert_eq!((again.status, &again.headers["idempotent-replayed"]), (201, &"true".parse().unwrap()));
        assert_eq!(again.body, r#"{"paid": "tea"}"#.replace(' ', if example.0 == "node" { "" } else { " " }));
        assert_eq!(backends[0].pay("k", "coffee", 0.2).await.status, 422);
        assert_eq!(ledger.runs(), ["tea"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_click_at_a_plain_server_gets_the_first_answer() {
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
        let told = join_all(clicks).await;
        let is_first = |answer: &&Answer| !answer.headers.contains_key("idempotent-replayed");
        assert_eq!(told.iter().filter(is_first).count(), 1, "{example:?}: {told:?}");
        assert!(told.iter().all(|answer| answer.status == 201 && answer.body == told[0].body), "{told:?}");
        let changed = send(backends[0].click(&token, "coffee", 0.0)).await;
        assert_eq!((changed.status, ledger.runs()), (409, vec!["tea".to_owned()]), "{example:?}: {changed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_server_that_was_killed_frees_its_key_and_one_that_is_slow_keeps_it() {
    let redis = RedisServer::start();
    for example in EXAMPLES {
        let ledger = Ledger::new();
        let service = OncewardServer::start(&["--store", &redis.url(), "--api-key", KEY, "--prefix", example.0]);
        let [mut one, other] =
            [(); 2].map(|()| Backend::start_with(example, &service.url, &ledger, &[("RETRYABLE", "1")]));
        // Slower than its lease: its claim is renewed.
        let (slow, ()) = tokio::join!(one.pay("slow", "slow", 5.0), async {
            until("it is claimed", Duration::from_secs(5), || is_running(&service, "slow")).await;
            outlast(LEASE).await;
            let duplicate = other.pay("slow", "slow", 5.0).await;
            assert_eq!(duplicate.status, 409, "{example:?}: {duplicate:?}");
            assert!(is_running(&service, "slow").await, "{example:?}: it was asked in time");
        });
        assert_eq!(slow.status, 201, "{example:?}");

        let cut_off = tokio::spawn(one.payment("dead", "dead", 60.0).send());
        until("it is claimed", Duration::from_secs(5), || is_running(&service, "dead")).await;
        one.kill();
        assert!(cut_off.await.unwrap().is_err());
        let early = other.pay("dead", "dead", 60.0).await;
        assert_eq!(early.status, 409, "{example:?}: {early:?}");
        let is_free = || async { state(&service, "dead").await == "absent" };
        until("the lease is over", Duration::from_secs(6), is_free).await;
        let next = tokio::spawn(other.payment("dead", "dead", 60.0).send());
        until("the next one runs", Duration::from_secs(5), || is_running(&service, "dead")).await;
        next.abort();
        assert_eq!(ledger.runs(), ["slow"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_server_that_holds_and_was_killed_leaves_an_unknown_outcome_and_nobody_pays_again() {
    let redis = RedisServer::start();
    for example in EXAMPLES {
        let ledger = Ledger::new();
        let service = OncewardServer::start(&["--store", &redis.url(), "--api-key", KEY, "--prefix", example.0]);
        let [mut one, other] = [(); 2].map(|()| Backend::start(example, &service.url, &ledger));
        let cut_off = tokio::spawn(one.payment("dead", "dead", 60.0).send());
        until("it is claimed", Duration::from_secs(5), || is_running(&service, "dead")).await;
        one.kill();
        assert!(cut_off.await.unwrap().is_err());
        let is_unknown = || async { state(&service, "dead").await == "unknown" };
        until("the lease is over", Duration::from_secs(6), is_unknown).await;
        let refused = other.pay("dead", "dead", 60.0).await;
        let said: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!((refused.status, &said["code"]), (409, &json!("outcome_unknown")), "{example:?}");
        assert_eq!(other.pay("another", "another", 0.0).await.status, 201, "{example:?}");
        assert_eq!(ledger.runs(), ["another"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_in_the_middle_of_its_request_disturbs_no_payment_of_others() {
    for example in EXAMPLES {
        let (ledger, service) = (Ledger::new(), OncewardServer::start(&["--api-key", KEY]));
        let backend = Backend::start(example, &service.url, &ledger);
        let (first, ()) = tokio::join!(backend.pay("k", "tea", 1.0), async {
            until("it is claimed", Duration::from_secs(5), || is_running(&service, "k")).await;
            backend.hang_up("cut").await;
        });
        assert_eq!(first.status, 201, "{example:?}");
        let again = backend.pay("k", "tea", 1.0).await;
        assert!(again.headers.contains_key("idempotent-replayed"), "{example:?}: {again:?}");
        assert_eq!(state(&service, "cut").await, "absent", "{example:?}: nothing was asked for half a request");
        assert_eq!(ledger.runs(), ["tea"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_onceward_that_is_cut_off_runs_nothing_and_ends_nobody() {
    for example in EXAMPLES {
        let (ledger, service) = (Ledger::new(), OncewardServer::start(&["--api-key", KEY]));
        let way = FaultyHttpProxy::to(&service.url, cut_off).await;
        let backend = Backend::start_with(example, &way.url, &ledger, &[("RETRYABLE", "1")]);
        // Cut in an answer that says to run, and in one that refuses.
        for _ in 0..2 {
            let unheard = backend.pay("k", "tea", 0.0).await;
            assert_eq!((unheard.status, &unheard.headers["retry-after"]), (503, &"1".parse().unwrap()), "{example:?}");
        }
        way.plan(smooth);
        let heard = backend.pay_at_last("k", "tea", 0.0).await;
        assert_eq!(heard.status, 201, "{example:?}");
        assert_eq!(ledger.runs(), ["tea"], "{example:?}");
    }
}

/// A claim whose answer was lost is asked for again under the same attempt. Only if that is never heard, an operator has to settle it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_whose_answer_was_cut_off_is_asked_for_again_and_pays_once() {
    for example in EXAMPLES {
        let (ledger, service) = (Ledger::new(), OncewardServer::start(&["--api-key", KEY]));
        let cut = AtomicUsize::new(0);
        let twice = move |seen: &RecordedRequest| {
            if cut.fetch_add(1, Ordering::SeqCst) < 2 { cut_off(seen) } else { HttpFault::None }
        };
        let way = FaultyHttpProxy::to(&service.url, twice).await;
        let backend = Backend::start(example, &way.url, &ledger);
        let heard = backend.pay("k", "tea", 0.0).await;
        assert_eq!(
            (heard.status, way.seen().len()),
            (201, 4),
            "{example:?}: asked three times, and completed: {heard:?}"
        );

        way.plan(cut_off);
        let unheard = backend.pay("lost", "coffee", 0.0).await;
        assert_eq!((unheard.status, &unheard.headers["retry-after"]), (503, &"1".parse().unwrap()), "{example:?}");
        way.plan(smooth);
        let is_unknown = || async { state(&service, "lost").await == "unknown" };
        until("the lease has expired", Duration::from_secs(6), is_unknown).await;
        assert_eq!(backend.pay("lost", "coffee", 0.0).await.status, 409, "{example:?}");
        assert_eq!(ledger.runs(), ["tea"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_gets_stuck_does_not_cost_a_plain_server_its_claim() {
    let redis = RedisServer::start();
    for example in EXAMPLES {
        let ledger = Ledger::new();
        let service = OncewardServer::start(&["--store", &redis.url(), "--api-key", KEY, "--prefix", example.0]);
        let stuck = AtomicBool::new(false);
        let way = FaultyHttpProxy::to(&service.url, move |seen| {
            match seen.line.contains("/claim/renew") && !stuck.swap(true, Ordering::SeqCst) {
                true => HttpFault::Stall(Duration::from_secs(6)),
                false => HttpFault::None,
            }
        })
        .await;
        let (one, other) = (Backend::start(example, &way.url, &ledger), Backend::start(example, &service.url, &ledger));
        let (first, duplicate) = tokio::join!(one.pay("k", "tea", 5.0), async {
            until("it is claimed", Duration::from_secs(5), || is_running(&service, "k")).await;
            outlast(LEASE).await;
            // A busy store may be late: then nothing ran, and the client sends the same again.
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
async fn a_plain_server_whose_last_word_gets_lost_says_it_again_and_keeps_its_key_meanwhile() {
    for example in EXAMPLES {
        let (ledger, service) = (Ledger::new(), OncewardServer::start(&["--api-key", KEY]));
        let lost = |seen: &RecordedRequest| {
            if seen.line.contains("/claim/complete") { HttpFault::Instead(503) } else { HttpFault::None }
        };
        let way = FaultyHttpProxy::to(&service.url, lost).await;
        let backend = Backend::start(example, &way.url, &ledger);
        assert_eq!(
            backend.pay("k", "tea", 0.0).await.status,
            201,
            "{example:?}: it has happened, and its caller is told"
        );
        let is_kept = || async { backend.pay("k", "tea", 0.0).await.status == 409 };
        holds_for("it keeps its key for longer than its lease", LEASE * 3 / 2, is_kept).await;
        way.plan(smooth);
        let is_replayed = || async { backend.pay("k", "tea", 0.0).await.headers.contains_key("idempotent-replayed") };
        until("it was heard", Duration::from_secs(5), is_replayed).await;
        assert_eq!(ledger.runs(), ["tea"], "{example:?}");
    }
}

/// The line of the service's log about a caller without its key.
fn warned(service: &OncewardServer) -> Option<Value> {
    let lines = service.log().into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    { lines }.find(|line| line["level"] == "WARN" && line["key"].is_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_api_key_is_logged_on_both_sides_and_not_shown_to_the_customer() {
    for (example, (given, said)) in EXAMPLES
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
        assert_eq!((&line["key"], &line["path"], &line["peer"]), (&said.into(), &"/claim".into(), &"127.0.0.1".into()));
        assert!(!log.contains("canary") && !service.log().iter().any(|line| line.contains("canary")), "{line}");
    }
}
