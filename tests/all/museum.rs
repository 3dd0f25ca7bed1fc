//! Bugs that really happened elsewhere. Each row is one story that Onceward gets right, and that an implementation with
//! that bug gets wrong: a row that both pass would prove nothing.

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
use onceward_tests::shop::{STATUS, TestServer, routes};
use tokio::time::Instant;

use crate::PEER;
use crate::tokens::races::race;

/// The end of a story; the error says what went wrong.
type StoryResult = Result<(), String>;

/// Whose implementation a story is told of.
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

fn told(is_right: bool, otherwise: impl FnOnce() -> String) -> StoryResult {
    if is_right { Ok(()) } else { Err(otherwise()) }
}

/// Two processes, many submissions of one token at once: one effect each.
async fn a_race(kind: &str, tokens: usize) -> StoryResult {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let peers = [(); 2].map(|()| Peer::start(PEER, kind, &redis.url(), &ledger));
    let urls = peers.each_ref().map(|peer| peer.url.clone());
    race(&urls, &ledger, tokens).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_at_once() {
    a_race("onceward", 50).await.unwrap();
    a_race("check_then_set", 200).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exists_then_del() {
    a_race("onceward", 50).await.unwrap();
    a_race("exists_then_del", 200).await.unwrap_err();
}

/// The connection is cut before and after every command of an issue: nothing is left that never expires.
async fn the_story_of_set_then_expire(of: Implementation) -> StoryResult {
    let stage = Stage::set(of).await;
    token(stage.url()).await;
    for command in ["SET\r\n", "EXPIRE\r\n", "SETEX\r\n"] {
        for fate in [TcpFault::LoseRequest, TcpFault::LoseAnswer] {
            stage.proxy.next(command, fate);
            // Whether this one gets its token is not the question here, only what it leaves behind.
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
    assert!(stage.proxy.struck() >= 2, "commands were cut");
    told(forever.is_empty(), || format!("{} keys never expire", forever.len()))
}

#[tokio::test]
async fn set_then_expire() {
    the_story_of_set_then_expire(Implementation::Onceward).await.unwrap();
    the_story_of_set_then_expire(Implementation::Another(Flaw::SetThenExpire)).await.unwrap_err();
}

/// What a client sends as a token is the name of something else in the same Redis: it is still there afterwards.
async fn the_story_of_raw_key(of: Implementation) -> StoryResult {
    let stage = Stage::set(of).await;
    stage.redis.ask::<()>("SET session:alice signed-in EX 600");
    token(stage.url()).await;
    let others: Vec<_> = stage.redis.keys();
    for name in &others {
        order(stage.url(), name, "by name").await;
    }
    let gone: Vec<_> = others.iter().filter(|name| !stage.redis.keys().contains(name)).collect();
    told(gone.is_empty() && stage.ledger.runs().is_empty(), || format!("{gone:?} was deleted by its name"))
}

#[tokio::test]
async fn raw_key() {
    the_story_of_raw_key(Implementation::Onceward).await.unwrap();
    the_story_of_raw_key(Implementation::Another(Flaw::RawKey)).await.unwrap_err();
}

/// The store takes nothing more: whoever asks for a token is told so, and gets none.
async fn the_story_of_swallowed_issue(of: Implementation) -> StoryResult {
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
    Err(format!("a token was given out that is not stored; its first use: {}", first.said()))
}

#[tokio::test]
async fn swallowed_issue() {
    the_story_of_swallowed_issue(Implementation::Onceward).await.unwrap();
    let wrong = the_story_of_swallowed_issue(Implementation::Another(Flaw::SwallowedIssue)).await.unwrap_err();
    assert!(wrong.contains("409 token_used"), "{wrong}");
}

/// A form with a mistake in it is refused, corrected, and sent again with the same token: accepted.
async fn the_story_of_burned_token(of: Implementation) -> StoryResult {
    let stage = Stage::set(of).await;
    let token = token(stage.url()).await;
    let mistaken = send(submit(stage.url(), "/orders", &token, "mistaken").header(STATUS, "422")).await;
    assert_eq!(mistaken.status, 422);
    let corrected = order(stage.url(), &token, "corrected").await;
    told(corrected.status == 200, || format!("the corrected form: {}", corrected.said()))?;
    assert_eq!(order(stage.url(), &token, "again").await.said(), "409 token_used");
    assert_eq!(stage.ledger.runs(), ["mistaken", "corrected"]);
    Ok(())
}

#[tokio::test]
async fn burned_token() {
    the_story_of_burned_token(Implementation::Onceward).await.unwrap();
    the_story_of_burned_token(Implementation::Another(Flaw::BurnedToken)).await.unwrap_err();
}

/// The delete is carried out and its answer is lost: nobody is told that somebody else was first.
async fn the_story_of_lost_reply(of: Implementation, fate: TcpFault) -> StoryResult {
    let stage = Stage::set(of).await;
    // A script that Redis has not seen is sent twice: from now on it knows it.
    assert_eq!(order(stage.url(), &token(stage.url()).await, "before").await.status, 200);
    let token = token(stage.url()).await;
    let delete = match of {
        Implementation::Onceward => stage.redis.compare_commands().remove,
        Implementation::Another(_) => "DEL\r\n",
    };
    stage.proxy.next(delete, fate);
    let answer = order(stage.url(), &token, "lost").await;
    assert_eq!(stage.proxy.struck(), 1, "the answer was lost");
    assert_eq!(stage.ledger.runs(), ["before"], "nothing ran");
    told(answer.outcome != "token_used", || "the only submission was called a duplicate".into())?;
    assert_eq!(answer.said(), "503 redeem_unknown");
    assert_eq!(answer.problem().retry, onceward_api::Retry::NewToken);
    assert_eq!(answer.headers["retry-after"], "1");
    Ok(())
}

#[tokio::test]
async fn lost_reply() {
    for fate in [TcpFault::LoseAnswer, TcpFault::SwallowAnswer, TcpFault::LoseRequest] {
        the_story_of_lost_reply(Implementation::Onceward, fate).await.unwrap();
    }
    the_story_of_lost_reply(Implementation::Another(Flaw::LostReply), TcpFault::LoseAnswer).await.unwrap_err();
}

/// The token is given back and the answer to that is lost; then it is used. It must not come back a second time.
async fn the_story_of_revived_token(of: Implementation) -> StoryResult {
    let stage = Stage::set(of).await;
    let token = token(stage.url()).await;
    stage.proxy.next("SET", TcpFault::LoseAnswer);
    let mistaken = send(submit(stage.url(), "/orders", &token, "mistaken").header(STATUS, "422")).await;
    assert_eq!((mistaken.status, stage.proxy.struck()), (422, 1));
    until("the token is accepted again", Duration::from_millis(700), || async {
        order(stage.url(), &token, "effect").await.status == 200
    })
    .await;
    // Long enough for whatever is sent a second time to arrive.
    let end = Instant::now() + Duration::from_millis(1200);
    while Instant::now() < end {
        let again = order(stage.url(), &token, "effect").await;
        told(again.status != 200, || format!("{} effects of one token", stage.ledger.count("effect")))?;
    }
    assert_eq!(stage.ledger.count("effect"), 1);
    Ok(())
}

#[tokio::test]
async fn revived_token() {
    the_story_of_revived_token(Implementation::Onceward).await.unwrap();
    the_story_of_revived_token(Implementation::Another(Flaw::RevivedToken)).await.unwrap_err();
}
