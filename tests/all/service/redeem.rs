//! The token API as backends and browsers use it.

use onceward_tests::client::{http, send, token};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::{post, redeemed_by, release};
use serde_json::{Value, json};

async fn redeem(url: &str, token: &str, attempt: Option<&str>) -> String {
    let mut body = json!({ "token": token });
    if let Some(attempt) = attempt {
        body["attempt"] = attempt.into();
    }
    post(url, "/token/redeem", &body).await.said()
}

#[tokio::test]
async fn token_is_redeemed_once() {
    let redis = RedisServer::start();
    for store in ["memory:", &redis.url()] {
        let service = OncewardServer::start(&["--store", store]);
        let token = token(&service.url).await;
        let redeemed = post(&service.url, "/token/redeem", &json!({ "token": token })).await;
        let body: Value = serde_json::from_slice(&redeemed.body).unwrap();
        assert_eq!((redeemed.said().as_str(), body), ("200 redeemed", json!({"outcome": "redeemed"})));
        assert_eq!(redeem(&service.url, &token, None).await, "409 token_used");
    }
}

#[tokio::test]
async fn same_attempt_is_accepted_twice_and_another_is_not() {
    let redis = RedisServer::start();
    for store in ["memory:", &redis.url()] {
        let service = OncewardServer::start(&["--store", store]);
        let (url, token) = (&service.url, token(&service.url).await);
        let run = redeemed_by(url, &token, "one").await;
        assert_eq!(redeemed_by(url, &token, "one").await, run, "the same run");
        let release = async |attempt| release(url, &token, attempt, &run).await;
        assert_eq!(redeem(url, &token, Some("two")).await, "409 token_used");
        assert_eq!(redeem(url, &token, None).await, "409 token_used");
        assert_eq!(redeem(url, &token, Some("one")).await, "200 redeemed", "requests of others changed nothing");
        assert_eq!(release("two").await, "409 claim_lost");
        assert_eq!(release("one").await, "204 ");
        assert_eq!(release("one").await, "204 ");
        assert_eq!(redeem(url, &token, Some("two")).await, "200 redeemed", "the released token is valid again");
        assert_eq!(release("one").await, "409 claim_lost");
    }
}

/// While other callers redeem the same token without an attempt, the attempt can still redeem and release it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_is_accepted_again_under_contention() {
    let redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url()]);
    let (url, token) = (service.url.clone(), token(&service.url).await);
    assert_eq!(redeem(&url, &token, Some("one")).await, "200 redeemed");
    let (others, asked) = ((url.clone(), token.clone()), http());
    let hammer = tokio::spawn(async move {
        let body = json!({"token": others.1}).to_string();
        loop {
            let request = asked.post(format!("{}/token/redeem", others.0)).header("content-type", "application/json");
            let answer = send(request.body(body.clone())).await;
            assert_eq!(answer.said(), "409 token_used");
        }
    });
    for _ in 0..200 {
        assert_eq!(redeem(&url, &token, Some("one")).await, "200 redeemed");
    }
    assert!(!hammer.is_finished(), "no other caller was accepted");
    hammer.abort();
    let run = redeemed_by(&url, &token, "one").await;
    assert_eq!(release(&url, &token, "one", &run).await, "204 ");
}

#[tokio::test]
async fn health_check_accepts_head() {
    let service = OncewardServer::start(&[]);
    for path in ["/healthz", "/readyz"] {
        let answer = send(http().head(format!("{}{path}", service.url))).await;
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{path}");
    }
}
