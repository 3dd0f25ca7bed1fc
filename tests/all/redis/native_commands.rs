//! Servers with native compare-and-swap in `SET` and `DEL`: no scripts run there. A server that has only one of the two commands, or
//! loses them, falls back to scripts.

use std::time::Duration;

use onceward::store::laws::Laws;
use onceward::store::{Compared, Redis, Room, Store as _};
use onceward::{
    Binding, Guard, Intent, KeyRules, Kind, Policy, RecordState, Settled, Subject, Ticket, TokenRules, Verdict,
};
use onceward_tests::client::{send, submit, token};
use onceward_tests::key_routes::{buy, under};
use onceward_tests::policy_walkthrough::every_policy;
use onceward_tests::polling::{outlast, until};
use onceward_tests::redis_server::{RedisServer, native_program};
use onceward_tests::shop::{STATUS, Shop};

const MINUTE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_millis(300);

/// The servers with native commands that `make setup` downloads.
const NATIVE: [&str; 2] = ["redis-8.10", "valkey-9.0"];

fn open(redis: &RedisServer) -> Redis {
    Redis::open(&redis.url()).unwrap().timeout(Duration::from_secs(5))
}

fn ticket(name: &str) -> Ticket {
    Ticket::of(Kind::Key, name.as_bytes())
}

/// Removes records until the store uses the native command: it probes in the background and runs scripts until then.
async fn is_native(redis: &RedisServer, store: &Redis) {
    let remove = redis.compare_commands().remove;
    assert_ne!(remove, "EVALSHA", "a server with native commands");
    until("native commands are known", LONG, || async {
        let monitor = redis.monitor();
        store.insert(&ticket("tried"), b"held", MINUTE, Room::Free).await.unwrap();
        assert_eq!(store.remove(&ticket("tried"), b"held", None).await.unwrap(), Compared::Done);
        monitor.commands().iter().any(|command| command.starts_with(&format!("\"{remove}\"")))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn laws_hold_on_native_commands() {
    for name in NATIVE {
        let redis = RedisServer::start_program(&native_program(name), &[]);
        let store = open(&redis);
        is_native(&redis, &store).await;
        let monitor = redis.monitor();
        Laws::of(store).hold().await;
        let scripts = monitor.commands().into_iter().filter(|command| command.starts_with("\"EVAL")).count();
        assert_eq!(scripts, 0, "{name}");
        let forever = redis.keys().into_iter().filter(|key| redis.ask::<i64>(&format!("TTL {key}")) == -1).count();
        assert_eq!(forever, 0, "{name}: every key expires");
    }
}

#[tokio::test]
async fn command_counts_match_the_contract_without_scripts() {
    for name in NATIVE {
        let redis = RedisServer::start_program(&native_program(name), &[]);
        let remove = redis.compare_commands().remove;
        let store = open(&redis);
        is_native(&redis, &store).await;
        let shop = Shop::on(store);
        let url = shop.url();
        let (plain, remembered) = (token(url).await, token(url).await);
        let forged = plain.replace("ow1_", "ow1_B");
        for (what, request, expected) in [
            ("token", submit(url, "/orders", &plain, "a"), vec![remove]),
            ("forged", submit(url, "/orders", &forged, "a"), vec![]),
            ("remembered", submit(url, "/remembered/orders", &remembered, "a"), vec!["SET", "SET"]),
            ("replay of a remembered token", submit(url, "/remembered/orders", &remembered, "a"), vec!["SET"]),
            ("key", under(url, "/keyed/orders", "k", "a"), vec!["SET", "SET"]),
            ("replay of a key", under(url, "/keyed/orders", "k", "a"), vec!["SET"]),
            ("freed key", under(url, "/keyed/orders", "f", "a").header(STATUS, 503), vec!["SET", remove]),
            ("at most once", under(url, "/keyed/held", "h", "a"), vec!["SET", "SET", "SET"]),
            ("interval", under(url, "/spaced/second", "i", "a"), vec!["SET"]),
        ] {
            let monitor = redis.monitor();
            let answer = send(request).await;
            let commands = monitor.commands();
            let sent = commands.iter().filter(|command| !command.contains(":secret:"));
            let sent: Vec<_> = sent.map(|command| command.split('"').nth(1).unwrap_or_default()).collect();
            assert_eq!(sent, expected, "{name}, {what}: {}", answer.said());
        }
        let monitor = redis.monitor();
        token(url).await;
        assert_eq!(
            monitor.commands().iter().filter(|command| !command.contains(":secret:")).count(),
            1,
            "{name}, issue"
        );
    }
}

#[tokio::test]
async fn user_without_scripts_runs_every_policy_on_native_commands() {
    for name in NATIVE {
        let redis = RedisServer::start_program(&native_program(name), &[]);
        let remove = redis.compare_commands().remove.to_lowercase();
        redis.ask::<()>(&format!("ACL SETUSER shop on >secret ~onceward:* +set +get +info +{remove}"));
        let url = format!("redis://shop:secret@127.0.0.1:{}", redis.port());
        every_policy(&Shop::on(Redis::open(&url).unwrap().timeout(Duration::from_secs(5)))).await;
    }
}

/// The ACL changes after the connection has found the native commands: the next verbs fall back to scripts.
#[tokio::test]
async fn denied_native_command_falls_back_to_a_script() {
    for name in NATIVE {
        let redis = RedisServer::start_program(&native_program(name), &[]);
        let remove = redis.compare_commands().remove.to_lowercase();
        redis.ask::<()>("ACL SETUSER shop on >secret ~onceward:* +@all");
        let url = format!("redis://shop:secret@127.0.0.1:{}", redis.port());
        let store = Redis::open(&url).unwrap().timeout(Duration::from_secs(5));
        let (one, two) = (ticket("one"), ticket("two"));
        for ticket in [&one, &two] {
            store.insert(ticket, b"held", MINUTE, Room::Free).await.unwrap();
        }
        is_native(&redis, &store).await;
        assert_eq!(store.remove(&one, b"held", None).await.unwrap(), Compared::Done);
        redis.ask::<()>(&format!("ACL SETUSER shop -{remove}"));
        let monitor = redis.monitor();
        assert_eq!(store.remove(&two, b"held", None).await.unwrap(), Compared::Done, "{name}");
        assert_eq!(store.remove(&two, b"held", None).await.unwrap(), Compared::Gone, "{name}");
        let sent = monitor.commands();
        assert!(sent.iter().any(|command| command.starts_with("\"EVALSHA\"")), "{name}: {sent:?}");
    }
}

/// A server is replaced by one without native commands, and back, at the same address.
#[tokio::test]
async fn replaced_server_is_probed_again_by_the_next_connection() {
    let mut redis = RedisServer::start_program(&native_program(NATIVE[1]), &[]);
    let shop = Shop::on(open(&redis));
    for (round, program) in
        ["redis-server".to_owned(), native_program(NATIVE[0]), "redis-server".to_owned()].into_iter().enumerate()
    {
        let key = format!("k{round}");
        assert_eq!(buy(shop.url(), "/keyed/orders", &key, &key).await.said(), "200 executed");
        assert_eq!(buy(shop.url(), "/keyed/orders", &key, &key).await.said(), "200 replayed");
        redis.kill();
        redis.replace(&program);
        until("the store is reached again", LONG, || async {
            buy(shop.url(), "/keyed/orders", "again", "again").await.status == 200
        })
        .await;
        let remove = redis.compare_commands().remove;
        until("tokens are redeemed by the command of that server", LONG, || async {
            let (monitor, token) = (redis.monitor(), token(shop.url()).await);
            assert_eq!(send(submit(shop.url(), "/orders", &token, "a")).await.said(), "200 executed");
            monitor.commands().iter().any(|command| command.starts_with(&format!("\"{remove}\"")))
        })
        .await;
    }
}

#[tokio::test]
async fn full_native_server_redeems_releases_and_renews() {
    for name in NATIVE {
        let redis = RedisServer::start_program(&native_program(name), &["--maxmemory-policy", "noeviction"]);
        let store = open(&redis);
        is_native(&redis, &store).await;
        let guard = Guard::new(store);
        let issue = async || guard.issue(MINUTE, Binding::none()).await.unwrap();
        let (plain, remembered, running) = (issue().await, issue().await, issue().await);
        let rules = KeyRules::retryable().lease(LEASE).unwrap();
        let remember = Policy::Token(TokenRules::new().remember_by(rules));
        redis.ask::<()>("CONFIG SET maxmemory 1");
        assert!(guard.issue(MINUTE, Binding::none()).await.is_err(), "{name}");
        for (policy, token) in [(&Policy::token(), &plain), (&remember, &remembered)] {
            let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
            for _ in 0..3 {
                let Ok(Verdict::Run(pass)) = guard.check(policy, &intent).await else { panic!("{name}: valid token") };
                assert_eq!(pass.release().await.unwrap(), Settled::Released, "{name}");
            }
        }
        let intent = Intent::new("a", Subject::anonymous()).credential(running.as_str());
        let Ok(Verdict::Run(pass)) = guard.check(&remember, &intent).await else { panic!("{name}: valid token") };
        let claim =
            || redis::cmd("GET").arg(pass.ticket().name("onceward")).query::<Vec<u8>>(&mut redis.connection()).unwrap();
        let first = claim();
        // Each renewal writes a new heartbeat.
        until("the claim is renewed", LONG, || async { claim() != first }).await;
        outlast(LEASE).await;
        let state = guard.look(&remember, &intent).await.unwrap().state;
        assert!(matches!(state, RecordState::Running(_)), "{name}: {state:?}");
    }
}

/// A user without scripts on a full server: issued tokens are redeemed, and no new run starts.
#[tokio::test]
async fn user_without_scripts_redeems_plain_tokens_on_a_full_server() {
    for name in NATIVE {
        let redis = RedisServer::start_program(&native_program(name), &["--maxmemory-policy", "noeviction"]);
        let token = Guard::new(open(&redis)).issue(MINUTE, Binding::none()).await.unwrap();
        let remove = redis.compare_commands().remove.to_lowercase();
        redis.ask::<()>(&format!("ACL SETUSER shop on >secret ~onceward:* +set +get +info +{remove}"));
        redis.ask::<()>("CONFIG SET maxmemory 1");
        let url = format!("redis://shop:secret@127.0.0.1:{}", redis.port());
        let guard = Guard::new(Redis::open(&url).unwrap().timeout(Duration::from_secs(5)));
        let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
        let Ok(Verdict::Run(pass)) = guard.check(&Policy::token(), &intent).await else {
            panic!("{name}: valid token")
        };
        pass.complete(None).await.unwrap();
        assert!(guard.issue(MINUTE, Binding::none()).await.is_err(), "{name}");
        redis.ask::<()>("CONFIG SET maxmemory 0");
        until("there is room", LONG, || async { guard.issue(MINUTE, Binding::none()).await.is_ok() }).await;
    }
}
