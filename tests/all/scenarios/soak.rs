//! Soak test: mixed traffic on two processes and one Redis, while connections break, replies are late and one process is killed.
//! `make soak` runs it for ten minutes, `make test` for some seconds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward_tests::client::{http, submit};
use onceward_tests::faulty_tcp_proxy::Proxy;
use onceward_tests::key_routes::under;
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{ORDER, TAKES, USER};
use reqwest::{Client, RequestBuilder};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use crate::PEER;

/// Number of concurrent clients.
const CLIENTS: usize = 12;
/// A rejection that takes longer than this followed a store timeout, which is 250 ms.
const AT_ONCE: Duration = Duration::from_millis(50);
/// Minimum time between two submissions of one client.
const PACE: Duration = Duration::from_millis(150);
/// Timeout of a client's request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Minimum length of a run in which the memory of the process is checked.
const LONG: Duration = Duration::from_secs(540);
const MINUTE: usize = 60;
/// Maximum number of retries of an order with an unknown outcome.
const LATER: usize = 2;

/// Returns the length of the run: `SOAK` seconds, or 15.
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
fn length() -> Duration {
    let seconds = std::env::var("SOAK").map_or(15, |seconds| seconds.parse().expect("SOAK is a number of seconds"));
    Duration::from_secs(seconds)
}

/// The policy of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Policy {
    Token,
    Remembered,
    Key,
    AtMostOnce,
    Interval,
}

impl Policy {
    const ALL: [Self; 5] = [Self::Token, Self::Remembered, Self::Key, Self::AtMostOnce, Self::Interval];

    fn has_token(self) -> bool {
        matches!(self, Self::Token | Self::Remembered)
    }

    fn request(self, url: &str, order: &str, token: &str) -> RequestBuilder {
        match self {
            Self::Token => submit(url, "/orders", token, order),
            Self::Remembered => submit(url, "/remembered/orders", token, order),
            Self::Key => under(url, "/keyed/patient", order, order),
            Self::AtMostOnce => under(url, "/keyed/held/patient", order, order),
            Self::Interval => http().post(format!("{url}/spaced/mine")).header(USER, order).header(ORDER, order),
        }
    }

    /// Number of store commands that a run needs.
    fn commands(self) -> usize {
        match self {
            Self::Token | Self::Interval => 1,
            Self::Remembered | Self::Key => 2,
            Self::AtMostOnce => 3,
        }
    }
}

/// The outcome of one request as the client sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ClientOutcome {
    /// The handler's response, new or replayed.
    Response { is_replayed: bool },
    /// An earlier request used the token, or took effect within the interval.
    Duplicate,
    /// Another request is in flight.
    InProgress,
    /// The request did not run. `is_asked` is false if it was rejected without a store command.
    Rejected { is_asked: bool },
    /// It may have run.
    Unknown,
}

impl ClientOutcome {
    fn of(outcome: &str, took: Duration) -> Self {
        match outcome {
            // `unprotected`: the handler ran, and the store has not confirmed its record.
            "executed" | "unprotected" => Self::Response { is_replayed: false },
            "replayed" => Self::Response { is_replayed: true },
            "token_used" | "too_soon" => Self::Duplicate,
            "in_progress" => Self::InProgress,
            "store_unavailable" => Self::Rejected { is_asked: took > AT_ONCE },
            "token_stale" | "token_expired" => Self::Rejected { is_asked: true },
            "redeem_unknown" | "outcome_unknown" | "unknown" | "reply_not_kept" => Self::Unknown,
            other => panic!("unexpected outcome {other:?}"),
        }
    }

    /// Number of store commands that this outcome needs.
    fn commands(&self, policy: Policy) -> usize {
        match self {
            Self::Response { is_replayed: false } | Self::Unknown => policy.commands(),
            Self::Response { is_replayed: true } | Self::Duplicate | Self::InProgress => 1,
            Self::Rejected { is_asked } => usize::from(*is_asked),
        }
    }

    /// Returns true if the client retries after this outcome.
    fn is_open(&self) -> bool {
        matches!(self, Self::InProgress | Self::Rejected { .. } | Self::Unknown)
    }
}

/// One order of one client, sent once or more.
struct Submission {
    policy: Policy,
    order: String,
    heard: Vec<ClientOutcome>,
}

impl Submission {
    /// Returns the violation of a guarantee if the order took effect this many times.
    fn fault(&self, runs: usize) -> Option<&'static str> {
        let heard = |some: fn(&ClientOutcome) -> bool| self.heard.iter().any(some);
        let has_response = heard(|heard| matches!(heard, ClientOutcome::Response { .. }));
        // A claim whose reply was lost is rejected, and released in the background. Until then it counts for the interval, as documented in
        // guarantees.md.
        let may_stand =
            self.policy == Policy::Interval && heard(|heard| matches!(heard, ClientOutcome::Rejected { .. }));
        let is_unknown = heard(|heard| matches!(heard, ClientOutcome::Unknown | ClientOutcome::InProgress));
        match runs {
            0 if has_response => Some("a response without a run"),
            0 if heard(|heard| *heard == ClientOutcome::Duplicate) && !is_unknown && !may_stand => {
                Some("false duplicate")
            }
            1 if !has_response && !is_unknown => Some("ran, but its client received a rejection"),
            0 | 1 => None,
            // A process that is killed after the effect leaves no record. With `retryable`, its key is free after the lease.
            2 if self.policy == Policy::Key && is_unknown => None,
            _ => Some("double"),
        }
    }
}

/// The servers, the proxy and the ledger of the test.
struct Bed {
    redis: RedisServer,
    proxy: Proxy,
    ledger: Ledger,
    /// Never killed, so that its memory can be measured.
    steady: Peer,
    /// The URLs of both processes. The second one is killed and restarted on another port.
    urls: Arc<Mutex<[String; 2]>>,
}

impl Bed {
    async fn set() -> (Self, Peer) {
        let (redis, ledger) = (RedisServer::start(), Ledger::new());
        let proxy = Proxy::before(redis.port()).await;
        let [steady, mortal] = [(); 2].map(|()| Peer::start(PEER, "onceward", &proxy.url(), &ledger));
        let urls = Arc::new(Mutex::new([steady.url.clone(), mortal.url.clone()]));
        (Self { redis, proxy, ledger, steady, urls }, mortal)
    }

    fn restart(&self, mortal: &mut Peer) {
        mortal.kill();
        *mortal = Peer::start(PEER, "onceward", &self.proxy.url(), &self.ledger);
        self.urls.lock().unwrap()[1].clone_from(&mortal.url);
    }

    /// Injects faults until the deadline, and reads the memory of the steady process every second.
    async fn disturb(&self, mortal: &mut Peer, deadline: Instant) -> (Disturbance, Vec<u64>) {
        let (mut done, mut memory) = (Disturbance::default(), Vec::new());
        let mut second = interval(Duration::from_secs(1));
        let kill_every = (length().as_secs() as usize / 40).clamp(5, 15);
        while Instant::now() < deadline {
            second.tick().await;
            memory.push(self.steady.memory());
            let now = memory.len();
            // Four seconds of late replies, then three without delay.
            if now % 7 < 4 {
                self.proxy.slow_down(Duration::from_millis(fastrand::u64(0..=800)));
                done.delays += 1;
            } else {
                self.proxy.slow_down(Duration::ZERO);
            }
            if fastrand::usize(0..3) == 0 {
                self.proxy.reset();
                done.resets += 1;
            }
            if now.is_multiple_of(kill_every) {
                self.restart(mortal);
                done.kills += 1;
            }
        }
        self.proxy.slow_down(Duration::ZERO);
        (done, memory)
    }
}

#[derive(Debug, Default)]
struct Disturbance {
    delays: usize,
    resets: usize,
    kills: usize,
}

/// A client that submits until the deadline, each order one to three times concurrently, and retries later if the outcome is unknown.
#[derive(Clone)]
struct Caller {
    http: Client,
    urls: Arc<Mutex<[String; 2]>>,
    number: Arc<AtomicUsize>,
    needed: Arc<AtomicUsize>,
}

impl Caller {
    async fn submit_until(self, deadline: Instant) -> Vec<Submission> {
        let mut submissions = JoinSet::new();
        let mut pace = interval(PACE);
        while Instant::now() < deadline {
            pace.tick().await;
            submissions.spawn(self.clone().submit());
        }
        submissions.join_all().await.into_iter().flatten().collect()
    }

    /// Submits one order. Returns `None` if there was no token.
    async fn submit(self) -> Option<Submission> {
        let number = self.number.fetch_add(1, Ordering::SeqCst);
        let (policy, order) = (Policy::ALL[number % Policy::ALL.len()], format!("order-{number}"));
        let token = if policy.has_token() { self.token().await? } else { String::new() };
        let takes = fastrand::u64(0..30);
        let mut requests = JoinSet::new();
        for at in 0..fastrand::u64(1..=3) {
            let request = policy.request(&self.url(), &order, &token).header(TAKES, takes);
            let (http, later) = (self.http.clone(), Duration::from_millis(at * fastrand::u64(0..60)));
            requests.spawn(async move {
                sleep(later).await;
                hear(&http, request).await
            });
        }
        let mut heard = requests.join_all().await;
        for _ in 0..LATER {
            if !heard.iter().all(ClientOutcome::is_open) {
                break;
            }
            // Before or after the lease of an abandoned claim has expired.
            sleep(Duration::from_millis(fastrand::u64(500..6_000))).await;
            heard.push(hear(&self.http, policy.request(&self.url(), &order, &token).header(TAKES, takes)).await);
        }
        let needed = heard.iter().map(|heard| heard.commands(policy)).sum();
        self.needed.fetch_add(needed, Ordering::SeqCst);
        Some(Submission { policy, order, heard })
    }

    async fn token(&self) -> Option<String> {
        self.needed.fetch_add(1, Ordering::SeqCst);
        let response = self.http.post(format!("{}/token", self.url())).timeout(PATIENCE).send().await.ok()?;
        let issued: serde_json::Value = response.error_for_status().ok()?.json().await.ok()?;
        issued["token"].as_str().map(str::to_owned)
    }

    /// Returns the URL of a random process.
    fn url(&self) -> String {
        self.urls.lock().unwrap()[fastrand::usize(0..2)].clone()
    }
}

async fn hear(http: &Client, request: RequestBuilder) -> ClientOutcome {
    let request = request.timeout(PATIENCE).build().unwrap();
    let sent = Instant::now();
    match http.execute(request).await {
        Ok(response) => ClientOutcome::of(response.headers()["onceward-outcome"].to_str().unwrap(), sent.elapsed()),
        Err(error) if error.is_connect() => ClientOutcome::Rejected { is_asked: false },
        Err(_) => ClientOutcome::Unknown,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_traffic_over_a_faulty_network_runs_once() {
    let (bed, mut mortal) = Bed::set().await;
    let deadline = Instant::now() + length();
    let (number, needed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let commands = bed.redis.count_commands();
    let mut callers = JoinSet::new();
    for _ in 0..CLIENTS {
        let (urls, number, needed) = (Arc::clone(&bed.urls), Arc::clone(&number), Arc::clone(&needed));
        callers.spawn(Caller { http: http(), urls, number, needed }.submit_until(deadline));
    }
    let (done, memory) = bed.disturb(&mut mortal, deadline).await;
    let submissions: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    let (commands, needed) = (commands.so_far(), needed.load(Ordering::SeqCst));
    println!("{} submissions, {done:?}", submissions.len());
    println!("{commands} commands at Redis, {needed} needed: {:.2}", commands as f64 / needed as f64);
    judge(&bed.ledger, &submissions);
    assert!(commands * 2 <= needed * 3, "{commands} commands, but {needed} are needed");
    judge_memory(&memory);
}

#[test]
fn judge_finds_doubles_false_duplicates_and_false_rejections() {
    let (response, rejected) =
        (ClientOutcome::Response { is_replayed: false }, ClientOutcome::Rejected { is_asked: true });
    let fault = |policy, heard: &[&ClientOutcome], runs| {
        let heard = heard.iter().map(|heard| (*heard).clone()).collect();
        Submission { policy, order: "order".to_owned(), heard }.fault(runs)
    };
    for (policy, heard, runs, expected) in [
        (Policy::Token, [&response, &response], 2, Some("double")),
        (Policy::Key, [&response, &ClientOutcome::InProgress], 0, Some("a response without a run")),
        (Policy::Key, [&response, &response], 2, Some("double")),
        (Policy::AtMostOnce, [&ClientOutcome::Unknown, &response], 2, Some("double")),
        (Policy::Token, [&rejected, &ClientOutcome::Duplicate], 0, Some("false duplicate")),
        (Policy::Interval, [&ClientOutcome::Duplicate, &ClientOutcome::Duplicate], 0, Some("false duplicate")),
        (Policy::AtMostOnce, [&rejected, &rejected], 1, Some("ran, but its client received a rejection")),
        (Policy::Interval, [&rejected, &ClientOutcome::Duplicate], 1, Some("ran, but its client received a rejection")),
        (Policy::Interval, [&rejected, &ClientOutcome::Duplicate], 0, None),
        (Policy::Token, [&ClientOutcome::Unknown, &ClientOutcome::Duplicate], 0, None),
        (Policy::Token, [&response, &ClientOutcome::Duplicate], 1, None),
    ] {
        assert_eq!(fault(policy, &heard, runs), expected, "{policy:?} {heard:?} {runs}");
    }
}

/// Asserts that no order took effect twice, and that every response was true.
fn judge(ledger: &Ledger, submissions: &[Submission]) {
    let mut runs = HashMap::<String, usize>::new();
    ledger.runs().into_iter().for_each(|run| *runs.entry(run).or_default() += 1);
    let mut heard = HashMap::<(Policy, &ClientOutcome), usize>::new();
    submissions.iter().for_each(|submission| {
        submission.heard.iter().for_each(|each| *heard.entry((submission.policy, each)).or_default() += 1);
    });
    println!("{heard:?}");
    let faults: Vec<_> = submissions
        .iter()
        .filter_map(|submission| {
            let runs = runs.get(&submission.order).copied().unwrap_or(0);
            let fault = submission.fault(runs)?;
            Some(format!(
                "{fault}: {:?} {} ran {runs} times: {:?}",
                submission.policy, submission.order, submission.heard
            ))
        })
        .collect();
    assert!(faults.is_empty(), "{} faults: {faults:#?}", faults.len());
    let ran = submissions.iter().filter(|submission| runs.contains_key(&submission.order)).count();
    assert!(ran * 4 > submissions.len(), "at least a quarter must run: {ran} of {}", submissions.len());
}

/// Asserts that the memory in each of the last three minutes is within 10 % of the third minute.
fn judge_memory(samples: &[u64]) {
    let minutes: Vec<u64> =
        samples.chunks_exact(MINUTE).map(|minute| minute.iter().sum::<u64>() / MINUTE as u64).collect();
    let sizes: Vec<_> = minutes.iter().map(|bytes| format!("{:.1} MB", *bytes as f64 / 1e6)).collect();
    println!("resident size of the process that was not killed, by minute: {sizes:?}");
    if samples.len() < LONG.as_secs() as usize {
        return;
    }
    for last in &minutes[minutes.len() - 3..] {
        assert!(last.abs_diff(minutes[2]) * 10 <= minutes[2], "the memory of the process changes: {sizes:?}");
    }
}
