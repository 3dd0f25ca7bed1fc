//! `onceward check` against real Redis servers, each with something wrong: a sentence and a fix for each.

use onceward_tests::redis_server::{RedisServer, free_port};
use onceward_tests::service::{command, run};
use onceward_tests::wait::until_blocking;
use serde_json::Value;
use std::time::Duration;

use crate::cli::{json, said};

fn check(store: &str) -> (i32, Value) {
    let output = run(&["check", "--json", "--store", store]);
    (output.status.code().unwrap(), json(&output))
}

/// The finding on this, as its level and all it says.
#[track_caller]
fn found(said: &Value, topic: &str) -> (String, String) {
    let finding = said["findings"].as_array().unwrap().iter().find(|finding| finding["topic"] == topic);
    let finding = finding.unwrap_or_else(|| panic!("{topic} is not in {said:#}"));
    let text = format!("{} {}", finding["says"].as_str().unwrap(), finding["fix"].as_str().unwrap_or_default());
    (finding["level"].as_str().unwrap().to_owned(), text)
}

#[track_caller]
fn expect(said: &Value, topic: &str, level: &str, parts: &[&str]) {
    let (is, text) = found(said, topic);
    assert_eq!(is, level, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn eviction_without_persistence_says_plainly_what_can_happen() {
    for (arguments, when) in [
        (&["--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb"][..], "is used up"),
        (&["--maxmemory-policy", "allkeys-lru"], "as soon as somebody sets a limit"),
    ] {
        let redis = RedisServer::start_with(arguments);
        let (code, said) = check(&redis.url());
        assert_eq!((code, &said["ok"]), (1, &Value::Bool(false)));
        let parts = ["allkeys-lru", when, "may run a second time", "noeviction", "--allow-eviction"];
        expect(&said, "eviction", "problem", &parts);
        expect(&said, "persistence", "warning", &["nothing to disk", "restart loses every record", "appendonly yes"]);
        let lost = said["can_be_lost"].to_string();
        assert!(lost.contains("crashes") && lost.contains("memory is used up"), "{lost}");
        let (code, text) = self::said(&run(&["check", "--store", &redis.url(), "--allow-eviction"]));
        assert!(code == 0 && text.contains("warning  eviction") && text.contains("Fit for use."), "{text}");
        assert!(
            text.contains("What can be lost\n  If Redis or its machine crashes: A restart loses every record"),
            "{text}"
        );
        assert_eq!(run(&["check", "--strict", "--store", &redis.url(), "--allow-eviction"]).status.code(), Some(1));
    }
}

#[test]
fn each_kind_of_persistence_is_told_by_what_a_crash_loses() {
    for (arguments, level, parts) in [
        (&["--appendonly", "yes", "--appendfsync", "always"][..], "ok", ["always", "loses nothing"]),
        (&["--appendonly", "yes", "--appendfsync", "everysec"], "note", ["everysec", "a second or two"]),
        (&["--appendonly", "yes", "--appendfsync", "no"], "warning", ["appendfsync no", "half a minute"]),
        (&["--save", "3600 1"], "warning", ["save 3600 1", "last snapshot"]),
    ] {
        let redis = RedisServer::start_with(arguments);
        let (code, said) = check(&redis.url());
        assert_eq!(code, 0, "{said:#}");
        expect(&said, "persistence", level, &parts);
        for fine in ["reach", "version", "role", "eviction", "memory", "permissions", "clock"] {
            expect(&said, fine, "ok", &[]);
        }
        assert_eq!(redis.keys(), [""; 0], "what was tried is taken away again");
    }
}

#[test]
fn a_wrong_password_and_a_missing_one_are_told_apart_and_never_shown() {
    let redis = RedisServer::start_with(&["--requirepass", "right-canary"]);
    for (login, says) in [
        ("", "wants a password, and --store has none"),
        (":wrong-canary@", "refuses the user name or the password"),
        ("nobody:wrong-canary@", "refuses the user name or the password"),
    ] {
        let (code, said) = check(&format!("redis://{login}127.0.0.1:{}", redis.port()));
        assert_eq!(code, 1);
        expect(&said, "reach", "problem", &[says, "redis://", "--store-file"]);
        assert!(!said.to_string().contains("canary"), "{said:#}");
    }
    let (code, said) = check(&format!("redis://:right-canary@127.0.0.1:{}", redis.port()));
    assert!(code == 0 && !said.to_string().contains("canary"), "{said:#}");
}

#[test]
fn a_replica_is_told_where_its_master_is() {
    let master = RedisServer::start();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    let (code, said) = check(&replica.url());
    assert_eq!(code, 1);
    let there = format!("127.0.0.1:{}", master.port());
    expect(&said, "role", "problem", &["replica of", &there, &format!("--store redis://{there}"), "no writes"]);
    let is_known = until_blocking(Duration::from_secs(10), || found(&check(&master.url()).1, "role").0 == "note");
    assert!(is_known, "the master has a replica");
    let (_, said) = check(&master.url());
    expect(&said, "role", "note", &["1 replica", "takes over"]);
}

#[test]
fn a_full_redis_is_told_what_still_works() {
    let redis = RedisServer::start_with(&["--maxmemory", "6mb", "--maxmemory-policy", "noeviction"]);
    let mut connection = redis.connection();
    let mut fill = |size: usize| {
        let write = |at: usize| {
            let (name, value) = (format!("fill:{size}:{at}"), "x".repeat(size));
            redis::cmd("SET").arg(name).arg(value).query::<()>(&mut connection)
        };
        (0..20_000).map(write).any(|written| written.is_err())
    };
    assert!(fill(50_000) && fill(500) && fill(1), "it is not full");
    let (code, said) = check(&redis.url());
    assert_eq!(code, 1, "{said:#}");
    expect(
        &said,
        "memory",
        "problem",
        &["It is full", "6.0 MiB", "503", "tokens that are out can be used", "Raise maxmemory"],
    );
}

#[test]
fn what_a_user_may_not_do_is_named() {
    let redis = RedisServer::start();
    let as_user = |rules: &str| {
        let _: () = redis.ask("ACL DELUSER shop");
        let _: () = redis.ask(&format!("ACL SETUSER shop on >pass {rules}"));
        check(&format!("redis://shop:pass@127.0.0.1:{}", redis.port()))
    };
    let every = "~onceward:* +get +set +getdel +del +pexpire +eval +evalsha +ping +info +hello +client +select";
    let (code, said) = as_user(every);
    assert_eq!(code, 0, "what `check` asks for is enough: {said:#}");
    expect(&said, "permissions", "ok", &[]);
    expect(&said, "persistence", "warning", &["may not be seen"]);
    let (code, said) = as_user(&format!("{every} -getdel -eval"));
    assert_eq!(code, 1);
    expect(&said, "permissions", "problem", &["GETDEL, EVAL", "ACL SETUSER", "~onceward:*"]);
    let (code, said) = as_user(&every.replace("onceward", "other"));
    assert_eq!(code, 1);
    expect(&said, "permissions", "problem", &["keys that begin with onceward:", "--prefix"]);
    let (code, said) = as_user(&format!("{every} -info"));
    assert_eq!(code, 0);
    expect(&said, "info", "warning", &["may not send INFO", "+info"]);
    let (code, said) = as_user(&format!("{every} -ping"));
    assert_eq!(code, 1);
    expect(&said, "reach", "problem", &["PING", "+ping"]);
}

#[test]
fn a_redis_that_is_absent_and_one_that_is_silent_are_told_apart() {
    let (code, said) = check(&format!("redis://127.0.0.1:{}", free_port()));
    assert_eq!(code, 1);
    expect(&said, "reach", "problem", &["Nothing listens", "--store"]);
    let redis = RedisServer::start();
    redis.freeze();
    let (code, said) = check(&redis.url());
    redis.thaw();
    assert_eq!(code, 1);
    expect(&said, "reach", "problem", &["does not answer"]);
}

#[test]
fn every_setting_is_shown_with_where_it_came_from_and_no_secret_is() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "rate_burst = 7\napi_key = \"canary-key\"").unwrap();
    let path = file.path().to_str().unwrap();
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "canary-secret-canary\n").unwrap();
    let mut command = command(&["check", "--config", path, "--listen", "127.0.0.1:9999"]);
    command.env("ONCEWARD_TOKEN_TTL", "5m").env("ONCEWARD_SECRET_FILE", secret.path()).env("ONCEWARD_TOKEN_TLL", "x");
    let (code, text) = said(&command.output().unwrap());
    assert_eq!(code, 0, "{text}");
    let row = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap_or_else(|| panic!("{name} is not in\n{text}"))
            .split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(row("listen"), "127.0.0.1:9999 --listen");
    assert_eq!(row("rate_burst"), format!("7 {path}"));
    assert_eq!(row("token_ttl"), "5m ONCEWARD_TOKEN_TTL");
    assert_eq!(row("secret"), "******** ONCEWARD_SECRET_FILE");
    assert_eq!(row("api_key"), format!("******** {path}"));
    assert_eq!((row("prefix"), row("cors_origins")), ("onceward the default".into(), "- not set".into()));
    assert!(!text.contains("canary"), "{text}");
    assert!(text.contains("ONCEWARD_TOKEN_TLL") && text.contains("did you mean ONCEWARD_TOKEN_TTL?"), "{text}");
    let (code, text) = said(&run(&["check", "--listen", "0.0.0.0:8080"]));
    assert!(code == 2 && text.contains("ONCEWARD_API_KEY"), "{text}");
}
