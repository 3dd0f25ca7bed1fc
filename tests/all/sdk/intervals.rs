//! Clients on routes with an interval or a lock: a duplicate is reported at once and never retried, and a lock is waited for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::testing;
use onceward_client::{Code, Error, Key, OncewardMiddleware, Retry};
use onceward_tests::client::{Answer, send};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, RecordedRequest, first};
use onceward_tests::interval_routes::plainly;
use onceward_tests::polling::until;
use onceward_tests::sdk_client::{builder, client};
use onceward_tests::shop::{ORDER, Shop, TAKES};
use reqwest::header::RETRY_AFTER;
use reqwest::redirect::Policy;

const LONG: Duration = Duration::from_secs(20);

/// Starts a shop whose interval lasts until the third submission.
async fn shop() -> (Shop, FaultyHttpProxy) {
    let (guard, clock) = testing::guard();
    let shop = Shop::with(guard);
    let submissions = AtomicUsize::new(0);
    let way = FaultyHttpProxy::to(shop.url(), move |seen: &RecordedRequest| {
        if !seen.fetches() && submissions.fetch_add(1, Ordering::SeqCst) >= 2 {
            clock.advance(LONG);
        }
        HttpFault::None
    });
    let way = way.await;
    (shop, way)
}

fn is_a_duplicate_that_was_sent_once(error: &Error) -> bool {
    let says_no = error.problem().is_some_and(|problem| problem.retry == Retry::No);
    error.is_duplicate()
        && !error.is_unknown()
        && !error.ran_nothing()
        && (error.code(), error.attempts(), error.retry_after()) == (Some(Code::TooSoon), 1, None)
        && says_no
}

#[tokio::test]
async fn interval_duplicate_is_reported_at_once_and_not_retried() {
    for client in [client(), builder().with_keys().build().unwrap()] {
        let (shop, way) = shop().await;
        let url = format!("{}/spaced/second", way.url);
        let send = async || client.post(&url).header(ORDER, "order").body("tea").send().await;
        assert_eq!(send().await.unwrap().status(), 200);
        let second = send().await;
        assert_eq!(shop.ledger.runs(), ["order"]);
        let error = second.unwrap_err();
        assert!(is_a_duplicate_that_was_sent_once(&error), "{error:?}");
    }
}

#[tokio::test]
async fn interval_duplicate_is_not_retried_by_reqwest_middleware() {
    let (shop, way) = shop().await;
    let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    let onceward = builder().http_without_redirects(http.clone()).build().unwrap();
    let client = reqwest_middleware::ClientBuilder::new(http).with(OncewardMiddleware::new(onceward)).build();
    let url = format!("{}/spaced/second", way.url);
    let send = async || client.post(&url).header(ORDER, "order").body("tea").send().await;
    assert_eq!(send().await.unwrap().status(), 200);
    let second = send().await;
    assert_eq!(shop.ledger.runs(), ["order"]);
    let Err(reqwest_middleware::Error::Middleware(error)) = second else { panic!("the second is a duplicate") };
    let error: Error = error.downcast().unwrap();
    assert!(is_a_duplicate_that_was_sent_once(&error), "{error:?}");
}

/// True if a generic retry layer would retry: most do after these statuses, whatever the method, and all do after a response with
/// `Retry-After`.
fn is_repeated_by_others(answer: &Answer) -> bool {
    matches!(answer.status, 408 | 413 | 425 | 429 | 500..) || answer.headers.contains_key(RETRY_AFTER)
}

#[tokio::test]
async fn interval_duplicate_is_not_retried_by_generic_layers() {
    let (shop, way) = shop().await;
    let send = async || send(plainly(&way.url, "/spaced/second", "order")).await;
    assert_eq!(send().await.said(), "200 executed");
    let mut last = send().await;
    for _ in 0..3 {
        if is_repeated_by_others(&last) {
            last = send().await;
        }
    }
    assert_eq!(shop.ledger.runs(), ["order"], "{last:?}");
    assert_eq!(last.said(), "409 too_soon");
}

/// The first attempt may have run, so the outcome is unknown and the client does not retry.
#[tokio::test]
async fn duplicate_after_a_lost_attempt_is_unknown() {
    let shop = Shop::with(testing::guard().0);
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0)])).await;
    let error = client().post(format!("{}/spaced/second", way.url)).header(ORDER, "order").send().await.unwrap_err();
    assert!(error.is_unknown() && !error.is_duplicate(), "{error:?}");
    assert_eq!((error.code(), error.attempts(), shop.ledger.runs().len()), (Some(Code::TooSoon), 2, 1));
}

#[tokio::test]
async fn lock_is_waited_for_and_the_second_runs_after_the_first() {
    let shop = Shop::with(testing::guard().0);
    let url = format!("{}/spaced/locked/7", shop.url());
    let client = client();
    let first = client.post(&url).header(ORDER, "first").header(TAKES, "2000");
    let first = tokio::spawn(first.send());
    until("the handler runs", LONG, || async { shop.ledger.count("begun") == 1 }).await;
    let second = client.post(&url).header(ORDER, "second").key(Key::new("second").unwrap()).send().await.unwrap();
    assert!(second.status() == 200 && second.attempts() > 1, "{second:?}");
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    assert_eq!(shop.ledger.runs(), ["begun", "first", "second"]);
}
