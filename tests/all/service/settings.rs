//! Startup with wrong settings, and the precedence of setting sources.

use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::time::Duration;

use onceward_api::IssuedToken;
use onceward_tests::client::{ask_token, http, send};
use onceward_tests::listening_port::free_port;
use onceward_tests::polling::until_blocking;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{OncewardServer, command, run};
use tempfile::NamedTempFile;
use tokio::time::Instant;

/// Creates a file with this text and returns it with its path.
fn file(text: &str) -> (NamedTempFile, String) {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    (file, path)
}

/// Runs the service, asserts that it does not start, and returns its error output.
fn refused(arguments: &[&str]) -> String {
    said(&run(&[&["--listen", "127.0.0.1:0"], arguments].concat()))
}

fn said(output: &Output) -> String {
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(!output.status.success() && output.status.code().is_some(), "{output:?}");
    assert!(!error.contains("panicked") && !error.trim().is_empty(), "{error}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("\"listening\""), "{output:?}");
    error
}

/// The settings, as the README's table has them.
fn settings() -> Vec<String> {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md")).unwrap();
    let (_, table) = readme.split_once("| setting | default |").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|') || line.is_empty() || line.starts_with(' '));
    rows.filter_map(|row| Some(row.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect()
}

/// Returns the lifetime of a token in seconds.
async fn life(service: &OncewardServer) -> u64 {
    let answer = ask_token(&service.url, "").await;
    serde_json::from_slice::<IssuedToken>(&answer.body).unwrap().expires_in
}

#[test]
fn help_names_every_setting_and_succeeds() {
    let help = run(&["--help"]);
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success() && help.stderr.is_empty());
    let settings = settings();
    assert!(settings.len() >= 18, "{settings:?}");
    for setting in settings {
        assert!(text.contains(&format!("--{} ", setting.replace('_', "-"))), "{setting} is not in\n{text}");
    }
    for flag in ["--config", "--secret-file", "--api-key-file", "--store-file", "--secret-previous-file"] {
        assert!(text.contains(flag), "{flag} is not in\n{text}");
    }
    assert!(text.contains("ONCEWARD_") && text.contains("127.0.0.1:8080"), "{text}");
}

#[test]
fn version_is_that_of_the_workspace() {
    let version = run(&["--version"]);
    assert!(version.status.success());
    assert_eq!(String::from_utf8(version.stdout).unwrap().trim(), concat!("onceward ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn unknown_setting_suggests_the_nearest() {
    for (mistyped, meant) in [("--token-tll", "--token-ttl"), ("--listn", "--listen"), ("--ratelimit", "--rate-limit")]
    {
        let error = refused(&[mistyped, "1m"]);
        assert!(error.contains(mistyped) && error.contains(&format!("'{meant}'")), "{error}");
    }
    assert!(refused(&["8080"]).contains("8080"));
    for (line, names) in [
        ("token_tll = \"1m\"", ["`token_tll`", "`token_ttl`"]),
        ("tokenttl = \"1m\"", ["`tokenttl`", "`token_ttl`"]),
        ("apikey = \"x\"", ["`apikey`", "`api_key`"]),
        ("[token]\nttl = \"1m\"", ["`token`", "config"]),
    ] {
        let (_file, path) = file(line);
        let error = refused(&["--config", &path]);
        assert!(error.contains(&path) && names.iter().all(|name| error.contains(name)), "{error}");
    }
}

#[test]
fn invalid_value_is_rejected_with_setting_and_fix() {
    for (arguments, names) in [
        (["--listen", "nowhere"], ["listen", "--listen", "`nowhere`", "127.0.0.1:8080"]),
        (["--listen", "127.0.0.1"], ["listen", "--listen", "`127.0.0.1`", "127.0.0.1:8080"]),
        (["--listen", "127.0.0.1:99999"], ["listen", "--listen", "`127.0.0.1:99999`", "127.0.0.1:8080"]),
        (["--token-ttl", "0s"], ["token_ttl", "--token-ttl", "`0s`", "90s"]),
        (["--token-ttl", "25h"], ["token_ttl", "--token-ttl", "`25h`", "24h"]),
        (["--token-ttl", "x"], ["token_ttl", "--token-ttl", "`x`", "90s"]),
        (["--demo", "maybe"], ["demo", "--demo", "`maybe`", "`auto`"]),
        (["--prefix", "a b"], ["prefix", "--prefix", "`a b`", "letters"]),
        (["--rate-limit", "50"], ["rate_limit", "--rate-limit", "`50`", "50/s"]),
        (["--rate-limit", "0/s"], ["rate_limit", "--rate-limit", "`0/s`", "50/s"]),
        (["--rate-limit-total", "many"], ["rate_limit_total", "--rate-limit-total", "`many`", "off"]),
        (["--rate-burst", "0"], ["rate_burst", "--rate-burst", "`0`", "1 or more"]),
        (["--cors-origins", "*"], ["cors_origins", "--cors-origins", "`*`", "https://shop.example"]),
        (["--trusted-proxies", "proxy"], ["trusted_proxies", "--trusted-proxies", "`proxy`", "10.0.0.0/8"]),
        (["--memory-limit", "256"], ["memory_limit", "--memory-limit", "`256`", "256MiB"]),
        (["--store-timeout", "0ms"], ["store_timeout", "--store-timeout", "`0ms`", "90s"]),
        (["--wait-for", "soon"], ["wait_for", "--wait-for", "`soon`", "90s"]),
        (["--share-every", "0s"], ["share_every", "--share-every", "`0s`", "90s"]),
        (["--log", "xml"], ["log", "--log", "`xml`", "`json`"]),
        (["--log-level", "loud"], ["log_level", "--log-level", "`loud`", "`debug`"]),
        (["--secret", "short"], ["secret", "--secret", "5 bytes", "16"]),
        (["--secret-previous", "short"], ["secret_previous", "--secret-previous", "5 bytes", "16"]),
        (["--store", "mysql://127.0.0.1"], ["store", "--store", "`mysql`", "postgres://"]),
        (["--store", "memory"], ["store", "--store", "`memory:`", "redis://127.0.0.1:6379"]),
        (["--api-key", ""], ["api_key", "--api-key", "empty", "openssl rand"]),
        (["--api-key", "two words"], ["api_key", "--api-key", "blank", "openssl rand"]),
        (["--api-key", "change-me"], ["api_key", "--api-key", "placeholder", "openssl rand -hex 32"]),
        (["--secret", "change-me-to-something-long"], ["secret", "--secret", "placeholder", "openssl rand -hex 32"]),
        (["--api-key", "fifteen-letters"], ["api_key", "--api-key", "at least 16", "openssl rand -hex 32"]),
        (["--request-log", "some"], ["request_log", "--request-log", "`some`", "`errors`"]),
        (["--api-key", "schlüssel"], ["api_key", "--api-key", "ASCII", "openssl rand"]),
        (["--api-key-file", "/nowhere/at/all"], ["api_key_file", "--api-key-file", "/nowhere/at/all", "read"]),
        (["--config", "/nowhere/at/all"], ["config", "/nowhere/at/all", "read", ""]),
    ] {
        let error = said(&run(&arguments));
        assert!(names.iter().all(|name| error.contains(name)), "{arguments:?}: {names:?} are not all in\n{error}");
    }
}

#[test]
fn invalid_toml_file_is_named() {
    for text in ["token_ttl", "token_ttl = ", "= 1", "token_ttl = \"1m\"\ntoken_ttl = \"2m\"", "\u{0}"] {
        let (_file, path) = file(text);
        let error = refused(&["--config", &path]);
        assert!(error.contains("config") && error.contains(&path), "{text:?}: {error}");
    }
    for text in ["rate_burst = 1.5", "cors_origins = [1]", "log = {}"] {
        let (_file, path) = file(text);
        let error = refused(&["--config", &path]);
        let name = text.split(' ').next().unwrap();
        assert!(error.contains(&path) && error.contains(name), "{text:?}: {error}");
    }
}

#[test]
fn port_in_use_is_named_with_the_setting() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = said(&run(&["--listen", &address]));
    assert!(error.contains(&address) && error.contains("--listen") && error.contains("in use"), "{error}");
}

#[test]
fn non_loopback_listener_without_a_key_is_rejected() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let error = said(&run(&["--listen", address]));
        assert!(error.contains("listen") && error.contains(address), "{error}");
        for fix in ["ONCEWARD_API_KEY", "127.0.0.1", "--allow-unauthenticated"] {
            assert!(error.contains(fix), "{error}");
        }
    }
    let error = said(&run(&["--listen", "0.0.0.0:0", "--allow-unauthenticated", "false"]));
    assert!(error.contains("ONCEWARD_API_KEY"), "{error}");
}

#[test]
fn absent_store_is_awaited_and_named_without_password() {
    let port = free_port();
    for store in [
        format!("redis://:canary-password@127.0.0.1:{port}"),
        format!("redis://canary-user:canary-password@localhost:{port}/3"),
        format!("redis://127.0.0.1:{port}"),
    ] {
        let begun = Instant::now();
        let error = refused(&["--store", &store, "--wait-for", "300ms"]);
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
        let host = store.rsplit('@').next().unwrap().trim_start_matches("redis://").split('/').next().unwrap();
        for named in ["store", host, "300 ms", "--store", "--wait-for"] {
            assert!(error.contains(named), "{named} is not in\n{error}");
        }
        assert!(!error.contains("canary"), "{error}");
    }
}

/// The test cannot listen on the default port of Redis, so it only checks the error.
#[test]
fn store_without_a_port_is_shown_without_password() {
    for store in [
        "redis://:canary-password@127.0.0.9",
        "redis://canary-user:canary-password@127.0.0.9/0",
        "redis://:canary-password@127.0.0.9/0?protocol=resp3",
        "redis://:canary%40password@127.0.0.9",
    ] {
        let error = refused(&["--store", store, "--wait-for", "0s"]);
        assert!(error.contains("127.0.0.9") && !error.contains("canary"), "{store}: {error}");
    }
    for store in ["redis://:canary-password@", "redis://:canary-password@127.0.0.9:port", "redis:canary-password"] {
        let error = refused(&["--store", store, "--wait-for", "0s"]);
        assert!(error.contains("store") && !error.contains("canary"), "{store}: {error}");
    }
}

#[test]
fn wrong_password_error_does_not_show_it() {
    let redis = RedisServer::start_with(&["--requirepass", "right-canary-password"]);
    for login in ["", ":wrong-canary-password@", "canary-user:wrong-canary-password@"] {
        let store = format!("redis://{login}127.0.0.1:{}", redis.port());
        let error = refused(&["--store", &store, "--wait-for", "200ms"]);
        assert!(error.contains(&redis.port().to_string()) && error.contains("--store"), "{error}");
        assert!(!error.contains("canary"), "{error}");
    }
}

#[test]
fn silent_store_is_awaited_up_to_the_timeout() {
    let redis = RedisServer::start();
    redis.freeze();
    let begun = Instant::now();
    let error = refused(&["--store", &redis.url(), "--wait-for", "300ms"]);
    let took = begun.elapsed();
    redis.thaw();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
    let says = format!("Redis at 127.0.0.1:{} accepts connections but does not reply in time", redis.port());
    assert!(error.contains(&says) && error.contains("--wait-for"), "{error}");
}

/// Silently ignoring a key would leave the service open.
#[test]
fn non_utf8_variable_is_rejected_by_name() {
    use std::os::unix::ffi::OsStrExt as _;
    let mut command = command(&["--listen", "127.0.0.1:0"]);
    command.env("ONCEWARD_API_KEY", std::ffi::OsStr::from_bytes(b"canary\xff"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let has_ended = until_blocking(Duration::from_secs(5), || child.try_wait().unwrap().is_some());
    let _ = child.kill();
    let error = said(&child.wait_with_output().unwrap());
    assert!(has_ended && error.contains("ONCEWARD_API_KEY") && error.contains("UTF-8"), "{error}");
    assert!(!error.contains("canary"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_store_is_awaited() {
    let mut redis = RedisServer::start();
    redis.kill();
    let store = redis.url();
    let starting = std::thread::spawn(move || OncewardServer::start(&["--store", &store, "--wait-for", "15s"]));
    // The service waits, so it has not exited.
    assert!(!until_blocking(Duration::from_millis(300), || starting.is_finished()));
    redis.restart();
    let service = starting.join().unwrap();
    assert_eq!(send(http().get(format!("{}/readyz", service.url))).await.status, 200);
    assert_eq!(ask_token(&service.url, "").await.status, 201);
}

#[tokio::test]
async fn flag_overrides_environment_overrides_file() {
    let (_file, path) = file("token_ttl = \"1m\"\nlog = \"json\"\nlisten = \"127.0.0.1:0\"");
    let start = |variable: Option<&str>, arguments: &[&str]| {
        let mut command = command(arguments);
        command.env("ONCEWARD_CONFIG", &path).envs(variable.map(|value| ("ONCEWARD_TOKEN_TTL", value)));
        OncewardServer::spawn(command)
    };
    assert_eq!(life(&start(None, &[])).await, 60);
    assert_eq!(life(&start(Some("2m"), &[])).await, 120);
    assert_eq!(life(&start(Some("2m"), &["--token-ttl", "3m"])).await, 180);
    assert_eq!(life(&start(None, &["--token-ttl", "3m"])).await, 180);
    let mut wrong = command(&["--listen", "127.0.0.1:0"]);
    let error = said(&wrong.env("ONCEWARD_TOKEN_TTL", "x").output().unwrap());
    assert!(error.contains("token_ttl") && error.contains("ONCEWARD_TOKEN_TTL") && error.contains("`x`"), "{error}");
    let (_other, other) = file("token_ttl = \"4m\"");
    let named = start(None, &["--config", &other, "--listen", "127.0.0.1:0", "--log", "json"]);
    assert_eq!(life(&named).await, 240, "the file named by the flag");
}

#[tokio::test]
async fn unknown_variable_is_only_a_warning() {
    let mut command = command(&["--listen", "127.0.0.1:0", "--log", "json"]);
    command.env("ONCEWARD_TOKEN_TLL", "canary").env("ONCEWARD_SERVICE_HOST", "10.0.0.1").env("ONCEWARD_LOGO", "x");
    let service = OncewardServer::spawn(command);
    assert_eq!(life(&service).await, 1800);
    let log = service.log();
    let warned = |name: &str| log.iter().filter(|line| line.contains("WARN") && line.contains(name)).count();
    assert_eq!((warned("ONCEWARD_TOKEN_TLL"), warned("ONCEWARD_SERVICE_HOST")), (1, 1), "{log:#?}");
    assert!(log.iter().any(|line| line.contains("ONCEWARD_TOKEN_TTL?")), "{log:#?}");
    assert!(!log.iter().any(|line| line.contains("canary")), "{log:#?}");
}
