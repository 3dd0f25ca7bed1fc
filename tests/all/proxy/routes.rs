//! The routes of a settings file: each policy and field does what `proxy explain` says.

use std::time::Duration;

use onceward_tests::client::{Answer, http, send, token_for};
use onceward_tests::command_output::{parsed, said};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first, smooth};
use onceward_tests::legacy_shop::{LegacyShop, proxy_to};
use onceward_tests::polling::{outlast, until};
use onceward_tests::raw_http;
use onceward_tests::service::{OncewardServer, run};
use serde_json::Value;

use super::submission::{LONG, SettingsFile, form, keyed, order, token, tokened};

/// Starts the shop, and a proxy with these routes.
fn start(routes: &str) -> (LegacyShop, OncewardServer) {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--config", SettingsFile::new(routes).path()]);
    (shop, proxy)
}

fn route(path: &str, rest: &str) -> String {
    format!("[[proxy.route]]\npath = \"{path}\"\n{rest}\n\n")
}

#[tokio::test]
async fn plain_token_is_required_and_stores_no_response() {
    let (shop, proxy) = start(&route("/orders", "policy = \"token\""));
    assert_eq!(send(order(&proxy, "/orders", "tea")).await.said(), "400 token_missing");
    assert_eq!(send(keyed(&proxy, "/orders", "k")).await.said(), "400 token_missing");
    let token = token(&proxy).await;
    assert_eq!(send(form(&proxy, "/orders", &token)).await.said(), "201 executed");
    assert_eq!(send(form(&proxy, "/orders", &token)).await.said(), "409 token_used");
    assert_eq!(shop.orders().len(), 1);
    assert_eq!(send(order(&proxy, "/others", "tea")).await.said(), "201 unprotected", "it is another path");
}

/// A plain token protects a request as a key does: the upstream learns the run, and the connection stays readable for the proxy.
#[tokio::test]
async fn plain_token_sends_the_run_and_no_upgrade() {
    let (shop, proxy) = start(&route("/*", "policy = \"token\""));
    let first = token(&proxy).await;
    assert_eq!(send(form(&proxy, "/orders", &first)).await.said(), "201 executed");
    let line = shop.orders().pop().unwrap();
    assert!(line["run"].as_str().is_some_and(|run| !run.is_empty()), "{line}");
    let second = token(&proxy).await;
    let headers = [("connection", "upgrade"), ("upgrade", "websocket"), ("onceward-token", second.as_str())];
    let answer = raw_http::post(&proxy.url, "/sink", &headers, "tea").await;
    assert_eq!(answer.said(), "200 executed", "{answer:?}");
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let has = |name: &str| body["headers"].as_array().unwrap().iter().any(|pair| pair[0] == name);
    assert_eq!((has("onceward-run"), has("upgrade")), (true, false), "{body}");
}

#[tokio::test]
async fn remembered_token_replays_until_its_retention_ends() {
    const RETENTION: Duration = Duration::from_secs(2);
    let (shop, proxy) = start(&route("/orders", "policy = \"token\"\nremember = \"2s\""));
    let token = token(&proxy).await;
    for said in ["201 executed", "201 replayed"] {
        assert_eq!(send(form(&proxy, "/orders", &token)).await.said(), said);
    }
    outlast(RETENTION).await;
    assert_eq!(send(form(&proxy, "/orders", &token)).await.said(), "409 token_used", "a used token stays used");
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn bound_token_is_valid_for_its_action_only() {
    let (shop, proxy) = start(&route("/orders/*", "policy = \"token\"\nbound = true"));
    let own = format!("{}/_onceward", proxy.url);
    let other = token_for(&own, r#"{"action":"POST /orders/8"}"#).await;
    let unbound = token(&proxy).await;
    for token in [&other, &unbound] {
        assert_eq!(send(form(&proxy, "/orders/7", token)).await.said(), "403 token_invalid");
    }
    let bound = token_for(&own, r#"{"action":"POST /orders/7"}"#).await;
    assert_eq!(shop.orders().len(), 0);
    assert_eq!(send(form(&proxy, "/orders/7", &bound)).await.said(), "201 executed");
    assert_eq!(send(form(&proxy, "/orders/8", &other)).await.said(), "201 executed");
    assert_eq!(shop.orders().len(), 2);
}

#[tokio::test]
async fn key_comes_from_the_source_that_the_route_names() {
    let routes = [
        route("/header", "policy = \"key\"\nkey_from = { header = \"X-Order\" }"),
        route("/query", "policy = \"key\"\nkey_from = { query = \"order\" }"),
        route("/body", "policy = \"key\"\nkey_from = { body = \"/order/id\" }"),
        route("/path/{id}/pay", "policy = \"key\"\nkey_from = { path = \"id\" }"),
    ];
    let (shop, proxy) = start(&routes.concat());
    let json = |target: &str, body: &str| order(&proxy, target, "").body(body.to_owned());
    let header = |key: &str| order(&proxy, "/header", "tea").header("x-order", key.to_owned());
    let tea = r#"{"item":"tea"}"#;
    let in_body = |id: &str| format!(r#"{{"item":"tea","order":{{"id":"{id}"}}}}"#);
    let cases = [
        [header("a"), header("b"), keyed(&proxy, "/header", "a")],
        [json("/query?order=a", tea), json("/query?order=b", tea), keyed(&proxy, "/query", "a")],
        [json("/body", &in_body("a")), json("/body", &in_body("b")), keyed(&proxy, "/body", "a")],
    ];
    for [one, two, without] in cases {
        let before = shop.orders().len();
        let url = one.try_clone().unwrap().build().unwrap().url().clone();
        assert_eq!(send(one.try_clone().unwrap()).await.said(), "201 executed", "{url}");
        assert_eq!(send(one).await.said(), "201 replayed", "{url}");
        assert_eq!(send(two).await.said(), "201 executed", "{url}");
        assert_eq!(send(without).await.said(), "400 key_missing", "{url}");
        assert_eq!(shop.orders().len() - before, 2, "{url}");
    }
    let paid = |path: &str| send(order(&proxy, path, "tea"));
    assert_eq!(paid("/path/7/pay").await.said(), "201 executed");
    assert_eq!(paid("/path/7/pay").await.said(), "201 replayed");
    assert_eq!(paid("/path/8/pay").await.said(), "201 executed");
    assert_eq!(shop.orders().len(), 8);
}

#[tokio::test]
async fn key_of_a_form_field_is_found() {
    let (shop, proxy) = start(&route("/orders", "policy = \"key\"\nkey_from = { body = \"/order\" }"));
    let sent = |order: &'static str| {
        send(http().post(format!("{}/orders", proxy.url)).form(&[("order", order), ("item", "tea")]))
    };
    for (order, said) in [("a", "201 executed"), ("a", "201 replayed"), ("b", "201 executed")] {
        assert_eq!(sent(order).await.said(), said);
    }
    assert_eq!(shop.orders().len(), 2);
}

#[tokio::test]
async fn response_of_a_key_is_retained_as_the_route_says() {
    const RETENTION: Duration = Duration::from_secs(2);
    let (shop, proxy) = start(&route("/orders", "policy = \"key\"\nretain = \"2s\"\nlease = \"500ms\""));
    for said in ["201 executed", "201 replayed"] {
        assert_eq!(send(keyed(&proxy, "/orders", "k")).await.said(), said);
    }
    outlast(RETENTION).await;
    assert_eq!(send(keyed(&proxy, "/orders", "k")).await.said(), "201 executed");
    assert_eq!(shop.orders().len(), 2);
}

#[tokio::test]
async fn lease_is_renewed_while_a_submission_runs() {
    const LEASE: Duration = Duration::from_secs(1);
    let (shop, proxy) = start(&route("/orders", "policy = \"key\"\nlease = \"1s\"\nwait = \"5s\""));
    let target = "/orders?slow=1.8";
    let first = tokio::spawn(send(keyed(&proxy, target, "k")));
    until("it runs", LONG, || std::future::ready(shop.orders().len() == 1)).await;
    outlast(LEASE).await;
    assert_eq!(send(keyed(&proxy, target, "k")).await.said(), "201 replayed", "it waits for the first");
    assert_eq!(first.await.unwrap().said(), "201 executed");
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn retryable_key_runs_again_after_a_server_error() {
    let routes = [
        route("/often", "policy = \"key\"\nat_most_once = false"),
        route("/once", "policy = \"key\"\nat_most_once = true"),
    ];
    let shop = LegacyShop::start();
    for (path, expected) in [
        ("/often", ["500 not_applied", "201 executed", "201 replayed"]),
        ("/once", ["500 unknown", "409 outcome_unknown", "409 outcome_unknown"]),
    ] {
        let upstream = FaultyHttpProxy::to(&shop.url, first([HttpFault::Instead(500)])).await;
        let proxy = proxy_to(&upstream.url, &["--config", SettingsFile::new(&routes.concat()).path()]);
        for said in expected {
            assert_eq!(send(keyed(&proxy, path, "k")).await.said(), said, "{path}");
        }
    }
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn interval_admits_one_equivalent_request_per_period() {
    const INTERVAL: Duration = Duration::from_secs(2);
    let routes = [
        route("/content", "policy = \"interval\"\nevery = \"2s\""),
        route("/named", "policy = \"interval\"\nevery = \"2s\"\nkey_from = { query = \"who\" }"),
    ];
    let (shop, proxy) = start(&routes.concat());
    for (same, other) in [
        ([("/content", "tea"), ("/content", "tea")], ("/content", "milk")),
        ([("/named?who=a", "tea"), ("/named?who=a", "milk")], ("/named?who=b", "tea")),
    ] {
        let before = shop.orders().len();
        let sent = |(target, item)| send(order(&proxy, target, item));
        assert_eq!(sent(same[0]).await.said(), "201 executed");
        assert_eq!(sent(same[1]).await.said(), "409 too_soon");
        assert_eq!(sent(other).await.said(), "201 executed");
        assert_eq!(shop.orders().len() - before, 2);
    }
    outlast(INTERVAL).await;
    assert_eq!(send(order(&proxy, "/content", "tea")).await.said(), "201 executed");
}

#[tokio::test]
async fn remembered_interval_replays_until_it_ends() {
    let routes = [
        route("/content", "policy = \"interval\"\nremember = true\nevery = \"2s\""),
        route("/named", "policy = \"interval\"\nremember = true\nevery = \"1m\"\nkey_from = { query = \"who\" }"),
    ];
    let (shop, proxy) = start(&routes.concat());
    let by =
        |user: &str, target: &str, item| send(order(&proxy, target, item).header("cookie", format!("user={user}")));
    let first = by("alice", "/content", "tea").await;
    let again = by("alice", "/content", "tea").await;
    assert_eq!(
        (first.said().as_str(), again.said().as_str(), &first.body),
        ("201 executed", "201 replayed", &again.body)
    );
    assert_eq!(by("bob", "/content", "tea").await.said(), "201 executed", "another user has a response of its own");
    assert_eq!(shop.orders().len(), 2);
    let is_over = || async { by("alice", "/content", "tea").await.said() == "201 executed" };
    until("the interval has ended", LONG, is_over).await;
    for (user, item, said) in [
        ("alice", "tea", "201 executed"),
        ("alice", "tea", "201 replayed"),
        ("alice", "milk", "422 key_reused"),
        ("bob", "milk", "201 executed"),
    ] {
        assert_eq!(by(user, "/named?who=a", item).await.said(), said, "{user} {item}");
    }
}

/// The credentials are the subject of a named interval on a route without one: one user does not block another.
#[tokio::test]
async fn named_interval_without_a_subject_counts_for_each_user() {
    let (shop, proxy) =
        start(&route("/named", "policy = \"interval\"\nevery = \"1m\"\nkey_from = { query = \"who\" }"));
    for (name, value) in [("cookie", "user=alice"), ("cookie", "user=bob"), ("authorization", "Bearer alice")] {
        for said in ["201 executed", "409 too_soon"] {
            let request = order(&proxy, "/named?who=a", "tea").header(name, value);
            assert_eq!(send(request).await.said(), said, "{value}");
        }
    }
    assert_eq!(shop.orders().len(), 3);
}

#[tokio::test]
async fn policy_none_passes_every_request() {
    let (shop, proxy) = start(&format!("require = \"token\"\n\n{}", route("/webhook", "policy = \"none\"")));
    for count in 1..=2 {
        let answer = send(keyed(&proxy, "/webhook", "k")).await;
        assert_eq!((answer.status, answer.outcome.as_str(), shop.orders().len()), (201, "", count));
    }
    assert_eq!(send(order(&proxy, "/orders", "tea")).await.said(), "400 token_missing", "the default rule");
    assert_eq!(shop.orders().len(), 2);
}

#[tokio::test]
async fn fingerprint_compares_only_the_fields_of_the_route() {
    let routes = [
        route("/only", "policy = \"key\"\nfingerprint = [\"/item\"]"),
        route("/except", "policy = \"key\"\nfingerprint = { except = [\"/sent_at\"] }"),
    ];
    let (shop, proxy) = start(&routes.concat());
    let sent = |path: &str, body: &str| send(keyed(&proxy, path, "k").body(body.to_owned()));
    for path in ["/only", "/except"] {
        assert_eq!(sent(path, r#"{"item":"tea","sent_at":1}"#).await.said(), "201 executed", "{path}");
        assert_eq!(sent(path, r#"{"sent_at":2,"item":"tea"}"#).await.said(), "201 replayed", "{path}");
        assert_eq!(sent(path, r#"{"item":"milk","sent_at":1}"#).await.said(), "422 key_reused", "{path}");
    }
    assert_eq!(sent("/only", r#"{"item":"tea","amount":2}"#).await.said(), "201 replayed");
    assert_eq!(sent("/except", r#"{"item":"tea","amount":2}"#).await.said(), "422 key_reused");
    assert_eq!(shop.orders().len(), 2);
}

#[tokio::test]
async fn statuses_have_the_effect_that_the_route_states() {
    let effects = "applied = [500]\nnot_applied = [409, 504]\nunknown = [404]";
    let routes = [
        route("/key", &format!("policy = \"key\"\n{effects}")),
        route("/form", &format!("policy = \"token\"\nremember = true\n{effects}")),
    ];
    let file = SettingsFile::new(&routes.concat());
    let shop = LegacyShop::start();
    for (status, first_said, second_said) in [
        (500, "500 executed", "500 replayed"),
        (409, "409 not_applied", "201 executed"),
        (504, "504 not_applied", "201 executed"),
        (404, "404 unknown", "409 outcome_unknown"),
    ] {
        for path in ["/key", "/form"] {
            let before = shop.orders().len();
            let upstream = FaultyHttpProxy::to(&shop.url, first([HttpFault::Instead(status)])).await;
            let proxy = proxy_to(&upstream.url, &["--config", file.path()]);
            let token = token(&proxy).await;
            let request = if path == "/key" { keyed(&proxy, path, "k") } else { tokened(&proxy, path, &token) };
            assert_eq!(send(request.try_clone().unwrap()).await.said(), first_said, "{path}");
            assert_eq!(send(request).await.said(), second_said, "{path}");
            assert_eq!(shop.orders().len() - before, usize::from(second_said == "201 executed"), "{path} {status}");
        }
    }
}

#[tokio::test]
async fn body_limit_of_a_route_replaces_the_common_one() {
    let routes = route("/large", "policy = \"key\"\nbody_limit = \"200KiB\"");
    let (shop, proxy) = start(&format!("body_limit = \"1KiB\"\n\n{routes}"));
    let sent =
        |path: &str, length| send(keyed(&proxy, path, "k").body(format!("{{\"item\":\"{}\"}}", "x".repeat(length))));
    assert_eq!(sent("/small", 2_000).await.said(), "413 body_too_large");
    assert_eq!(sent("/large", 300_000).await.said(), "413 body_too_large");
    assert_eq!(shop.orders().len(), 0);
    assert_eq!(sent("/large", 100_000).await.said(), "201 executed");
    assert_eq!(sent("/small", 500).await.said(), "201 executed");
    assert_eq!(shop.orders().len(), 2);
}

/// An application may resolve these spellings before it routes a request, so none of them may evade the rule.
#[tokio::test]
async fn every_spelling_of_a_path_gets_its_rule() {
    let file = SettingsFile::new(&route("/orders", "policy = \"token\""));
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--config", file.path()]);
    let json = [("content-type", "application/json")];
    for path in [
        "/orders",
        "//orders",
        "/%6frders",
        "/a/../orders",
        "/./orders",
        "/a/%2e%2e/orders",
        "/%6Frders?x=1",
        "/orders;a",
        "/x/..;/orders",
    ] {
        let answer = raw_http::post(&proxy.url, path, &json, "{}").await;
        assert_eq!(answer.said(), "400 token_missing", "{path}");
        let explained = parsed(&run(&["proxy", "explain", "--json", "--config", file.path(), "POST", path]));
        assert_eq!(explained["route"]["path"], "/orders", "{path}: {explained}");
    }
    assert_eq!(shop.orders().len(), 0);
    let absolute = raw_http::post(&proxy.url, "http://elsewhere.example/orders", &json, "{}").await;
    assert_eq!((absolute.said().as_str(), shop.orders().len()), ("400 token_missing", 0));
    for path in ["/Orders", "/orders/", "/orders/7"] {
        let answer: Answer = raw_http::post(&proxy.url, path, &json, "{}").await;
        assert_eq!(answer.said(), "201 unprotected", "{path}");
        let explained = parsed(&run(&["proxy", "explain", "--json", "--config", file.path(), "POST", path]));
        assert_eq!(explained["rule"], "default", "{path}: {explained}");
    }
}

/// A servlet container reads `/hooks/..;/orders` as `/orders`.
#[tokio::test]
async fn route_that_lets_requests_pass_hides_no_route_that_protects() {
    let routes = [route("/hooks/*", "policy = \"none\""), route("/orders", "policy = \"token\"")].concat();
    let file = SettingsFile::new(&routes);
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--config", file.path(), "--require", "key"]);
    for (path, said) in [
        ("/hooks/a", "201 "),
        ("/hooks/a;b", "201 "),
        ("/hooks/..;/orders", "400 token_missing"),
        ("/hooks/..%2Forders", "400 token_missing"),
        ("/hooks/..;/carts", "400 key_missing"),
    ] {
        let answer = raw_http::post(&proxy.url, path, &[("content-type", "application/json")], "{}").await;
        assert_eq!(answer.said(), said, "{path}: {answer:?}");
    }
    assert_eq!(shop.orders().len(), 2);
    let explained = parsed(&run(&["proxy", "explain", "--json", "--config", file.path(), "POST", "/hooks/..;/orders"]));
    assert_eq!(explained["route"]["path"], "/orders", "{explained}");
    let reason = explained["skipped"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("may read the path as another one"), "{explained}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_of_a_token_waits_as_long_as_its_route_says() {
    /// Time that the first request takes, longer than the wait of the second route.
    const SLOW: Duration = Duration::from_millis(1500);
    let rest = |wait: &str| format!("policy = \"token\"\nremember = true\n{wait}");
    let (shop, proxy) = start(
        &[
            route("/at-once", &rest("wait = \"0s\"")),
            route("/shortly", &rest("wait = \"300ms\"")),
            route("/default", &rest("")),
        ]
        .concat(),
    );
    for (number, (path, least, said)) in [
        ("/at-once", Duration::ZERO, "409 in_progress"),
        ("/shortly", Duration::from_millis(300), "409 in_progress"),
        ("/default", Duration::ZERO, "201 replayed"),
    ]
    .into_iter()
    .enumerate()
    {
        let token = token(&proxy).await;
        let request = tokened(&proxy, &format!("{path}?slow={}", SLOW.as_secs_f64()), &token);
        let first = tokio::spawn(send(request.try_clone().unwrap()));
        until("it runs", LONG, || std::future::ready(shop.orders().len() == number + 1)).await;
        let begun = tokio::time::Instant::now();
        let duplicate = send(request.try_clone().unwrap()).await;
        let took = begun.elapsed();
        assert_eq!(duplicate.said(), said, "{path} after {took:?}: {duplicate:?}");
        assert!(took >= least, "{path}: {took:?}");
        assert_eq!(first.await.unwrap().said(), "201 executed", "{path}");
        assert_eq!(send(request).await.said(), "201 replayed", "{path}");
    }
    assert_eq!(shop.orders().len(), 3);
}

/// Spellings of one path. An application may resolve each of them to the first.
const SPELLINGS: [&str; 13] = [
    "/orders/7/pay",
    "//orders/7/pay",
    "/orders//7///pay",
    "/./orders/7/pay",
    "/a/../orders/7/pay",
    "/a/%2e%2E/orders/./7/pay",
    "/%6frders/7/p%61y",
    "/orders%2F7/pay",
    "/orders%2f7%2Fpay",
    "/orders;a/7;b=1/pay;c",
    "/a/..;/orders/7/pay",
    "/orders%2F7;x/pay",
    "/orders;x%2F7/pay",
];

/// Spellings share the claim of a key or interval too: otherwise each would run once. Each spelling is the first one once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spellings_of_one_path_share_a_key_and_an_interval() {
    for (policy, duplicate) in [
        ("policy = \"key\"", "201 replayed"),
        ("policy = \"interval\"\nevery = \"1m\"", "409 too_soon"),
        ("policy = \"interval\"\nevery = \"1m\"\nkey_from = { header = \"Idempotency-Key\" }", "409 too_soon"),
    ] {
        let shop = LegacyShop::start();
        let upstream = FaultyHttpProxy::to(&shop.url, smooth).await;
        let file = SettingsFile::new(&route("/orders/{id}/pay", policy));
        let proxy = proxy_to(&upstream.url, &["--config", file.path()]);
        for (number, first) in SPELLINGS.iter().enumerate() {
            let (key, body) = (format!("k{number}"), format!(r#"{{"item":"{number}"}}"#));
            let headers = [("content-type", "application/json"), ("idempotency-key", key.as_str())];
            let answer = raw_http::post(&proxy.url, first, &headers, &body).await;
            assert_eq!(answer.said(), "201 executed", "{policy}: {first}: {answer:?}");
            let line = upstream.seen().pop().unwrap().line;
            assert_eq!(line, format!("POST {first}"), "the upstream receives the path as it was sent");
            for other in SPELLINGS {
                let answer = raw_http::post(&proxy.url, other, &headers, &body).await;
                assert_eq!(answer.said(), duplicate, "{policy}: {other} after {first}: {answer:?}");
            }
            assert_eq!(shop.orders().len(), number + 1, "{policy}: {first}");
        }
    }
}

#[tokio::test]
async fn spellings_of_one_path_share_the_key_in_that_path() {
    let (shop, proxy) = start(&route("/orders/{id}/pay", "policy = \"key\"\nkey_from = { path = \"id\" }"));
    let headers = [("content-type", "application/json")];
    for (number, path) in SPELLINGS.iter().enumerate() {
        let answer = raw_http::post(&proxy.url, path, &headers, r#"{"item":"tea"}"#).await;
        assert_eq!(answer.said(), if number == 0 { "201 executed" } else { "201 replayed" }, "{path}: {answer:?}");
    }
    assert_eq!(shop.orders().len(), 1);
}

#[test]
fn check_lists_the_routes_and_an_invalid_one_exits_with_2() {
    let good = SettingsFile::new(&route("/orders/{id}/pay", "policy = \"key\"\nkey_from = { path = \"id\" }"));
    let (code, text) = said(&run(&["check", "--config", good.path()]));
    assert!(code == 0 && text.contains("/orders/{id}/pay") && text.contains("key"), "{text}");
    for (bad, expected) in [
        (route("/orders", "policy = \"tokn\""), "`tokn` is not one of"),
        (route("orders", "policy = \"token\""), "must start with a slash"),
        (route("/orders", "policy = \"token\"\nretain = \"1h\""), "`retain`"),
        (route("/orders/{id}", "policy = \"key\"\nkey_from = { path = \"number\" }"), "has no parameter {number}"),
        (route("/_onceward/token", "policy = \"none\""), "the proxy serves the paths under /_onceward itself"),
        (
            [route("/*", "policy = \"none\""), route("/orders", "policy = \"token\"")].concat(),
            "move this one before it",
        ),
    ] {
        let file = SettingsFile::new(&bad);
        for command in [&["check"][..], &["proxy", "--upstream", "http://127.0.0.1:9"]] {
            let (code, text) = said(&run(&[command, &["--config", file.path()]].concat()));
            assert_eq!(code, 2, "{bad}: {text}");
            assert!(text.contains(expected) && text.contains(": route "), "{bad}: {text}");
        }
    }
}
