//! The laws of a store on a real Redis, and the commands it sends.

use std::error::Error;
use std::time::Duration;

use onceward::store::laws::Laws;
use onceward::store::{Memory, Redis, Room, Store as _, StoreError};
use onceward::{Binding, Guard, Intent, Kind, ManualClock, Policy, RecordState, Subject, Ticket, Verdict};
use onceward_tests::client::{order, send, submit, token};
use onceward_tests::listening_port::free_port;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{STATUS, Shop};

const MINUTE: Duration = Duration::from_secs(60);

/// Opens the store with a long timeout, because the laws share two cores with other tests.
fn open(redis: &RedisServer) -> Redis {
    Redis::open(&redis.url()).unwrap().timeout(Duration::from_secs(5))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn laws_hold_on_redis() {
    let redis = RedisServer::start();
    Laws::of(open(&redis)).hold().await;
    let forever: Vec<_> = redis.keys().into_iter().filter(|key| redis.ask::<i64>(&format!("TTL {key}")) < 0).collect();
    assert_eq!(forever, Vec::<String>::new(), "no key without an expiry");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn laws_hold_over_an_application_connection() {
    let redis = RedisServer::start();
    let manager = redis::Client::open(redis.url()).unwrap().get_connection_manager().await.unwrap();
    Laws::of(Redis::over(manager).timeout(Duration::from_secs(5))).hold().await;
}

#[tokio::test]
async fn application_connection_stays_the_only_one() {
    let redis = RedisServer::start();
    let connection = redis::Client::open(redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let guard = Guard::new(Redis::over(connection.clone()));
    let token = guard.issue(MINUTE, Binding::none()).await.unwrap();
    let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
    let Ok(Verdict::Run(pass)) = guard.check(&Policy::token(), &intent).await else { panic!("valid token") };
    pass.release().await.unwrap();

    let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut connection.clone()).await.unwrap();
    assert_eq!(list.lines().count(), 1, "{list}");
}

#[tokio::test]
async fn each_step_is_one_command_and_bad_tokens_none() {
    let (redis, clock) = (RedisServer::start(), ManualClock::new());
    let guard = Guard::builder(open(&redis)).clock((&clock).into()).build();
    // From now on Redis has loaded the script.
    let policy = Policy::token();
    let known = guard.issue(MINUTE, Binding::none()).await.unwrap();
    let intent = Intent::new("POST /orders", Subject::anonymous()).credential(known.as_str());
    let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("valid token") };
    pass.complete(None).await.unwrap();
    let remove = redis.compare_commands().remove;
    let anyone = || Intent::new("POST /orders", Subject::anonymous());
    let monitor = redis.monitor();
    // The secret is shared in the background, at any time.
    let sent = || monitor.commands().into_iter().filter(|command| !command.contains(":secret:")).collect::<Vec<_>>();
    let count = |name: &str| sent().iter().filter(|command| command.starts_with(&format!("\"{name}\""))).count();

    let token = guard.issue(MINUTE, Binding::none()).await.unwrap();
    assert_eq!((sent().len(), count("SET")), (1, 1), "issue: {:?}", sent());

    let other = if token.as_str().as_bytes()[60] == b'A' { "B" } else { "A" };
    let forged = format!("{}{other}{}", &token.as_str()[..60], &token.as_str()[61..]);
    let elsewhere = guard.issue(MINUTE, Binding::none().action("POST /other")).await.unwrap();
    let brief = guard.issue(Duration::from_secs(1), Binding::none()).await.unwrap();
    clock.advance(Duration::from_secs(1));
    let before = sent().len();
    for bad in [forged.as_str(), elsewhere.as_str(), brief.as_str(), "", "x"] {
        let verdict = guard.check(&policy, &anyone().credential(bad)).await.unwrap();
        assert!(matches!(verdict, Verdict::Reject(_)), "{verdict:?}");
    }
    assert_eq!(sent().len(), before, "forged, wrongly bound and expired tokens send no command");

    let intent = anyone().credential(token.as_str());
    assert_eq!(guard.look(&policy, &intent).await.unwrap().state, RecordState::Issued);
    assert_eq!(count("GET"), 1);
    let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("valid token") };
    pass.complete(None).await.unwrap();
    assert_eq!((sent().len() - before, count(remove)), (2, 1), "a lookup and a redeem: {:?}", sent());

    assert_eq!(guard.look(&policy, &intent).await.unwrap().state, RecordState::Absent);
    let before = sent().len();
    let Ok(Verdict::Reject(_)) = guard.check(&policy, &intent).await else { panic!("used token") };
    let lookups = usize::from(remove != "EVALSHA");
    assert_eq!((sent().len() - before, count(remove)), (1 + lookups, 2), "a native command needs a lookup too");
}

#[tokio::test]
async fn protected_route_sends_no_extra_command() {
    let redis = RedisServer::start();
    let shop = Shop::on(open(&redis));
    let (first, second) = (token(shop.url()).await, token(shop.url()).await);
    let forged = first.replace("ow1_", "ow1_B");
    let said = async |token: &str| order(shop.url(), token, "a").await.said();
    // From now on Redis has loaded the script.
    assert_eq!(said(&token(shop.url()).await).await, "200 executed");
    let remove = redis.compare_commands().remove;
    let monitor = redis.monitor();

    assert_eq!(said(&first).await, "200 executed");
    assert_eq!(said(&first).await, "409 token_used");
    assert_eq!(said(&forged).await, "400 token_malformed");
    let mistaken = send(submit(shop.url(), "/orders", &second, "a").header(STATUS, "422")).await;
    assert_eq!(mistaken.said(), "422 not_applied");
    let names = |command: &String| command.split('"').nth(1).unwrap_or_default().to_owned();
    let sent: Vec<_> = monitor.commands().iter().filter(|command| !command.contains(":secret:")).map(names).collect();
    let duplicate = if remove == "EVALSHA" { vec![remove] } else { vec![remove, "GET"] };
    assert_eq!(sent, [vec![remove], duplicate, vec![remove, "SET"]].concat());
}

#[tokio::test]
async fn redis_keys_have_the_documented_form_and_expire() {
    let redis = RedisServer::start();
    let guard = Guard::new(open(&redis).prefix("shop"));
    let monitor = redis.monitor();
    let token = guard.issue(MINUTE, Binding::none().action("POST /orders")).await.unwrap();

    let mut keys = redis.keys();
    keys.sort();
    assert_eq!(keys.len(), 2, "a token and the shared secret: {keys:?}");
    for (key, kind) in keys.iter().zip(["shop:secret:", "shop:token:"]) {
        let digest = key.strip_prefix(kind).unwrap_or_else(|| panic!("{key} does not begin with {kind}"));
        assert_eq!(digest.len(), 43, "{key}");
        assert!(digest.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')), "{key}");
        assert!(redis.ask::<i64>(&format!("PTTL {key}")) > 0, "{key}");
    }
    let life = redis.ask::<i64>(&format!("PTTL {}", keys[1]));
    assert!((115_000..=120_000).contains(&life), "the token's minute plus one more, not {life} ms");

    let body = token.as_str().trim_start_matches("ow1_");
    for command in monitor.commands() {
        assert!(!command.contains(token.as_str()) && !command.contains(body), "a raw token was sent: {command}");
    }
}

#[tokio::test]
async fn zero_and_maximal_ttl_are_accepted() {
    let redis = RedisServer::start();
    let store = open(&redis);
    let ticket = Ticket::of(Kind::Key, b"brief");
    assert_eq!(store.insert(&ticket, b"x", Duration::ZERO, Room::Free).await.unwrap(), None);
    assert_eq!(store.insert(&Ticket::of(Kind::Key, b"long"), b"x", Duration::MAX, Room::Free).await.unwrap(), None);
}

#[tokio::test]
async fn server_error_reply_means_not_executed() {
    let redis = RedisServer::start();
    let store = open(&redis);
    let ticket = Ticket::of(Kind::Key, b"no");
    store.insert(&ticket, b"x", MINUTE, Room::Free).await.unwrap();
    redis.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", redis.port() - 1));
    let error = store.swap(&ticket, b"x", b"y", MINUTE, Room::Free, None).await.unwrap_err();
    assert!(matches!(error, StoreError::NotExecuted(_)), "{error}");
    assert!(error.to_string().contains("read only replica"), "{error}");
}

#[tokio::test]
async fn invalid_redis_address_is_rejected_with_an_example() {
    for wrong in ["", "127.0.0.1", "http://127.0.0.1", "redis://127.0.0.1:port"] {
        let error = Redis::open(wrong).err().unwrap_or_else(|| panic!("{wrong} is no address")).to_string();
        assert!(error.contains("redis://127.0.0.1:6379"), "{error}");
    }
}

/// True if an error of this type is among the causes.
fn is_caused_by<E: Error + 'static>(error: &StoreError) -> bool {
    std::iter::successors(error.source(), |&cause| cause.source()).any(|cause| cause.is::<E>())
}

#[tokio::test]
async fn refused_connection_is_among_the_causes_of_a_store_error() {
    let port = free_port();
    for address in [
        format!("redis://127.0.0.1:{port}"),
        format!("redis+sentinel://127.0.0.1:{port}/main"),
        format!("redis+cluster://127.0.0.1:{port}"),
    ] {
        let store = Redis::open(&address).unwrap();
        let error = store.look(&Ticket::of(Kind::Key, b"x")).await.unwrap_err();
        assert!(matches!(error, StoreError::NotExecuted(_)), "{error}");
        assert!(is_caused_by::<std::io::Error>(&error), "{address}: {error:?}");
    }
}

#[tokio::test]
async fn store_error_keeps_its_source() {
    let reason = || std::io::Error::other("disk full");
    for error in [StoreError::not_executed(reason()), StoreError::unknown(reason())] {
        assert!(error.source().is_some_and(|source| source.is::<std::io::Error>()), "{error:?}");
        assert!(error.to_string().contains("disk full"), "{error}");
    }
}

#[tokio::test]
async fn errors_never_show_a_password() {
    let redis = RedisServer::start_with(&["--requirepass", "correct-horse"]);
    let url = format!("redis://:canary-password@127.0.0.1:{}", redis.port());
    let store = Redis::open(&url).unwrap();
    let error = store.look(&Ticket::of(Kind::Key, b"x")).await.unwrap_err();
    assert!(matches!(error, StoreError::NotExecuted(_)), "{error}");
    let unreadable = Redis::open("redis://:canary-password@127.0.0.1:port").unwrap_err().to_string();
    for text in [error.to_string(), format!("{error:?}"), format!("{store:?}"), unreadable] {
        assert!(!text.contains("canary-password"), "{text}");
    }
    let store = Redis::open(&url.replace("canary-password", "correct-horse")).unwrap();
    assert_eq!(store.look(&Ticket::of(Kind::Key, b"x")).await.unwrap(), None);
}

#[tokio::test]
async fn token_of_a_restarted_memory_store_is_stale() {
    let secret = onceward::Secret::random();
    let boot = || Guard::builder(Memory::new()).secret(secret.clone()).build();
    let token = boot().issue(MINUTE, Binding::none()).await.unwrap();
    let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
    let Ok(Verdict::Reject(rejection)) = boot().check(&Policy::token(), &intent).await else { panic!("stale token") };
    assert_eq!(rejection.code(), onceward_api::Code::TokenStale);
}
