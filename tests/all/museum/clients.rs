//! Museum rows about clients: the Rust SDK, and clients with the bug of the row, against the same shop over the same faulty network.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::testing;
use onceward_client::{Client, RetryLimits};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first};
use onceward_tests::flawed::{CarelessClient, ClientFlaw};
use onceward_tests::shop::{ORDER, Shop};

use super::{ScenarioResult, ensure};

/// The client that a scenario runs with.
#[derive(Clone, Copy)]
enum ClientImplementation {
    Onceward,
    Another(ClientFlaw),
}

/// The result that the caller of a client receives.
#[derive(Debug, PartialEq, Eq)]
enum SubmissionEnd {
    Answered,
    Unknown,
    Other,
}

/// A client of either implementation.
enum Caller {
    Onceward { tokens: Client, keys: Client },
    Another(CarelessClient),
}

impl Caller {
    fn of(whose: ClientImplementation) -> Self {
        let limits = RetryLimits::new().backoff(Duration::from_millis(5), Duration::from_millis(20));
        let builder = || Client::builder().http(reqwest::Client::builder().no_proxy()).limits(limits);
        match whose {
            ClientImplementation::Onceward => {
                Self::Onceward { tokens: builder().build().unwrap(), keys: builder().with_keys().build().unwrap() }
            }
            ClientImplementation::Another(flaw) => Self::Another(CarelessClient::with(flaw)),
        }
    }

    /// Submits an order, under a key if the path starts with `/keyed`.
    async fn submit(&mut self, url: &str, path: &str, order: &str) -> SubmissionEnd {
        let (tokens, keys) = match self {
            Self::Onceward { tokens, keys } => (tokens, keys),
            Self::Another(careless) => {
                let is_answered = careless.submit(url, path, order).await;
                return if is_answered { SubmissionEnd::Answered } else { SubmissionEnd::Other };
            }
        };
        let client = if path.starts_with("/keyed") { keys } else { tokens };
        let submission = client.post(format!("{url}{path}")).header(ORDER, order).body(order.to_owned());
        match submission.send().await {
            Ok(answer) if answer.status().is_success() => SubmissionEnd::Answered,
            Err(error) if error.is_unknown() => SubmissionEnd::Unknown,
            _ => SubmissionEnd::Other,
        }
    }
}

/// Two operations one after the other have two effects.
async fn key_leak_scenario(whose: ClientImplementation) -> ScenarioResult {
    let shop = Shop::with(testing::guard().0);
    let mut caller = Caller::of(whose);
    for order in ["first", "second"] {
        caller.submit(shop.url(), "/keyed/orders", order).await;
    }
    ensure(shop.ledger.runs() == ["first", "second"], || {
        format!("two operations, but the runs are {:?}", shop.ledger.runs())
    })
}

#[tokio::test]
async fn key_leak() {
    key_leak_scenario(ClientImplementation::Onceward).await.unwrap();
    key_leak_scenario(ClientImplementation::Another(ClientFlaw::KeyLeak)).await.unwrap_err();
}

/// The response to an operation is lost: with a retry, it has one effect.
async fn rotated_id_scenario(whose: ClientImplementation) -> ScenarioResult {
    let shop = Shop::with(testing::guard().0);
    let proxy = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0)])).await;
    let end = Caller::of(whose).submit(&proxy.url, "/keyed/orders", "order").await;
    assert_eq!(end, SubmissionEnd::Answered);
    assert_eq!(proxy.submissions().len(), 2, "it was sent twice");
    ensure(shop.ledger.runs().len() == 1, || format!("one operation, {} effects", shop.ledger.runs().len()))
}

#[tokio::test]
async fn rotated_id() {
    rotated_id_scenario(ClientImplementation::Onceward).await.unwrap();
    rotated_id_scenario(ClientImplementation::Another(ClientFlaw::RotatedId)).await.unwrap_err();
}

/// The first try ran, its response is lost, and its token expires meanwhile: one effect, and the caller receives an unknown
/// outcome.
async fn retokened_retry_scenario(whose: ClientImplementation) -> ScenarioResult {
    let (guard, clock) = testing::guard();
    let shop = Shop::with(guard);
    let tries = AtomicUsize::new(0);
    let proxy = FaultyHttpProxy::to(shop.url(), move |seen| {
        match tries.fetch_add(usize::from(!seen.fetches()), Ordering::SeqCst) {
            0 if !seen.fetches() => HttpFault::CutAnswer(0),
            1 if !seen.fetches() => {
                // By the time the second try arrives, its token has expired.
                clock.advance(Duration::from_secs(24 * 3600));
                HttpFault::None
            }
            _ => HttpFault::None,
        }
    });
    let proxy = proxy.await;
    let end = Caller::of(whose).submit(&proxy.url, "/orders", "order").await;
    let runs = shop.ledger.runs().len();
    ensure(runs == 1, || format!("one submission, {runs} effects"))?;
    assert_eq!(end, SubmissionEnd::Unknown);
    Ok(())
}

#[tokio::test]
async fn retokened_retry() {
    retokened_retry_scenario(ClientImplementation::Onceward).await.unwrap();
    retokened_retry_scenario(ClientImplementation::Another(ClientFlaw::RetokenedRetry)).await.unwrap_err();
}

/// A double click on a route with an interval of one second, which expires before a third submission: one effect.
async fn patient_client_scenario(whose: ClientImplementation) -> ScenarioResult {
    let (guard, clock) = testing::guard();
    let shop = Shop::with(guard);
    let submissions = AtomicUsize::new(0);
    let proxy = FaultyHttpProxy::to(shop.url(), move |seen| {
        if !seen.fetches() && submissions.fetch_add(1, Ordering::SeqCst) >= 2 {
            clock.advance(Duration::from_secs(1));
        }
        HttpFault::None
    });
    let (proxy, mut caller) = (proxy.await, Caller::of(whose));
    for _ in 0..2 {
        caller.submit(&proxy.url, "/spaced/second", "order").await;
    }
    ensure(shop.ledger.runs().len() == 1, || format!("one content, {} effects", shop.ledger.runs().len()))
}

#[tokio::test]
async fn patient_client() {
    patient_client_scenario(ClientImplementation::Onceward).await.unwrap();
    patient_client_scenario(ClientImplementation::Another(ClientFlaw::PatientClient)).await.unwrap_err();
}
