//! CORS and the rate limit of the service.

use std::time::Duration;

use onceward_api::{Code, header};
use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::polling::until;
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::{post, redeemed_by, release};
use reqwest::{Method, RequestBuilder};
use serde_json::json;

const KEY: &str = "the-key-of-the-backends";
const SHOP: &str = "https://shop.example";
const OTHER: &str = "https://other.example";
/// A quota that does not refill during a test.
const FIVE: [&str; 4] = ["--rate-limit", "1/h", "--rate-burst", "5"];

fn issue(service: &OncewardServer) -> RequestBuilder {
    http().post(format!("{}/token", service.url))
}

fn from(origin: &str, request: RequestBuilder) -> RequestBuilder {
    request.header("origin", origin)
}

async fn preflight(service: &OncewardServer, path: &str, origin: &str, headers: &str) -> Answer {
    preflight_of("POST", service, path, origin, headers).await
}

async fn preflight_of(method: &str, service: &OncewardServer, path: &str, origin: &str, headers: &str) -> Answer {
    let request = http().request(Method::OPTIONS, format!("{}{path}", service.url));
    let request = request.header("access-control-request-method", method);
    send(from(origin, request.header("access-control-request-headers", headers))).await
}

fn list(answer: &Answer, name: &str) -> Vec<String> {
    let values = answer.headers.get_all(name).iter().flat_map(|value| value.to_str().unwrap().split(','));
    values.map(|value| value.trim().to_lowercase()).collect()
}

/// Asserts that a page of this origin may read the response and every documented header.
fn assert_readable(answer: &Answer, origin: &str) {
    assert_eq!(answer.headers["access-control-allow-origin"], origin, "{answer:?}");
    let exposed = list(answer, "access-control-expose-headers");
    for name in header::EXPOSED.into_iter().chain([header::RATE_LIMIT, header::RATE_LIMIT_POLICY, header::REQUEST_ID]) {
        assert!(exposed.iter().any(|exposed| exposed == name), "{name} is not in {exposed:?}");
    }
    assert!(list(answer, "vary").contains(&"origin".to_owned()), "{answer:?}");
}

fn assert_unreadable(answer: &Answer) {
    assert!(!answer.headers.contains_key("access-control-allow-origin"), "{answer:?}");
}

/// Returns the log after this number of requests is logged.
async fn log_after(service: &OncewardServer, requests: usize) -> Vec<String> {
    let answered = || service.log().iter().filter(|line| line.contains("\"answered\"")).count();
    until("each request is logged", Duration::from_secs(5), || std::future::ready(answered() >= requests)).await;
    service.log()
}

fn lines<'a>(log: &'a [String], text: &str) -> Vec<&'a String> {
    log.iter().filter(|line| line.contains(text)).collect()
}

/// Requests eight tokens, checks the rejections, and returns the number issued.
async fn issued_of_eight(service: &OncewardServer, with: impl Fn(RequestBuilder) -> RequestBuilder) -> usize {
    let mut issued = 0;
    for _ in 0..8 {
        let answer = send(with(issue(service))).await;
        match answer.status {
            201 => issued += 1,
            _ => assert_limited(&answer),
        }
    }
    issued
}

fn assert_limited(answer: &Answer) {
    let problem = answer.problem();
    assert_eq!((answer.said().as_str(), problem.code), ("429 rate_limited", Code::RateLimited), "{answer:?}");
    let wait: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=5 * 3600).contains(&wait), "{wait}");
    assert_eq!(answer.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn allowed_origin_may_read_responses_and_rejections() {
    let origins = format!("{SHOP},http://localhost:3000");
    let service = OncewardServer::start(&[
        "--cors-origins",
        &origins,
        "--api-key",
        KEY,
        "--rate-limit",
        "1/h",
        "--rate-burst",
        "3",
    ]);
    for origin in [SHOP, "http://localhost:3000"] {
        for path in ["/token", "/tokens", "/token/redeem"] {
            let wanted = "content-type,onceward-token,onceward-look,idempotency-key,authorization";
            let answer = preflight(&service, path, origin, wanted).await;
            assert!([200, 204].contains(&answer.status), "{answer:?}");
            assert_eq!(answer.headers["access-control-allow-origin"], origin);
            let allowed = list(&answer, "access-control-allow-headers");
            for name in wanted.split(',') {
                assert!(allowed.iter().any(|allowed| allowed == name), "{name} is not in {allowed:?}");
            }
            assert!(list(&answer, "access-control-allow-methods").contains(&"post".to_owned()), "{answer:?}");
            assert!(list(&answer, "vary").contains(&"origin".to_owned()), "{answer:?}");
        }
    }
    for expected in [201, 201, 201, 429] {
        let answer = send(from(SHOP, issue(&service))).await;
        assert_eq!(answer.status, expected);
        assert_readable(&answer, SHOP);
    }
    let broken = issue(&service).header("content-type", "application/json").body("{");
    let unauthorized = http().post(format!("{}/token/redeem", service.url));
    let nowhere = http().get(format!("{}/nowhere", service.url));
    for (request, status) in [(broken, 400), (unauthorized, 401), (nowhere, 404)] {
        let answer = send(from(SHOP, request)).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_readable(&answer, SHOP);
    }
}

#[tokio::test]
async fn rejected_origin_is_logged_once_with_the_fix() {
    let service = OncewardServer::start(&["--cors-origins", SHOP]);
    for _ in 0..3 {
        assert_unreadable(&preflight(&service, "/token", OTHER, "content-type").await);
        assert_unreadable(&send(from(OTHER, issue(&service))).await);
    }
    let near = ["https://shop.example.evil.example", "http://shop.example", "https://shop.example:8443"];
    for origin in near {
        assert_unreadable(&preflight(&service, "/token", origin, "content-type").await);
        assert_unreadable(&send(from(origin, issue(&service))).await);
    }
    for own in [SHOP, &service.url] {
        send(from(own, issue(&service))).await;
    }
    // A client cannot claim that a page belongs to the service.
    let claimed = issue(&service).header("x-forwarded-host", "own.example").header("forwarded", "host=own.example");
    assert_unreadable(&send(from("https://own.example", claimed)).await);
    // No setting could allow these.
    for strange in ["null", "capacitor://localhost"] {
        assert_unreadable(&send(from(strange, issue(&service))).await);
    }
    let log = log_after(&service, 6 + 6 + 2 + 1 + 2).await;
    assert_eq!(lines(&log, "pages of https://own.example ").len(), 1);
    assert!(lines(&log, "pages of null ").is_empty() && lines(&log, "capacitor").is_empty());
    let warned = lines(&log, OTHER);
    assert_eq!(warned.len(), 1, "{warned:#?}");
    let line: serde_json::Value = serde_json::from_str(warned[0]).unwrap();
    assert!(line["level"] == "WARN" && line["span"]["id"].is_string(), "{line}");
    let message = line["message"].as_str().unwrap();
    let (_, setting) = message.split_once("set ").unwrap();
    for origin in near {
        assert_eq!(lines(&log, &format!("pages of {origin} ")).len(), 1, "{origin}");
    }
    assert!(lines(&log, &format!("pages of {SHOP} ")).is_empty());
    assert!(lines(&log, &format!("pages of {} ", service.url)).is_empty(), "pages of the service need no CORS");

    // The suggested setting works.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), setting).unwrap();
    let allowing = OncewardServer::start(&["--config", file.path().to_str().unwrap()]);
    for origin in [OTHER, SHOP] {
        assert_readable(&send(from(origin, issue(&allowing))).await, origin);
    }
}

#[tokio::test]
async fn rejected_preflight_is_a_problem_naming_allowed_values() {
    let service = OncewardServer::start(&["--cors-origins", SHOP]);
    let asked = [
        (OTHER, "POST", "content-type", "with `cors_origins`"),
        ("null", "POST", "content-type", "with `cors_origins`"),
        (SHOP, "DELETE", "content-type", "GET and POST"),
        (SHOP, "POST", "content-type,x-canary", "authorization, onceward-token"),
        (SHOP, "POST", "no header", "authorization, onceward-token"),
    ];
    for (origin, method, headers, allowed) in asked {
        let answer = preflight_of(method, &service, "/token", origin, headers).await;
        let problem = answer.problem();
        assert_eq!((answer.said().as_str(), problem.code), ("400 bad_request", Code::BadRequest), "{answer:?}");
        assert_eq!(
            (problem.instance.as_deref(), &answer.headers["cache-control"]),
            (Some("/token"), &"no-store".parse().unwrap())
        );
        assert!(problem.detail.contains("`cors_origins`") && problem.detail.contains(allowed), "{problem:?}");
        assert!(!problem.detail.contains("canary"), "{problem:?}");
        assert_unreadable(&answer);
    }
    let log = log_after(&service, asked.len()).await;
    assert_eq!(lines(&log, "\"answered\"").len(), asked.len(), "{log:#?}");
    assert_eq!(lines(&log, &format!("pages of {OTHER} ")).len(), 1, "{log:#?}");
    assert!(lines(&log, &format!("pages of {SHOP} ")).is_empty(), "{log:#?}");
}

#[tokio::test]
async fn no_foreign_origin_may_read_by_default() {
    let service = OncewardServer::start(&[]);
    for origin in [SHOP, "null", "http://localhost:3000"] {
        let answer = preflight(&service, "/token", origin, "content-type").await;
        assert_eq!(answer.status, 405);
        assert_unreadable(&answer);
        assert_unreadable(&send(from(origin, issue(&service))).await);
    }
    send(from(&service.url, issue(&service))).await;
    let log = log_after(&service, 7).await;
    assert_eq!(lines(&log, &format!("cors_origins = \\\"{SHOP}\\\"")).len(), 1, "{log:#?}");
    assert!(lines(&log, &format!("pages of {} ", service.url)).is_empty());
}

#[tokio::test]
async fn client_gets_its_quota_and_then_retry_after() {
    let service = OncewardServer::start(&FIVE);
    for left in (0..5).rev() {
        let answer = send(issue(&service)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(answer.headers["ratelimit-policy"], "\"client\";q=5;w=18000");
        assert!(answer.headers["ratelimit"].to_str().unwrap().starts_with(&format!("\"client\";r={left};t=")));
    }
    for _ in 0..3 {
        let answer = send(issue(&service)).await;
        assert_limited(&answer);
        let wait: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((3500..=3600).contains(&wait), "{wait}");
        assert_eq!(answer.headers["ratelimit-policy"], "\"client\";q=5;w=18000");
        assert!(answer.headers["ratelimit"].to_str().unwrap().starts_with("\"client\";r=0;t="));
    }
}

#[tokio::test]
async fn redeems_and_rejections_use_no_quota() {
    let service = OncewardServer::start(&FIVE);
    for _ in 0..10 {
        let refused = post(&service.url, "/token", &json!({"ttl": "x"})).await;
        assert_eq!(refused.said(), "400 bad_request");
    }
    let good = token(&service.url).await;
    assert_eq!(issued_of_eight(&service, |request| request).await, 4);
    let body = json!({"token": good, "attempt": "one"});
    for _ in 0..20 {
        let answer = post(&service.url, "/token/redeem", &body).await;
        assert_eq!(answer.said(), "200 redeemed");
        assert!(!answer.headers.contains_key("ratelimit"), "{answer:?}");
    }
    let run = redeemed_by(&service.url, &good, "one").await;
    for _ in 0..20 {
        assert_eq!(release(&service.url, &good, "one", &run).await, "204 ");
    }
}

#[tokio::test]
async fn api_key_has_no_quota() {
    let service = OncewardServer::start(&[&FIVE[..], &["--rate-limit-total", "5/h", "--api-key", KEY]].concat());
    for _ in 0..2 {
        assert_eq!(issued_of_eight(&service, |request| request.bearer_auth(KEY)).await, 8);
    }
    assert_eq!(issued_of_eight(&service, |request| request.bearer_auth("wrong")).await, 5, "no quota was used");
    assert_eq!(issued_of_eight(&service, |request| request).await, 0);
    assert_eq!(issued_of_eight(&service, |request| request.bearer_auth(KEY)).await, 8);
}

#[tokio::test]
async fn quota_can_be_disabled_or_shared_by_all_clients() {
    let off = OncewardServer::start(&["--rate-limit", "off", "--rate-burst", "1"]);
    assert_eq!(issued_of_eight(&off, |request| request).await, 8);
    let answer = send(issue(&off)).await;
    assert!(!answer.headers.contains_key("ratelimit"), "no quota headers without a quota: {answer:?}");

    let total = OncewardServer::start(&["--rate-limit", "off", "--rate-limit-total", "5/h"]);
    assert_eq!(issued_of_eight(&total, |request| request).await, 5);
    let both = ["--rate-limit", "off", "--rate-limit-total", "5/h", "--trusted-proxies", "127.0.0.1"];
    let proxied = OncewardServer::start(&both);
    for (client, issued) in [("10.0.0.1", 5), ("10.0.0.2", 0)] {
        assert_eq!(issued_of_eight(&proxied, |request| request.header("x-forwarded-for", client)).await, issued);
    }
}

#[tokio::test]
async fn batch_uses_quota_for_each_token() {
    let service = OncewardServer::start(&FIVE);
    let never = post(&service.url, "/tokens", &json!({ "count": 6 })).await;
    assert_eq!(never.said(), "400 bad_request", "a retry could never succeed");
    assert!(never.problem().detail.contains("`count`"));
    for (count, status) in [(3, 201), (3, 429), (2, 201), (1, 429)] {
        let answer = post(&service.url, "/tokens", &json!({ "count": count })).await;
        assert_eq!(answer.status, status, "{count}: {answer:?}");
        assert!(answer.headers.contains_key("ratelimit"));
        if status == 429 {
            assert_limited(&answer);
        }
    }
    assert_eq!(issued_of_eight(&service, |request| request).await, 0);
}

#[tokio::test]
async fn untrusted_forwarded_header_is_ignored_with_one_warning() {
    for (name, before) in [("x-forwarded-for", ""), ("forwarded", "for=")] {
        let service = OncewardServer::start(&FIVE);
        let mut issued = 0;
        for client in 1..=8 {
            let request = issue(&service).header(name, format!("{before}10.0.0.{client}"));
            issued += usize::from(send(request).await.status == 201);
        }
        assert_eq!(issued, 5, "{name}");
        let log = log_after(&service, 8).await;
        let warned = lines(&log, "trusted_proxies");
        assert_eq!(warned.len(), 1, "{warned:#?}");
        assert!(warned[0].contains("WARN") && warned[0].contains(&format!("sends {name} ")), "{warned:?}");
        assert!(warned[0].contains("trusted_proxies = \\\"127.0.0.1\\\""), "{warned:?}");
    }
}

#[tokio::test]
async fn each_client_behind_a_trusted_proxy_has_its_quota() {
    let service = OncewardServer::start(&[&FIVE[..], &["--trusted-proxies", "127.0.0.1,192.0.2.0/24"]].concat());
    for (forwarded, issued) in [
        ("10.0.0.1", 5),
        ("10.0.0.2", 5),
        ("10.0.0.1", 0),
        // Neither addresses that the client prepends nor further trusted proxies change the result.
        ("10.9.9.9, 10.0.0.1", 0),
        ("10.0.0.1, 192.0.2.7", 0),
        ("10.0.0.3,192.0.2.7", 5),
        ("10.0.0.3", 0),
        ("2001:db8::1", 5),
        ("2001:db8::2", 0),
        ("2001:db8:0:0:ffff::1", 0),
        ("2001:db8:0:1::1", 5),
        ("::ffff:10.0.0.1", 0),
        // Without a valid address the request counts for the proxy.
        ("unknown", 5),
        ("", 0),
    ] {
        let seen = issued_of_eight(&service, |request| request.header("x-forwarded-for", forwarded)).await;
        assert_eq!(seen, issued, "{forwarded}");
    }
    assert_eq!(issued_of_eight(&service, |request| request).await, 0, "the proxy itself");
    assert!(lines(&service.log(), "trusted_proxies").is_empty());
}

#[tokio::test]
async fn trusted_proxy_may_send_the_forwarded_header() {
    let service = OncewardServer::start(&[&FIVE[..], &["--trusted-proxies", "127.0.0.1,192.0.2.0/24"]].concat());
    for (forwarded, issued) in [
        ("for=10.0.0.1", 5),
        ("for=10.9.9.9, For=\"10.0.0.1:4711\";proto=https, for=192.0.2.7", 0),
        ("for=\"[2001:db8::1]:80\"", 5),
        ("for=\"[2001:db8::2]\"", 0),
        // Without a valid address the request counts for the proxy.
        ("for=10.0.0.2, for=unknown", 5),
        ("for=_hidden", 0),
        ("for=\"10.0.0.3", 0),
    ] {
        let seen = issued_of_eight(&service, |request| request.header("forwarded", forwarded)).await;
        assert_eq!(seen, issued, "{forwarded}");
    }
    let both =
        |request: RequestBuilder| request.header("forwarded", "for=10.0.0.4").header("x-forwarded-for", "10.0.0.1");
    assert_eq!(issued_of_eight(&service, both).await, 0, "X-Forwarded-For takes precedence");
}
