//! The Rust SDK over a network that fails one request in three, against a real guarded application: no submission takes effect
//! twice, and every caller receives a response or an unknown outcome.

use std::sync::Arc;
use std::time::Duration;

use onceward::store::Redis;
use onceward_client::{Client, Code, Error, OnUnknown, Response, RetryLimits};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, RecordedRequest};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{ORDER, Shop, TAKES};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Number of submissions in flight.
const ABREAST: usize = 64;
/// Timeout of an attempt; shorter than the longest delay.
const PATIENCE: Duration = Duration::from_millis(400);

/// Returns the number of submissions; `make sdk-faults` sets more than `make test`.
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
fn submissions() -> usize {
    std::env::var("SUBMISSIONS").map_or(1_000, |count| count.parse().expect("SUBMISSIONS is a number"))
}

/// Chooses a fault for a third of all requests.
fn anything(seen: &RecordedRequest) -> HttpFault {
    if fastrand::u8(0..3) > 0 {
        return HttpFault::None;
    }
    let rejections = [Code::StoreUnavailable, Code::Overloaded, Code::RateLimited];
    let submitted = [Code::InProgress, Code::RedeemUnknown, Code::TokenExpired, Code::TokenStale];
    let by_key = seen.headers.contains_key("idempotency-key");
    match fastrand::u8(0..10) {
        0 => HttpFault::CutBefore,
        1 => HttpFault::CutRequest,
        2 | 3 => HttpFault::CutAnswer(0),
        4 => HttpFault::CutAnswer(fastrand::usize(1..100)),
        5 => HttpFault::Delay(Duration::from_millis(fastrand::u64(0..600))),
        6 => HttpFault::Reject(rejections[fastrand::usize(0..rejections.len())]),
        7 if seen.fetches() => HttpFault::Instead(503),
        // A request with a key never receives `token_expired`.
        7 => HttpFault::Reject(submitted[fastrand::usize(0..if by_key { 1 } else { submitted.len() })]),
        8 => HttpFault::Instead([429, 502, 503, 504][fastrand::usize(0..4)]),
        _ => HttpFault::After([502, 504][fastrand::usize(0..2)]),
    }
}

/// Returns the three kinds of submissions, each a route and a client.
fn kinds() -> [(&'static str, Client); 3] {
    let limits = RetryLimits::new()
        .attempts(8)
        .deadline(Duration::from_secs(60))
        .attempt_timeout(PATIENCE)
        .backoff(Duration::from_millis(10), Duration::from_millis(200));
    let builder = || Client::builder().http(reqwest::Client::builder().no_proxy()).limits(limits);
    [
        ("/keyed/orders", builder().with_keys().on_unknown(OnUnknown::Retry).build().unwrap()),
        ("/remembered/orders", builder().on_unknown(OnUnknown::Look).build().unwrap()),
        ("/orders", builder().build().unwrap()),
    ]
}

/// Counts of results.
#[derive(Debug, Default)]
struct EndCounts {
    answered: usize,
    unknown: usize,
    refused: usize,
    effects: usize,
}

impl EndCounts {
    /// Counts one result, checked against the number of effects in the ledger.
    fn count(&mut self, path: &str, order: &str, end: &Result<Response, Error>, effects: usize) {
        self.effects += effects;
        assert!(effects <= 1, "{order} took effect {effects} times: {end:?}");
        match end {
            Ok(answer) if answer.status().is_success() => {
                self.answered += 1;
                assert_eq!(effects, 1, "{order} was answered: {answer:?}");
            }
            // A proxy responded with 429 until the attempts were used up.
            Ok(answer) => {
                self.refused += 1;
                assert_eq!((answer.status().as_u16(), effects), (429, 0), "{order}: {answer:?}");
            }
            Err(error) if error.is_unknown() => {
                self.unknown += 1;
                assert_ne!(path, "/keyed/orders", "{order} is retried until it succeeds: {error:?}");
            }
            Err(error) => {
                self.refused += 1;
                assert!(!error.is_duplicate(), "no other client has sent {order}: {error:?}");
                assert!(error.is_in_progress() || error.ran_nothing() && effects == 0, "{order}: {error:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submissions_take_effect_once_despite_network_faults() {
    let redis = RedisServer::start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap().timeout(Duration::from_secs(5)));
    let way = FaultyHttpProxy::to(shop.url(), anything).await;
    let (count, kinds, seats) = (submissions(), kinds(), Arc::new(Semaphore::new(ABREAST)));
    let mut all = JoinSet::new();
    for number in 0..count {
        let (path, client) = kinds[number % kinds.len()].clone();
        let (url, order) = (format!("{}{path}", way.url), format!("{path}#{number}"));
        let seat = Arc::clone(&seats).acquire_owned().await.unwrap();
        all.spawn(async move {
            let takes = if number % 20 == 0 { 50 } else { 0 };
            let submission = client.post(url).header(ORDER, &order).body(order.clone());
            let submission = if takes > 0 { submission.header(TAKES, takes) } else { submission };
            let end = submission.send().await;
            drop(seat);
            (path, order, end)
        });
    }
    let ends = all.join_all().await;
    // Handlers whose client has disconnected end shortly.
    tokio::time::sleep(PATIENCE).await;
    let mut effects = std::collections::HashMap::<String, usize>::new();
    shop.ledger.runs().into_iter().for_each(|run| *effects.entry(run).or_default() += 1);
    let mut by_kind = std::collections::BTreeMap::<&str, EndCounts>::new();
    for (path, order, end) in &ends {
        let ran = effects.get(order).copied().unwrap_or(0);
        by_kind.entry(path).or_default().count(path, order, end, ran);
    }
    println!("{count} submissions, {} requests: {by_kind:#?}", way.seen().len());
    let keyed = &by_kind["/keyed/orders"];
    assert_eq!((keyed.answered, keyed.effects), (count.div_ceil(3), count.div_ceil(3)), "effects = intents");
    let told = by_kind.values().map(|ends| ends.answered + ends.unknown + ends.refused).sum::<usize>();
    assert_eq!(told, count, "every submission has a result");
    assert!(by_kind.values().all(|ends| ends.answered * 2 > count / 3), "most are answered: {by_kind:?}");
}
