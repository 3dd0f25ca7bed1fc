//! The files in `deploy` for containers, systemd and Kubernetes: what can run here is run, with the settings that stand in them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use onceward_server::config::setting::names;
use onceward_tests::client::{http, send};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{ServiceProcess, command};
use serde_yaml_ng::Value;

type Settings = BTreeMap<String, String>;

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn documents(name: &str) -> Vec<Value> {
    use serde::Deserialize as _;
    serde_yaml_ng::Deserializer::from_str(&file(name)).map(|document| Value::deserialize(document).unwrap()).collect()
}

/// What stands under this path of names and numbers.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('/').fold(value, |value, name| match name.parse::<usize>() {
        Ok(number) => &value[number],
        Err(_) => &value[name],
    })
}

/// How many seconds a setting's default is.
fn seconds(setting: &str) -> u64 {
    let (_, setting) = names().find(|(name, _)| name == setting).unwrap();
    onceward_api::duration::parse(setting.default.unwrap()).unwrap().as_secs()
}

/// Starts the service with these settings, which all have to be known, on another port and on a store that is here, with what
/// stands for secrets in files that hold some. It has to say that it is ready, and to end when it is told to.
async fn runs_with(mut settings: Settings, store: &str) {
    let known: Vec<_> = names().map(|(name, _)| format!("ONCEWARD_{}", name.to_uppercase())).collect();
    for name in settings.keys() {
        assert!(known.contains(name), "{name} is a setting");
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("STORE", store), ("API_KEY", "a-key-for-this-run")] {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("{text}\n")).unwrap();
        if let Some(place) = settings.get_mut(&format!("ONCEWARD_{name}_FILE")) {
            *place = path.display().to_string();
        }
        if let Some(place) = settings.get_mut(&format!("ONCEWARD_{name}")) {
            text.clone_into(place);
        }
    }
    settings.remove("ONCEWARD_LISTEN");
    let has_key = settings.keys().any(|name| name.starts_with("ONCEWARD_API_KEY"));
    let variables: Vec<_> = settings.into_iter().collect();
    let service = ServiceProcess::start(&[], &variables, Stdio::null(), Stdio::null());
    let listen = service.url.trim_start_matches("http://");
    let healthy = command(&["healthcheck", "--listen", listen]).envs(variables).output().unwrap();
    assert!(healthy.status.success(), "{}", String::from_utf8_lossy(&healthy.stderr));
    for path in ["/healthz", "/readyz"] {
        assert_eq!(send(http().get(format!("{}{path}", service.url))).await.status, 200, "{path}");
    }
    let redeem = http().post(format!("{}/token/redeem", service.url)).header("content-type", "application/json");
    let answer = send(redeem.body(r#"{"token":"x"}"#)).await;
    assert_eq!(answer.said(), if has_key { "401 unauthorized" } else { "400 token_malformed" });
}

#[tokio::test]
async fn the_image_starts_with_a_key_and_only_with_one_and_finds_itself_healthy() {
    let image = file("Dockerfile");
    let line = image.lines().find_map(|line| line.strip_prefix("ENV ")).unwrap();
    let settings: Settings = line
        .split(' ')
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    assert_eq!(settings["ONCEWARD_LISTEN"], "0.0.0.0:8080");
    let refused = command(&[]).envs(&settings).output().unwrap();
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("ONCEWARD_API_KEY"));
    let mut with_key = settings;
    with_key.insert("ONCEWARD_API_KEY".into(), String::new());
    runs_with(with_key, "memory:").await;
    assert!(image.contains(r#"CMD ["/usr/local/bin/onceward", "healthcheck"]"#), "which was asked above");
    assert!(
        image.contains("\nUSER 65532\n") && image.contains("FROM rust:1.95"),
        "the toolchain is that of the workspace"
    );
}

#[tokio::test]
async fn the_composed_redis_keeps_everything_and_evicts_nothing() {
    let compose = &documents("compose.yaml")[0];
    let words: Vec<_> = at(compose, "services/redis/command")
        .as_sequence()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    assert_eq!(words[0], "redis-server");
    let redis = RedisServer::start_with(&words[1..]);
    for (setting, value) in [("appendonly", "yes"), ("appendfsync", "always"), ("maxmemory-policy", "noeviction")] {
        assert_eq!(redis.ask::<Vec<String>>(&format!("CONFIG GET {setting}")), [setting, value]);
    }
    let service = at(compose, "services/onceward");
    let settings: Settings = serde_yaml_ng::from_value(at(service, "environment").clone()).unwrap();
    runs_with(settings, &redis.url()).await;
    assert_eq!(at(service, "read_only"), &Value::from(true));
    // The key is put beside the sources: it belongs neither into an image nor into the history.
    let key = at(compose, "secrets/api_key/file").as_str().unwrap().trim_start_matches("../");
    for list in ["../.dockerignore", "../.gitignore"] {
        assert!(file(list).lines().any(|line| line.trim_start_matches('/') == key), "{key} is in {list}");
    }
    assert!(at(service, "stop_grace_period").as_str().unwrap() == "45s" && seconds("drain_limit") < 45);
}

#[tokio::test]
async fn the_pods_start_are_probed_where_they_answer_and_may_do_nothing_else() {
    let redis = RedisServer::start();
    let manifest = documents("kubernetes.yaml");
    let kinds: Vec<_> = manifest.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Secret", "Deployment", "Service", "PodDisruptionBudget"]);
    let pod = at(&manifest[1], "spec/template/spec");
    let container = at(pod, "containers/0");
    let settings: Settings = container["env"]
        .as_sequence()
        .unwrap()
        .iter()
        .map(|set| (set["name"].as_str().unwrap().to_owned(), set["value"].as_str().unwrap().to_owned()))
        .collect();
    for secret in ["STORE", "API_KEY"] {
        let name =
            Path::new(&settings[&format!("ONCEWARD_{secret}_FILE")]).file_name().unwrap().to_str().unwrap().to_owned();
        assert!(manifest[0]["stringData"][&name].is_string(), "{name} is in the Secret");
    }
    let last_call = onceward_api::duration::parse(&settings["ONCEWARD_LAST_CALL"]).unwrap().as_secs();
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > seconds("drain_limit") + last_call);
    runs_with(settings, &redis.url()).await;
    for (probe, path) in [("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        assert_eq!(at(container, &format!("{probe}/httpGet/path")), path, "{probe}");
        assert_eq!(at(container, &format!("{probe}/httpGet/port")), at(container, "ports/0/name"), "{probe}");
    }
    assert_eq!(pod["enableServiceLinks"], Value::from(false));
    assert_eq!(at(container, "securityContext/allowPrivilegeEscalation"), &Value::from(false));
    assert_eq!(at(container, "securityContext/readOnlyRootFilesystem"), &Value::from(true));
    assert_eq!(at(pod, "securityContext/runAsNonRoot"), &Value::from(true));
    let labels = at(&manifest[1], "spec/template/metadata/labels");
    for selector in [
        at(&manifest[1], "spec/selector/matchLabels"),
        at(&manifest[2], "spec/selector"),
        at(&manifest[3], "spec/selector/matchLabels"),
    ] {
        assert_eq!(selector, labels);
    }
}

/// What systemd itself says of the unit, with the program where the unit looks for it.
#[tokio::test]
async fn the_unit_is_one_that_systemd_takes_and_its_settings_start_the_service() {
    let unit = file("onceward.service");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onceward.service");
    let program = onceward_tests::service::program().display().to_string();
    std::fs::write(&path, unit.replace("/usr/local/bin/onceward", &program)).unwrap();
    let verified = Command::new("systemd-analyze").arg("verify").arg(&path).output().expect("make setup");
    let said = String::from_utf8_lossy(&verified.stderr);
    let own: Vec<_> = said.lines().filter(|line| line.contains("onceward")).collect();
    assert!(verified.status.success() && own.is_empty(), "{said}");

    let settings: Settings = unit
        .lines()
        .filter_map(|line| line.strip_prefix("Environment=")?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let redis = RedisServer::start();
    runs_with(settings, &redis.url()).await;
    let stop = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    assert!(Duration::from_secs(stop.parse().unwrap()) > Duration::from_secs(seconds("drain_limit")));
}
