//! Calls of the service's HTTP API.

use serde_json::{Value, json};

use crate::client::{Answer, http, send};

/// Sends a GET request.
pub async fn get(url: &str, path: &str) -> Answer {
    send(http().get(format!("{url}{path}"))).await
}

/// Posts a JSON body.
pub async fn post(url: &str, path: &str, body: &Value) -> Answer {
    send(http().post(format!("{url}{path}")).header("content-type", "application/json").body(body.to_string())).await
}

/// Redeems a token by an attempt, and returns the `run_id` of the response.
pub async fn redeemed_by(url: &str, token: &str, attempt: &str) -> Value {
    let answer = post(url, "/token/redeem", &json!({"token": token, "attempt": attempt})).await;
    assert_eq!(answer.said(), "200 redeemed", "{answer:?}");
    let body: Value = serde_json::from_slice(&answer.body).expect("a JSON object");
    assert!(body["run_id"].is_string(), "{body}");
    body["run_id"].clone()
}

/// Releases the token that this run of an attempt has redeemed.
pub async fn release(url: &str, token: &str, attempt: &str, run: &Value) -> String {
    post(url, "/token/release", &json!({"token": token, "attempt": attempt, "run_id": run})).await.said()
}
