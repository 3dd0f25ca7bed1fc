//! The `reqwest-middleware` layer of the Rust SDK: headers and settings of a request are kept or rejected.

use std::time::Duration;

use onceward::store::Memory;
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, smooth};
use onceward_tests::sdk_client::builder;
use onceward_tests::shop::{ORDER, Shop};
use reqwest::redirect::Policy;
use reqwest_middleware::{ClientWithMiddleware, Error};

const KEY: &str = "idempotency-key";

fn client() -> ClientWithMiddleware {
    let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    let onceward = builder().http_without_redirects(http.clone()).with_keys().build().unwrap();
    reqwest_middleware::ClientBuilder::new(http).with(onceward_client::OncewardMiddleware::new(onceward)).build()
}

fn ours(error: Error) -> onceward_client::Error {
    let Error::Middleware(error) = error else { panic!("not ours: {error}") };
    error.downcast().unwrap()
}

#[tokio::test]
async fn quoted_key_is_the_same_as_the_bare_one() {
    let shop = Shop::on(Memory::new());
    let url = format!("{}/keyed/orders", shop.url());
    for key in ["order-4711", "\"order-4711\""] {
        client().post(&url).header(ORDER, "a").header(KEY, key).send().await.unwrap();
    }
    assert_eq!(shop.ledger.count("a"), 1);
}

#[tokio::test]
async fn invalid_key_is_rejected_and_not_replaced() {
    let shop = Shop::on(Memory::new());
    let url = format!("{}/keyed/orders", shop.url());
    for wrong in ["", "a b", &"x".repeat(256)] {
        let error = ours(client().post(&url).header(KEY, wrong).send().await.unwrap_err());
        assert!(error.is_misuse() && error.to_string().contains(KEY), "{error:?}");
    }
    let twice = client().post(&url).header(KEY, "a").header(KEY, "b").send().await;
    assert!(ours(twice.unwrap_err()).is_misuse());
    assert!(shop.ledger.runs().is_empty());
}

#[tokio::test]
async fn token_header_of_a_request_is_not_sent() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), smooth).await;
    for name in ["onceward-token", "onceward-look", "onceward-attempt"] {
        let error = client().post(format!("{}/open", way.url)).header(name, "x").send().await.unwrap_err();
        assert!(ours(error).to_string().contains(name));
    }
    assert!(way.seen().is_empty());
}

#[tokio::test]
async fn timeout_of_a_request_is_kept() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), |_| HttpFault::Delay(Duration::from_secs(60))).await;
    let (url, begun) = (format!("{}/keyed/orders", way.url), tokio::time::Instant::now());
    let error = client().post(url).timeout(Duration::from_millis(200)).send().await.unwrap_err();
    assert!(ours(error).is_unknown());
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}
