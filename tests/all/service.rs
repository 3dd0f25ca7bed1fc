//! The service as backends and browsers see it.

use onceward_api::Retry;
use onceward_tests::client::{Answer, http, order, send, token};
use onceward_tests::proxy::{Fate, Proxy};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::shop::Shop;
use serde_json::{Value, json};

/// Posts a JSON body.
pub(crate) async fn post(url: &str, path: &str, body: &Value) -> Answer {
    send(http().post(format!("{url}{path}")).header("content-type", "application/json").body(body.to_string())).await
}

async fn redeem(url: &str, token: &str, attempt: Option<&str>) -> String {
    let mut body = json!({ "token": token });
    if let Some(attempt) = attempt {
        body["attempt"] = attempt.into();
    }
    post(url, "/token/redeem", &body).await.said()
}

#[tokio::test]
async fn a_token_is_redeemed_once() {
    let redis = RedisServer::start();
    for store in ["memory:", &redis.url()] {
        let service = OncewardServer::start(&["--store", store]);
        let token = token(&service.url).await;
        assert_eq!(redeem(&service.url, &token, None).await, "200 redeemed");
        assert_eq!(redeem(&service.url, &token, None).await, "409 token_used");
    }
}

#[tokio::test]
async fn the_same_attempt_is_accepted_twice_and_another_is_not() {
    let redis = RedisServer::start();
    for store in ["memory:", &redis.url()] {
        let service = OncewardServer::start(&["--store", store]);
        let (url, token) = (&service.url, token(&service.url).await);
        let release =
            async |attempt| post(url, "/token/release", &json!({"token": token, "attempt": attempt})).await.said();
        for _ in 0..2 {
            assert_eq!(redeem(url, &token, Some("one")).await, "200 redeemed");
        }
        assert_eq!(redeem(url, &token, Some("two")).await, "409 token_used");
        assert_eq!(redeem(url, &token, None).await, "409 token_used");
        assert_eq!(redeem(url, &token, Some("one")).await, "200 redeemed", "being asked by others changed nothing");
        assert_eq!(release("two").await, "409 claim_lost");
        assert_eq!(release("one").await, "204 ");
        assert_eq!(release("one").await, "204 ");
        assert_eq!(redeem(url, &token, Some("two")).await, "200 redeemed", "it works again");
        assert_eq!(release("one").await, "409 claim_lost");
    }
}

/// A token that an attempt has used at the service is not good on a guarded route of the same store, nor the other way.
#[tokio::test]
async fn spent_elsewhere() {
    let redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url()]);
    let shop = Shop::on(onceward::store::Redis::open(&redis.url()).unwrap());
    let first = token(&service.url).await;
    assert_eq!(redeem(&service.url, &first, Some("one")).await, "200 redeemed");
    assert_eq!(order(shop.url(), &first, "a").await.said(), "409 token_used");
    assert_eq!(redeem(&service.url, &first, Some("one")).await, "200 redeemed", "its mark is still there");

    let second = token(shop.url()).await;
    assert_eq!(order(shop.url(), &second, "b").await.said(), "200 executed");
    assert_eq!(redeem(&service.url, &second, Some("one")).await, "409 token_used");
    assert_eq!(redeem(&service.url, &second, None).await, "409 token_used");
    assert_eq!(shop.ledger.runs(), ["b"]);
}

/// The answer to a redeem is lost between the service and its Redis. With an attempt, asking again settles it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_for_attempts() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(redis.port()).await;
    let service = OncewardServer::start(&["--store", &proxy.url()]);
    for (number, fate) in [Fate::LoseAnswer, Fate::LoseRequest, Fate::SwallowAnswer].into_iter().enumerate() {
        let token = token(&service.url).await;
        proxy.next("EVAL", fate);
        let body = json!({"token": token, "attempt": "one"});
        let lost = post(&service.url, "/token/redeem", &body).await;
        assert_eq!(proxy.struck(), number + 1, "{fate:?}");
        assert_eq!(lost.said(), "503 store_unavailable");
        assert_eq!((lost.problem().retry, &lost.headers["retry-after"]), (Retry::Same, &"1".parse().unwrap()));
        // As told, it asks the same again, until the store is back.
        let mut again = lost.said();
        for _ in 0..20 {
            again = post(&service.url, "/token/redeem", &body).await.said();
            if again != "503 store_unavailable" {
                break;
            }
        }
        assert_eq!(again, "200 redeemed", "{fate:?}: never told that somebody else was first");
        assert_eq!(redeem(&service.url, &token, Some("two")).await, "409 token_used");
    }
}

/// While others ask for the same token without an attempt, the attempt is still known: it may ask and release all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_is_accepted_again_while_others_ask_for_its_token() {
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
    assert!(!hammer.is_finished(), "nobody else was accepted meanwhile");
    hammer.abort();
    let release = post(&url, "/token/release", &json!({"token": token, "attempt": "one"})).await;
    assert_eq!(release.status, 204);
}

#[tokio::test]
async fn a_health_check_may_ask_with_head() {
    let service = OncewardServer::start(&[]);
    for path in ["/healthz", "/readyz"] {
        let answer = send(http().head(format!("{}{path}", service.url))).await;
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{path}");
    }
}
