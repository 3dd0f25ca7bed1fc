//! Real gateways with the recipes in `deploy`, in front of an application that does not use Onceward itself.
//!
//! Traefik lacks some features of the others. Its recipe lists them, and each test has its own expectation for Traefik.

use std::time::Duration;

use futures_util::future::join_all;
use onceward::store::Memory;
use onceward_api::{Code, header};
use onceward_tests::client::{Answer, http, send, token, token_for};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, RecordedRequest, smooth};
use onceward_tests::gateway::{Gateway, GatewayKind, KEY};
use onceward_tests::listening_port::free_port;
use onceward_tests::polling::{outlast, until};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::shop::{ORDER, STATUS, Shop};
use reqwest::{Method, RequestBuilder};

/// A gateway with a service and an application without a guard. Proxies record the requests to both.
pub(crate) struct Stage {
    pub(crate) service: OncewardServer,
    shop: Shop,
    pub(crate) service_proxy: FaultyHttpProxy,
    pub(crate) application_proxy: FaultyHttpProxy,
    pub(crate) gateway: Gateway,
}

impl Stage {
    pub(crate) async fn set(kind: GatewayKind) -> Self {
        Self::on(kind, &["--api-key", KEY]).await
    }

    pub(crate) async fn on(kind: GatewayKind, arguments: &[&str]) -> Self {
        let (service, shop) = (OncewardServer::start(arguments), Shop::on(Memory::new()));
        let (service_proxy, application_proxy) =
            (FaultyHttpProxy::to(&service.url, smooth).await, FaultyHttpProxy::to(shop.url(), smooth).await);
        let gateway = Gateway::start(kind, &[&service_proxy.url], &[&application_proxy.url]);
        Self { service, shop, service_proxy, application_proxy, gateway }
    }

    pub(crate) async fn token(&self) -> String {
        token(&self.service.url).await
    }

    /// Builds a submission to an unguarded route of the application, without sending it.
    pub(crate) fn submission(&self, method: Method, token: &str) -> RequestBuilder {
        let request = http().request(method, format!("{}/open", self.gateway.url)).header(ORDER, "tea");
        if token.is_empty() { request } else { request.header(header::TOKEN, token) }
    }

    pub(crate) async fn submit(&self, token: &str) -> Answer {
        send(self.submission(Method::POST, token)).await
    }

    /// Returns the number of runs of the application.
    pub(crate) fn effects(&self) -> usize {
        self.shop.ledger.runs().len()
    }

    /// Returns the last request that the application received.
    pub(crate) fn last(&self) -> RecordedRequest {
        self.application_proxy.seen().pop().expect("a request to the application")
    }
}

/// Returns status and outcome of an application's response. Traefik cannot tell it from its own failure, so its outcome is `redeemed`.
pub(crate) fn executed(kind: GatewayKind, status: &str) -> String {
    format!("{status} {}", if kind == GatewayKind::Traefik { "redeemed" } else { "executed" })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_parallel_posts_with_one_token_have_one_effect() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let token = stage.token().await;
        let answers = join_all((0..50).map(|_| stage.submit(&token))).await;
        let (first, others): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status < 400);
        assert_eq!((first.len(), stage.effects()), (1, 1), "{kind:?}");
        assert_eq!(first[0].said(), executed(kind, "200"), "{kind:?}");
        for answer in others {
            assert_eq!((answer.said(), answer.problem().code), ("409 token_used".into(), Code::TokenUsed), "{kind:?}");
            assert_eq!(answer.headers["cache-control"], "no-store", "{kind:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rejection_reaches_the_client_unchanged() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let short = token_for(&stage.service.url, r#"{"ttl":"1s"}"#).await;
        let elsewhere = token_for(&stage.service.url, r#"{"action":"POST /elsewhere"}"#).await;
        let here = token_for(&stage.service.url, r#"{"action":"POST /open"}"#).await;
        outlast(Duration::from_secs(1)).await;
        for (token, said) in [
            ("", "400 token_missing"),
            ("nonsense", "400 token_malformed"),
            (&*elsewhere, "403 token_invalid"),
            (&short, "410 token_expired"),
            (&here, &executed(kind, "200")),
            (&here, "409 token_used"),
        ] {
            let answer = stage.submit(token).await;
            assert_eq!(answer.said(), said, "{kind:?}: {answer:?}");
            if answer.status >= 400 {
                let problem = answer.problem();
                assert_eq!((problem.status, problem.code.as_str()), (answer.status, &said[4..]), "{kind:?}");
                assert_eq!(problem.instance.as_deref(), Some("/open"), "{kind:?}");
            }
        }
        assert_eq!(stage.effects(), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn query_token_counts_and_safe_methods_need_none() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let token = stage.token().await;
        for said in [&executed(kind, "200"), "409 token_used"] {
            let url = format!("{}/open?colour=green&_onceward={token}", stage.gateway.url);
            assert_eq!(send(http().put(url).header(ORDER, "tea")).await.said(), said, "{kind:?}");
        }
        let asked = stage.service_proxy.seen().len();
        assert_eq!(send(stage.submission(Method::GET, "")).await.said(), "200 ", "{kind:?}");
        assert_eq!((stage.effects(), stage.service_proxy.seen().len()), (2, asked), "{kind:?}: no auth request");
        for method in [Method::HEAD, Method::OPTIONS] {
            send(stage.submission(method.clone(), "")).await;
            assert_eq!(stage.last().line, format!("{method} /open"), "{kind:?}");
        }
        assert_eq!(stage.service_proxy.seen().len(), asked, "{kind:?}: no auth request");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_safe_methods_pass_while_onceward_is_down() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let token = stage.token().await;
        let Stage { service, shop, gateway, service_proxy, application_proxy } = stage;
        let post = || send(http().post(format!("{}/open", gateway.url)).header(header::TOKEN, &token));
        drop(service);
        let answer = post().await;
        // The gateway cannot know whether the token was redeemed before the connection broke.
        assert_eq!(answer.said(), "503 redeem_unknown", "{kind:?}: {answer:?}");
        assert_eq!(answer.headers["retry-after"], "1", "{kind:?}");
        match kind {
            // Traefik cannot respond with a body of its own.
            GatewayKind::Traefik => assert_eq!(&answer.body[..], b"no available server\n"),
            _ => assert_eq!(answer.problem().code, Code::RedeemUnknown, "{kind:?}"),
        }
        service_proxy.plan(|_| HttpFault::CutBefore);
        assert_eq!(post().await.said(), "503 redeem_unknown", "{kind:?}");
        // A service that accepts connections and does not respond within any timeout.
        service_proxy.plan(|_| HttpFault::Delay(Duration::from_secs(60)));
        let silent = OncewardServer::start(&["--api-key", KEY]);
        service_proxy.lead_to(&silent.url);
        let answer = tokio::time::timeout(Duration::from_secs(8), post()).await.expect("a response in time");
        assert_eq!(answer.said(), "503 redeem_unknown", "{kind:?}");
        // A refused connection.
        let nowhere = format!("http://127.0.0.1:{}", free_port());
        let lonely = Gateway::start(kind, &[&nowhere], &[&application_proxy.url]);
        let answer = send(http().post(format!("{}/open", lonely.url)).header(header::TOKEN, &token)).await;
        assert_eq!(answer.said(), "503 redeem_unknown", "{kind:?}");
        assert_eq!(shop.ledger.runs().len(), 0, "{kind:?}");
        assert_eq!(send(http().get(format!("{}/open", gateway.url))).await.status, 200, "{kind:?}");
        assert_eq!(application_proxy.seen().len(), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_200_response_lets_nothing_pass() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let token = stage.token().await;
        for head in [
            "200 OK",
            "204 No Content",
            "200 OK\r\nonceward-outcome: unprotected",
            "200 OK\r\nonceward-outcome: 1",
            "302 Found\r\nlocation: /",
        ] {
            let page = format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n");
            stage.service_proxy.plan(move |_| HttpFault::Raw(page.clone().into_bytes()));
            let request = stage.submission(Method::POST, &token).header(header::OUTCOME, "redeemed");
            let answer = send(request).await;
            assert_eq!(answer.said(), "503 redeem_unknown", "{kind:?}: {head}: {answer:?}");
        }
        assert_eq!(stage.effects(), 0, "{kind:?}");
        stage.service_proxy.plan(smooth);
        assert_eq!(stage.submit(&token).await.said(), executed(kind, "200"), "{kind:?}: the token is still valid");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_cannot_forge_attempt_outcome_or_original_request() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let token = stage.token().await;
        for said in [&executed(kind, "200"), "409 token_used"] {
            let request = stage.submission(Method::POST, &token);
            let request = request.header(header::ATTEMPT, "mine").header(header::OUTCOME, "executed");
            assert_eq!(send(request.header(header::RUN_ID, "mine")).await.said(), said, "{kind:?}");
        }
        let sent = stage.last();
        assert_eq!(sent.header(header::OUTCOME), "redeemed", "{kind:?}");
        assert_eq!(
            sent.header(header::RUN_ID).len(),
            if kind == GatewayKind::Traefik { 0 } else { 36 },
            "{kind:?}: {sent:?}"
        );
        match kind {
            // Traefik has no request id, so its recipe can only remove the client's.
            GatewayKind::Traefik => assert_eq!(sent.header(header::ATTEMPT), ""),
            _ => assert!(!["", "mine"].contains(&sent.header(header::ATTEMPT)), "{kind:?}: {sent:?}"),
        }

        for pair in [["x-original-method", "x-original-uri"], ["x-forwarded-method", "x-forwarded-uri"]] {
            let request = stage.submission(Method::POST, "").header(header::OUTCOME, "redeemed");
            let answer = send(request.header(pair[0], "GET").header(pair[1], "/open")).await;
            assert_eq!(answer.said(), "400 token_missing", "{kind:?}: {answer:?}");
        }
        assert_eq!(stage.effects(), 1, "{kind:?}");
        let reading =
            stage.submission(Method::GET, "").header(header::OUTCOME, "redeemed").header(header::RUN_ID, "mine");
        assert_eq!(send(reading).await.status, 200, "{kind:?}");
        let read = stage.last();
        assert_eq!((read.header(header::OUTCOME), read.header(header::RUN_ID)), ("", ""), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn application_releases_a_token_with_forwarded_headers() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let token = stage.token().await;
        assert_eq!(stage.submit(&token).await.said(), executed(kind, "200"), "{kind:?}");
        let sent = stage.last();
        let [token_sent, attempt, run] = [header::TOKEN, header::ATTEMPT, header::RUN_ID].map(|name| sent.header(name));
        let body = serde_json::json!({"token": token_sent, "attempt": attempt, "run_id": run});
        let request = http().post(format!("{}/token/release", stage.service.url)).bearer_auth(KEY);
        let released = send(request.header("content-type", "application/json").body(body.to_string())).await;
        // Traefik forwards no attempt, and a release needs one.
        let (released_as, then) =
            if kind == GatewayKind::Traefik { (400, "409 token_used") } else { (204, "200 executed") };
        assert_eq!(released.status, released_as, "{kind:?}: {released:?}");
        assert_eq!(stage.submit(&token).await.said(), then, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_key_stays_separate_from_client_credentials() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let answer = send(stage.submission(Method::POST, &stage.token().await).bearer_auth("the-client")).await;
        assert_eq!(answer.status, 200, "{kind:?}: {answer:?}");
        assert_eq!(stage.last().header("authorization"), "Bearer the-client", "{kind:?}");
        let asked = stage.service_proxy.seen().pop().expect("a request to Onceward");
        let shown = match kind {
            // Traefik can send the key only as the password in a URL: `onceward:` and the key.
            GatewayKind::Traefik => "Basic b25jZXdhcmQ6YS1rZXktb2YtdGhlLWdhdGV3YXlz".to_owned(),
            _ => format!("Bearer {KEY}"),
        };
        assert_eq!(asked.header("authorization"), shown, "{kind:?}");
    }
}

/// Returns the lines that `docs/gateways.md` shows for a next token.
fn documented(language: &str) -> String {
    let page = include_str!("../../../docs/gateways.md");
    let block = page.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next());
    let block = block.unwrap_or_else(|| panic!("docs/gateways.md has a block of {language}"));
    assert!(block.contains("Onceward-Next-Token"), "{block}");
    block.to_owned()
}

/// With the documented lines. Envoy cannot request a next token, Traefik cannot forward it to the
/// client, and HAProxy's script does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_token_reaches_the_client_through_the_gateway() {
    let in_nginx = format!("auth_request /_onceward;\n{}", documented("nginx"));
    let in_caddy = format!("handle_response @redeemed {{\n{}", documented("caddy"));
    let nginx =
        [("?style=nginx;", "?style=nginx&next_token=true;"), ("auth_request      /_onceward;", in_nginx.as_str())];
    let caddy = [
        ("rewrite /forward-auth?", "rewrite /forward-auth?next_token=true"),
        ("handle_response @redeemed {", in_caddy.as_str()),
    ];
    for (kind, added) in [(GatewayKind::Nginx, nginx), (GatewayKind::Caddy, caddy)] {
        let (service, shop) = (OncewardServer::start(&["--api-key", KEY]), Shop::on(Memory::new()));
        let recipe = added.iter().fold(kind.recipe(), |recipe, (from, to)| recipe.replace(from, to));
        let gateway = Gateway::with(kind, &recipe, &[&service.url], &[shop.url()]);
        let mut token = token(&service.url).await;
        for _ in 0..3 {
            let request = http().post(format!("{}/open", gateway.url)).header(header::TOKEN, &token);
            let answer = send(request.header(ORDER, "tea")).await;
            assert_eq!(answer.said(), "200 executed", "{kind:?}");
            token = answer.headers[header::NEXT_TOKEN].to_str().expect("a token").to_owned();
        }
        assert_eq!(shop.ledger.runs().len(), 3, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_logs_contain_no_token() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let [one, two] = [stage.token().await, stage.token().await];
        let url = format!("{}/open?_onceward={one}", stage.gateway.url);
        // Caddy does not log this request, as its site does not name the host.
        let lines = if kind == GatewayKind::Caddy { 4 } else { 5 };
        send(stage.submission(Method::POST, &two).header("host", "127.0.0.1")).await;
        for _ in 0..2 {
            send(http().post(&url).header(ORDER, "tea")).await;
            send(stage.submission(Method::POST, &two).header("referer", &url)).await;
        }
        let has_logged =
            || async { stage.gateway.access_log().lines().filter(|line| line.contains("/open")).count() == lines };
        until("the log has a line for each request", Duration::from_secs(5), has_logged).await;
        let log = stage.gateway.access_log() + &stage.gateway.said();
        assert!(!log.contains(&one) && !log.contains(&two), "{kind:?}: {log}");
    }
}

/// Returns the recipe with all clients as internal addresses, from which Envoy accepts `x-envoy-*` headers.
fn with_internal_clients(kind: GatewayKind) -> String {
    let internal = "internal_address_config: { cidr_ranges: [{ address_prefix: 127.0.0.0, prefix_len: 8 }] }";
    let (line, indent) = ("use_remote_address: true", " ".repeat(16));
    kind.recipe().replace(line, &format!("{line}\n{indent}{internal}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_does_not_retry_on_a_second_application() {
    for kind in GatewayKind::ALL {
        let (service, shop) = (OncewardServer::start(&["--api-key", KEY]), Shop::on(Memory::new()));
        let cut = |_: &RecordedRequest| HttpFault::CutAnswer(0);
        let proxies = [FaultyHttpProxy::to(shop.url(), cut).await, FaultyHttpProxy::to(shop.url(), cut).await];
        for (sent, method) in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH].into_iter().enumerate() {
            // A new gateway each time, without health state of the applications.
            let applications = [proxies[0].url.as_str(), proxies[1].url.as_str()];
            let gateway = Gateway::with(kind, &with_internal_clients(kind), &[&service.url], &applications);
            let token = token(&service.url).await;
            let request = http().request(method.clone(), format!("{}/open", gateway.url)).header(header::TOKEN, token);
            // Go would retry because of the first header, and Envoy because of the second.
            let request = request.header("idempotency-key", "k").header("x-envoy-retry-on", "5xx,reset");
            let answer = send(request.header(ORDER, "tea")).await;
            assert_eq!(answer.said(), "502 unknown", "{kind:?} {method}: {answer:?}");
            assert_eq!(shop.ledger.runs().len(), sent + 1, "{kind:?} {method}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_does_not_retry_on_a_broken_reused_connection() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        for (round, method) in [Method::POST, Method::PUT, Method::DELETE].into_iter().enumerate() {
            let (client, tokens) = (http(), [stage.token().await, stage.token().await]);
            let submission = |token: &str| {
                let request = client.request(method.clone(), format!("{}/open", stage.gateway.url));
                request.header(header::TOKEN, token).header("idempotency-key", "k").header(ORDER, "tea")
            };
            // Leaves idle connections that the gateway reuses.
            assert_eq!(send(submission(&tokens[0])).await.said(), executed(kind, "200"), "{kind:?} {method}");
            stage.application_proxy.plan(|_| HttpFault::CutAnswer(0));
            match submission(&tokens[1]).send().await {
                Ok(answer) => assert_eq!(answer.status(), 502, "{kind:?} {method}"),
                // HAProxy may close a reused client connection too, and leave the retry to the client.
                Err(error) => assert_eq!(kind, GatewayKind::HaProxy, "{method}: {error}"),
            }
            stage.application_proxy.plan(smooth);
            assert_eq!(stage.effects(), 2 * (round + 1), "{kind:?} {method}");
            assert_eq!(send(submission(&tokens[1])).await.said(), "409 token_used", "{kind:?} {method}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unavailable_store_and_wrong_key_are_503() {
    for kind in GatewayKind::ALL {
        let mut redis = RedisServer::start();
        let stage = Stage::on(kind, &["--api-key", KEY, "--store", &redis.url()]).await;
        for status in ["403", "404", "409", "500", "503"] {
            let request = stage.submission(Method::POST, &stage.token().await).header(STATUS, status);
            assert_eq!(send(request).await.said(), executed(kind, status), "{kind:?}");
        }
        let token = stage.token().await;
        redis.kill();
        // Redis may have executed a command that was sent before the connection broke. Without a connection, nothing is sent.
        let is_certain = || async {
            let answer = stage.submit(&token).await;
            let problem = answer.problem();
            assert_eq!((answer.status, problem.status), (503, 503), "{kind:?}: {answer:?}");
            assert_eq!(answer.outcome, problem.code.as_str(), "{kind:?}");
            assert!([Code::StoreUnavailable, Code::RedeemUnknown].contains(&problem.code), "{kind:?}: {problem:?}");
            problem.code == Code::StoreUnavailable
        };
        until("nothing is sent to Redis", Duration::from_secs(5), is_certain).await;

        let other = OncewardServer::start(&["--api-key", "another-key-of-gateways"]);
        stage.service_proxy.lead_to(&other.url);
        let answer = stage.submit(&token).await;
        let problem = answer.problem();
        assert_eq!((answer.said().as_str(), problem.status), ("503 redeem_unknown", 503), "{kind:?}: {answer:?}");
        assert_eq!((problem.code, problem.instance.as_deref()), (Code::RedeemUnknown, Some("/open")), "{kind:?}");
        assert!(problem.detail.contains("gateway is misconfigured"), "{kind:?}: {problem:?}");
        assert!(!answer.headers.contains_key("www-authenticate"), "{kind:?}: {answer:?}");
        assert_eq!(stage.effects(), 5, "{kind:?}");
    }
}
