//! Unknown outcomes in the Rust SDK: it reports them, looks them up, or retries.

use std::time::Duration;

use onceward::store::Memory;
use onceward_client::{Code, OnUnknown, RetryLimits};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first};
use onceward_tests::sdk_client::{builder, client};
use onceward_tests::shop::{ORDER, Shop, TAKES};

#[tokio::test]
async fn lookup_returns_the_stored_response_and_runs_nothing() {
    let shop = Shop::on(Memory::new());
    let asking = builder().with_keys().on_unknown(OnUnknown::Look).build().unwrap();
    let way = FaultyHttpProxy::to(shop.url(), first(vec![HttpFault::CutAnswer(0); 5])).await;
    let url = |path: &str| format!("{}{path}", way.url);
    let answer = asking.post(url("/keyed/orders")).header(ORDER, "ran").send().await.unwrap();
    assert!(answer.is_replayed() && shop.ledger.count("ran") == 1);
    assert_eq!(way.submissions().last().unwrap().header("onceward-look"), "true");

    way.plan(first(vec![HttpFault::CutBefore; 5]));
    let absent = asking.post(url("/keyed/orders")).header(ORDER, "never ran").send().await.unwrap_err();
    assert!(absent.is_unknown() && absent.code() == Some(Code::NotFound), "{absent:?}");
    assert!(absent.key().is_some() && shop.ledger.count("never ran") == 0);

    // A remembered token can be looked up too; a plain one has no stored response.
    let tokens = builder().on_unknown(OnUnknown::Look).build().unwrap();
    way.plan(first(vec![HttpFault::CutAnswer(0); 5]));
    assert!(tokens.post(url("/remembered/orders")).send().await.unwrap().is_replayed());
    way.plan(first(vec![HttpFault::CutAnswer(0); 5]));
    assert!(tokens.post(url("/orders")).header(ORDER, "plain").send().await.unwrap_err().is_unknown());
    assert_eq!(shop.ledger.count("plain"), 1);
}

#[tokio::test]
async fn lookup_waits_for_a_run_in_flight() {
    let shop = Shop::on(Memory::new());
    let cut = HttpFault::CutBefore;
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::Delay(Duration::from_secs(20)), cut])).await;
    let limits = RetryLimits::new()
        .attempts(2)
        .attempt_timeout(Duration::from_millis(300))
        .backoff(Duration::ZERO, Duration::ZERO);
    let submission = client().post(format!("{}/keyed/orders", way.url)).with_key().header(TAKES, 1200);
    let answer = submission.header(ORDER, "slow").limits(limits.attempts(6)).on_unknown(OnUnknown::Look).send().await;
    assert!(answer.unwrap().is_replayed());
    assert_eq!(shop.ledger.count("slow"), 1);
}

#[tokio::test]
async fn retry_on_unknown_continues_until_the_deadline() {
    let shop = Shop::on(Memory::new());
    let faults = [vec![HttpFault::CutBefore; 12], vec![HttpFault::CutAnswer(0); 3]].concat();
    let way = FaultyHttpProxy::to(shop.url(), first(faults)).await;
    let client = builder().with_keys().on_unknown(OnUnknown::Retry).build().unwrap();
    let url = format!("{}/keyed/orders", way.url);
    let answer = client.post(&url).header(ORDER, "a").send().await.unwrap();
    assert_eq!((answer.attempts(), answer.is_replayed(), shop.ledger.count("a")), (16, true, 1));

    way.plan(|seen| if seen.fetches() { HttpFault::None } else { HttpFault::CutBefore });
    let limits =
        RetryLimits::new().attempts(1).deadline(Duration::from_millis(500)).backoff(Duration::ZERO, Duration::ZERO);
    let begun = tokio::time::Instant::now();
    let error = client.post(&url).limits(limits).send().await.unwrap_err();
    assert!(error.is_unknown() && error.attempts() > 1, "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn lookup_follows_the_redirect_of_the_stored_response() {
    let shop = Shop::on(Memory::new());
    let kept = "HTTP/1.1 303 See Other\r\nonceward-outcome: replayed\r\nlocation: /open\r\ncontent-length: 0\r\n\r\n";
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0), HttpFault::Raw(kept.into())])).await;
    let submission = client().post(format!("{}/keyed/orders", way.url)).with_key().on_unknown(OnUnknown::Look);
    let answer = submission.limits(RetryLimits::new().attempts(1)).send().await.unwrap();
    assert!(answer.is_replayed());
    assert_eq!(answer.text().await.unwrap(), "ordered with 0 bytes");
}

#[tokio::test]
async fn lookup_is_skipped_without_a_repeatable_body() {
    let (shop, client) = (Shop::on(Memory::new()), builder().with_keys().on_unknown(OnUnknown::Look).build().unwrap());
    // This server does not support lookups, and would run the request without its body.
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutBefore])).await;
    let once = reqwest::multipart::Form::new().text("tea", "2");
    let error = client.post(format!("{}/open", way.url)).multipart_once(once).send().await.unwrap_err();
    assert!(error.is_unknown() && error.key().is_some(), "{error:?}");
    assert_eq!((way.submissions().len(), shop.ledger.runs().len()), (1, 0));
}
