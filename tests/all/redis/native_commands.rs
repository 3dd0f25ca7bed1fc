//! Servers whose `SET` and `DEL` can compare: nothing runs as a script there, and a server that has only one of the two, or loses
//! them, goes on with scripts.

use std::time::Duration;

use onceward::store::laws::Laws;
use onceward::store::{Compared, Redis, Room, Store as _};
use onceward::{Binding, Guard, Intent, Kind, Policy, Subject, Ticket, Verdict};
use onceward_tests::client::{send, submit, token};
use onceward_tests::key_routes::{buy, under};
use onceward_tests::policy_walkthrough::every_policy;
use onceward_tests::polling::until;
use onceward_tests::redis_server::{CompareCommands, RedisServer, native_program};
use onceward_tests::shop::{STATUS, Shop};

const MINUTE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(30);

/// The servers with native commands that `make setup` downloads.
const NATIVE: [&str; 2] = ["redis-8.10", "valkey-9.0"];

fn open(redis: &RedisServer) -> Redis {
    Redis::open(&redis.url()).unwrap().timeout(Duration::from_secs(5))
}

fn ticket(name: &str) -> Ticket {
    Ticket::of(Kind::Key, name.as_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn laws_hold_on_native_commands() {
    for name in NATIVE {
        let redis = RedisServer::start_program(&native_program(name), &[]);
        let monitor = redis.monitor();
        Laws::of(open(&redis)).hold().await;
        let scripts = monitor.commands().into_iter().filter(|command| command.starts_with("\"EVAL")).count();
        assert_eq!(scripts, 0, "{name}");
        let forever = redis.keys().into_iter().filter(|key| redis.ask::<i64>(&format!("TTL {key}")) == -1).count();
        assert_eq!(forever, 0, "{name}: every key expires");
    }
}

#[tokio::test]
async fn number_of_commands_is_that_of_the_contract_and_none_is_a_script() {
    for name in NATIVE {
        let redis = RedisServer::start_program(&native_program(name), &[]);
        let CompareCommands { remove, .. } = redis.compare_commands();
        assert_ne!(remove, "EVALSHA", "{name}");
        let shop = Shop::on(open(&redis));
        let url = shop.url();
        // The first write finds out which commands the server has.
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

/// The ACL is changed under a connection that has found out that it may send the commands: the next verbs are done by scripts.
#[tokio::test]
async fn denied_native_command_is_replaced_by_a_script_in_the_same_verb() {
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
async fn server_of_another_kind_at_the_same_address_is_found_out_by_the_next_connection() {
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
        let is_native = redis.compare_commands().remove != "EVALSHA";
        let (monitor, token) = (redis.monitor(), token(shop.url()).await);
        assert_eq!(send(submit(shop.url(), "/orders", &token, "a")).await.said(), "200 executed");
        let scripts = monitor.commands().iter().any(|command| command.starts_with("\"EVAL"));
        assert_eq!(scripts, !is_native, "{program}");
    }
}

#[tokio::test]
async fn full_native_server_redeems_gives_back_and_renews() {
    for name in NATIVE {
        let redis = RedisServer::start_program(&native_program(name), &["--maxmemory-policy", "noeviction"]);
        let guard = Guard::new(open(&redis));
        let (plain, remembered) =
            (guard.issue(MINUTE, Binding::none()).await.unwrap(), guard.issue(MINUTE, Binding::none()).await.unwrap());
        redis.ask::<()>("CONFIG SET maxmemory 1");
        assert!(guard.issue(MINUTE, Binding::none()).await.is_err(), "{name}");
        let policies =
            [(Policy::token(), plain), (Policy::Token(onceward::TokenRules::new().remember(MINUTE)), remembered)];
        for (policy, token) in policies {
            let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
            for _ in 0..3 {
                let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("{name}: it is good") };
                assert_eq!(pass.release().await.unwrap(), onceward::Settled::Released, "{name}");
            }
        }
    }
}
