//! The Rust SDK against guarded applications: one submission, one effect, and an answer that says so.

use onceward::store::Memory;
use onceward_client::{Client, Outcome};
use onceward_tests::shop::{ORDER, Shop};
use reqwest::redirect::Policy;
use serde_json::json;

/// A client of the SDK, without a proxy of this machine.
fn client() -> Client {
    Client::builder().http(reqwest::Client::builder().no_proxy()).build().unwrap()
}

#[tokio::test]
async fn a_submission_gets_its_token_by_itself() {
    let shop = Shop::on(Memory::new());
    let client = client();
    for order in ["one", "two", "three"] {
        let url = format!("{}/orders", shop.url());
        let answer = client.post(&url).header(ORDER, order).json(&json!({"tea": 2})).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.outcome(), answer.tries()), (200, Some(Outcome::Executed), 1));
        assert_eq!(answer.text().await.unwrap(), "ordered with 9 bytes");
    }
    assert_eq!(shop.ledger.runs(), ["one", "two", "three"]);
}

#[tokio::test]
async fn a_client_that_is_there_already_serves_too() {
    let shop = Shop::on(Memory::new());
    let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    let client = Client::builder().http_without_redirects(http).with_keys_of("tests").build().unwrap();
    let answer = client.post(format!("{}/keyed/orders", shop.url())).send().await.unwrap();
    assert_eq!(answer.outcome(), Some(Outcome::Executed));
}
