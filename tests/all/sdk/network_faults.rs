//! The Rust SDK over a network that fails one request in three, against a real guarded application: no submission takes effect
//! twice, and every caller receives a response or an unknown outcome.

use std::sync::Arc;
use std::time::Duration;

use onceward::store::Redis;
use onceward_client::{Client, OnUnknown, RetryLimits};
use onceward_tests::faulty_http_proxy::FaultyHttpProxy;
use onceward_tests::random_faults::between_client_and_application;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{ORDER, Shop, TAKES};
use onceward_tests::submission_tally::SubmissionTally;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submissions_take_effect_once_despite_network_faults() {
    let redis = RedisServer::start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap().timeout(Duration::from_secs(5)));
    let way = FaultyHttpProxy::to(shop.url(), between_client_and_application).await;
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
    let mut by_kind = std::collections::BTreeMap::<&str, SubmissionTally>::new();
    for (path, order, end) in &ends {
        let ran = effects.get(order).copied().unwrap_or(0);
        by_kind.entry(path).or_default().count(order, end, ran);
        let is_unknown = end.as_ref().is_err_and(onceward_client::Error::is_unknown);
        assert!(!is_unknown || *path != "/keyed/orders", "{order} is retried until it succeeds: {end:?}");
    }
    println!("{count} submissions, {} requests: {by_kind:#?}", way.seen().len());
    let keyed = &by_kind["/keyed/orders"];
    assert_eq!((keyed.answered, keyed.effects), (count.div_ceil(3), count.div_ceil(3)), "effects = intents");
    let told = by_kind.values().map(SubmissionTally::total).sum::<usize>();
    assert_eq!(told, count, "every submission has a result");
    assert!(by_kind.values().all(|ends| ends.answered * 2 > count / 3), "most are answered: {by_kind:?}");
}
