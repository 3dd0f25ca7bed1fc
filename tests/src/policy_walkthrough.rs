//! One short check of every policy of the shop, for any store.

use crate::client::{order, send, submit, token};
use crate::interval_routes::plainly;
use crate::key_routes::buy;
use crate::shop::{STATUS, Shop};

/// A token is redeemed once, and given back after a 422.
pub async fn token_policy(shop: &Shop) {
    let first = token(shop.url()).await;
    assert_eq!(order(shop.url(), &first, "token").await.said(), "200 executed");
    assert_eq!(order(shop.url(), &first, "token").await.said(), "409 token_used");
    let mistaken = token(shop.url()).await;
    assert_eq!(
        send(submit(shop.url(), "/orders", &mistaken, "x").header(STATUS, "422")).await.said(),
        "422 not_applied"
    );
    assert_eq!(order(shop.url(), &mistaken, "token").await.said(), "200 executed");
    assert_eq!(shop.ledger.count("token"), 2);
}

/// A duplicate with a remembered token receives the first response.
pub async fn remembered_policy(shop: &Shop) {
    let token = token(shop.url()).await;
    let post = || send(submit(shop.url(), "/remembered/orders", &token, "remembered"));
    let first = post().await;
    assert_eq!(first.said(), "200 executed");
    let again = post().await;
    assert_eq!((again.said().as_str(), again.body), ("200 replayed", first.body));
    assert_eq!(shop.ledger.count("remembered"), 1);
}

/// A duplicate under a retryable or at-most-once key receives the first response; a run without effect frees the key.
pub async fn key_policy(shop: &Shop) {
    for path in ["/keyed/orders", "/keyed/held"] {
        let first = buy(shop.url(), path, "k", path).await;
        assert_eq!(first.said(), "200 executed");
        let again = buy(shop.url(), path, "k", path).await;
        assert_eq!((again.said().as_str(), again.body), ("200 replayed", first.body));
        let failed = crate::key_routes::under(shop.url(), path, "free", "x").header(STATUS, "401");
        assert_eq!(send(failed).await.said(), "401 not_applied");
        assert_eq!(buy(shop.url(), path, "free", "y").await.said(), "200 executed");
        assert_eq!(shop.ledger.count(path), 1);
    }
}

/// A duplicate within an interval is rejected.
pub async fn interval_policy(shop: &Shop) {
    assert_eq!(send(plainly(shop.url(), "/spaced/second", "interval")).await.said(), "200 executed");
    assert_eq!(send(plainly(shop.url(), "/spaced/second", "interval")).await.said(), "409 too_soon");
    assert_eq!(shop.ledger.count("interval"), 1);
}

/// Checks all policies.
pub async fn every_policy(shop: &Shop) {
    token_policy(shop).await;
    remembered_policy(shop).await;
    key_policy(shop).await;
    interval_policy(shop).await;
}
