//! Bugs that really happened in other projects. Each scenario passes on Onceward and fails on an implementation with that bug:
//! a scenario that both pass would prove nothing.

mod attempts;
mod bodies;
mod claims;
mod clients;
mod clocks;
mod consumers;
mod gateways;
mod guard_wiring;
mod intervals;
mod keys;
mod original_defects;
mod plain_redeems;
mod remembered_tokens;
mod sqlite_file;

use std::time::Duration;

use actix_web::{App, HttpServer};
use onceward::Guard;
use onceward::store::Redis;
use onceward_tests::client::{ask_token, order, send, submit, token};
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::flawed::{Flaw, FlawedShop};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{STATUS, TestServer, actix_routes as routes};
use tokio::time::Instant;

use crate::PEER;
use crate::tokens::races::race;

/// The result of a scenario; the error describes the failure.
type ScenarioResult = Result<(), String>;

/// The implementation that a scenario runs on.
#[derive(Clone, Copy)]
enum Implementation {
    Onceward,
    Another(Flaw),
}

/// A shop of one implementation, with a proxy between it and its Redis.
struct Stage {
    redis: RedisServer,
    proxy: Proxy,
    ledger: Ledger,
    served: TestServer,
}

impl Stage {
    async fn set(of: Implementation) -> Self {
        let redis = RedisServer::start();
        let proxy = Proxy::before(redis.port()).await;
        let (ledger, url) = (Ledger::new(), proxy.url());
        let book = ledger.clone();
        let served = TestServer::run(move |listener| match of {
            Implementation::Onceward => {
                let routes = routes(&Guard::new(Redis::open(&url).expect("an address")), &book);
                let server = HttpServer::new(move || App::new().configure(routes.clone()));
                Ok(server.workers(1).disable_signals().listen(listener)?.run())
            }
            Implementation::Another(flaw) => {
                let routes = FlawedShop::open(flaw, &url).expect("an address").routes(&book);
                let server = HttpServer::new(move || App::new().configure(routes.clone()));
                Ok(server.workers(1).disable_signals().listen(listener)?.run())
            }
        });
        Self { redis, proxy, ledger, served }
    }

    fn url(&self) -> &str {
        &self.served.url
    }
}

/// Returns an error unless the condition is true.
fn ensure(is_right: bool, otherwise: impl FnOnce() -> String) -> ScenarioResult {
    if is_right { Ok(()) } else { Err(otherwise()) }
}

/// Many concurrent submissions of one token on two processes have one effect.
async fn race_scenario(kind: &str, tokens: usize) -> ScenarioResult {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let peers = [(); 2].map(|()| Peer::start(PEER, kind, &redis.url(), &ledger));
    let urls = peers.each_ref().map(|peer| peer.url.clone());
    race(&urls, &ledger, tokens).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_at_once() {
    race_scenario("onceward", 50).await.unwrap();
    race_scenario("check_then_set", 200).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exists_then_del() {
    race_scenario("onceward", 50).await.unwrap();
    race_scenario("exists_then_del", 200).await.unwrap_err();
}

/// The connection is cut before and after every command that issues a token: no key is left without an expiry.
async fn set_then_expire_scenario(of: Implementation) -> ScenarioResult {
    let stage = Stage::set(of).await;
    token(stage.url()).await;
    for command in ["SET\r\n", "EXPIRE\r\n", "SETEX\r\n"] {
        for fate in [TcpFault::LoseRequest, TcpFault::LoseAnswer] {
            stage.proxy.next(command, fate);
            // The response does not matter here, only the keys that it leaves.
            ask_token(stage.url(), "").await;
            stage.proxy.relent();
            until("the store is reached again", Duration::from_secs(5), || async {
                ask_token(stage.url(), "").await.status == 201
            })
            .await;
        }
    }
    let forever: Vec<_> =
        stage.redis.keys().into_iter().filter(|key| stage.redis.ask::<i64>(&format!("TTL {key}")) == -1).collect();
    assert!(stage.proxy.struck() >= 2, "no command was cut");
    ensure(forever.is_empty(), || format!("{} keys never expire", forever.len()))
}

#[tokio::test]
async fn set_then_expire() {
    set_then_expire_scenario(Implementation::Onceward).await.unwrap();
    set_then_expire_scenario(Implementation::Another(Flaw::SetThenExpire)).await.unwrap_err();
}

/// A client sends the name of another key in the same Redis as its token: that key is not deleted.
async fn raw_key_scenario(of: Implementation) -> ScenarioResult {
    let stage = Stage::set(of).await;
    stage.redis.ask::<()>("SET session:alice signed-in EX 600");
    token(stage.url()).await;
    let others: Vec<_> = stage.redis.keys();
    for name in &others {
        order(stage.url(), name, "by name").await;
    }
    let gone: Vec<_> = others.iter().filter(|name| !stage.redis.keys().contains(name)).collect();
    ensure(gone.is_empty() && stage.ledger.runs().is_empty(), || {
        format!("{gone:?} was deleted by a token of that name")
    })
}

#[tokio::test]
async fn raw_key() {
    raw_key_scenario(Implementation::Onceward).await.unwrap();
    raw_key_scenario(Implementation::Another(Flaw::RawKey)).await.unwrap_err();
}

/// The store is out of memory: a token request receives 503 and no token.
async fn swallowed_issue_scenario(of: Implementation) -> ScenarioResult {
    let stage = Stage::set(of).await;
    token(stage.url()).await;
    stage.redis.ask::<()>("CONFIG SET maxmemory 1");
    let answer = ask_token(stage.url(), "").await;
    if answer.status == 503 {
        assert_eq!(answer.said(), "503 store_unavailable");
        assert_eq!(answer.headers["retry-after"], "1");
        return Ok(());
    }
    let issued: onceward_api::IssuedToken = serde_json::from_slice(&answer.body).unwrap();
    let first = order(stage.url(), &issued.token, "honest").await;
    Err(format!("a token was issued that is not stored; its first use: {}", first.said()))
}

#[tokio::test]
async fn swallowed_issue() {
    swallowed_issue_scenario(Implementation::Onceward).await.unwrap();
    let wrong = swallowed_issue_scenario(Implementation::Another(Flaw::SwallowedIssue)).await.unwrap_err();
    assert!(wrong.contains("409 token_used"), "{wrong}");
}

/// A form with a validation error is corrected and sent again with the same token: accepted.
async fn burned_token_scenario(of: Implementation) -> ScenarioResult {
    let stage = Stage::set(of).await;
    let token = token(stage.url()).await;
    let mistaken = send(submit(stage.url(), "/orders", &token, "mistaken").header(STATUS, "422")).await;
    assert_eq!(mistaken.status, 422);
    let corrected = order(stage.url(), &token, "corrected").await;
    ensure(corrected.status == 200, || format!("the corrected form: {}", corrected.said()))?;
    assert_eq!(order(stage.url(), &token, "again").await.said(), "409 token_used");
    assert_eq!(stage.ledger.runs(), ["mistaken", "corrected"]);
    Ok(())
}

#[tokio::test]
async fn burned_token() {
    burned_token_scenario(Implementation::Onceward).await.unwrap();
    burned_token_scenario(Implementation::Another(Flaw::BurnedToken)).await.unwrap_err();
}

/// The delete is executed and its reply is lost: the client does not receive `token_used`.
async fn lost_reply_scenario(of: Implementation, fate: TcpFault) -> ScenarioResult {
    let stage = Stage::set(of).await;
    // A script that Redis has not cached is sent twice: cache it first.
    assert_eq!(order(stage.url(), &token(stage.url()).await, "before").await.status, 200);
    let token = token(stage.url()).await;
    let delete = match of {
        Implementation::Onceward => stage.redis.compare_commands().remove,
        Implementation::Another(_) => "DEL\r\n",
    };
    stage.proxy.next(delete, fate);
    let answer = order(stage.url(), &token, "lost").await;
    assert_eq!(stage.proxy.struck(), 1, "the reply was lost");
    assert_eq!(stage.ledger.runs(), ["before"], "nothing ran");
    ensure(answer.outcome != "token_used", || "the only submission was rejected as a duplicate".into())?;
    assert_eq!(answer.said(), "503 redeem_unknown");
    assert_eq!(answer.problem().retry, onceward_api::Retry::NewToken);
    assert_eq!(answer.headers["retry-after"], "1");
    Ok(())
}

#[tokio::test]
async fn lost_reply() {
    for fate in [TcpFault::LoseAnswer, TcpFault::SwallowAnswer, TcpFault::LoseRequest] {
        lost_reply_scenario(Implementation::Onceward, fate).await.unwrap();
    }
    lost_reply_scenario(Implementation::Another(Flaw::LostReply), TcpFault::LoseAnswer).await.unwrap_err();
}

/// The token is given back, the reply to that is lost, and the token is redeemed. It must not be given back a second time.
async fn revived_token_scenario(of: Implementation) -> ScenarioResult {
    let stage = Stage::set(of).await;
    let token = token(stage.url()).await;
    stage.proxy.next("SET", TcpFault::LoseAnswer);
    let mistaken = send(submit(stage.url(), "/orders", &token, "mistaken").header(STATUS, "422")).await;
    assert_eq!((mistaken.status, stage.proxy.struck()), (422, 1));
    until("the token is accepted again", Duration::from_millis(700), || async {
        order(stage.url(), &token, "effect").await.status == 200
    })
    .await;
    // Long enough for a retried command to arrive.
    let end = Instant::now() + Duration::from_millis(1200);
    while Instant::now() < end {
        let again = order(stage.url(), &token, "effect").await;
        ensure(again.status != 200, || format!("{} effects of one token", stage.ledger.count("effect")))?;
    }
    assert_eq!(stage.ledger.count("effect"), 1);
    Ok(())
}

#[tokio::test]
async fn revived_token() {
    revived_token_scenario(Implementation::Onceward).await.unwrap();
    revived_token_scenario(Implementation::Another(Flaw::RevivedToken)).await.unwrap_err();
}
