//! The token pool of the Rust SDK: a warm pool costs no extra request, and a cold one sends a single fetch.

use std::time::Duration;

use onceward::Guard;
use onceward::store::Memory;
use onceward_client::{Code, RetryLimits};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, smooth};
use onceward_tests::sdk_client::{builder, client};
use onceward_tests::service::OncewardServer;
use onceward_tests::shop::{ORDER, Shop};
use tokio::task::JoinSet;

fn fetches(way: &FaultyHttpProxy) -> usize {
    way.seen().iter().filter(|seen| seen.fetches()).count()
}

#[tokio::test]
async fn concurrent_submissions_share_one_fetch() {
    let service = OncewardServer::start(&["--rate-limit", "off"]);
    let slow = |_: &_| HttpFault::Delay(Duration::from_millis(50));
    let way = FaultyHttpProxy::to(&service.url, slow).await;
    // Only the fetch matters here: the submissions go to an unknown path.
    let client = builder().pool_size(64).build().unwrap();
    let mut all = JoinSet::new();
    for _ in 0..100 {
        all.spawn(client.post(format!("{}/nowhere", way.url)).send());
    }
    for answer in all.join_all().await {
        assert_eq!(answer.unwrap_err().code(), Some(Code::NotFound));
    }
    assert_eq!(way.most_fetching(), 1);
    assert!(fetches(&way) <= 8, "{} fetches for 100 submissions", fetches(&way));
    let tokens: std::collections::HashSet<_> =
        way.submissions().iter().map(|seen| seen.header("onceward-token").to_owned()).collect();
    assert_eq!(tokens.len(), 100, "no token was used twice");
}

#[tokio::test]
async fn warm_submission_costs_no_extra_request() {
    let service = OncewardServer::start(&[]);
    let way = FaultyHttpProxy::to(&service.url, smooth).await;
    let client = builder().pool_size(20).build().unwrap();
    let url = format!("{}/nowhere", way.url);
    client.warm_up(&url, 20).await.unwrap();
    let before = fetches(&way);
    for _ in 0..9 {
        assert_eq!(client.post(&url).send().await.unwrap_err().code(), Some(Code::NotFound));
    }
    assert_eq!(fetches(&way), before, "more than half of the pool is left");
    assert_eq!(way.submissions().len(), 9);
}

#[tokio::test]
async fn application_without_batches_is_asked_for_single_tokens() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), smooth).await;
    let client = client();
    for _ in 0..40 {
        client.post(format!("{}/orders", way.url)).send().await.unwrap();
    }
    let batches = way.seen().iter().filter(|seen| seen.line == "POST /tokens").count();
    assert_eq!((batches, shop.ledger.runs().len()), (1, 40));
}

#[tokio::test]
async fn failed_fetch_does_not_affect_concurrent_ones() {
    let shop = Shop::on(Memory::new());
    let is_first = std::sync::atomic::AtomicBool::new(true);
    let way = FaultyHttpProxy::to(shop.url(), move |seen| {
        match seen.line == "POST /token" && is_first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            true => HttpFault::CutBefore,
            false => HttpFault::Delay(Duration::from_millis(50)),
        }
    });
    client().warm_up(&way.await.url, 8).await.unwrap();
}

#[tokio::test]
async fn token_in_a_response_is_used_next() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), smooth).await;
    let client = client();
    let url = format!("{}/next", way.url);
    client.post(&url).send().await.unwrap();
    let before = fetches(&way);
    for _ in 0..20 {
        client.post(&url).send().await.unwrap();
    }
    assert_eq!(fetches(&way), before);
    assert_eq!(shop.ledger.runs().len(), 21);
}

#[tokio::test]
async fn tokens_are_replaced_before_they_expire() {
    let guard = Guard::builder(Memory::new()).token_ttl(Duration::from_secs(2)).unwrap().build();
    let shop = Shop::with(guard);
    let (client, url) = (client(), format!("{}/orders", shop.url()));
    let begun = tokio::time::Instant::now();
    let mut sent = 0;
    while begun.elapsed() < Duration::from_secs(5) {
        let answer = client.post(&url).send().await.unwrap();
        assert_eq!(answer.attempts(), 1, "no expired token was sent, after {:?}", begun.elapsed());
        sent += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(shop.ledger.runs().len(), sent);
}

#[tokio::test]
async fn rate_limit_is_obeyed() {
    let service = OncewardServer::start(&["--rate-limit", "20/s", "--rate-burst", "5"]);
    let way = FaultyHttpProxy::to(&service.url, smooth).await;
    let client = builder().pool_size(50).limits(RetryLimits::new().attempts(20)).build().unwrap();
    let mut all = JoinSet::new();
    for _ in 0..30 {
        all.spawn(client.post(format!("{}/nowhere", way.url)).send());
    }
    for answer in all.join_all().await {
        assert_eq!(answer.unwrap_err().code(), Some(Code::NotFound));
    }
    assert!(fetches(&way) < 40, "{} requests for 30 tokens", fetches(&way));
}

#[test]
fn client_outlives_the_runtime_of_its_fetch() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let shop = Shop::on(Memory::new());
    let way = second.block_on(FaultyHttpProxy::to(shop.url(), |seen| match seen.fetches() {
        true => HttpFault::Delay(Duration::from_millis(100)),
        false => HttpFault::None,
    }));
    let client = client();
    let url = format!("{}/orders", way.url);
    first.block_on(async {
        let _ = tokio::time::timeout(Duration::from_millis(20), client.post(&url).send()).await;
    });
    drop(first);
    let answer = second.block_on(client.post(&url).header(ORDER, "a").send()).unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(shop.ledger.runs(), ["a"]);
}
