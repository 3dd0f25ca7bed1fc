//! The command line: output of each command as text and as JSON, and exit codes.

use std::time::Duration;

use onceward::store::Redis;
use onceward_tests::client::{http, send, submit, token};
use onceward_tests::command_output::{parsed, said};
use onceward_tests::listening_port::free_port;
use onceward_tests::polling::{outlast, until};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{OncewardServer, run, run_with};
use onceward_tests::service_calls::post;
use onceward_tests::shop::{STATUS, Shop, TAKES};
use serde_json::{Value, json};

#[track_caller]
fn expect(arguments: &[&str], code: i32, parts: &[&str]) -> String {
    let (ended, text) = said(&run(arguments));
    assert_eq!(ended, code, "{arguments:?}: {text}");
    for part in parts {
        assert!(text.contains(part), "{arguments:?}: {part} is not in\n{text}");
    }
    text
}

#[test]
fn help_groups_commands_and_shows_examples() {
    let help = expect(&["--help"], 0, &["Run:", "Operate:", "Set up:", "Store:", "Access:", "Limits:"]);
    for command in ["serve", "proxy", "healthcheck", "stats", "check", "audit", "key", "token", "config", "completions"]
    {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is not in\n{help}");
        expect(&[command, "--help"], 0, &["Usage: onceward", "Example:"]);
    }
    let short = expect(&["-h"], 0, &["--store", "--api-key-file", "Operate:"]);
    assert!(!short.contains("--share-every"), "the short help omits rare settings:\n{short}");
}

#[test]
fn mistyped_argument_suggests_the_nearest() {
    expect(&["chekc"], 2, &["'chekc'", "'check'"]);
    expect(&["key", "setle"], 2, &["'setle'", "'settle'"]);
    expect(&["check", "--stor", "x"], 2, &["'--stor'", "'--store'"]);
    expect(&["check", "--token-tll", "x"], 2, &["'--token-ttl'"]);
    expect(&["key", "settle", "ticket:key:x"], 2, &["--applied|--not-applied"]);
    expect(&["key", "settle", "--applied"], 2, &["KEY or TICKET", "--key", "--ticket"]);
    let redis = ["--store", "redis://127.0.0.1:1"];
    let with = |arguments: &[&'static str]| [arguments, &redis].concat();
    for mistaken in [&["canary-4711"][..], &["--key", "canary-4711"], &["ticket:canary"], &["--ticket", "canary-4711"]]
    {
        let said = expect(&with(&[&["key", "look"], mistaken].concat()), 2, &["--"]);
        assert!(!said.contains("canary"), "the argument may be a token: {said}");
    }
    expect(&with(&["key", "look", "k"]), 2, &["--action 'POST /payments'", "--subject"]);
    expect(&with(&["key", "look", "--key", "k"]), 2, &["--action"]);
    expect(
        &with(&["key", "look", "k", "--key", "k", "--action", "a"]),
        2,
        &["KEY or TICKET", "--key", "cannot be used with"],
    );
    expect(&with(&["key", "look", "--key", "k", "--ticket", "t"]), 2, &["--key", "--ticket", "cannot be used with"]);
    expect(&with(&["key", "look", "ticket:key:x", "--action", "a"]), 2, &["--action", "--key"]);
    expect(&with(&["key", "look", "ticket:key:x"]), 2, &["--key"]);
    expect(&with(&["token", "issue", "--count", "0"]), 2, &["--count", "`0`", "1 to 1000"]);
    expect(&with(&["token", "issue", "--ttl", "25h"]), 2, &["--ttl", "24h"]);
    expect(&with(&["token", "issue", "--ttl", "x"]), 2, &["--ttl", "`x`", "90s"]);
    expect(&with(&["audit", "/nowhere/at/all"]), 2, &["/nowhere/at/all cannot be read"]);
    expect(&["check", "--token-ttl", "x"], 2, &["token_ttl (from --token-ttl)"]);
    expect(&["completions", "tcsh"], 2, &["tcsh", "bash"]);
    expect(&["stats", "--count", "3"], 2, &["--watch"]);
    expect(&["stats", "--watch", "--every", "0s"], 2, &["--every", "must be positive"]);
    expect(&["healthcheck", "--timeout", "0s"], 2, &["--timeout", "must be positive"]);
    let (code, text) = said(&run(&["check", "--json", "--stor", "x"]));
    let error: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(code == 2 && error["error"].as_str().unwrap().starts_with("unexpected argument '--stor'"), "{text}");
    expect(&with(&["token", "issue", "--wait-for", "300ms"]), 1, &["Redis at 127.0.0.1:1", "--store"]);
}

#[test]
fn command_on_the_memory_store_is_rejected_with_a_fix() {
    for arguments in [
        &["token", "issue"][..],
        &["token", "inspect", "x"],
        &["token", "revoke", "x"],
        &["key", "look", "k", "--action", "a"],
        &["key", "look", "--key", "k", "--action", "a"],
        &["key", "settle", "--key", "k", "--action", "a", "--not-applied"],
        &["audit"],
    ] {
        expect(arguments, 2, &["memory store belongs to the process of the service", "--store redis://"]);
    }
    let (code, text) = said(&run(&["token", "issue", "--json"]));
    assert_eq!(code, 2);
    assert!(
        serde_json::from_str::<Value>(&text).unwrap()["error"].as_str().unwrap().contains("memory store"),
        "{text}"
    );
}

#[tokio::test]
async fn tokens_are_issued_inspected_and_revoked_for_the_service() {
    let redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url()]);
    let store = ["--store", &redis.url()];
    let ask = |arguments: &[&str]| run(&[&store[..], arguments, &["--json"]].concat());
    let redeem = async |token: &str, action: &str| {
        post(&service.url, "/token/redeem", &json!({"token": token, "action": action})).await.said()
    };

    let issued = parsed(&ask(&["token", "issue", "--count", "3", "--action", "pay", "--ttl", "90s"]));
    let tokens: Vec<_> =
        issued["tokens"].as_array().unwrap().iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!((tokens.len(), &issued["tokens"][0]["expires_in"]), (3, &json!(90)));

    for _ in 0..2 {
        let good = ask(&["token", "inspect", tokens[0], "--action", "pay"]);
        assert_eq!(
            (said(&good).0, &parsed(&good)["signature"], &parsed(&good)["state"]),
            (0, &json!("good"), &json!("issued"))
        );
    }
    let vague = parsed(&ask(&["token", "inspect", tokens[0]]));
    assert_eq!(
        (&vague["signature"], &vague["names_action"], &vague["good"]),
        (&json!("unchecked"), &json!(true), &json!(false))
    );
    let elsewhere = parsed(&ask(&["token", "inspect", tokens[0], "--action", "refund"]));
    assert_eq!(elsewhere["signature"], "wrong");
    assert_eq!(redeem(tokens[0], "pay").await, "200 redeemed", "the inspection has not used the token");
    assert_eq!(parsed(&ask(&["token", "inspect", tokens[0], "--action", "pay"]))["state"], "absent");

    let revoked = run_with(&[&store[..], &["token", "revoke", "-", "--json"]].concat(), &format!("{}\n", tokens[1]));
    assert_eq!((said(&revoked).0, &parsed(&revoked)["result"]), (0, &json!("revoked")));
    assert_eq!(redeem(tokens[1], "pay").await, "410 token_revoked");
    assert_eq!(parsed(&ask(&["token", "revoke", tokens[1]]))["result"], "gone");
    assert_eq!(said(&ask(&["token", "revoke", "no-token"])).0, 1);

    let theirs = token(&service.url).await;
    let (code, text) = said(&run(&["token", "inspect", &theirs, "--store", &redis.url()]));
    assert!(code == 0 && text.contains("The token can be used.") && text.contains("bound to   nothing"), "{text}");
    assert!(text.contains("expires    2"), "{text}");
    let plain = run(&["token", "issue", "--store", &redis.url()]);
    assert_eq!(redeem(String::from_utf8(plain.stdout).unwrap().trim(), "any").await, "200 redeemed");
}

#[tokio::test]
async fn key_is_looked_up_and_settled_by_position_flag_or_ticket() {
    let lease = Duration::from_millis(200);
    let redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url()]);
    let asked = json!({"key": "order-4711", "action": "pay", "subject": "alice", "lease": "200ms"});
    assert_eq!(post(&service.url, "/claim", &asked).await.status, 200);
    outlast(lease).await;
    let ask = |arguments: &[&str]| run(&[&["key"], arguments, &["--json", "--store", &redis.url()]].concat());
    let whose = ["--action", "pay", "--subject", "alice"];
    let by_position = parsed(&ask(&[&["look", "order-4711"], &whose[..]].concat()));
    assert_eq!(by_position["state"], "unknown", "{by_position}");
    assert_eq!(parsed(&ask(&[&["look", "--key", "order-4711"], &whose[..]].concat())), by_position);
    let ticket = by_position["ticket"].as_str().unwrap();
    assert_eq!(parsed(&ask(&["look", ticket])), by_position);
    assert_eq!(parsed(&ask(&["look", "--ticket", ticket])), by_position);
    assert_eq!(parsed(&ask(&["look", "--key", ticket, "--action", "pay"]))["state"], "absent", "a key with this text");
    let settled = ask(&[&["settle", "order-4711", "--not-applied"], &whose[..]].concat());
    assert!(settled.status.success() && parsed(&settled)["event"] == "released", "{settled:?}");
    assert_eq!(parsed(&ask(&["look", ticket]))["state"], "absent");
}

#[tokio::test]
async fn health_check_reports_readiness() {
    let mut redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url(), "--store-timeout", "100ms"]);
    let port = service.url.rsplit(':').next().unwrap().to_owned();
    let ask = |listen: &str, timeout: &str| said(&run(&["healthcheck", "--listen", listen, "--timeout", timeout]));
    assert_eq!(ask(&format!("127.0.0.1:{port}"), "5s"), (0, "ready\n".to_owned()));
    assert_eq!(ask(&format!("0.0.0.0:{port}"), "5s").0, 0, "the wildcard address includes loopback");
    redis.kill();
    // Readiness is cached for a moment.
    let is_known = || std::future::ready(ask(&format!("127.0.0.1:{port}"), "5s").0 == 1);
    until("the service is not ready", Duration::from_secs(5), is_known).await;
    let (code, text) = ask(&format!("127.0.0.1:{port}"), "5s");
    assert!(code == 1 && text.contains("503") && text.contains("store_unavailable"), "{text}");
    service.freeze();
    let (code, text) = ask(&format!("127.0.0.1:{port}"), "100ms");
    service.thaw();
    assert!(code == 1 && text.contains("in time"), "{text}");
    let (code, text) = ask(&format!("127.0.0.1:{}", free_port()), "1s");
    assert!(code == 1 && text.contains("cannot connect"), "{text}");
}

#[tokio::test]
async fn stats_shows_what_the_service_counts() {
    for admin in [false, true] {
        let address = format!("127.0.0.1:{}", free_port());
        let admin = if admin { vec!["--admin-listen", address.as_str()] } else { Vec::new() };
        let service = OncewardServer::start(&admin);
        let listen = service.url.trim_start_matches("http://").to_owned();
        for _ in 0..3 {
            let token = token(&service.url).await;
            assert_eq!(post(&service.url, "/token/redeem", &json!({ "token": token })).await.status, 200);
        }
        let said = parsed(&run(&[&["stats", "--json", "--listen", &listen], &admin[..]].concat()));
        assert_eq!(said["counts"]["tokens issued"], 3.0, "{said:#}");
        let runs: f64 = said["counts"]
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| name.contains("code=run"))
            .map(|(_, count)| count.as_f64().unwrap())
            .sum();
        assert_eq!(runs, 3.0, "{said:#}");
        assert!(
            said["now"]["running handlers"].is_number() && said["store_average_ms"]["verb=remove"].is_number(),
            "{said:#}"
        );
        let watched =
            run(&[&["stats", "--watch", "--every", "50ms", "--count", "3", "--listen", &listen], &admin[..]].concat());
        let text = String::from_utf8(watched.stdout).unwrap();
        assert_eq!((watched.status.code(), text.matches("tokens issued").count()), (Some(0), 3), "{text}");
        assert!(text.contains("/s"), "{text}");
    }
    let unused = format!("127.0.0.1:{}", free_port());
    expect(&["stats", "--listen", &unused], 1, &[&unused, "Is the service running", "--listen"]);
}

#[tokio::test]
async fn service_rejects_an_evicting_redis_unless_allowed() {
    let redis = RedisServer::start_with(&["--maxmemory-policy", "volatile-lru", "--maxmemory", "100mb"]);
    let store = redis.url();
    expect(
        &["--listen", "127.0.0.1:0", "--store", &store],
        1,
        &["volatile-lru", "second time", "noeviction", "--allow-eviction"],
    );
    let service = OncewardServer::start(&["serve", "--store", &store, "--allow-eviction", "true"]);
    let is_warned = || service.log().iter().any(|line| line.contains("WARN") && line.contains("volatile-lru"));
    until("the warning is logged", Duration::from_secs(5), || std::future::ready(is_warned())).await;
    assert_eq!(send(http().get(format!("{}/readyz", service.url))).await.status, 200);
    // A user that may not read the policy causes a warning and is served.
    let _: () = redis.ask("ACL SETUSER shop on >pass ~onceward:* +@all -info");
    let _: () = redis.ask("CONFIG SET maxmemory-policy noeviction");
    let store = format!("redis://shop:pass@127.0.0.1:{}", redis.port());
    let service = OncewardServer::start(&["--store", &store]);
    let is_warned = || {
        service.log().iter().any(|line| line.contains("WARN") && line.contains("could not read the eviction policy"))
    };
    until("the warning is logged", Duration::from_secs(5), || std::future::ready(is_warned())).await;
}

#[test]
fn generated_config_loads_and_completions_list_every_command() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), run(&["config", "init"]).stdout).unwrap();
    expect(&["check", "--config", file.path().to_str().unwrap()], 0, &["Fit for use."]);
    assert_eq!(parsed(&run(&["config", "schema"]))["type"], "object");
    assert!(parsed(&run(&["config", "init", "--json"]))["settings"].as_array().unwrap().len() > 20);
    let script = String::from_utf8(run(&["completions", "bash"]).stdout).unwrap();
    assert!(std::process::Command::new("bash").args(["-n", "-c", &script]).status().unwrap().success());
    for shell in ["bash", "zsh", "fish"] {
        let script = expect(&["completions", shell], 0, &["healthcheck", "settle"]);
        for command in ["check", "audit", "stats", "token", "completions"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
}

#[test]
fn setting_after_a_command_overrides_one_before_it() {
    let from = |arguments: &[&str]| {
        let said = parsed(&run(arguments));
        let row = said["settings"].as_array().unwrap().iter().find(|row| row["name"] == "token_ttl").unwrap().clone();
        (row["value"].as_str().unwrap().to_owned(), row["from"].as_str().unwrap().to_owned())
    };
    let flag = |value: &str| (value.to_owned(), "--token-ttl".to_owned());
    assert_eq!(from(&["check", "--json"]), ("30m".to_owned(), "the default".to_owned()));
    assert_eq!(from(&["--token-ttl", "1m", "check", "--json"]), flag("1m"));
    assert_eq!(from(&["check", "--json", "--token-ttl", "2m"]), flag("2m"));
    assert_eq!(from(&["--token-ttl", "1m", "check", "--json", "--token-ttl", "2m"]), flag("2m"));
}

/// A token whose handler is running can still be released, so the revocation must prevent that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_revoked_during_its_run_is_not_released() {
    let redis = RedisServer::start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap());
    let cases =
        [(false, 10, ["422 not_applied", "200 executed"]), (true, 4_000, ["422 not_released", "409 token_used"])];
    for (is_revoked, takes, [first, then]) in cases {
        let token = token(shop.url()).await;
        let begun = shop.ledger.count("begun");
        let order = submit(shop.url(), "/orders", &token, "first").header(STATUS, 422).header(TAKES, takes);
        let sent = tokio::spawn(send(order));
        let has_begun = || std::future::ready(shop.ledger.count("begun") > begun);
        until("the handler has the token", Duration::from_secs(5), has_begun).await;
        if is_revoked {
            let (code, text) = said(&run(&["token", "revoke", &token, "--store", &redis.url()]));
            assert!(code == 0 && text.contains("another store or prefix"), "{text}");
            assert!(!sent.is_finished(), "the handler still has the token");
        }
        assert_eq!(sent.await.unwrap().said(), first);
        assert_eq!(send(submit(shop.url(), "/orders", &token, "again")).await.said(), then);
    }
}
