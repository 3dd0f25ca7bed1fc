//! Redis commands of a submission under a key.

use std::time::Duration;

use onceward::store::Redis;
use onceward_api::header::LOOK;
use onceward_tests::client::{http, send};
use onceward_tests::key_routes::{KEY, buy, under};
use onceward_tests::polling::until;
use onceward_tests::redis_server::{CompareCommands, Monitor, RedisServer};
use onceward_tests::shop::{STATUS, Shop, TAKES};

struct Bed {
    redis: RedisServer,
    shop: Shop,
}

impl Bed {
    /// Starts a shop whose scripts Redis has already loaded, as from the second request on.
    async fn warm() -> Self {
        let redis = RedisServer::start();
        let shop = Shop::on(Redis::open(&redis.url()).unwrap().timeout(Duration::from_secs(5)));
        for status in [200, 503] {
            send(under(shop.url(), "/keyed/orders", &format!("warm-{status}"), "").header(STATUS, status)).await;
        }
        Self { redis, shop }
    }

    /// Asserts that every key expires and has the documented form.
    fn all_expire(&self) {
        for name in self.redis.keys() {
            let life = self.redis.ask::<i64>(&format!("PTTL {name}"));
            // -2: the key has expired since.
            assert!(life >= 0 || life == -2, "{name} has a TTL of {life}");
            let digest = name.strip_prefix("onceward:").and_then(|name| name.split_once(':')).map(|(_, digest)| digest);
            assert_eq!(digest.map(str::len), Some(43), "{name}");
        }
    }
}

fn sent(monitor: &Monitor) -> Vec<String> {
    let name = |command: &String| command.split('"').nth(1).unwrap_or_default().to_owned();
    monitor.commands().iter().filter(|command| !command.contains(":secret:")).map(name).collect()
}

#[tokio::test]
async fn first_run_is_two_commands_and_a_replay_one() {
    let bed = Bed::warm().await;
    let url = bed.shop.url();
    let CompareCommands { swap, remove } = bed.redis.compare_commands();
    for (path, status, first, second) in [
        ("/keyed/orders", 200, vec!["SET", swap], vec!["SET"]),
        ("/keyed/orders", 422, vec!["SET", swap], vec!["SET"]),
        ("/keyed/orders", 503, vec!["SET", remove], vec!["SET", remove]),
        ("/keyed/orders", 504, vec!["SET"], vec!["SET"]),
        ("/keyed/held", 200, vec!["SET", swap, swap], vec!["SET"]),
        ("/keyed/held", 503, vec!["SET", swap, swap], vec!["SET"]),
        ("/keyed/held", 401, vec!["SET", swap, remove], vec!["SET", swap, remove]),
    ] {
        for expected in [first, second] {
            let monitor = bed.redis.monitor();
            let answer = send(under(url, path, &format!("k-{status}"), "a").header(STATUS, status)).await;
            assert_eq!(sent(&monitor), expected, "{path} {status}: {}", answer.said());
            bed.all_expire();
        }
    }
}

#[tokio::test]
async fn rejected_request_sends_no_command_and_a_lookup_one() {
    let bed = Bed::warm().await;
    let url = bed.shop.url();
    let monitor = bed.redis.monitor();
    let post = |path: &str| http().post(format!("{url}{path}"));
    for (request, said) in [
        (post("/keyed/orders"), "400 key_missing"),
        (post("/keyed/orders").header(KEY, ""), "400 key_malformed"),
        (post("/keyed/orders").header(KEY, "a b"), "400 key_malformed"),
        (post("/keyed/orders").header(KEY, "a").header(KEY, "a"), "400 key_malformed"),
        (post("/keyed/orders").header(KEY, "a").body(vec![0; 300_000]), "413 body_too_large"),
        (post("/keyed/mine").header(KEY, "a"), "401 unauthorized"),
        (post("/keyed/optional"), "200 unprotected"),
    ] {
        assert_eq!(send(request).await.said(), said);
    }
    assert_eq!(sent(&monitor), [""; 0]);
    assert_eq!(send(post("/keyed/orders").header(KEY, "a").header(LOOK, "true")).await.said(), "404 not_found");
    assert_eq!(sent(&monitor), ["GET"]);
}

#[tokio::test]
async fn every_redis_key_expires_and_hides_its_content() {
    let bed = Bed::warm().await;
    let url = bed.shop.url();
    let monitor = bed.redis.monitor();
    for (at, path) in ["/keyed/orders", "/keyed/held", "/keyed/brief"].into_iter().enumerate() {
        let slow = tokio::spawn(send(under(url, path, "raw-key-1", "slow").header(TAKES, 700).body("what was said")));
        until("the handler runs", Duration::from_secs(5), || async { bed.shop.ledger.count("begun") == at + 1 }).await;
        assert_eq!(send(under(url, path, "raw-key-1", "").body("what was said")).await.outcome, "in_progress");
        while !slow.is_finished() {
            bed.all_expire();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(slow.await.unwrap().said(), "200 executed");
        buy(url, path, "raw-key-1", "").await;
        bed.all_expire();
    }
    let word = bed.redis.compare_commands().swap_word();
    let renewals = monitor.commands().iter().filter(|command| command.contains(word)).count();
    assert!(renewals > 3 + 3, "leases were renewed meanwhile: {renewals}");
    for command in monitor.commands() {
        for raw in ["raw-key-1", "what was said", "keyed"] {
            assert!(!command.contains(raw), "{raw} was sent: {command}");
        }
    }
}
