//! Museum row about a backend that claims a key over HTTP.

use serde_json::json;

use crate::service::claims::slow_payment;

#[tokio::test]
async fn unrenewed_claim() {
    slow_payment("memory:", json!({})).await.unwrap();
    let wrong = slow_payment("memory:", json!({"at_most_once": false})).await.unwrap_err();
    assert_eq!(wrong, "2 payments: the first received paid, its duplicate paid");
}
