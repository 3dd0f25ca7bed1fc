use onceward::store::Redis;
use onceward_tests::client::{order, token};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::Shop;

#[tokio::test]
async fn a_token_is_accepted_once() {
    let redis = RedisServer::start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap());
    let token = token(shop.url()).await;
    assert_eq!(order(shop.url(), &token, "a").await.said(), "200 executed");
    assert_eq!(order(shop.url(), &token, "a").await.said(), "409 token_used");
    assert_eq!(shop.ledger.runs(), ["a"]);
}
