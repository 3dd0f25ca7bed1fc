//! Users behind the proxy: none receives the response of another, and none runs a submission of another again.

use onceward_api::header::LOOK;
use onceward_tests::client::{http, send};
use onceward_tests::legacy_shop::LegacyShop;
use onceward_tests::raw_http;
use onceward_tests::service::OncewardServer;
use reqwest::RequestBuilder;

use super::submission::{SettingsFile, keyed, order, token, tokened};

/// Sends a request with these headers.
async fn with(request: &RequestBuilder, headers: &[(&str, &str)]) -> (String, String) {
    let request = request.try_clone().unwrap();
    let answer = send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await;
    (answer.said(), String::from_utf8_lossy(&answer.body).into_owned())
}

const ALICE: [&[(&str, &str)]; 4] = [
    &[("cookie", "user=alice")],
    &[("authorization", "Bearer alice")],
    &[("x-api-key", "alice")],
    &[("x-auth-token", "alice")],
];
const BOB: [&[(&str, &str)]; 4] = [
    &[("cookie", "user=bob")],
    &[("authorization", "Bearer bob")],
    &[("x-api-key", "bob")],
    &[("x-auth-token", "bob")],
];

#[tokio::test]
async fn two_users_with_one_key_or_token_never_share_a_response() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    for (number, (alice, bob)) in ALICE.into_iter().zip(BOB).enumerate() {
        let token = token(&proxy).await;
        let key = keyed(&proxy, "/api/orders", &format!("k{number}"));
        for (request, rejected) in [(key, "422 key_reused"), (tokened(&proxy, "/api/orders", &token), "409 token_used")]
        {
            let before = shop.orders().len();
            let first = with(&request, alice).await;
            assert_eq!(first.0, "201 executed");
            for other in [bob, &[], &[("cookie", "user=alice; admin=1")], &[("authorization", "Basic YWxpY2U=")]] {
                let (said, body) = with(&request, other).await;
                assert_eq!(said, rejected, "{other:?}");
                assert!(!body.contains("\"order\""), "{other:?}: {body}");
            }
            assert_eq!(with(&request, alice).await, ("201 replayed".to_owned(), first.1));
            assert_eq!(shop.orders().len() - before, 1);
        }
    }
}

#[tokio::test]
async fn credential_headers_of_the_settings_tell_users_apart() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--credential-headers", "X-Tenant"]);
    let request = keyed(&proxy, "/api/orders", "k");
    assert_eq!(with(&request, &[("x-tenant", "a"), ("x-api-key", "1")]).await.0, "201 executed");
    assert_eq!(with(&request, &[("x-tenant", "b"), ("x-api-key", "1")]).await.0, "422 key_reused");
    assert_eq!(with(&request, &[("x-tenant", "a"), ("x-api-key", "2")]).await.0, "201 replayed", "no longer listed");
    assert_eq!(shop.orders().len(), 1);
}

const TEA: &str = r#"{"item":"tea"}"#;

/// Orders tea from a site. Returns the status and outcome, and whether the response has an order.
async fn order_from(proxy: &OncewardServer, path: &str, headers: &[(&str, &str)]) -> (String, bool) {
    let headers = [&[("content-type", "application/json")], headers].concat();
    let answer = raw_http::post(&proxy.url, path, &headers, TEA).await;
    (answer.said(), String::from_utf8_lossy(&answer.body).contains("\"order\""))
}

const SITES: &str = "[[proxy.route]]\npath = \"/api/orders/{id}\"\npolicy = \"key\"\nkey_from = { path = \"id\" }\nsubject = \"anonymous\"\n\n\
    [[proxy.route]]\npath = \"/api/contact\"\npolicy = \"interval\"\nevery = \"60s\"\nremember = true\n";

#[tokio::test]
async fn two_sites_with_one_key_or_token_never_share_a_response() {
    let shop = LegacyShop::start();
    let file = SettingsFile::new(SITES);
    let proxy = shop.proxy(&["--config", file.path()]);
    let token = token(&proxy).await;
    for (path, id, rejected) in [
        ("/api/orders", ("idempotency-key", "k"), "422 key_reused"),
        ("/api/orders", ("onceward-token", token.as_str()), "409 token_used"),
        ("/api/orders/7", ("accept", "*/*"), "422 key_reused"),
    ] {
        let at = async |host: &str| order_from(&proxy, path, &[("host", host), id]).await;
        assert_eq!(at("a.example").await, ("201 executed".to_owned(), true), "{path}");
        for other in ["b.example", "b.a.example", "127.0.0.1"] {
            assert_eq!(at(other).await, (rejected.to_owned(), false), "{path}: {other}");
        }
        for same in ["A.Example", "a.example:8080"] {
            assert_eq!(at(same).await, ("201 replayed".to_owned(), true), "{path}: {same}");
        }
    }
    let before = shop.orders().len();
    for host in ["a.example", "b.example"] {
        for said in ["201 executed", "201 replayed"] {
            assert_eq!(order_from(&proxy, "/api/contact", &[("host", host)]).await.0, said, "{host}");
        }
    }
    assert_eq!(shop.orders().len() - before, 2, "an interval counts for each site");
}

/// The host as a gateway reports it, for two sites.
const REPORTED: [[(&str, &str); 2]; 2] = [
    [("x-forwarded-host", "a.example"), ("x-forwarded-host", "b.example")],
    [("forwarded", "for=192.0.2.7;host=a.example"), ("forwarded", "for=192.0.2.7;host=b.example")],
];

#[tokio::test]
async fn site_is_the_host_that_the_application_receives() {
    let shop = LegacyShop::start();
    let id = ("idempotency-key", "k");
    let proxy = shop.proxy(&["--upstream-host", "upstream"]);
    for (host, said) in [("a.example", "201 executed"), ("b.example", "201 replayed")] {
        assert_eq!(order_from(&proxy, "/api/orders", &[("host", host), id]).await.0, said, "one site with two names");
    }
    for (trusted, second) in [("127.0.0.1", "422 key_reused"), ("192.0.2.1", "201 replayed")] {
        for (number, [a, b]) in REPORTED.into_iter().enumerate() {
            let (proxy, key) = (shop.proxy(&["--trusted-proxies", trusted]), format!("reported-{number}"));
            let at = async |site| order_from(&proxy, "/api/orders", &[site, ("idempotency-key", &key)]).await.0;
            assert_eq!(at(a).await, "201 executed");
            assert_eq!(at(b).await, second, "{trusted}: {b:?}");
            assert_eq!(at(a).await, "201 replayed");
        }
    }
    let gateway = shop.proxy(&["--trusted-proxies", "127.0.0.1"]);
    let at = async |host| {
        let sent = [("host", host), ("x-forwarded-host", "a.example"), ("idempotency-key", "passed-on")];
        order_from(&gateway, "/api/orders", &sent).await.0
    };
    assert_eq!(at("a.example").await, "201 executed");
    assert_eq!(at("b.example").await, "422 key_reused", "a gateway may pass on what a client claims");
}

#[tokio::test]
async fn anonymous_clients_replay_and_a_user_does_not_receive_their_response() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let request = keyed(&proxy, "/api/orders", "k");
    assert_eq!(with(&request, &[]).await.0, "201 executed");
    assert_eq!(with(&request, &[("cookie", "")]).await.0, "201 replayed", "an empty header is none");
    assert_eq!(with(&request, ALICE[0]).await.0, "422 key_reused");
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn order_of_cookies_does_not_matter() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let request = keyed(&proxy, "/api/orders", "k");
    assert_eq!(with(&request, &[("cookie", "user=alice; theme=dark")]).await.0, "201 executed");
    assert_eq!(with(&request, &[("cookie", "theme=dark"), ("cookie", "user=alice")]).await.0, "201 replayed");
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn refreshed_authorization_is_rejected_without_a_subject() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let token = token(&proxy).await;
    for (request, rejected) in [
        (keyed(&proxy, "/api/orders", "k"), "422 key_reused"),
        (tokened(&proxy, "/api/orders", &token), "409 token_used"),
    ] {
        assert_eq!(with(&request, &[("authorization", "Bearer old")]).await.0, "201 executed");
        let (said, body) = with(&request, &[("authorization", "Bearer new")]).await;
        assert!(said == rejected && !body.contains("\"order\""), "{said}: {body}");
    }
    assert_eq!(shop.orders().len(), 2);
}

const TRUSTED: &str = "trusted_proxies = \"127.0.0.1\"\n";

fn with_subject(shop: &LegacyShop, settings: &str, subject: &str) -> OncewardServer {
    let routes = format!(
        "{settings}[[proxy.route]]\npath = \"/api/orders\"\npolicy = \"key\"\nsubject = {subject}\n\n\
         [[proxy.route]]\npath = \"/orders\"\npolicy = \"token\"\nremember = true\nbound = true\nsubject = {subject}\n"
    );
    shop.proxy(&["--config", SettingsFile::new(&routes).path()])
}

#[tokio::test]
async fn header_subject_of_a_trusted_proxy_replays_after_a_refresh() {
    let shop = LegacyShop::start();
    let proxy = with_subject(&shop, TRUSTED, "{ header = \"X-User\" }");
    let request = keyed(&proxy, "/api/orders", "k");
    let alice = with(&request, &[("x-user", "alice"), ("authorization", "Bearer old")]).await;
    assert_eq!(alice.0, "201 executed");
    let refreshed = with(&request, &[("x-user", "alice"), ("authorization", "Bearer new"), ("cookie", "a=1")]).await;
    assert_eq!(refreshed, ("201 replayed".to_owned(), alice.1.clone()));
    let bob = with(&request, &[("x-user", "bob"), ("authorization", "Bearer old")]).await;
    assert_eq!(bob.0, "201 executed", "the key of another user is another key");
    assert_ne!(bob.1, alice.1);
    for none in [&[][..], &[("x-user", "")], &[("x-user", "alice"), ("x-user", "bob")]] {
        assert_eq!(with(&request, none).await.0, "401 unauthorized", "{none:?}");
    }
    assert_eq!(shop.orders().len(), 2);
}

#[tokio::test]
async fn header_subject_of_an_untrusted_client_is_rejected() {
    let shop = LegacyShop::start();
    let proxy = with_subject(&shop, "trusted_proxies = \"192.0.2.1\"\n", "{ header = \"X-User\" }");
    for headers in [&[("x-user", "alice")][..], &[]] {
        assert_eq!(with(&keyed(&proxy, "/api/orders", "k"), headers).await.0, "401 unauthorized");
    }
    assert_eq!(shop.orders().len(), 0);
}

/// An application behind a gateway believes this header, whatever the path.
#[tokio::test]
async fn subject_header_reaches_the_application_from_a_trusted_proxy_only() {
    let shop = LegacyShop::start();
    for (settings, expected) in [("trusted_proxies = \"192.0.2.1\"\n", vec![]), (TRUSTED, vec!["x-user: alice"])] {
        let proxy = with_subject(&shop, settings, "{ header = \"X-User\" }");
        for method in ["GET", "POST"] {
            let path = if method == "GET" { "/headers" } else { "/sink" };
            let sent = [("x-user", "alice"), ("x_user", "bob")];
            let answer = raw_http::request(method, &proxy.url, path, &sent, "").await;
            let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            let lines = body["headers"].as_array().unwrap().iter();
            let lines = lines.map(|pair| format!("{}: {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
            let users: Vec<_> = lines.filter(|line| line.replace('_', "-").starts_with("x-user")).collect();
            assert_eq!(users, expected, "{method}: {settings}");
        }
    }
}

#[tokio::test]
async fn cookie_subject_compares_only_that_cookie() {
    let shop = LegacyShop::start();
    let proxy = with_subject(&shop, "", "{ cookie = \"user\" }");
    let request = keyed(&proxy, "/api/orders", "k");
    let alice = with(&request, &[("cookie", "user=alice; seen=1")]).await;
    assert_eq!(alice.0, "201 executed");
    assert_eq!(with(&request, &[("cookie", "seen=2; user=alice")]).await, ("201 replayed".to_owned(), alice.1));
    assert_eq!(with(&request, &[("cookie", "user=bob; seen=1")]).await.0, "201 executed");
    for none in [&[][..], &[("cookie", "seen=1")], &[("cookie", "user=alice; user=bob")]] {
        assert_eq!(with(&request, none).await.0, "401 unauthorized", "{none:?}");
    }
    let users: Vec<_> = shop.orders().iter().map(|order| order["user"].clone()).collect();
    assert_eq!(users, ["alice", "bob"]);
}

/// The subject is part of the name of a key or interval, so another subject has another one. `docs/proxy.md` warns of it.
#[tokio::test]
async fn retry_with_another_subject_runs_again_except_with_a_token() {
    let shop = LegacyShop::start();
    for (subject, [first, second]) in [
        ("{ cookie = \"user\" }", [("cookie", "user=a1"), ("cookie", "user=a2")]),
        ("\"client_address\"", [("x-forwarded-for", "203.0.113.1"), ("x-forwarded-for", "203.0.113.2")]),
    ] {
        let routes = format!(
            "{TRUSTED}[[proxy.route]]\npath = \"/api/orders\"\npolicy = \"key\"\nsubject = {subject}\n\n\
             [[proxy.route]]\npath = \"/api/contact\"\npolicy = \"interval\"\nevery = \"60s\"\nsubject = {subject}\n\n\
             [[proxy.route]]\npath = \"/api/forms\"\npolicy = \"token\"\nremember = true\nsubject = {subject}\n"
        );
        let proxy = shop.proxy(&["--config", SettingsFile::new(&routes).path()]);
        let token = token(&proxy).await;
        for (request, same, other) in [
            (keyed(&proxy, "/api/orders", "k"), "201 replayed", "201 executed"),
            (order(&proxy, "/api/contact", "tea"), "409 too_soon", "201 executed"),
            (tokened(&proxy, "/api/forms", &token), "201 replayed", "409 token_used"),
        ] {
            assert_eq!(with(&request, &[first]).await.0, "201 executed", "{subject}");
            assert_eq!(with(&request, &[first]).await.0, same, "{subject}");
            assert_eq!(with(&request, &[second]).await.0, other, "{subject}");
        }
    }
    assert_eq!(shop.orders().len(), 10);
}

#[tokio::test]
async fn bound_token_belongs_to_the_subject_that_fetched_it() {
    let shop = LegacyShop::start();
    let proxy = with_subject(&shop, "", "{ cookie = \"user\" }");
    let fetch = http().post(format!("{}/_onceward/token", proxy.url)).header("content-type", "application/json");
    let fetch = fetch.header("cookie", "user=alice; seen=1").body(r#"{"action":"POST /orders"}"#);
    let fetched = send(fetch).await;
    let issued: serde_json::Value = serde_json::from_slice(&fetched.body).unwrap();
    let request = tokened(&proxy, "/orders", issued["token"].as_str().unwrap());
    assert_eq!(with(&request, &[("cookie", "user=bob; seen=1")]).await.0, "403 token_invalid");
    assert_eq!(with(&request, &[("cookie", "user=alice; seen=2")]).await.0, "201 executed");
    assert_eq!(with(&request, &[("cookie", "user=alice; seen=3")]).await.0, "201 replayed");
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn client_address_of_a_trusted_proxy_is_a_subject() {
    let shop = LegacyShop::start();
    for (settings, second) in [(TRUSTED, "201 executed"), ("", "201 replayed")] {
        let proxy = with_subject(&shop, settings, "\"client_address\"");
        let before = shop.orders().len();
        let request = keyed(&proxy, "/api/orders", "k");
        let [one, two] = [[("x-forwarded-for", "203.0.113.1")], [("x-forwarded-for", "203.0.113.2")]];
        assert_eq!(with(&request, &one).await.0, "201 executed");
        assert_eq!(with(&request, &one).await.0, "201 replayed");
        assert_eq!(with(&request, &two).await.0, second, "an untrusted client cannot choose its address: {settings}");
        assert_eq!(shop.orders().len() - before, 1 + usize::from(second == "201 executed"));
    }
}

#[tokio::test]
async fn anonymous_subject_replays_to_every_client() {
    let shop = LegacyShop::start();
    let proxy = with_subject(&shop, "", "\"anonymous\"");
    let request = keyed(&proxy, "/api/orders", "k");
    assert_eq!(with(&request, ALICE[0]).await.0, "201 executed");
    assert_eq!(with(&request, BOB[1]).await.0, "201 replayed");
    assert_eq!(shop.orders().len(), 1);
}

/// A lookup runs nothing, but it sends the stored response like a replay.
#[tokio::test]
async fn lookup_of_another_user_never_receives_the_response() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let token = token(&proxy).await;
    for (request, rejected) in [
        (keyed(&proxy, "/api/orders", "k"), "422 key_reused"),
        (tokened(&proxy, "/api/orders", &token), "409 token_used"),
    ] {
        let first = with(&request, ALICE[0]).await;
        assert_eq!(first.0, "201 executed");
        let look = request.try_clone().unwrap().header(LOOK, "true");
        for other in [BOB[0], BOB[1], &[]] {
            let (said, body) = with(&look, other).await;
            assert_eq!(said, rejected, "{other:?}");
            assert!(!body.contains("\"order\""), "{other:?}: {body}");
        }
        assert_eq!(with(&look, ALICE[0]).await, ("201 replayed".to_owned(), first.1));
    }
    assert_eq!(shop.orders().len(), 2);
}
