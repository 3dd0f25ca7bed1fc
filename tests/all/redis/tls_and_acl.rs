//! TLS, and users with only the documented permissions: the store works, or the error names the reason.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use onceward::store::Redis;
use onceward::{Binding, Guard};
use onceward_tests::client::{ask_token, http, send, token};
use onceward_tests::key_routes::buy;
use onceward_tests::policy_walkthrough::every_policy;
use onceward_tests::redis_cluster::RedisCluster;
use onceward_tests::redis_server::{CompareCommands, RedisServer};
use onceward_tests::sentinels::Sentinels;
use onceward_tests::service::{OncewardServer, command};
use onceward_tests::shop::Shop;
use onceward_tests::tls_redis::{Authority, TlsRedis};
use serde_json::json;

/// Returns the documented ACL line, for the user `onceward` with the prefix `onceward`.
fn documented() -> String {
    let page = include_str!("../../../guard/docs/stores.md");
    let line = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER "));
    line.expect("guard/docs/stores.md has the line").replace(">change-me", ">right-canary")
}

/// Starts a Redis whose only user is the documented one, with this change.
fn redis_with(change: &str) -> (RedisServer, String) {
    let redis = RedisServer::start();
    let rules = documented();
    redis.ask::<()>(format!("ACL SETUSER {rules} {change}").trim());
    let url = format!("redis://onceward:right-canary@127.0.0.1:{}", redis.port());
    (redis, url)
}

fn all_said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Returns the output of the service and of `check` for this store; both must fail.
fn refused(store: &str, authority: Option<&Path>) -> [String; 2] {
    [&["--listen", "127.0.0.1:0", "--wait-for", "300ms"][..], &["check"]].map(|arguments| {
        let mut command = command(&[arguments, &["--store", store]].concat());
        if let Some(authority) = authority {
            command.env("SSL_CERT_FILE", authority);
        }
        let output = command.output().expect("onceward runs");
        let said = all_said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(!said.contains("canary"), "{said}");
        said
    })
}

#[tokio::test]
async fn tls_works_only_with_a_trusted_ca() {
    let redis = TlsRedis::start_with(&["--requirepass", "right-canary"]);
    let address = format!("rediss://:right-canary@{}", redis.host());
    let mut start = command(&["--listen", "127.0.0.1:0", "--log", "json", "--store", &address]);
    start.env("SSL_CERT_FILE", redis.authority());
    let service = OncewardServer::spawn(start);
    let token = token(&service.url).await;
    let redeem = || send(http().post(format!("{}/token/redeem", service.url)).json(&json!({ "token": token })));
    assert_eq!((redeem().await.status, redeem().await.status), (200, 409));
    let named = address.replace("127.0.0.1", "localhost");
    for address in [&address, &named] {
        let output = command(&["check", "--store", address]).env("SSL_CERT_FILE", redis.authority()).output().unwrap();
        assert!(output.status.success(), "{}", all_said(&output));
    }

    for said in refused(&address, Some(&Authority::new().certificate())) {
        assert!(said.to_lowercase().contains("certificate"), "{said}");
    }
}

#[tokio::test]
async fn documented_user_runs_every_policy_and_nothing_else() {
    let (redis, url) = redis_with("");
    every_policy(&Shop::on(Redis::open(&url).unwrap().timeout(Duration::from_secs(5)))).await;
    let output = command(&["check", "--store", &url]).output().unwrap();
    assert!(output.status.success(), "{}", all_said(&output));
    let service = OncewardServer::start(&["--store", &url]);
    let token = token(&service.url).await;
    let redeem = http().post(format!("{}/token/redeem", service.url));
    assert_eq!(send(redeem.json(&json!({ "token": token, "attempt": "a" }))).await.status, 200);

    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    for beyond in ["GET other", "SET other 1", "KEYS *", "FLUSHALL", "CONFIG GET *", "SHUTDOWN"] {
        let mut command = redis::Cmd::new();
        beyond.split(' ').for_each(|word| {
            command.arg(word);
        });
        let error = command.exec(&mut connection).expect_err(beyond);
        assert_eq!(error.code(), Some("NOPERM"), "{beyond}: {error}");
    }
    drop(redis);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn documented_user_suffices_for_sentinels_and_clusters() {
    let (cluster, sentinels) = (RedisCluster::start().await, Sentinels::start().await);
    for node in cluster.nodes.iter().chain(&sentinels.nodes) {
        node.server.ask::<()>(&format!("ACL SETUSER {}", documented()));
    }
    for address in [cluster.address(), sentinels.address()] {
        let address = address.replace("://", "://onceward:right-canary@");
        every_policy(&Shop::on(Redis::open(&address).unwrap().timeout(Duration::from_secs(5)))).await;
        let wrong = Guard::new(Redis::open(&address.replace("right", "wrong")).unwrap());
        let error = wrong.issue(Duration::from_secs(60), Binding::none()).await.unwrap_err().to_string();
        assert!(!error.contains("canary"), "{error}");
    }
}

#[tokio::test]
async fn user_with_eval_only_runs_every_policy() {
    let (_redis, url) = redis_with("-evalsha");
    every_policy(&Shop::on(Redis::open(&url).unwrap().timeout(Duration::from_secs(5)))).await;
}

/// A server with native commands needs no scripts; with any other the service fails at startup.
#[tokio::test]
async fn user_without_scripts_runs_every_policy_or_fails_at_startup() {
    let (redis, url) = redis_with("-@scripting");
    let CompareCommands { swap, remove } = redis.compare_commands();
    if [swap, remove].contains(&"EVALSHA") {
        for said in refused(&url, None) {
            assert!(said.contains("EVAL"), "{said}");
        }
        let shop = Shop::on(Redis::open(&url).unwrap().timeout(Duration::from_secs(5)));
        assert_eq!(ask_token(shop.url(), "").await.said(), "503 store_unavailable", "no token that cannot be redeemed");
        assert_eq!(buy(shop.url(), "/keyed/orders", "k", "keyed").await.said(), "503 store_unavailable");
        assert_eq!(shop.ledger.runs(), [""; 0], "no claim that cannot be settled");
        return;
    }
    redis.ask::<()>(&format!("ACL SETUSER onceward +{}", remove.to_lowercase()));
    every_policy(&Shop::on(Redis::open(&url).unwrap().timeout(Duration::from_secs(5)))).await;
    let output = command(&["check", "--store", &url]).output().unwrap();
    assert!(output.status.success(), "{}", all_said(&output));
}

#[tokio::test]
async fn redis_without_replication_id_is_used_with_a_warning() {
    let (_redis, url) = redis_with("-info");
    every_policy(&Shop::on(Redis::open(&url).unwrap().timeout(Duration::from_secs(5)))).await;
    let service = OncewardServer::start(&["--store", &url]);
    let log = service.log().join("\n");
    assert!(log.contains("master_replid") && log.contains("WARN"), "{log}");
}

#[tokio::test]
async fn wrong_password_and_missing_permission_have_different_errors() {
    let (_redis, url) = redis_with("");
    for said in refused(&url.replace("right-canary", "wrong-canary"), None) {
        assert!(said.contains("rejects the user name or the password"), "{said}");
    }
    let (_redis, url) = redis_with("resetkeys ~other:*");
    for said in refused(&url, None) {
        assert!(said.contains("onceward:") || said.to_lowercase().contains("permission"), "{said}");
    }
    let (_redis, url) = redis_with("-set");
    for said in refused(&url, None) {
        assert!(said.to_lowercase().contains("set"), "{said}");
    }
}
