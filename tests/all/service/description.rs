//! The service describes its limits, and enforces the same.

use onceward_api::Description;
use onceward_tests::client::{http, send};
use onceward_tests::service::OncewardServer;
use serde_json::json;

#[tokio::test]
async fn described_limits_are_those_that_the_service_enforces() {
    let service = OncewardServer::start(&["--token-ttl", "5m", "--api-key", "a-key-that-is-not-told"]);
    let answer = send(http().get(format!("{}{}", service.url, Description::PATH))).await;
    assert_eq!((answer.status, &answer.headers["cache-control"]), (200, &"no-store".parse().unwrap()));
    assert!(!String::from_utf8_lossy(&answer.body).contains("not-told"));
    let told: Description = serde_json::from_slice(&answer.body).unwrap();
    let (tokens, claims) = (told.tokens.unwrap(), told.claims.unwrap());
    let status = async |path: &str, key: &str, body: serde_json::Value| {
        let request = http().post(format!("{}{path}", service.url)).json(&body);
        let request = if key.is_empty() { request } else { request.bearer_auth(key) };
        send(request).await.status
    };
    let millis = |time: std::time::Duration| format!("{}ms", time.as_millis());
    let step = std::time::Duration::from_millis(1);
    assert_eq!(status("/tokens", "", json!({"count": tokens.per_request})).await, 201);
    assert_eq!(status("/tokens", "", json!({"count": tokens.per_request + 1})).await, 400);
    assert_eq!(status("/token", "", json!({"ttl": millis(tokens.max_ttl)})).await, 201);
    assert_eq!(status("/token", "", json!({"ttl": millis(tokens.max_ttl + step)})).await, 400);
    for (field, limits) in
        [("lease", claims.lease), ("retain", claims.retain), ("interval", claims.interval), ("wait", claims.wait)]
    {
        for (time, expected) in [(limits.min, 200), (limits.max, 200), (limits.max + step, 400)] {
            let mut claim = json!({"action": "a", "subject": millis(time), field: millis(time)});
            if field != "interval" {
                claim["key"] = json!(format!("{field}-{}", millis(time)));
            }
            assert_eq!(status("/claim", "a-key-that-is-not-told", claim).await, expected, "{field} {time:?}");
        }
    }
}
