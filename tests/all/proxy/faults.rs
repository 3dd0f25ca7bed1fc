//! Submissions through two proxies in front of an application that knows nothing of Onceward, over a network that fails one request in
//! three, while proxies and application are killed. The ledger of the application counts effects.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use onceward_api::{IssuedToken, header};
use onceward_client::{Client, OnUnknown, RetryLimits};
use onceward_tests::client::Answer;
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault};
use onceward_tests::legacy_shop::LegacyShop;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use reqwest::RequestBuilder;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{Instant, sleep};

/// Number of submissions in flight.
const ABREAST: usize = 32;
/// Number of submissions that are sent once, before the application runs.
const EARLY: usize = 12;
/// Timeout of an attempt; shorter than the longest delay.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest delay of a request or a response. The proxies wait a second for the application.
const LATEST: Duration = Duration::from_millis(1_500);
/// Time after which a client gives up; longer than the lease of a killed proxy, which is 15 seconds by default.
const DEADLINE: Duration = Duration::from_secs(60);
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Two routes with a short lease. All other paths have the default rules.
const ROUTES: &str = r#"
[[proxy.route]]
path = "/orders/*"
policy = "token"
remember = true
lease = "2s"

[[proxy.route]]
path = "/api/*"
policy = "key"
lease = "2s"
"#;

/// Returns the number of submissions; `make proxy-faults` sets more than `make test`.
fn submissions() -> usize {
    number("SUBMISSIONS").unwrap_or(150) as usize
}

#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// The random numbers of a run.
struct Dice(Mutex<fastrand::Rng>);

impl Dice {
    /// Prints the seed. `SEED` repeats the numbers, but not the timing.
    fn new() -> Arc<Self> {
        let seed = number("SEED").unwrap_or_else(|| fastrand::u64(..));
        println!("SEED={seed}");
        Arc::new(Self(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    fn roll(&self) -> MutexGuard<'_, fastrand::Rng> {
        self.0.lock().unwrap()
    }

    fn up_to(&self, longest: Duration) -> Duration {
        Duration::from_millis(self.roll().u64(0..=longest.as_millis() as u64))
    }

    /// Chooses a fault for a third of all requests.
    fn fault(&self) -> HttpFault {
        if self.roll().u8(0..3) > 0 {
            return HttpFault::None;
        }
        let kind = self.roll().u8(0..8);
        match kind {
            0 => HttpFault::CutBefore,
            1 => HttpFault::CutRequest,
            2 | 3 => HttpFault::CutAnswer(0),
            4 => HttpFault::CutAnswer(self.roll().usize(1..100)),
            5 => HttpFault::Delay(self.up_to(LATEST)),
            // The request arrives late, beside its retry.
            6 => HttpFault::Stall(self.up_to(LATEST)),
            // A gateway responds in place of the application, which has carried out the request.
            _ => HttpFault::After([502, 504][self.roll().usize(0..2)]),
        }
    }
}

/// The application, the proxies, and a network with faults in front of each.
struct Bed {
    dice: Arc<Dice>,
    shop: Mutex<LegacyShop>,
    /// The network between the proxies and the application.
    inner: FaultyHttpProxy,
    proxies: [Mutex<Option<OncewardServer>>; 2],
    /// The network between the clients and each proxy.
    outer: [FaultyHttpProxy; 2],
    redis: RedisServer,
    settings: TempDir,
}

impl Bed {
    async fn set() -> Self {
        let (dice, shop, redis) = (Dice::new(), LegacyShop::start(), RedisServer::start());
        let settings = tempfile::tempdir().unwrap();
        std::fs::write(settings.path().join("onceward.toml"), ROUTES).unwrap();
        let network = async |url: &str| {
            let dice = Arc::clone(&dice);
            FaultyHttpProxy::to(url, move |_| dice.fault()).await
        };
        let inner = network(&shop.url).await;
        let proxies = [(); 2].map(|()| start(&inner, &redis, &settings));
        let outer = [network(&proxies[0].url).await, network(&proxies[1].url).await];
        let proxies = proxies.map(|proxy| Mutex::new(Some(proxy)));
        Self { shop: Mutex::new(shop), inner, proxies, outer, redis, settings, dice }
    }

    /// Returns the URL of any proxy.
    fn url(&self) -> &str {
        &self.outer[self.dice.roll().usize(0..2)].url
    }

    /// Kills a proxy, and starts another in its place after some time.
    async fn kill_proxy(&self, number: usize) {
        drop(self.proxies[number].lock().unwrap().take());
        self.outer[number].refuse();
        sleep(self.dice.up_to(DOWN)).await;
        let proxy = block_in_place(|| start(&self.inner, &self.redis, &self.settings));
        self.outer[number].lead_to(&proxy.url);
        *self.proxies[number].lock().unwrap() = Some(proxy);
        self.outer[number].accept();
    }

    /// Kills the application, and starts it again after some time.
    async fn kill_shop(&self) {
        block_in_place(|| self.shop.lock().unwrap().kill());
        self.inner.refuse();
        sleep(self.dice.up_to(DOWN)).await;
        block_in_place(|| self.shop.lock().unwrap().restart());
        self.inner.accept();
    }

    /// Kills proxies and application in turn, at random moments, until `is_over`. Returns how often each was killed.
    async fn disturb(&self, is_over: &AtomicBool) -> [usize; 3] {
        let (mut kills, mut next) = ([0; 3], 0);
        while !is_over.load(Ordering::SeqCst) {
            let pause = if kills.contains(&0) { FIRST_KILLS } else { BETWEEN_KILLS };
            sleep(self.dice.up_to(pause)).await;
            match next {
                2 => self.kill_shop().await,
                number => self.kill_proxy(number).await,
            }
            kills[next] += 1;
            next = if kills.contains(&0) { (next + 1) % 3 } else { self.dice.roll().usize(0..3) };
        }
        kills
    }

    /// Returns how often each path took effect.
    fn effects(&self) -> HashMap<String, usize> {
        effects(&self.shop.lock().unwrap())
    }
}

/// The longest time that a killed process is down, beside its start.
const DOWN: Duration = Duration::from_millis(300);
/// The longest time between the first three kills, which a short run needs.
const FIRST_KILLS: Duration = Duration::from_millis(300);
/// The longest time between two later kills.
const BETWEEN_KILLS: Duration = Duration::from_millis(1_500);

fn start(upstream: &FaultyHttpProxy, redis: &RedisServer, settings: &TempDir) -> OncewardServer {
    let file = settings.path().join("onceward.toml");
    let (store, file) = (redis.url(), file.to_str().unwrap());
    let address = ["proxy", "--upstream", &upstream.url, "--store", &store, "--config", file];
    let limits = ["--upstream-timeout", "1s", "--rate-limit", "off", "--rate-limit-total", "off"];
    OncewardServer::start(&[&address[..], &limits].concat())
}

fn effects(shop: &LegacyShop) -> HashMap<String, usize> {
    let mut effects = HashMap::new();
    for order in shop.orders() {
        *effects.entry(order["path"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    effects
}

/// The response to one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// The response of the application, new or stored.
    Response,
    /// This attempt ran nothing. The same token or key is valid.
    NothingRan,
    /// This attempt ran nothing, and the token is used up.
    TokenLost,
    /// An earlier attempt is in flight.
    InProgress,
    /// The outcome is unknown, and stays so.
    Unknown,
    /// None, or one of the network: the attempt may have run.
    Lost,
}

impl Heard {
    fn of(answer: Option<&Answer>) -> Self {
        match answer.map_or("", |answer| &answer.outcome) {
            "" => Self::Lost,
            "executed" | "replayed" => Self::Response,
            "not_applied" | "store_unavailable" | "overloaded" => Self::NothingRan,
            "not_released" | "redeem_unknown" => Self::TokenLost,
            "in_progress" => Self::InProgress,
            "unknown" | "outcome_unknown" | "reply_not_kept" | "token_used" => Self::Unknown,
            _ => panic!("unexpected: {answer:?}"),
        }
    }
}

/// The end of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Answered,
    Unknown,
    NotApplied,
}

/// Sends a request. Returns what the client learns, and the outcome as text.
async fn attempt(request: RequestBuilder) -> (Heard, String) {
    let answer = async {
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let outcome = headers.get(header::OUTCOME).map(|value| value.to_str().unwrap().to_owned());
        Ok::<_, reqwest::Error>(Answer {
            status,
            outcome: outcome.unwrap_or_default(),
            headers,
            body: response.bytes().await?,
        })
    };
    match answer.await {
        Ok(answer) => {
            let heard = Heard::of(Some(&answer));
            assert_eq!(heard == Heard::Response, (200..300).contains(&answer.status), "{answer:?}");
            (heard, answer.outcome)
        }
        Err(error) if error.is_connect() => (Heard::NothingRan, "connection refused".to_owned()),
        Err(_) => (Heard::Lost, "no response".to_owned()),
    }
}

/// Repeats a request with the same token or key until its outcome is certain, or stays unknown; an impatient client sends it once.
async fn repeat(is_patient: bool, request: impl Fn() -> RequestBuilder) -> (End, String) {
    let (begun, mut pause, mut is_in_doubt) = (Instant::now(), BACKOFF.0, false);
    loop {
        let (heard, outcome) = attempt(request()).await;
        is_in_doubt |= matches!(heard, Heard::Lost | Heard::InProgress);
        let is_over = !is_patient || begun.elapsed() > DEADLINE;
        let end = match heard {
            Heard::Response => End::Answered,
            Heard::Unknown => End::Unknown,
            Heard::TokenLost if !is_in_doubt => End::NotApplied,
            Heard::TokenLost => End::Unknown,
            Heard::Lost | Heard::InProgress | Heard::NothingRan if !is_over => {
                sleep(pause).await;
                pause = (pause * 2).min(BACKOFF.1);
                continue;
            }
            Heard::NothingRan if !is_in_doubt => End::NotApplied,
            Heard::Lost | Heard::InProgress | Heard::NothingRan => End::Unknown,
        };
        return (end, outcome);
    }
}

/// The ways to send a submission: by token and by key, on a route with a short lease and under the default rules, and by the SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    RouteToken,
    RouteKey,
    DefaultToken,
    DefaultKey,
    SdkToken,
    SdkKey,
}

impl Kind {
    const ALL: [Self; 6] =
        [Self::RouteToken, Self::RouteKey, Self::DefaultToken, Self::DefaultKey, Self::SdkToken, Self::SdkKey];

    fn folder(self) -> &'static str {
        match self {
            Self::RouteToken | Self::SdkToken => "/orders",
            Self::RouteKey | Self::SdkKey => "/api",
            Self::DefaultToken => "/forms",
            Self::DefaultKey => "/calls",
        }
    }
}

/// One submission. Its path is its name in the ledger: the application reads a request line even if the rest of the request is lost.
struct Submission {
    kind: Kind,
    path: String,
    /// Some take a while before or after their effect.
    query: &'static str,
    is_patient: bool,
}

impl Submission {
    fn new(number: usize) -> Self {
        let kind = Kind::ALL[number % Kind::ALL.len()];
        let query = ["", "", "?slow=0.1", "?slow=0.1&when=before"][number / Kind::ALL.len() % 4];
        Self {
            kind,
            path: format!("{}/{number:06}", kind.folder()),
            query,
            is_patient: number >= EARLY && number % 10 != 9,
        }
    }

    async fn send(&self, bed: &Bed) -> (End, String) {
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        let post = || http.post(format!("{}{}{}", bed.url(), self.path, self.query));
        match self.kind {
            Kind::RouteToken => {
                let token = token(&http, bed).await;
                repeat(self.is_patient, || post().form(&[("_onceward", token.as_str()), ("item", "tea")])).await
            }
            Kind::DefaultToken => {
                let token = token(&http, bed).await;
                repeat(self.is_patient, || post().header(header::TOKEN, &token).json(&json!({"item": "tea"}))).await
            }
            Kind::RouteKey | Kind::DefaultKey => {
                let key = format!("key{}", self.path);
                let request = || post().header(header::IDEMPOTENCY_KEY, &key).json(&json!({"item": "tea"}));
                repeat(self.is_patient, request).await
            }
            Kind::SdkToken | Kind::SdkKey => self.send_by_sdk(bed.url()).await,
        }
    }

    async fn send_by_sdk(&self, url: &str) -> (End, String) {
        let limits = RetryLimits::new().attempts(if self.is_patient { 100 } else { 1 }).deadline(DEADLINE);
        let limits = limits.attempt_timeout(PATIENCE).backoff(BACKOFF.0, BACKOFF.1);
        let client = Client::builder().http(reqwest::Client::builder().no_proxy()).limits(limits);
        let client = client.on_unknown(OnUnknown::Report).tokens_from(format!("{url}/_onceward"));
        let client = if self.kind == Kind::SdkKey { client.with_keys() } else { client };
        let submission = client.build().unwrap().post(format!("{url}{}{}", self.path, self.query));
        match submission.form(&[("item", "tea")]).send().await {
            Ok(response) => {
                let outcome = response.outcome().expect("an outcome").as_str();
                let end = match outcome {
                    "executed" | "replayed" => End::Answered,
                    "unknown" => End::Unknown,
                    // An earlier attempt may be late.
                    "not_applied" | "not_released" if response.attempts() > 1 => End::Unknown,
                    "not_applied" | "not_released" => End::NotApplied,
                    _ => panic!("{}: {response:?}", self.path),
                };
                assert_eq!(response.status().is_success(), end == End::Answered, "{}: {response:?}", self.path);
                (end, format!("SDK: {outcome}"))
            }
            Err(error) if error.is_unknown() || error.is_in_progress() => (End::Unknown, "SDK: error".to_owned()),
            Err(error) if error.ran_nothing() => (End::NotApplied, "SDK: error".to_owned()),
            Err(error) => panic!("{}: {error:?}", self.path),
        }
    }
}

/// Fetches a token, which runs nothing, so that it can be repeated at will.
async fn token(http: &reqwest::Client, bed: &Bed) -> String {
    loop {
        if let Ok(response) = http.post(format!("{}/_onceward/token", bed.url())).send().await
            && let Ok(issued) = response.json::<IssuedToken>().await
        {
            return issued.token;
        }
        sleep(BACKOFF.0).await;
    }
}

/// Counts of ends and effects.
#[derive(Debug, Default)]
struct Tally {
    ends: BTreeMap<(Kind, End), usize>,
    outcomes: BTreeMap<(End, String), usize>,
    /// Submissions with an unknown outcome, without an effect and with one.
    unknown: [usize; 2],
}

impl Tally {
    /// Counts one submission, checked against the number of its effects.
    fn count(&mut self, submission: &Submission, end: End, outcome: String, effects: usize) {
        let path = &submission.path;
        assert!(effects <= 1, "{path} took effect {effects} times: {end:?}, {outcome}");
        match end {
            End::Answered => assert_eq!(effects, 1, "{path} was answered: {outcome}"),
            End::NotApplied => assert_eq!(effects, 0, "{path} was not applied: {outcome}"),
            End::Unknown => self.unknown[effects] += 1,
        }
        *self.ends.entry((submission.kind, end)).or_default() += 1;
        *self.outcomes.entry((end, outcome)).or_default() += 1;
    }

    fn total(&self, of: End) -> usize {
        self.ends.iter().filter(|((_, end), _)| *end == of).map(|(_, count)| count).sum()
    }
}

/// Sends these submissions, and returns the end of each.
async fn send_all(bed: &Arc<Bed>, numbers: Range<usize>) -> Vec<(Submission, End, String)> {
    let (seats, mut all) = (Arc::new(Semaphore::new(ABREAST)), JoinSet::new());
    for number in numbers {
        let (bed, seat) = (Arc::clone(bed), Arc::clone(&seats).acquire_owned().await.unwrap());
        all.spawn(async move {
            let submission = Submission::new(number);
            let (end, outcome) = submission.send(&bed).await;
            drop(seat);
            (submission, end, outcome)
        });
    }
    all.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submissions_take_effect_once_despite_faults_and_kills() {
    let (begun, count, bed) = (Instant::now(), submissions(), Arc::new(Bed::set().await));
    bed.inner.refuse();
    let early = send_all(&bed, 0..EARLY).await;
    bed.inner.accept();
    let is_over = Arc::new(AtomicBool::new(false));
    let disturbance = tokio::spawn({
        let (bed, is_over) = (Arc::clone(&bed), Arc::clone(&is_over));
        async move { bed.disturb(&is_over).await }
    });
    let others = send_all(&bed, EARLY..count).await;
    is_over.store(true, Ordering::SeqCst);
    let kills = disturbance.await.unwrap();
    // Requests that are late arrive shortly.
    sleep(LATEST).await;
    let (effects, mut tally) = (bed.effects(), Tally::default());
    for (submission, end, outcome) in early.into_iter().chain(others) {
        let effects = effects.get(&submission.path).copied().unwrap_or_default();
        tally.count(&submission, end, outcome, effects);
    }
    let requests = bed.outer.iter().map(|way| way.seen().len()).sum::<usize>();
    println!(
        "{count} submissions in {:.1?}, {requests} requests to the proxies, {} to the application; kills: {} and {} of the \
         proxies, {} of the application",
        begun.elapsed(),
        bed.inner.seen().len(),
        kills[0],
        kills[1],
        kills[2]
    );
    let [answered, unknown, not_applied] = [End::Answered, End::Unknown, End::NotApplied].map(|end| tally.total(end));
    println!(
        "answered: {answered}, each with one effect; not applied: {not_applied}, without effect; unknown: {unknown}, of which \
         {} without and {} with one effect\n{:?}\n{:?}",
        tally.unknown[0], tally.unknown[1], tally.ends, tally.outcomes
    );
    assert_eq!(effects.values().sum::<usize>(), answered + tally.unknown[1], "every effect belongs to a submission");
    assert_eq!(answered + unknown + not_applied, count, "every submission has an end");
    // A kill leaves the outcome of every submission in flight unknown, and a short run has few others.
    assert!(answered * 10 > count, "many are answered");
    assert!(not_applied > 0 && kills.iter().all(|kills| *kills > 0));
}

/// Without the proxy, the same clients order twice: the test above detects double effects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submissions_without_the_proxy_take_effect_twice() {
    let (shop, dice) = (LegacyShop::start(), Dice::new());
    let network = FaultyHttpProxy::to(&shop.url, move |_| dice.fault()).await;
    let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
    let mut all = JoinSet::new();
    for number in 0..60 {
        let (http, url) = (http.clone(), format!("{}/orders/{number:06}", network.url));
        all.spawn(async move {
            let request = || http.post(&url).header(header::IDEMPOTENCY_KEY, &url).form(&[("item", "tea")]);
            while !matches!(request().send().await, Ok(response) if response.status() == 201) {
                sleep(BACKOFF.0).await;
            }
        });
    }
    all.join_all().await;
    let doubles = effects(&shop).values().filter(|effects| **effects > 1).count();
    println!("60 submissions without the proxy: {doubles} took effect more than once");
    assert!(doubles > 0);
}
