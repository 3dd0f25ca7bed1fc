//! The proxy describes its rules, and says how long a response is stored.

use axum::Router;
use onceward_api::header;
use onceward_tests::client::{http, send};
use onceward_tests::legacy_shop::proxy_to;
use onceward_tests::service::OncewardServer;
use onceward_tests::test_server::TestServer;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

const SETTINGS: &str = r#"
secret = "a secret of thirty-two bytes, or so"
retention_header = "Onceward-Retention"
[[proxy.route]]
path = "/orders/{id}/pay"
methods = ["POST", "PUT"]
policy = "key"
retain = "10m"
key_from = { path = "id" }
subject = { cookie = "session" }
retention_header = "X-Kept-For"
[[proxy.route]]
path = "/quiet"
policy = "key"
profile = "stripe"
retention_header = "off"
[[proxy.route]]
path = "/webhooks/*"
policy = "none"
"#;

fn proxy(upstream: &TestServer, arguments: &[&str]) -> OncewardServer {
    let file = NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), SETTINGS).unwrap();
    proxy_to(&upstream.url, &[&["--config", file.path().to_str().unwrap()], arguments].concat())
}

fn application() -> TestServer {
    TestServer::run_router(Router::new().fallback(async || "the application"))
}

async fn described(proxy: &OncewardServer, path: &str) -> Value {
    let answer = send(http().get(format!("{}{path}", proxy.url))).await;
    assert_eq!((answer.status, &answer.headers["content-type"]), (200, &"application/json".parse().unwrap()));
    serde_json::from_slice(&answer.body).unwrap()
}

#[tokio::test]
async fn proxy_describes_its_routes_and_its_default_rule() {
    let application = application();
    let told = described(&proxy(&application, &[]), "/_onceward/.well-known/onceward").await;
    let [pay, quiet, webhooks, by_key, by_token] = [0, 1, 2, 3, 4].map(|at| &told["routes"][at]);
    assert_eq!((&pay["methods"], &pay["path"]), (&json!(["POST", "PUT"]), &json!("/orders/{id}/pay")));
    assert_eq!((&pay["retention"], &pay["retention_header"]), (&json!("10m"), &json!("x-kept-for")));
    assert_eq!(pay["key_from"], json!({"path": "id"}));
    assert_eq!((&quiet["profile"], &quiet["retention_header"]), (&json!("stripe"), &Value::Null));
    assert_eq!((&webhooks["policy"], &webhooks["retention"]), (&json!("none"), &Value::Null));
    for (rule, policy) in [(by_key, "key"), (by_token, "token")] {
        let required = json!(policy == "key");
        assert_eq!((&rule["path"], &rule["policy"], &rule["required"]), (&json!("/*"), &json!(policy), &required));
        assert_eq!((&rule["retention"], &rule["retention_header"]), (&json!("1d"), &json!("onceward-retention")));
    }
    let text = told.to_string();
    assert!(!text.contains("secret") && !text.contains("session"), "{text}");
    let required = described(&proxy(&application, &["--require", "key"]), "/_onceward/.well-known/onceward").await;
    assert_eq!((&required["routes"][3]["required"], &required["routes"][4]), (&json!(true), &Value::Null));
    let either = described(&proxy(&application, &["--require", "either"]), "/_onceward/.well-known/onceward").await;
    assert_eq!([3, 4].map(|at| &either["routes"][at]["required"]), [&json!(true), &json!(true)]);
    let acp = described(&proxy(&application, &["--profile", "acp"]), "/_onceward/.well-known/onceward").await;
    let tokens = &acp["routes"][4];
    assert_eq!((&tokens["policy"], &tokens["methods"]), (&json!("token"), &json!(["PUT", "PATCH", "DELETE"])));
}

#[tokio::test]
async fn well_known_path_is_the_applications_unless_a_setting_takes_it() {
    let application = application();
    let passing = proxy(&application, &[]);
    let answer = send(http().get(format!("{}/.well-known/onceward", passing.url))).await;
    assert_eq!(answer.body, "the application");
    let taking = proxy(&application, &["--well-known"]);
    assert!(described(&taking, "/.well-known/onceward").await["routes"].is_array());
    for other in ["/.well-known/onceward/", "/.well-known/security.txt"] {
        assert_eq!(send(http().get(format!("{}{other}", taking.url))).await.body, "the application");
    }
    assert_eq!(send(http().post(format!("{}/.well-known/onceward", taking.url))).await.status, 405);
}

#[tokio::test]
async fn response_says_the_retention_in_the_header_of_its_route() {
    let application = application();
    let proxy = proxy(&application, &[]);
    for (path, name, seconds) in [
        ("/orders/7/pay", "x-kept-for", Some("600")),
        ("/quiet", header::RETENTION, None),
        ("/other", header::RETENTION, Some("86400")),
    ] {
        for outcome in ["executed", "replayed"] {
            let request = http().post(format!("{}{path}", proxy.url)).header("cookie", "session=s");
            let answer = send(request.header(header::IDEMPOTENCY_KEY, "k").body("tea")).await;
            let told = answer.headers.get(name).map(|value| value.to_str().unwrap());
            assert_eq!((answer.outcome.as_str(), told), (outcome, seconds), "{path}");
            let names = ["x-kept-for", header::RETENTION].into_iter().filter(|name| answer.headers.contains_key(*name));
            assert_eq!(names.count(), usize::from(seconds.is_some()), "{path}");
        }
    }
}
