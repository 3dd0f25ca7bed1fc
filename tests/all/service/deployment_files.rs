//! The files in `deploy` for containers, systemd and Kubernetes: the service is started with their settings.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use onceward_server::config::setting::names;
use onceward_tests::client::{http, send};
use onceward_tests::listening_port::free_port;
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

/// Returns the value at this path of names and indexes.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('/').fold(value, |value, name| match name.parse::<usize>() {
        Ok(number) => &value[number],
        Err(_) => &value[name],
    })
}

/// Returns the default of a setting in seconds.
fn seconds(setting: &str) -> u64 {
    let (_, setting) = names().find(|(name, _)| name == setting).unwrap();
    onceward_api::duration::parse(setting.default.unwrap()).unwrap().as_secs()
}

/// Starts the service with these settings, which must all be known, on another port, a local store and secrets in files. Asserts that
/// it becomes ready and shuts down on SIGTERM.
async fn runs_with(mut settings: Settings, store: &str) {
    let known: Vec<_> = names().map(|(name, _)| format!("ONCEWARD_{}", name.to_uppercase())).collect();
    for name in settings.keys() {
        assert!(known.contains(name), "{name} is not a setting");
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
    let admin = format!("127.0.0.1:{}", free_port());
    if let Some(place) = settings.get_mut("ONCEWARD_ADMIN_LISTEN") {
        admin.clone_into(place);
    }
    let has_admin = settings.contains_key("ONCEWARD_ADMIN_LISTEN");
    let has_key = settings.keys().any(|name| name.starts_with("ONCEWARD_API_KEY"));
    let variables: Vec<_> = settings.into_iter().collect();
    let service = ServiceProcess::start(&[], &variables, Stdio::null(), Stdio::null());
    let listen = service.url.trim_start_matches("http://");
    let healthy = command(&["healthcheck", "--listen", listen]).envs(variables).output().unwrap();
    assert!(healthy.status.success(), "{}", String::from_utf8_lossy(&healthy.stderr));
    for path in ["/healthz", "/readyz"] {
        assert_eq!(send(http().get(format!("{}{path}", service.url))).await.status, 200, "{path}");
    }
    if has_admin {
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(send(http().get(format!("http://{admin}{path}"))).await.status, 200, "{path}");
        }
        assert_eq!(send(http().get(format!("{}/metrics", service.url))).await.status, 404, "only on admin_listen");
    }
    let redeem = http().post(format!("{}/token/redeem", service.url)).header("content-type", "application/json");
    let answer = send(redeem.body(r#"{"token":"x"}"#)).await;
    assert_eq!(answer.said(), if has_key { "401 unauthorized" } else { "400 token_malformed" });
}

#[tokio::test]
async fn image_starts_only_with_a_key_and_is_healthy() {
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
    assert!(image.contains(r#"CMD ["/usr/local/bin/onceward", "healthcheck"]"#), "it was called above");
    assert!(image.contains("\nUSER 65532\n") && image.contains("FROM rust:1.95"), "the toolchain that runs the tests");
}

#[tokio::test]
async fn compose_redis_persists_everything_and_evicts_nothing() {
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
    // The key file is beside the sources, and must be in neither the image nor the history.
    let key = at(compose, "secrets/api_key/file").as_str().unwrap().trim_start_matches("../");
    for list in ["../.dockerignore", "../.gitignore"] {
        assert!(file(list).lines().any(|line| line.trim_start_matches('/') == key), "{key} is not in {list}");
    }
    assert!(at(service, "stop_grace_period").as_str().unwrap() == "45s" && seconds("drain_limit") < 45);
}

/// Compose mounts the file of a secret with its mode, and the user of the container is not its owner.
#[test]
fn compose_key_file_is_readable_in_the_container() {
    use std::os::unix::fs::PermissionsExt as _;
    let compose = file("compose.yaml");
    let line =
        compose.lines().find_map(|line| line.strip_prefix("#   openssl")).expect("a command that creates the key");
    let folder = tempfile::tempdir().unwrap();
    for umask in ["077", "022"] {
        let script = format!("umask {umask} && openssl{line}");
        let made = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().expect("a shell");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let path = folder.path().join("api_key.txt");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o444, "umask {umask}");
        assert_eq!(std::fs::read_to_string(&path).unwrap().trim().len(), 64, "32 bytes in hex");
    }
}

#[tokio::test]
async fn kubernetes_pods_start_with_working_probes_and_least_privilege() {
    let redis = RedisServer::start();
    let manifest = documents("kubernetes.yaml");
    let kinds: Vec<_> = manifest.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Secret", "Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"]);
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
        assert!(manifest[0]["stringData"][&name].is_string(), "{name} is not in the Secret");
    }
    let last_call = onceward_api::duration::parse(&settings["ONCEWARD_LAST_CALL"]).unwrap().as_secs();
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > seconds("drain_limit") + last_call);
    let listens = ["LISTEN", "ADMIN_LISTEN"].map(|name| (name, settings[&format!("ONCEWARD_{name}")].clone()));
    let listens = BTreeMap::from(listens);
    runs_with(settings, &redis.url()).await;
    for (probe, path) in [("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        assert_eq!(at(container, &format!("{probe}/httpGet/path")), path, "{probe}");
        assert_eq!(at(container, &format!("{probe}/httpGet/port")), at(container, "ports/1/name"), "{probe}");
    }
    // The probes use the port of the setting. The policy lets every pod call the service, but not every pod read the metrics.
    for (number, port) in [("0", "LISTEN"), ("1", "ADMIN_LISTEN")] {
        let set = listens[port].rsplit_once(':').unwrap();
        assert_eq!(set.0, "0.0.0.0", "the node can reach it");
        assert_eq!(at(container, &format!("ports/{number}/containerPort")).as_u64(), set.1.parse().ok(), "{port}");
    }
    let ingress = at(&manifest[3], "spec/ingress");
    assert_eq!((at(ingress, "0/ports/0/port"), at(ingress, "0/from")), (&Value::from("http"), &Value::Null));
    assert_eq!(at(ingress, "1/ports/0/port"), at(container, "ports/1/name"));
    assert!(at(ingress, "1/from/0/namespaceSelector/matchLabels").is_mapping());
    assert_eq!(at(&manifest[2], "spec/ports/0/targetPort"), at(container, "ports/0/name"));
    assert_eq!(at(&manifest[2], "spec/ports").as_sequence().unwrap().len(), 1, "the Service exposes no metrics");
    assert_eq!(pod["enableServiceLinks"], Value::from(false));
    assert_eq!(at(container, "securityContext/allowPrivilegeEscalation"), &Value::from(false));
    assert_eq!(at(container, "securityContext/readOnlyRootFilesystem"), &Value::from(true));
    assert_eq!(at(pod, "securityContext/runAsNonRoot"), &Value::from(true));
    let labels = at(&manifest[1], "spec/template/metadata/labels");
    for selector in [
        at(&manifest[1], "spec/selector/matchLabels"),
        at(&manifest[2], "spec/selector"),
        at(&manifest[3], "spec/podSelector/matchLabels"),
        at(&manifest[4], "spec/selector/matchLabels"),
    ] {
        assert_eq!(selector, labels);
    }
}

/// Runs `systemd-analyze verify` on the unit, with the program at the path that the unit names.
#[tokio::test]
async fn systemd_unit_is_valid_and_starts_the_service() {
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
    let line = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    assert_eq!((line("Restart="), line("RestartPreventExitStatus=")), ("on-failure", "2"));
    let stop = line("TimeoutStopSec=");
    assert!(Duration::from_secs(stop.parse().unwrap()) > Duration::from_secs(seconds("drain_limit")));
}

/// systemd does not restart after exit status 2, since the next start would fail too. An unavailable store may be back by then.
#[test]
fn wrong_setting_exits_with_2_and_unavailable_store_with_1() {
    let absent = format!("redis://127.0.0.1:{}", free_port());
    let settings = [
        ("ONCEWARD_STORE", "nonsense"),
        ("ONCEWARD_TOKEN_TTL", "soon"),
        ("ONCEWARD_LISTEN", "0.0.0.0:0"),
        ("ONCEWARD_API_KEY_FILE", "/nowhere"),
    ];
    for set in settings {
        let ended = command(&[]).envs([set]).output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{set:?}: {}", String::from_utf8_lossy(&ended.stderr));
    }
    let away = command(&["--listen", "127.0.0.1:0", "--wait-for", "10ms", "--store", &absent]).output().unwrap();
    assert_eq!(away.status.code(), Some(1), "{}", String::from_utf8_lossy(&away.stderr));
}
