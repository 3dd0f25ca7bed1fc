//! The profiles through the proxy: what their texts demand besides the format of rejections.

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use onceward_api::header::{IDEMPOTENCY_KEY, RETENTION, TOKEN};
use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::legacy_shop::proxy_to;
use onceward_tests::service::OncewardServer;
use onceward_tests::test_server::TestServer;
use tempfile::NamedTempFile;
use uuid::Uuid;

/// An application that responds with the status that the request says.
fn application() -> TestServer {
    let respond = async |headers: HeaderMap| {
        let status = headers.get("x-status").map_or(201, |status| status.to_str().unwrap().parse().unwrap());
        (StatusCode::from_u16(status).unwrap(), Uuid::new_v4().to_string())
    };
    TestServer::run_router(Router::new().fallback(respond))
}

fn proxy(application: &TestServer, settings: &str) -> OncewardServer {
    let file = NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), settings).unwrap();
    proxy_to(&application.url, &["--config", file.path().to_str().unwrap()])
}

async fn post(proxy: &OncewardServer, path: &str, key: &str, body: &'static str, status: u16) -> Answer {
    let request = http().post(format!("{}{path}", proxy.url)).header(IDEMPOTENCY_KEY, key);
    send(request.header("content-type", "application/json").header("x-status", status.to_string()).body(body)).await
}

#[tokio::test]
async fn universal_commerce_compares_bytes_on_routes_and_elsewhere() {
    let application = application();
    let route = "[[proxy.route]]\npath = \"/orders\"\npolicy = \"key\"\n";
    let proxy = proxy(&application, &format!("profile = \"ucp\"\n{route}"));
    for path in ["/orders", "/other"] {
        assert_eq!(post(&proxy, path, "k", r#"{"a":1,"b":2}"#, 201).await.said(), "201 executed");
        assert_eq!(post(&proxy, path, "k", r#"{"b":2,"a":1}"#, 201).await.said(), "409 key_reused", "{path}");
        assert_eq!(post(&proxy, path, "k", r#"{"a":1,"b":2}"#, 201).await.said(), "201 replayed");
    }
}

#[tokio::test]
async fn stripe_replays_a_500_on_routes_and_elsewhere() {
    let application = application();
    let route = "[[proxy.route]]\npath = \"/orders\"\npolicy = \"key\"\nfingerprint = [\"/a\"]\n";
    let proxy = proxy(&application, &format!("profile = \"stripe\"\n{route}"));
    for path in ["/orders", "/other"] {
        let (first, second) = (post(&proxy, path, "k", "{}", 500).await, post(&proxy, path, "k", "{}", 201).await);
        assert_eq!((first.said().as_str(), second.said().as_str()), ("500 executed", "500 replayed"), "{path}");
        assert_eq!(first.body, second.body);
        assert_eq!(post(&proxy, path, "g", "{}", 502).await.said(), "502 unknown", "{path}");
    }
}

#[tokio::test]
async fn agentic_commerce_requires_a_key_on_every_post() {
    let application = application();
    for require in ["off", "either"] {
        let proxy = proxy(&application, &format!("profile = \"acp\"\nrequire = \"{require}\"\n"));
        let token = token(&format!("{}/_onceward", proxy.url)).await;
        let ask = |method: &str| http().request(method.parse().unwrap(), format!("{}/carts", proxy.url));
        for post in [ask("POST"), ask("POST").header(TOKEN, &token)] {
            assert_eq!(send(post).await.said(), "400 key_missing", "{require}");
        }
        let keyed = send(ask("POST").header(IDEMPOTENCY_KEY, "k")).await;
        assert_eq!((keyed.said().as_str(), &keyed.headers[IDEMPOTENCY_KEY]), ("201 executed", &"k".parse().unwrap()));
        assert_eq!(send(ask("PUT").header(TOKEN, &token)).await.said(), "201 executed", "the token was not used");
        let put = if require == "off" { "201 unprotected" } else { "400 token_missing" };
        assert_eq!(send(ask("PUT")).await.said(), put);
    }
}

#[tokio::test]
async fn profile_stores_for_a_day_at_least() {
    let application = application();
    for (profile, seconds) in [("ietf", "3600"), ("acp", "86400"), ("ucp", "86400"), ("stripe", "86400")] {
        let route = "[[proxy.route]]\npath = \"/orders\"\npolicy = \"key\"\nretain = \"1h\"\n";
        let proxy =
            proxy(&application, &format!("profile = \"{profile}\"\nretention_header = \"{RETENTION}\"\n{route}"));
        assert_eq!(post(&proxy, "/orders", "k", "{}", 201).await.headers[RETENTION], seconds, "{profile}");
    }
}
