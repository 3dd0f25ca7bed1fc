//! Unknown outcomes in the Rust SDK, looked up at the service by an application that offers no lookup.

use std::time::Duration;

use onceward_client::{ClientBuilder, Code, OnUnknown, RetryLimits};
use onceward_tests::claiming_shop::{ACTION, API_KEY, CRASHES, ClaimingShop};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first, smooth};
use onceward_tests::listening_port::free_port;
use onceward_tests::sdk_client::builder;
use onceward_tests::shop::{ORDER, TAKES, USER};

/// Settings of a client that sends once, and then looks the outcome up at this URL.
fn looking(url: &str, api_key: Option<&str>) -> ClientBuilder {
    let limits = RetryLimits::new().attempts(1).backoff(Duration::ZERO, Duration::ZERO);
    builder().limits(limits).with_keys().outcomes_from(url, api_key).on_unknown(OnUnknown::Look)
}

#[tokio::test]
async fn lost_response_is_looked_up_at_the_service() {
    let shop = ClaimingShop::start();
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0)])).await;
    let client = looking(&shop.service.url, Some(API_KEY)).build().unwrap();
    let url = format!("{}/orders", way.url);
    let answer = client.post(&url).subject("ann").header(USER, "ann").header(ORDER, "ran").send().await.unwrap();
    assert!(answer.is_replayed() && answer.status() == 201 && answer.headers()["location"] == "/orders/1");
    assert_eq!(answer.url().as_str(), url);
    assert_eq!(answer.text().await.unwrap(), "ordered");
    assert_eq!((way.submissions().len(), shop.ledger.count("ran")), (1, 1), "nothing was sent again");
}

#[tokio::test]
async fn lookup_names_action_and_body_is_not_needed() {
    let shop = ClaimingShop::start();
    let way = FaultyHttpProxy::to(shop.url(), first(vec![HttpFault::CutAnswer(0); 2])).await;
    let client = looking(&shop.service.url, Some(API_KEY)).build().unwrap();
    let order = |order: &str| {
        client.post(format!("{}/orders", way.url)).subject("ann").header(USER, "ann").header(ORDER, order)
    };
    let stream = reqwest::Body::wrap_stream(futures_util::stream::iter([Ok::<_, std::io::Error>("tea")]));
    let named = order("named").header(ACTION, "place order").action("place order").body(stream).send().await;
    assert!(named.unwrap().is_replayed());
    let other = order("other").header(ACTION, "place order").send().await.unwrap_err();
    assert!(other.is_unknown() && other.code() == Some(Code::NotFound), "the record of another action: {other:?}");
}

#[tokio::test]
async fn request_that_never_arrived_has_no_record() {
    let shop = ClaimingShop::start();
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutBefore])).await;
    let client = looking(&shop.service.url, Some(API_KEY)).build().unwrap();
    let error = client.post(format!("{}/orders", way.url)).subject("ann").header(USER, "ann").send().await.unwrap_err();
    assert!(error.is_unknown() && error.code() == Some(Code::NotFound) && error.key().is_some(), "{error:?}");
    let key = error.key().unwrap().clone();
    let resumed =
        client.post(format!("{}/orders", way.url)).subject("ann").header(USER, "ann").resume(key).send().await;
    assert_eq!((resumed.unwrap().is_replayed(), shop.ledger.runs().len()), (false, 1));
}

#[tokio::test]
async fn lookup_waits_for_the_run_and_reports_a_crashed_one() {
    let shop = ClaimingShop::start();
    let limits = RetryLimits::new().attempts(9).attempt_timeout(Duration::from_millis(400));
    let client = looking(&shop.service.url, Some(API_KEY)).limits(limits).build().unwrap();
    let order =
        |url: &str, order| client.post(format!("{url}/orders")).subject("ann").header(USER, "ann").header(ORDER, order);

    // The submission cannot be sent again, so that only the lookup waits.
    let slow = FaultyHttpProxy::to(shop.url(), smooth).await;
    let once = reqwest::multipart::Form::new().text("tea", "2");
    let answer = order(&slow.url, "slow").header(TAKES, 900).multipart_once(once).send().await.unwrap();
    assert!(answer.is_replayed() && slow.submissions().len() == 1, "{answer:?}");

    let way = FaultyHttpProxy::to(shop.url(), first(vec![HttpFault::CutAnswer(0); 9])).await;
    let crashed = order(&way.url, "crashed").header(CRASHES, 1).send().await.unwrap_err();
    assert!(crashed.is_unknown() && crashed.code() == Some(Code::OutcomeUnknown), "{crashed:?}");
    assert_eq!((shop.ledger.count("slow"), shop.ledger.count("crashed")), (1, 1));
}

#[tokio::test]
async fn remembered_token_is_looked_up_too() {
    let shop = ClaimingShop::start();
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0), HttpFault::CutBefore])).await;
    let client = looking(&shop.service.url, Some(API_KEY)).with_tokens().tokens_from(&shop.service.url);
    let client = client.send_tokens_to(&way.url).build().unwrap();
    let order = || client.post(format!("{}/orders", way.url)).send();
    assert!(order().await.unwrap().is_replayed());
    let unused = order().await.unwrap_err();
    assert!(unused.is_unknown() && unused.code() == Some(Code::NotFound), "the token is issued: {unused:?}");
    assert_eq!(shop.ledger.runs().len(), 1);
}

#[tokio::test]
async fn token_claimed_with_a_subject_is_looked_up_with_that_subject() {
    let shop = ClaimingShop::start();
    let way = FaultyHttpProxy::to(shop.url(), first(vec![HttpFault::CutAnswer(0); 2])).await;
    let client = looking(&shop.service.url, Some(API_KEY)).with_tokens().tokens_from(&shop.service.url);
    let client = client.send_tokens_to(&way.url).build().unwrap();
    let order = || client.post(format!("{}/orders", way.url)).header(USER, "ann");
    assert!(order().subject("ann").send().await.unwrap().is_replayed());
    let error = order().send().await.unwrap_err();
    assert!(error.is_unknown() && error.code() == Some(Code::TokenUsed), "{error:?}");
    assert!(error.to_string().contains("`Submission::subject`"), "{error}");
    assert_eq!(shop.ledger.runs().len(), 2);
}

#[tokio::test]
async fn wrong_api_key_is_named_and_never_shown() {
    let shop = ClaimingShop::start();
    let way = FaultyHttpProxy::to(shop.url(), first(vec![HttpFault::CutAnswer(0); 2])).await;
    for api_key in [None, Some("another-secret-key")] {
        let client = looking(&shop.service.url, api_key).build().unwrap();
        let error =
            client.post(format!("{}/orders", way.url)).subject("ann").header(USER, "ann").send().await.unwrap_err();
        assert!(error.is_unknown() && error.code() == Some(Code::Unauthorized) && error.key().is_some(), "{error:?}");
        assert!(error.to_string().contains("API key") && error.to_string().contains("outcomes_from"), "{error}");
        assert!(!format!("{error:?} {error} {client:?}").contains("another-secret"), "{error:?}");
    }
}

#[tokio::test]
async fn api_key_reaches_the_service_only() {
    let shop = ClaimingShop::start();
    let (cut, elsewhere) = (HttpFault::CutAnswer(0), FaultyHttpProxy::to(&shop.service.url, smooth).await);
    let way = FaultyHttpProxy::to(shop.url(), first(vec![cut; 2])).await;
    let redirect = HttpFault::Lead(307, format!("{}/outcome", elsewhere.url));
    let service = FaultyHttpProxy::to(&shop.service.url, first([redirect])).await;
    let client = looking(&service.url, Some(API_KEY)).build().unwrap();
    let order = || client.post(format!("{}/orders", way.url)).subject("ann").header(USER, "ann").send();
    let redirected = order().await.unwrap_err();
    assert!(redirected.is_unknown() && redirected.to_string().contains("returned 307"), "{redirected}");
    assert!(elsewhere.seen().is_empty(), "the redirect is not followed");

    assert!(order().await.unwrap().is_replayed());
    assert!(way.seen().iter().all(|seen| seen.header("authorization").is_empty()));
    assert!(
        service
            .seen()
            .iter()
            .all(|seen| seen.line.contains("/outcome") && seen.header("authorization").contains(API_KEY))
    );
    assert!(!shop.service.log().join("\n").contains(API_KEY));
}

#[tokio::test]
async fn key_without_subject_is_rejected_before_it_is_sent() {
    let shop = ClaimingShop::start();
    let client = looking(&shop.service.url, Some(API_KEY)).build().unwrap();
    let error = client.post(format!("{}/orders", shop.url())).send().await.unwrap_err();
    assert!(error.is_misuse() && error.to_string().contains("subject") && shop.ledger.runs().is_empty(), "{error}");
}

#[tokio::test]
async fn unreachable_service_leaves_the_outcome_unknown() {
    let shop = ClaimingShop::start();
    let way = FaultyHttpProxy::to(shop.url(), first(vec![HttpFault::CutAnswer(0); 5])).await;
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let client = looking(&nowhere, Some(API_KEY)).build().unwrap();
    let error = client.post(format!("{}/orders", way.url)).subject("ann").header(USER, "ann").send().await.unwrap_err();
    assert!(error.is_unknown() && error.to_string().contains("cannot be reached"), "{error}");

    // A rejection that may be retried: the next lookup succeeds.
    let service = FaultyHttpProxy::to(
        &shop.service.url,
        first([HttpFault::Reject(Code::StoreUnavailable), HttpFault::Instead(503)]),
    )
    .await;
    let limits = RetryLimits::new().attempts(3).backoff(Duration::ZERO, Duration::from_millis(10));
    let client = looking(&service.url, Some(API_KEY)).limits(limits).build().unwrap();
    let answer = client.post(format!("{}/orders", way.url)).subject("ann").header(USER, "ann").send().await.unwrap();
    assert!(answer.is_replayed() && service.seen().len() == 3, "{answer:?} {:?}", service.seen().len());
}
