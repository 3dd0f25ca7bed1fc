//! The `/forward-auth` endpoint, called like gateways call it.

use std::collections::HashSet;
use std::time::Duration;

use onceward_api::{Code, Retry, header};
use onceward_tests::client::{Answer, http, send, token, token_for};
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::metrics::Metrics;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use reqwest::{Method, RequestBuilder};

const KEY: &str = "a-key-of-the-gateways";

/// Builds an auth request for `POST /orders`, without sending it.
fn auth_request(service: &OncewardServer, query: &str) -> RequestBuilder {
    let request = http().get(format!("{}/forward-auth{query}", service.url)).bearer_auth(KEY);
    request.header("x-original-method", "POST").header("x-original-uri", "/orders?a=1")
}

/// Sends an auth request for `POST /orders` with this token and attempt.
async fn ask(service: &OncewardServer, token: &str, attempt: &str) -> Answer {
    let request = auth_request(service, "").header(header::TOKEN, token);
    send(if attempt.is_empty() { request } else { request.header(header::ATTEMPT, attempt) }).await
}

/// Like [`ask`], with retries while the store times out.
async fn ask_at_last(service: &OncewardServer, token: &str, attempt: &str) -> Answer {
    for _ in 0..100 {
        let answer = ask(service, token, attempt).await;
        if !["store_unavailable", "redeem_unknown"].contains(&&*answer.outcome) {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the store is still unavailable");
}

fn with_key() -> OncewardServer {
    OncewardServer::start(&["--api-key", KEY])
}

#[tokio::test]
async fn token_passes_once_and_its_attempt_again() {
    let service = with_key();
    let [plain, named] = [token(&service.url).await, token(&service.url).await];
    assert_eq!(ask(&service, &plain, "").await.said(), "200 redeemed");
    assert_eq!(ask(&service, &plain, "").await.said(), "409 token_used");
    let mut runs = HashSet::new();
    for _ in 0..3 {
        let redeemed = ask(&service, &named, "one").await;
        assert_eq!(redeemed.said(), "200 redeemed");
        runs.insert(redeemed.headers[header::RUN_ID].clone());
        assert_eq!(ask(&service, &named, "two").await.said(), "409 token_used");
        assert_eq!(ask(&service, &named, "").await.said(), "409 token_used");
    }
    assert_eq!(runs.len(), 1, "a retry has the same run id");
}

#[tokio::test]
async fn attempt_is_trusted_only_with_key_or_trusted_proxy() {
    let open = OncewardServer::start(&[]);
    let good = token(&open.url).await;
    assert_eq!(ask(&open, &good, "one").await.said(), "200 redeemed");
    assert_eq!(ask(&open, &good, "one").await.said(), "409 token_used", "an attempt without a key is not trusted");
    assert_eq!(ask(&open, &good, "").await.said(), "409 token_used");
    let warned = || open.log().iter().filter(|line| line.contains("trusted_proxies")).count();
    until("the service warns", Duration::from_secs(5), || async { warned() > 0 }).await;
    assert_eq!(warned(), 1, "the service warns once: {:#?}", open.log());

    let behind = OncewardServer::start(&["--trusted-proxies", "127.0.0.0/8"]);
    let good = token(&behind.url).await;
    for _ in 0..2 {
        assert_eq!(ask(&behind, &good, "one").await.said(), "200 redeemed");
    }
    assert!(!behind.log().concat().contains("sends onceward-attempt and is not trusted"));
}

#[tokio::test]
async fn original_request_from_three_sources_binds_the_token() {
    let service = with_key();
    let asked = |describe: fn(RequestBuilder) -> RequestBuilder, method: Method, path: &'static str| {
        let (request, url) =
            (http().request(method, format!("{}/forward-auth{path}", service.url)), service.url.clone());
        async move {
            let good = token_for(&url, r#"{"action":"DELETE /orders/7"}"#).await;
            send(describe(request.bearer_auth(KEY)).header(header::TOKEN, good)).await.said()
        }
    };
    let original = |request: RequestBuilder| {
        request.header("x-original-method", "DELETE").header("x-original-uri", "/orders/7?x=1")
    };
    let forwarded =
        |request: RequestBuilder| request.header("x-forwarded-method", "DELETE").header("x-forwarded-uri", "/orders/7");
    let elsewhere =
        |request: RequestBuilder| request.header("x-forwarded-method", "DELETE").header("x-forwarded-uri", "/orders/8");
    assert_eq!(asked(original, Method::GET, "").await, "200 redeemed");
    assert_eq!(asked(forwarded, Method::GET, "").await, "200 redeemed");
    assert_eq!(asked(forwarded, Method::POST, "").await, "200 redeemed", "any method of the auth request");
    assert_eq!(asked(|request| request, Method::DELETE, "/orders/7?x=1").await, "200 redeemed");
    assert_eq!(asked(|request| request, Method::DELETE, "/orders/8").await, "403 token_invalid");
    assert_eq!(asked(elsewhere, Method::GET, "").await, "403 token_invalid");
    assert_eq!(asked(original, Method::DELETE, "/orders/8").await, "400 bad_request", "two sources that differ");
}

#[tokio::test]
async fn token_is_read_from_header_or_original_query() {
    let service = with_key();
    let [one, two] = [token(&service.url).await, token(&service.url).await];
    let asked = |uri: String, token: &str| {
        let request = http().get(format!("{}/forward-auth", service.url)).bearer_auth(KEY);
        let request = request.header("x-original-method", "POST").header("x-original-uri", uri);
        send(if token.is_empty() { request } else { request.header(header::TOKEN, token) })
    };
    let both = format!("/orders?_onceward={one}&a=%20");
    assert_eq!(asked(both.clone(), &two).await.said(), "400 token_malformed");
    assert_eq!(asked(both.clone(), &one).await.said(), "200 redeemed");
    assert_eq!(asked(format!("/orders?_onceward={two}"), "").await.said(), "200 redeemed");
    assert_eq!(asked("/orders".into(), "").await.said(), "400 token_missing");
    // Caddy's own directive also appends the client's query to the auth request.
    let three = token(&service.url).await;
    let request = http().get(format!("{}/forward-auth?_onceward={three}&style=x", service.url)).bearer_auth(KEY);
    let uri = format!("/orders?_onceward={three}&style=x");
    let answer = send(request.header("x-forwarded-method", "POST").header("x-forwarded-uri", uri)).await;
    assert_eq!(answer.said(), "200 redeemed");
    let log = service.log().concat();
    assert!(log.contains("/forward-auth") && ![&one, &two, &three].iter().any(|token| log.contains(*token)), "{log}");
}

#[tokio::test]
async fn safe_methods_pass_without_token_or_store_command() {
    let redis = RedisServer::start();
    let service = OncewardServer::start(&["--api-key", KEY, "--store", &redis.url(), "--share-every", "1h"]);
    // Redis caches the script.
    assert_eq!(ask(&service, &token(&service.url).await, "one").await.said(), "200 redeemed");
    let monitor = redis.monitor();
    for method in ["GET", "HEAD", "OPTIONS"] {
        let request = http().get(format!("{}/forward-auth", service.url)).bearer_auth(KEY);
        let answer = send(request.header("x-original-method", method).header("x-original-uri", "/orders")).await;
        assert_eq!(answer.said(), "200 unprotected", "{method}");
    }
    assert_eq!(ask(&service, "ow1_nonsense", "one").await.said(), "400 token_malformed");
    assert_eq!(monitor.commands(), Vec::<String>::new());
    let good = token(&service.url).await;
    let monitor = redis.monitor();
    assert_eq!(ask(&service, &good, "one").await.said(), "200 redeemed");
    assert_eq!(monitor.commands().len(), 1, "{:?}", monitor.commands());
}

#[tokio::test]
async fn rejections_are_never_5xx_and_nginx_receives_403() {
    let mut redis = RedisServer::start();
    let service = OncewardServer::start(&["--api-key", KEY, "--store", &redis.url()]);
    let [good, other] = [token(&service.url).await, token(&service.url).await];
    let nginx = |token: &str| send(auth_request(&service, "?style=nginx").header(header::TOKEN, token));
    let passed = nginx(&good).await;
    assert_eq!((passed.said().as_str(), passed.headers.contains_key(header::PROBLEM)), ("204 redeemed", false));
    for (token, said) in [(&*good, "403 token_used"), ("nonsense", "403 token_malformed"), ("", "403 token_missing")] {
        let answer = nginx(token).await;
        let problem: onceward_api::Problem =
            serde_json::from_slice(answer.headers[header::PROBLEM].as_bytes()).unwrap();
        assert_eq!((answer.said().as_str(), problem.code.as_str()), (said, &said[4..]));
        assert_eq!((problem.status, problem.instance.as_deref()), (problem.code.status(), Some("/orders")));
    }
    let stranger = send(http().get(format!("{}/forward-auth?style=nginx", service.url))).await;
    assert_eq!(stranger.said(), "403 redeem_unknown");
    redis.kill();
    // A command that was sent before the connection broke may have used the token. Without a connection, nothing is sent.
    for attempt in ["one", ""] {
        let is_certain = || async {
            let answer = ask(&service, &other, attempt).await;
            assert!(["403 store_unavailable", "403 redeem_unknown"].contains(&&*answer.said()), "{answer:?}");
            assert_eq!((answer.problem().status, &answer.headers["retry-after"]), (503, &"1".parse().unwrap()));
            answer.problem().retry == Retry::Same
        };
        until("nothing is sent to Redis", Duration::from_secs(5), is_certain).await;
    }
    assert_eq!(nginx(&other).await.said(), "403 store_unavailable");
    let traefik = send(auth_request(&service, "?style=traefik").header(header::TOKEN, &other)).await;
    assert_eq!(
        (traefik.said().as_str(), traefik.problem().status),
        ("503 store_unavailable", 503),
        "Traefik forwards the status"
    );
}

/// The client's next request has another attempt, while a retry of the gateway itself has the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_redis_reply_is_redeem_unknown_for_attempts() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(redis.port()).await;
    let service = OncewardServer::start(&["--api-key", KEY, "--store", &proxy.url(), "--store-timeout", "1s"]);
    // Redis caches the script at its first use.
    assert_eq!(ask(&service, &token(&service.url).await, "before").await.said(), "200 redeemed");
    for (round, fate) in [TcpFault::LoseAnswer, TcpFault::SwallowAnswer].into_iter().enumerate() {
        let good = token(&service.url).await;
        proxy.next(redis.compare_commands().swap_word(), fate);
        let lost = ask(&service, &good, "one").await;
        assert_eq!(proxy.struck(), round + 1, "{fate:?}: the reply was lost");
        assert_eq!((lost.said().as_str(), lost.problem().retry), ("403 redeem_unknown", Retry::NewToken), "{fate:?}");
        assert_eq!(ask_at_last(&service, &good, "one").await.said(), "200 redeemed", "{fate:?}: the gateway retries");
        assert_eq!(ask_at_last(&service, &good, "two").await.said(), "409 token_used", "{fate:?}: the client retries");
    }
    let metrics = Metrics::of(&service.url).await;
    let counted =
        |code: &str| metrics.sum("onceward_verdicts_total", &["policy=\"token\"", &format!("code=\"{code}\"")]);
    assert!(counted("redeem_unknown") >= 2.0, "{}", metrics.text);
}

#[tokio::test]
async fn api_key_is_required_and_accepted_as_password() {
    let service = with_key();
    let good = token(&service.url).await;
    let asked = |authorise: &dyn Fn(RequestBuilder) -> RequestBuilder| {
        let request = authorise(http().post(format!("{}/forward-auth/orders", service.url)));
        send(request.header(header::TOKEN, &good))
    };
    assert_eq!(asked(&|request| request).await.said(), "403 redeem_unknown");
    assert_eq!(asked(&|request| request.bearer_auth("wrong")).await.said(), "403 redeem_unknown");
    assert_eq!(asked(&|request| request.basic_auth(KEY, Some("wrong"))).await.said(), "403 redeem_unknown");
    assert_eq!(asked(&|request| request.basic_auth(KEY, None::<&str>)).await.said(), "403 redeem_unknown");
    assert_eq!(asked(&|request| request.header("authorization", "Basic =")).await.said(), "403 redeem_unknown");
    let refused = asked(&|request| request.bearer_auth("wrong")).await;
    let problem = refused.problem();
    assert_eq!(
        (problem.status, problem.instance.as_deref()),
        (503, Some("/orders")),
        "the client must not be asked to sign in"
    );
    assert!(!refused.headers.contains_key("www-authenticate"), "{refused:?}");
    assert_eq!(asked(&|request| request.basic_auth("onceward", Some(KEY))).await.said(), "200 redeemed");
}

#[tokio::test]
async fn bad_input_is_named_and_keeps_the_token_valid() {
    let service = with_key();
    let good = token(&service.url).await;
    let ask = |path: &str, headers: &[(&str, &str)]| {
        let request = http().get(format!("{}/forward-auth{path}", service.url)).bearer_auth(KEY);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        send(request.header(header::TOKEN, &good))
    };
    let original = [("x-original-method", "POST"), ("x-original-uri", "/orders")];
    let long = "a".repeat(256);
    for (path, headers, named) in [
        ("", vec![], "X-Original-Method"),
        ("", vec![original[0]], "`x-original-uri`"),
        ("", vec![original[1]], "`x-original-method`"),
        ("", vec![original[0], ("x-original-uri", "orders")], "`x-original-uri`"),
        ("", vec![("x-original-method", "P OST"), original[1]], "`x-original-method`"),
        ("", vec![original[0], original[1], original[0], ("x-original-uri", "/other")], "differ"),
        ("?style=apache", original.to_vec(), "`style`"),
        ("?style=", original.to_vec(), "`traefik`"),
        ("?next_token=yes", original.to_vec(), "`next_token`"),
        ("?wait=1", original.to_vec(), "`style`"),
        ("", [&original[..], &[(header::ATTEMPT, "a b")]].concat(), "`onceward-attempt`"),
        ("", [&original[..], &[(header::ATTEMPT, "")]].concat(), "`onceward-attempt`"),
        ("", [&original[..], &[(header::ATTEMPT, &long)]].concat(), "`onceward-attempt`"),
        ("", [&original[..], &[(header::ATTEMPT, "a"), (header::ATTEMPT, "a")]].concat(), "`onceward-attempt`"),
    ] {
        let answer = ask(path, &headers).await;
        assert_eq!(answer.said(), "400 bad_request", "{path} {headers:?}: {answer:?}");
        assert!(answer.problem().detail.contains(named), "{named}: {answer:?}");
    }
    assert_eq!(ask("", &original).await.said(), "200 redeemed", "the token is still valid");
}

#[tokio::test]
async fn next_token_on_request_keeps_the_binding() {
    let service = with_key();
    let good = token_for(&service.url, r#"{"action":"POST /orders"}"#).await;
    let asked = |token: String, query: &str| send(auth_request(&service, query).header(header::TOKEN, token));
    let answer = asked(good.clone(), "?next_token=true").await;
    let next = answer.headers[header::NEXT_TOKEN].to_str().unwrap().to_owned();
    let refused = asked(good, "?next_token=true").await;
    assert_eq!((refused.said().as_str(), refused.headers.contains_key(header::NEXT_TOKEN)), ("409 token_used", false));
    let elsewhere = http().post(format!("{}/forward-auth/elsewhere", service.url)).bearer_auth(KEY);
    assert_eq!(send(elsewhere.header(header::TOKEN, &next)).await.said(), "403 token_invalid");
    let answer = asked(next, "?next_token=false&style=nginx").await;
    assert_eq!((answer.said().as_str(), answer.headers.contains_key(header::NEXT_TOKEN)), ("204 redeemed", false));
}

#[tokio::test]
async fn forward_auth_ignores_the_origin_header() {
    let service = OncewardServer::start(&["--api-key", KEY, "--cors-origins", "https://allowed.example"]);
    let good = token(&service.url).await;
    let request = auth_request(&service, "").header("origin", "https://shop.example").header(header::TOKEN, good);
    assert_eq!(send(request).await.said(), "200 redeemed");
    let preflight = http().request(Method::OPTIONS, format!("{}/forward-auth/orders", service.url)).bearer_auth(KEY);
    let preflight = preflight.header("origin", "https://shop.example").header("access-control-request-method", "PUT");
    assert_eq!(send(preflight).await.said(), "200 unprotected");
    assert!(!service.log().concat().contains("shop.example"), "{:#?}", service.log());
}

#[tokio::test]
async fn forward_auth_serves_html_and_ignores_bodies() {
    let service = with_key();
    let page = send(auth_request(&service, "").header("accept", "text/html")).await;
    assert_eq!(
        (page.said().as_str(), page.headers["content-type"].to_str().unwrap()),
        ("400 token_missing", "text/html; charset=utf-8")
    );
    let page = send(auth_request(&service, "?style=nginx").header("accept", "text/html")).await;
    let text = page.headers[header::PAGE].to_str().unwrap();
    assert!(
        text.starts_with("<!doctype html>") && text.contains("token_missing"),
        "nginx receives the page in a header: {page:?}"
    );
    let json = send(auth_request(&service, "?style=nginx").header("accept", "*/*")).await;
    assert!(!json.headers.contains_key(header::PAGE), "{json:?}");
    let good = token(&service.url).await;
    let request =
        http().post(format!("{}/forward-auth/orders", service.url)).bearer_auth(KEY).header(header::TOKEN, good);
    assert_eq!(send(request.body(vec![b'x'; 300_000])).await.said(), "200 redeemed");
    let refused = send(http().post(format!("{}/forward-auth/orders", service.url)).bearer_auth(KEY)).await;
    assert_eq!((refused.problem().code, refused.problem().instance.as_deref()), (Code::TokenMissing, Some("/orders")));
}
