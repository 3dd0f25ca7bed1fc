//! Hostile visitors of the demo: markup injection, malformed orders, floods, and secrets in logs.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use onceward_tests::client::{http, send, token};
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::get;

use crate::demo::shop::{Customer, ORDER};

const COUNTERS: [&str; 5] = ["unguarded", "remembered", "token", "key", "interval"];

/// Every file of the page.
const FILES: [&str; 10] = [
    "demo.css",
    "demo.js",
    "chart.js",
    "messages.js",
    "form_panel.js",
    "snippets.js",
    "submissions.js",
    "keyboard_tabs.js",
    "request_timeline.js",
    "icon.svg",
];

#[tokio::test]
async fn demo_page_loads_only_own_files_without_inline_code() {
    let service = OncewardServer::start(&[]);
    let files = FILES.map(|name| format!("/demo/{name}"));
    for path in files.iter().map(String::as_str).chain(["/", "/demo/state", "/demo/nowhere", "/demo/orders/key"]) {
        let answer = get(&service.url, path).await;
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self';") && !policy.contains("unsafe"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
    }
    let page = String::from_utf8(get(&service.url, "/").await.body.to_vec()).unwrap();
    for inline in ["<style", "style=\"", "onclick", "onsubmit", "onload", "javascript:", "<script>"] {
        assert!(!page.contains(inline), "{inline} is in the page");
    }
    for path in files {
        let file = get(&service.url, &path).await;
        assert_eq!(file.status, 200, "{path}");
        let text = String::from_utf8(file.body.to_vec()).unwrap();
        for elsewhere in ["https://", "@import", " url(", " eval(", "innerHTML", "insertAdjacentHTML", "document.write"]
        {
            assert!(!text.contains(elsewhere), "{elsewhere} is in {path}");
        }
    }
}

#[tokio::test]
async fn visitor_input_is_never_rendered_as_markup() {
    let service = OncewardServer::start(&[]);
    let customer = Customer::new(&service).await;
    let body = "item=tea&quantity=1&name=%3Cimg+src%3Dx+onerror%3D%22alert(1)%22%3E";
    let page = send(customer.body("unguarded", &[("accept", "text/html,*/*;q=0.8")], body)).await;
    let text = String::from_utf8(page.body.to_vec()).unwrap();
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert!(text.contains("Order 1 is placed") && text.contains("&lt;img src=x") && !text.contains("<img"), "{text}");
    let object = send(customer.body("unguarded", &[], body)).await;
    assert_eq!(object.headers["content-type"], "application/json", "no browser renders it as a page");
    for (_, other) in get(&service.url, "/").await.headers.iter().chain(object.headers.iter()) {
        assert!(!other.to_str().unwrap().contains("img"), "{other:?}");
    }
}

#[tokio::test]
async fn malformed_order_is_rejected_and_not_counted() {
    let service = OncewardServer::start(&[]);
    let customer = Customer::new(&service).await;
    for counter in COUNTERS {
        let issued = token(&service.url).await;
        let named = [("onceward-token", issued.as_str()), ("idempotency-key", issued.as_str())];
        let large = format!("{ORDER}&more={}", "x".repeat(8 * 1024));
        assert_eq!(send(customer.body(counter, &named, &large)).await.status, 413, "{counter}");
        for body in ["", "item=tea", "item=tea&quantity=1&name=%ff%fe&item=x", "{\"item\":\"tea\"}"] {
            let answer = send(customer.body(counter, &named, body)).await;
            assert!([400, 422, 409].contains(&answer.status), "{counter}: {answer:?}");
        }
        let url = format!("{}/demo/orders/{counter}", service.url);
        let json = http().post(&url).headers(customer.body(counter, &named, "").build().unwrap().headers().clone());
        let json = json.header("content-type", "application/json").body("{}");
        assert!([400, 415, 422, 409].contains(&send(json).await.status), "{counter}");
        assert_eq!(get(&service.url, &format!("/demo/orders/{counter}")).await.said(), "405 method_not_allowed");
    }
    assert_eq!((customer.count("guarded").await, customer.count("unguarded").await), (0, 0));
    assert_eq!(get(&service.url, "/demo/../server").await.status, 404);
    assert_eq!(get(&service.url, "/demo/%2e%2e%2fCargo.toml").await.status, 404);
}

#[tokio::test]
async fn flood_is_rate_limited_without_affecting_other_visitors() {
    let service = OncewardServer::start(&[]);
    let (flood, other) = (Customer::new(&service).await, Customer::new(&service).await);
    let client = http();
    let order = || {
        let request = client.post(format!("{}/demo/orders/unguarded", service.url)).header("cookie", &flood.cookie);
        send(request.header("content-type", "application/x-www-form-urlencoded").body(ORDER))
    };
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..10 {
        for answer in join_all((0..20).map(|_| order())).await {
            if answer.status == 429 {
                assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
            }
            *outcomes.entry(answer.said()).or_default() += 1;
        }
    }
    assert_eq!(outcomes.keys().map(String::as_str).collect::<Vec<_>>(), ["201 unprotected", "429 rate_limited"]);
    assert!(outcomes["429 rate_limited"] > 50, "{outcomes:?}");
    assert_eq!(
        flood.count("unguarded").await,
        outcomes["201 unprotected"],
        "every accepted order is counted, and no other"
    );
    let issued = token(&service.url).await;
    assert_eq!(send(other.order("remembered", &[("onceward-token", &issued)])).await.said(), "201 executed");
    assert_eq!(get(&service.url, "/readyz").await.status, 200);
}

#[tokio::test]
async fn visitor_tokens_and_keys_are_not_logged() {
    let service = OncewardServer::start(&["--log-level", "trace"]);
    let customer = Customer::new(&service).await;
    let issued = token(&service.url).await;
    for counter in COUNTERS {
        for conduct in ["", "fails", "slow"] {
            let key =
                [("onceward-token", issued.as_str()), ("idempotency-key", "canary-key"), ("demo-handler", conduct)];
            send(customer.order(counter, &key)).await;
        }
    }
    let (log, id) = (service.log().join("\n"), customer.cookie.split_once('=').unwrap().1);
    assert!(log.contains("/demo/orders/key"), "{log}");
    for secret in [&issued[4..30], "canary-key", "name=Ada", id] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}
