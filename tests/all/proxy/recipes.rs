//! The files in `deploy/proxy`: real gateways with TLS in front of a real proxy and an application that knows nothing of Onceward, and
//! the settings of the files for containers.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use onceward_server::config::setting::names;
use onceward_tests::client::{http, send};
use onceward_tests::gateway::{Gateway, GatewayKind};
use onceward_tests::legacy_shop::LegacyShop;
use onceward_tests::listening_port::free_port;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{OncewardServer, ServiceProcess, command};
use onceward_tests::tls_redis::Authority;
use serde_json::Value;
use serde_yaml_ng::Value as Yaml;

/// The address of the client, which is not the one of the gateway.
const CLIENT: &str = "127.0.0.2";

/// A gateway in front of a proxy and a shop.
struct Site {
    shop: LegacyShop,
    _proxy: OncewardServer,
    gateway: Gateway,
    authority: Authority,
}

/// A response as curl prints it.
#[derive(Debug)]
struct Printed {
    status: u16,
    head: String,
    body: String,
}

impl Site {
    fn open(kind: GatewayKind) -> Self {
        let (shop, authority) = (LegacyShop::start(), Authority::new());
        let proxy = shop.proxy(&["--trusted-proxies", "127.0.0.1", "--inject", "true"]);
        let gateway = Gateway::before_proxy(kind, &proxy.url, &authority);
        Self { shop, _proxy: proxy, gateway, authority }
    }

    /// Calls the gateway with curl, which verifies its certificate.
    fn curl(&self, path: &str, arguments: &[&str]) -> Printed {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--include", "--http1.1", "--noproxy", "*", "--max-time", "20"]);
        curl.args(["--interface", CLIENT, "--cacert"]).arg(self.authority.certificate()).args(arguments);
        let output = curl.arg(format!("{}{path}", self.gateway.url)).output().expect("curl runs: apt-get install curl");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let (head, body) = printed.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{said}\n{printed}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Printed { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn token(&self) -> String {
        let issued: Value = serde_json::from_str(&self.curl("/_onceward/token", &["-X", "POST"]).body).unwrap();
        issued["token"].as_str().unwrap().to_owned()
    }

    /// Returns the headers that the application receives, by name.
    fn received(&self, arguments: &[&str]) -> BTreeMap<String, String> {
        let seen: Value = serde_json::from_str(&self.curl("/headers", arguments).body).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        seen["headers"].as_array().unwrap().iter().map(|line| (text(&line[0]), text(&line[1]))).collect()
    }
}

#[test]
fn token_behind_each_gateway_orders_once_and_replays() {
    for kind in GatewayKind::BEFORE_PROXY {
        let site = Site::open(kind);
        let form = format!("_onceward={}&item=tea", site.token());
        let [first, second] = [0, 1].map(|_| site.curl("/orders", &["-d", &form]));
        assert_eq!((first.status, second.status), (201, 201), "{kind:?}: {first:?} {second:?}");
        assert!(second.head.contains("idempotent-replayed: true"), "{kind:?}: {second:?}");
        assert_eq!((first.body, site.shop.orders().len()), (second.body, 1), "{kind:?}");
        let page = site.curl("/", &["-H", "accept: text/html"]);
        assert!(page.body.contains("/_onceward/sdk/onceward.js"), "{kind:?}: {page:?}");
    }
}

#[test]
fn address_of_the_client_reaches_the_application_and_cannot_be_forged() {
    for kind in GatewayKind::BEFORE_PROXY {
        let site = Site::open(kind);
        let spoofed = ["-H", "X-Forwarded-For: 6.6.6.6", "-H", "Forwarded: for=6.6.6.6", "-H", "X-Real-IP: 6.6.6.6"];
        for arguments in [&[][..], &spoofed] {
            let received = site.received(arguments);
            assert_eq!(received["x-forwarded-for"], format!("{CLIENT}, 127.0.0.1"), "{kind:?}");
            assert_eq!(received["x-real-ip"], CLIENT, "{kind:?}");
            assert_eq!(received["x-forwarded-proto"], "https", "{kind:?}");
            assert_eq!(received.get("forwarded"), None, "{kind:?}: it would contradict the protocol");
            let host = site.gateway.url.trim_start_matches("https://");
            assert_eq!((&*received["host"], &*received["x-forwarded-host"]), (host, host), "{kind:?}");
            assert!(received.values().all(|value| !value.contains("6.6.6.6")), "{kind:?}: {received:?}");
        }
    }
}

#[test]
fn websocket_and_large_upload_pass_each_gateway() {
    for kind in GatewayKind::BEFORE_PROXY {
        let site = Site::open(kind);
        let upgrade =
            ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA=="];
        let upgrade: Vec<_> = upgrade.iter().flat_map(|line| ["-H", line]).chain(["--max-time", "1"]).collect();
        let switched = site.curl("/socket", &upgrade);
        assert!(switched.status == 101 && switched.head.contains("sec-websocket-accept"), "{kind:?}: {switched:?}");
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(3 << 20).unwrap();
        let upload = format!("@{}", file.path().display());
        let sunk = site.curl("/sink", &["-H", "Expect:", "-H", "Content-Type: image/png", "--data-binary", &upload]);
        assert!(sunk.status == 200 && sunk.body.contains("\"bytes\": 3145728"), "{kind:?}: {}", sunk.head);
    }
}

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/proxy").join(name)).unwrap()
}

fn documents(name: &str) -> Vec<Yaml> {
    use serde::Deserialize as _;
    serde_yaml_ng::Deserializer::from_str(&file(name)).map(|document| Yaml::deserialize(document).unwrap()).collect()
}

/// Starts the proxy with these settings, which must all be known, on another port and with a local store and application. Asserts that it
/// is healthy and forwards requests.
async fn runs_with(mut settings: BTreeMap<String, String>, store: &str) {
    let known: Vec<_> = names().map(|(name, _)| format!("ONCEWARD_{}", name.to_uppercase())).collect();
    for name in settings.keys() {
        assert!(known.contains(name), "{name} is not a setting");
    }
    let (shop, folder) = (LegacyShop::start(), tempfile::tempdir().unwrap());
    let path = folder.path().join("store");
    std::fs::write(&path, store).unwrap();
    let admin = format!("127.0.0.1:{}", free_port());
    for (name, value) in [
        ("STORE", store),
        ("STORE_FILE", path.to_str().unwrap()),
        ("UPSTREAM", shop.url.as_str()),
        ("ADMIN_LISTEN", admin.as_str()),
    ] {
        if let Some(place) = settings.get_mut(&format!("ONCEWARD_{name}")) {
            value.clone_into(place);
        }
    }
    settings.remove("ONCEWARD_LISTEN");
    let variables: Vec<_> = settings.into_iter().collect();
    let proxy = ServiceProcess::start(&["proxy"], &variables, Stdio::null(), Stdio::null());
    let listen = proxy.url.trim_start_matches("http://");
    let healthy = command(&["healthcheck", "--listen", listen]).envs(variables).output().unwrap();
    assert!(healthy.status.success(), "{}", String::from_utf8_lossy(&healthy.stdout));
    for path in ["/healthz", "/readyz", "/metrics", "/dashboard"] {
        assert_eq!(send(http().get(format!("http://{admin}{path}"))).await.status, 200, "{path}");
    }
    let page = send(http().get(&proxy.url).header("accept", "text/html")).await;
    assert!(page.status == 200 && String::from_utf8_lossy(&page.body).contains("data-forms=\"all\""), "{page:?}");
    assert_eq!(send(http().get(format!("{}/metrics", proxy.url))).await.status, 404, "only on admin_listen");
}

#[tokio::test]
async fn compose_proxy_is_the_only_way_to_the_application() {
    let compose = &documents("compose.yaml")[0];
    let (proxy, redis) = (&compose["services"]["proxy"], RedisServer::start());
    runs_with(serde_yaml_ng::from_value(proxy["environment"].clone()).unwrap(), &redis.url()).await;
    assert_eq!(proxy["command"][0], "proxy");
    assert_eq!(
        proxy["environment"]["ONCEWARD_TRUSTED_PROXIES"],
        compose["networks"]["inside"]["ipam"]["config"][0]["gateway"]
    );
    let application = &compose["services"]["application"];
    assert!(application["ports"].is_null() && compose["services"]["redis"]["ports"].is_null());
    let port = application["expose"][0].as_str().unwrap();
    assert_eq!(proxy["environment"]["ONCEWARD_UPSTREAM"], format!("http://application:{port}"));
    let dockerfile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/proxy");
    let dockerfile = dockerfile.join(proxy["build"]["context"].as_str().unwrap()).join("deploy/Dockerfile");
    assert!(dockerfile.is_file() && proxy["stop_grace_period"] == "45s" && proxy["read_only"] == true);
    let shared: Yaml = serde_yaml_ng::from_str(
        &std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/compose.yaml")).unwrap(),
    )
    .unwrap();
    assert_eq!(
        compose["services"]["redis"]["command"], shared["services"]["redis"]["command"],
        "which is tested there"
    );
}

#[tokio::test]
async fn kubernetes_sidecar_starts_with_working_probes_and_least_privilege() {
    let (manifest, redis) = (documents("kubernetes.yaml"), RedisServer::start());
    let kinds: Vec<_> = manifest.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Secret", "Deployment", "Service"]);
    let pod = &manifest[1]["spec"]["template"]["spec"];
    let sidecar = &pod["initContainers"][0];
    assert_eq!((&sidecar["restartPolicy"], &sidecar["args"][0]), (&Yaml::from("Always"), &Yaml::from("proxy")));
    let text = |value: &Yaml| value.as_str().unwrap().to_owned();
    let settings: BTreeMap<_, _> =
        sidecar["env"].as_sequence().unwrap().iter().map(|set| (text(&set["name"]), text(&set["value"]))).collect();
    let secret = Path::new(&settings["ONCEWARD_STORE_FILE"]).file_name().unwrap().to_str().unwrap();
    assert!(manifest[0]["stringData"][secret].is_string());
    let listens = ["LISTEN", "ADMIN_LISTEN"].map(|name| settings[&format!("ONCEWARD_{name}")].clone());
    runs_with(settings, &redis.url()).await;
    for (number, address) in listens.iter().enumerate() {
        let (host, port) = address.rsplit_once(':').unwrap();
        assert_eq!((host, sidecar["ports"][number]["containerPort"].as_u64()), ("0.0.0.0", port.parse().ok()));
    }
    for (probe, path) in [("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        let get = &sidecar[probe]["httpGet"];
        assert_eq!((&get["path"], &get["port"]), (&Yaml::from(path), &sidecar["ports"][1]["name"]), "{probe}");
    }
    let application = &pod["containers"][0];
    assert!(application["ports"].is_null(), "it is reached through the proxy only");
    assert_eq!(application["readinessProbe"]["httpGet"]["port"], sidecar["ports"][0]["containerPort"]);
    assert_eq!(manifest[2]["spec"]["ports"][0]["targetPort"], sidecar["ports"][0]["name"]);
    assert_eq!(manifest[2]["spec"]["selector"], manifest[1]["spec"]["template"]["metadata"]["labels"]);
    let context = &sidecar["securityContext"];
    assert!(context["runAsNonRoot"] == true && context["readOnlyRootFilesystem"] == true);
    assert_eq!(
        (&context["allowPrivilegeEscalation"], &pod["enableServiceLinks"]),
        (&Yaml::from(false), &Yaml::from(false))
    );
}
