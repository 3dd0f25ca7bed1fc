//! A replay through the proxy has the headers of the first response that the browser, a page of another origin or a script needs.

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use onceward_api::header;
use onceward_tests::client::{http, send};
use onceward_tests::legacy_shop::proxy_to;
use onceward_tests::test_server::TestServer;
use uuid::Uuid;

/// Headers of the application that a replay repeats.
const REPEATED: [(&str, &str); 6] = [
    ("access-control-allow-origin", "https://shop.example"),
    ("access-control-expose-headers", "location"),
    ("content-security-policy", "default-src 'self'"),
    ("hx-redirect", "/thanks"),
    ("strict-transport-security", "max-age=60"),
    ("x-frame-options", "DENY"),
];

/// Headers that belong to one response, or name the next step of a rejection.
const DROPPED: [(&str, &str); 6] = [
    ("age", "7"),
    ("authentication-info", "next=1"),
    ("onceward-retry", "same"),
    ("set-cookie", "session=s"),
    ("via", "1.1 cache"),
    ("www-authenticate", "Basic"),
];

fn application() -> TestServer {
    let respond = async || {
        let headers: HeaderMap = REPEATED
            .into_iter()
            .chain(DROPPED)
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect();
        (StatusCode::CREATED, headers, Uuid::new_v4().to_string())
    };
    TestServer::run_router(Router::new().fallback(respond))
}

#[tokio::test]
async fn replay_repeats_the_headers_of_the_application() {
    let application = application();
    let proxy = proxy_to(&application.url, &[]);
    let order = || http().post(format!("{}/orders", proxy.url)).header(header::IDEMPOTENCY_KEY, "k").body("tea");
    let (first, second) = (send(order()).await, send(order()).await);
    assert_eq!((first.said().as_str(), second.said().as_str()), ("201 executed", "201 replayed"));
    assert_eq!(first.body, second.body);
    for (name, value) in REPEATED {
        for answer in [&first, &second] {
            let values: Vec<_> = answer.headers.get_all(name).iter().collect();
            assert_eq!(values, [value], "{name}");
        }
    }
    for (name, value) in DROPPED {
        assert!(second.headers.get_all(name).iter().all(|own| own != value), "{name}: {second:?}");
    }
    let [first_id, second_id] =
        [&first, &second].map(|answer| answer.headers.get_all(header::REQUEST_ID).iter().count());
    assert_eq!([first_id, second_id], [1, 1]);
}

#[tokio::test]
async fn next_step_in_a_response_of_the_application_is_removed() {
    let application = application();
    let proxy = proxy_to(&application.url, &[]);
    for (name, value) in [(header::IDEMPOTENCY_KEY, "k"), ("x-other", "")] {
        let answer = send(http().post(format!("{}/orders", proxy.url)).header(name, value)).await;
        assert!(!answer.headers.contains_key(header::RETRY), "{name}: {answer:?}");
    }
}

/// The proxy sends these two headers as well.
#[tokio::test]
async fn header_that_the_proxy_adds_is_not_repeated() {
    let respond = async |headers: HeaderMap| {
        let key = headers.get(header::IDEMPOTENCY_KEY).unwrap().to_str().unwrap().to_owned();
        ([(header::IDEMPOTENCY_KEY, key), ("x-kept-for", "ever".to_owned())], "ordered")
    };
    let application = TestServer::run_router(Router::new().fallback(respond));
    let proxy = proxy_to(&application.url, &["--profile", "acp", "--retention-header", "X-Kept-For"]);
    for outcome in ["executed", "replayed"] {
        let answer = send(http().post(format!("{}/orders", proxy.url)).header(header::IDEMPOTENCY_KEY, "k")).await;
        assert_eq!(answer.said(), format!("200 {outcome}"));
        for (name, value) in [(header::IDEMPOTENCY_KEY, "k"), ("x-kept-for", "86400")] {
            let values: Vec<_> = answer.headers.get_all(name).iter().collect();
            assert_eq!(values, [value], "{name} {outcome}");
        }
    }
}
