//! Rows about clients: the Rust SDK, and clients that have the bug of their row, against the same shop on the same rough way.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::testing;
use onceward_client::{Client, RetryLimits};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first};
use onceward_tests::flawed::{CarelessClient, ClientFlaw};
use onceward_tests::shop::{ORDER, Shop};

use super::{StoryResult, told};

/// Whose client a story is told of.
#[derive(Clone, Copy)]
enum ClientImplementation {
    Onceward,
    Another(ClientFlaw),
}

/// What a caller was told.
#[derive(Debug, PartialEq, Eq)]
enum SubmissionEnd {
    Answered,
    Unknown,
    Other,
}

/// A client of either kind.
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

    /// Submits an order, by a key if its path says so.
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

/// Two operations, one after the other: two effects.
async fn the_story_of_key_leak(whose: ClientImplementation) -> StoryResult {
    let shop = Shop::with(testing::guard().0);
    let mut caller = Caller::of(whose);
    for order in ["first", "second"] {
        caller.submit(shop.url(), "/keyed/orders", order).await;
    }
    told(shop.ledger.runs() == ["first", "second"], || {
        format!("two operations, and what ran is {:?}", shop.ledger.runs())
    })
}

#[tokio::test]
async fn key_leak() {
    the_story_of_key_leak(ClientImplementation::Onceward).await.unwrap();
    the_story_of_key_leak(ClientImplementation::Another(ClientFlaw::KeyLeak)).await.unwrap_err();
}

/// One operation, whose answer is lost: sent again, it has one effect.
async fn the_story_of_rotated_id(whose: ClientImplementation) -> StoryResult {
    let shop = Shop::with(testing::guard().0);
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0)])).await;
    let end = Caller::of(whose).submit(&way.url, "/keyed/orders", "order").await;
    assert_eq!(end, SubmissionEnd::Answered);
    assert_eq!(way.submissions().len(), 2, "it was sent twice");
    told(shop.ledger.runs().len() == 1, || format!("one operation, {} effects", shop.ledger.runs().len()))
}

#[tokio::test]
async fn rotated_id() {
    the_story_of_rotated_id(ClientImplementation::Onceward).await.unwrap();
    the_story_of_rotated_id(ClientImplementation::Another(ClientFlaw::RotatedId)).await.unwrap_err();
}

/// The first try ran, its answer is lost, and its token expires meanwhile: one effect, and the caller is told that it is
/// unknown.
async fn the_story_of_retokened_retry(whose: ClientImplementation) -> StoryResult {
    let (guard, clock) = testing::guard();
    let shop = Shop::with(guard);
    let tries = AtomicUsize::new(0);
    let way = FaultyHttpProxy::to(shop.url(), move |seen| {
        match tries.fetch_add(usize::from(!seen.fetches()), Ordering::SeqCst) {
            0 if !seen.fetches() => HttpFault::CutAnswer(0),
            1 if !seen.fetches() => {
                // By the time the second try gets there, its token is too old.
                clock.advance(Duration::from_secs(24 * 3600));
                HttpFault::None
            }
            _ => HttpFault::None,
        }
    });
    let way = way.await;
    let end = Caller::of(whose).submit(&way.url, "/orders", "order").await;
    let runs = shop.ledger.runs().len();
    told(runs == 1, || format!("one submission, {runs} effects"))?;
    assert_eq!(end, SubmissionEnd::Unknown);
    Ok(())
}

#[tokio::test]
async fn retokened_retry() {
    the_story_of_retokened_retry(ClientImplementation::Onceward).await.unwrap();
    the_story_of_retokened_retry(ClientImplementation::Another(ClientFlaw::RetokenedRetry)).await.unwrap_err();
}

/// A double click on a route that takes the same once in a second, which is over before a third submission: one effect.
async fn the_story_of_patient_client(whose: ClientImplementation) -> StoryResult {
    let (guard, clock) = testing::guard();
    let shop = Shop::with(guard);
    let submissions = AtomicUsize::new(0);
    let way = FaultyHttpProxy::to(shop.url(), move |seen| {
        if !seen.fetches() && submissions.fetch_add(1, Ordering::SeqCst) >= 2 {
            clock.advance(Duration::from_secs(1));
        }
        HttpFault::None
    });
    let (way, mut caller) = (way.await, Caller::of(whose));
    for _ in 0..2 {
        caller.submit(&way.url, "/spaced/second", "order").await;
    }
    told(shop.ledger.runs().len() == 1, || format!("one content, {} effects", shop.ledger.runs().len()))
}

#[tokio::test]
async fn patient_client() {
    the_story_of_patient_client(ClientImplementation::Onceward).await.unwrap();
    the_story_of_patient_client(ClientImplementation::Another(ClientFlaw::PatientClient)).await.unwrap_err();
}
