//! Submissions of the Rust SDK to each stack, over networks that fail one request in three: between client and shop, and between shop
//! and service.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use onceward_client::{Client, OnUnknown, RetryLimits};
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::Stage;
use onceward_tests::faulty_http_proxy::FaultyHttpProxy;
use onceward_tests::random_faults::between_client_and_application;
use onceward_tests::shop::ORDER;
use onceward_tests::submission_tally::SubmissionTally;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Number of submissions in flight.
const ABREAST: usize = 16;
/// Lease of a claim, and so the time for which a claim whose answer was lost rejects duplicates.
const LEASE: Duration = Duration::from_secs(5);
/// Timeout of an attempt.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the number of submissions; `make sdk-faults` sets more than `make test`.
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
fn submissions() -> usize {
    std::env::var("SUBMISSIONS").map_or(90, |count| count.parse().expect("SUBMISSIONS is a number"))
}

/// Returns the kinds of submissions, each a route and a client.
fn kinds() -> [(&'static str, Client); 3] {
    let limits = RetryLimits::new()
        .attempts(8)
        .deadline(Duration::from_secs(60))
        .attempt_timeout(PATIENCE)
        .backoff(Duration::from_millis(20), Duration::from_millis(300));
    let builder = || Client::builder().http(reqwest::Client::builder().no_proxy()).limits(limits);
    [
        ("/orders", builder().with_keys().on_unknown(OnUnknown::Report).build().unwrap()),
        ("/retryable", builder().with_keys().on_unknown(OnUnknown::Retry).build().unwrap()),
        ("/forms", builder().on_unknown(OnUnknown::Report).build().unwrap()),
    ]
}

pub(super) async fn submissions_take_effect_once_despite_network_faults(stack: Stack) {
    let stage = Stage::of(stack).shops(2).lease(LEASE).open().await;
    let networks = [
        FaultyHttpProxy::to(&stage.shops[0].url, between_client_and_application).await,
        FaultyHttpProxy::to(&stage.shops[1].url, between_client_and_application).await,
    ];
    stage.network.lose_often();
    let (kinds, seats, mut all) = (kinds(), Arc::new(Semaphore::new(ABREAST)), JoinSet::new());
    for number in 0..submissions() {
        let (path, client) = kinds[number % kinds.len()].clone();
        let (url, order) = (format!("{}{path}", networks[number % 2].url), format!("{path}#{number}"));
        let seat = Arc::clone(&seats).acquire_owned().await.unwrap();
        all.spawn(async move {
            let end = client.post(url).header(ORDER, &order).body(order.clone()).send().await;
            drop(seat);
            (path, order, end)
        });
    }
    let ends = all.join_all().await;
    // Handlers whose client has disconnected end shortly.
    tokio::time::sleep(PATIENCE).await;
    let (mut effects, mut tallies) = (HashMap::<String, usize>::new(), BTreeMap::<_, SubmissionTally>::new());
    stage.ledger.runs().into_iter().for_each(|run| *effects.entry(run).or_default() += 1);
    for (path, order, end) in &ends {
        tallies.entry(*path).or_default().count(order, end, effects.get(order).copied().unwrap_or(0));
    }
    let requests = networks.iter().map(|network| network.seen().len()).sum::<usize>();
    println!("{stack:?}: {} submissions, {requests} requests to the shops: {tallies:?}", ends.len());
    assert!(tallies.values().all(|tally| tally.answered > 0), "{tallies:?}");
}

/// Without middleware the same clients order twice: the case above detects double effects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submissions_without_middleware_take_effect_twice() {
    let stage = Stage::of(Stack::Actix).open().await;
    let network = FaultyHttpProxy::to(&stage.shop().url, between_client_and_application).await;
    let mut all = JoinSet::new();
    for number in 0..60 {
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        let (url, order) = (format!("{}/open", network.url), number.to_string());
        all.spawn(async move {
            let request = || http.post(&url).header(ORDER, &order);
            while !matches!(request().send().await, Ok(response) if response.status() == 201) {}
        });
    }
    all.join_all().await;
    let effects = stage.ledger.runs().len();
    assert!(effects > 60, "{effects} effects of 60 submissions");
}
