//! Rejections of the proxy by a template of its settings file.

use std::time::Duration;

use onceward_api::{Code, header};
use onceward_tests::client::{http, send};
use onceward_tests::legacy_shop::proxy_to;
use onceward_tests::polling::until;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::proxy::application;

const KEY: &str = header::IDEMPOTENCY_KEY;

const TEMPLATE: &str = r#"
rejections = "template"
[[proxy.route]]
path = "/orders"
policy = "key"
[[proxy.route]]
path = "/problems"
policy = "key"
rejections = "problem"
[proxy.template]
body = '{"error": {"id": "{code}", "text": "{title}", "wait": {retry_after}, "path": "{path}"}}'
headers = { X-Error = "{code}/{status}" }
status = { key_missing = 428 }
"#;

#[tokio::test]
async fn template_chooses_status_headers_and_body() {
    let (application, file) = (application(), NamedTempFile::with_suffix(".toml").unwrap());
    std::fs::write(file.path(), TEMPLATE).unwrap();
    let proxy = proxy_to(&application.url, &["--config", file.path().to_str().unwrap()]);
    let post = |path: &str| http().post(format!("{}{path}", proxy.url)).body("tea");
    for (language, text) in [("en", Code::KeyMissing.title()), ("zh-CN", "缺少幂等键")] {
        let answer = send(post("/orders").header("accept-language", language)).await;
        assert_eq!(answer.said(), "428 key_missing", "{answer:?}");
        assert_eq!(answer.headers["x-error"], "key_missing/428");
        assert_eq!(
            (&answer.headers["content-type"], &answer.headers["onceward-retry"]),
            (&"application/json".parse().unwrap(), &"no".parse().unwrap())
        );
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body, json!({"error": {"id": "key_missing", "text": text, "wait": null, "path": "/orders"}}));
    }
    let slow = tokio::spawn(post("/orders").header(KEY, "k").header("x-takes", "2").send());
    until("the first request is in flight", Duration::from_secs(20), async || {
        send(post("/orders").header(KEY, "k").header(header::LOOK, "true")).await.outcome == "in_progress"
    })
    .await;
    let waiting = send(post("/orders").header(KEY, "k")).await;
    let body: Value = serde_json::from_slice(&waiting.body).unwrap();
    assert_eq!(waiting.headers["retry-after"].to_str().unwrap(), body["error"]["wait"].to_string(), "{waiting:?}");
    assert_eq!(slow.await.unwrap().unwrap().status(), 200);
    assert_eq!(send(post("/problems")).await.problem().code, Code::KeyMissing);
    let page = send(post("/orders").header("accept", "text/html")).await;
    assert_eq!((page.status, page.headers.contains_key("x-error")), (400, false), "a browser receives the page");
}
