//! Museum row about a plain redeem of a token that another run has claimed: an unconditional delete has to put the record back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use onceward::store::Redis;
use onceward::{Attempt, Binding, Guard, Intent, KeyRules, Pass, Policy, Reply, Subject, TokenRules, Verdict};
use onceward_api::Code;
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::polling::until;
use onceward_tests::redis_server::{RedisServer, native_program};
use redis::aio::ConnectionManager;
use redis::{Client, RedisResult, cmd};

use super::{ScenarioResult, ensure};

const MINUTE: Duration = Duration::from_secs(60);

/// An implementation of the plain redeem.
#[derive(Clone)]
enum Redeemer {
    Onceward(Guard),
    /// Deletes any record, and puts it back unless it is that of an unused token.
    TakesFirst(ConnectionManager),
}

impl Redeemer {
    async fn connect(kind: &str, url: &str) -> Self {
        match kind {
            "onceward" => Self::Onceward(Guard::new(Redis::open(url).unwrap())),
            _ => Self::TakesFirst(Client::open(url).unwrap().get_connection_manager().await.unwrap()),
        }
    }

    /// Redeems the token whose record has this name. Returns true if the handler may run, and `None` if that is unknown.
    async fn redeem(&self, token: &str, name: &str) -> Option<bool> {
        match self {
            Self::Onceward(guard) => {
                let intent = Intent::new("plain", Subject::anonymous()).credential(token);
                match guard.check(&Policy::token(), &intent).await {
                    Ok(Verdict::Reject(rejection)) => {
                        assert_eq!(rejection.code(), Code::TokenUsed);
                        Some(false)
                    }
                    Ok(_) => Some(true),
                    Err(_) => None,
                }
            }
            Self::TakesFirst(connection) => take_first(&mut connection.clone(), name).await.ok(),
        }
    }
}

async fn take_first(connection: &mut ConnectionManager, name: &str) -> RedisResult<bool> {
    let taken: Option<Vec<u8>> = cmd("GETDEL").arg(name).query_async(connection).await?;
    match taken {
        Some(record) if record == b"\x02i" => Ok(true),
        Some(record) => {
            let put_back: Option<Vec<u8>> = cmd("SET")
                .arg(name)
                .arg(record)
                .arg("PX")
                .arg(60_000)
                .arg("NX")
                .arg("GET")
                .query_async(connection)
                .await?;
            assert_eq!(put_back, None);
            Ok(false)
        }
        None => Ok(false),
    }
}

/// A token that was redeemed elsewhere, and the name of the record left by that.
#[derive(Clone)]
struct UsedToken {
    what: &'static str,
    token: String,
    name: String,
}

/// Returns one token for each kind of redeem that leaves a record, and the run that is in flight.
async fn used_tokens(guard: &Guard) -> (Vec<UsedToken>, Option<Pass>) {
    let (mut used, mut running) = (Vec::new(), None);
    // Too long for a renewal during the test.
    let rules = KeyRules::retryable().lease(MINUTE * 60).unwrap();
    for kind in ["claim", "reply", "mark"] {
        let token = guard.issue(MINUTE, Binding::none()).await.unwrap();
        let attempt = Attempt::new("one").unwrap();
        let remembered = Policy::Token(TokenRules::new().remember_by(rules.clone()));
        let intent = Intent::new("elsewhere", Subject::anonymous()).credential(token.as_str());
        let checked = match kind {
            "mark" => guard.check(&Policy::token(), &intent.attempt(&attempt)).await,
            _ => guard.check(&remembered, &intent).await,
        };
        let Ok(Verdict::Run(pass)) = checked else { panic!("the token is valid") };
        let name = pass.ticket().name("onceward");
        match kind {
            "claim" => running = Some(pass),
            "reply" => drop(pass.complete(Some(Reply::new(200, "first"))).await.unwrap()),
            _ => drop(pass.complete(None).await.unwrap()),
        }
        used.push(UsedToken { what: kind, token: token.as_str().to_owned(), name });
    }
    (used, running)
}

/// Returns the record and its expiry time.
fn record(redis: &RedisServer, name: &str) -> (Option<Vec<u8>>, i64) {
    let mut connection = redis.connection();
    let record = cmd("GET").arg(name).query(&mut connection).unwrap();
    (record, cmd("PEXPIRETIME").arg(name).query(&mut connection).unwrap())
}

/// The token has a claim, a reply or a mark, and plain redeems of it are cut before and after every command: the record stays
/// unchanged all the time.
async fn claim_in_hand_scenario(kind: &str, redis: RedisServer) -> ScenarioResult {
    let owner = Guard::new(Redis::open(&redis.url()).unwrap());
    let proxy = Proxy::before(redis.port()).await;
    let commands = match (kind, redis.compare_commands().remove) {
        ("onceward", "EVALSHA") => vec!["EVALSHA"],
        // A native command returns less than a script, so a lookup follows.
        ("onceward", native) => vec![native, "GET\r\n"],
        _ => vec!["GETDEL", "SET"],
    };
    let (used, _running) = used_tokens(&owner).await;
    for UsedToken { what, token, name } in used {
        let before = record(&redis, &name);
        assert!(before.0.is_some(), "{what} leaves a record");
        for command in &commands {
            for fate in [TcpFault::LoseRequest, TcpFault::LoseAnswer, TcpFault::SwallowAnswer] {
                let redeemer = Redeemer::connect(kind, &proxy.url()).await;
                let struck = proxy.struck();
                proxy.next(command, fate);
                // Native commands are probed in the background, and scripts are used until then.
                until("the command is cut", Duration::from_secs(10), || async {
                    let runs = redeemer.redeem(&token, &name).await;
                    assert_ne!(runs, Some(true), "the {what} was redeemed as if it were a token");
                    proxy.struck() > struck
                })
                .await;
                ensure(record(&redis, &name) == before, || {
                    format!("the {what} is gone after {command:?} and {fate:?}")
                })?;
            }
        }
    }
    Ok(())
}

/// During plain redeems, an observer reads the record thousands of times: it is never absent.
async fn observer_scenario(kind: &str) -> ScenarioResult {
    let redis = RedisServer::start();
    let owner = Guard::new(Redis::open(&redis.url()).unwrap());
    let (used, _running) = used_tokens(&owner).await;
    let (is_over, redeems) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut redeemers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (redeemer, used) = (Redeemer::connect(kind, &redis.url()).await, used.clone());
        let (is_over, redeems) = (Arc::clone(&is_over), Arc::clone(&redeems));
        redeemers.spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                for UsedToken { token, name, .. } in &used {
                    assert_ne!(redeemer.redeem(token, name).await, Some(true));
                    redeems.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
    }
    let mut looks = 0;
    let mut connection = redis.connection();
    let mut missed = None;
    while missed.is_none() && (looks < 3_000 || redeems.load(Ordering::SeqCst) < 300) {
        for UsedToken { what, name, .. } in &used {
            let seen: Option<Vec<u8>> = cmd("GET").arg(name).query(&mut connection).unwrap();
            missed = missed.or(seen.is_none().then_some(*what));
            looks += 1;
        }
        tokio::task::yield_now().await;
    }
    is_over.store(true, Ordering::SeqCst);
    redeemers.join_all().await;
    ensure(missed.is_none(), || format!("the {} was absent for a moment", missed.unwrap_or_default()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_in_hand() {
    claim_in_hand_scenario("onceward", RedisServer::start()).await.unwrap();
    for native in ["redis-8.10", "valkey-9.0"] {
        let redis = RedisServer::start_program(&native_program(native), &[]);
        claim_in_hand_scenario("onceward", redis).await.unwrap();
    }
    let wrong = claim_in_hand_scenario("takes_first", RedisServer::start()).await.unwrap_err();
    assert!(wrong.contains("is gone"), "{wrong}");
    observer_scenario("onceward").await.unwrap();
    let wrong = observer_scenario("takes_first").await.unwrap_err();
    assert!(wrong.contains("was absent"), "{wrong}");
}
