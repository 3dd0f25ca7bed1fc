//! Pages of an application behind a gateway: they load the browser SDK and fetch tokens on their own origin. A rejected navigation
//! receives an HTML page, a program receives problem JSON.

use onceward_api::{Code, IssuedToken, header};
use onceward_tests::client::{Answer, http, send};
use onceward_tests::gateway::{Gateway, GatewayKind, KEY};
use onceward_tests::listening_port::free_port;
use onceward_tests::raw_http;

use onceward_tests::service::OncewardServer;
use reqwest::{Method, RequestBuilder};

use crate::gateways::recipes::{Stage, executed};

const SCRIPT: &[u8] = include_bytes!("../../../client-sdk/web/dist/onceward.js");
/// The `Accept` header of Chromium when it submits a form.
const NAVIGATION: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";

/// Builds a token request on the application's own origin, from a client with forged forwarding headers.
fn token_request(stage: &Stage) -> RequestBuilder {
    let request = http().post(format!("{}/token", stage.gateway.url)).bearer_auth(KEY);
    let request = request.header("forwarded", "for=6.6.6.6;host=evil.example").header("x-forwarded-for", "6.6.6.6");
    request.header("x-forwarded-host", "evil.example").header("origin", &stage.gateway.url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_gets_script_and_tokens_on_its_own_origin() {
    for kind in GatewayKind::ALL {
        let stage = Stage::on(kind, &["--api-key", KEY, "--trusted-proxies", "127.0.0.1"]).await;
        let script = send(http().get(format!("{}/sdk/onceward.js", stage.gateway.url))).await;
        assert_eq!((script.status, &script.body[..]), (200, SCRIPT), "{kind:?}");
        let named = script.headers["content-location"].to_str().unwrap();
        let kept = send(http().get(format!("{}{named}", stage.gateway.url))).await;
        assert_eq!((kept.status, &kept.body[..]), (200, SCRIPT), "{kind:?}");

        let answer = send(token_request(&stage)).await;
        assert_eq!(answer.status, 201, "{kind:?}: {answer:?}");
        let asked = stage.service_proxy.seen().pop().expect("a request to Onceward");
        assert_eq!(
            (asked.line.as_str(), asked.header("authorization")),
            ("POST /token", ""),
            "{kind:?}: sent without the API key"
        );
        assert_eq!((asked.header("x-forwarded-for"), asked.header("forwarded")), ("127.0.0.1", ""), "{kind:?}");
        assert!(!asked.header("x-forwarded-host").contains("evil"), "{kind:?}: {asked:?}");
        let token = serde_json::from_slice::<IssuedToken>(&answer.body).expect("a token").token;
        assert_eq!(stage.submit(&token).await.said(), executed(kind, "200"), "{kind:?}");
        assert_eq!(stage.submit(&token).await.said(), "409 token_used", "{kind:?}");
        assert_eq!(
            (stage.effects(), stage.application_proxy.seen().len()),
            (1, 1),
            "{kind:?}: only the order is forwarded"
        );
        assert!(
            !stage.service.log().concat().contains("cors_origins"),
            "{kind:?}: no CORS warning on the page's own origin"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_cannot_escape_its_rate_limit_through_the_gateway() {
    let few = ["--api-key", KEY, "--trusted-proxies", "127.0.0.1", "--rate-limit", "1/h", "--rate-burst", "2"];
    for kind in GatewayKind::ALL {
        let stage = Stage::on(kind, &few).await;
        for status in [201, 201, 429] {
            let request = token_request(&stage).header("x-forwarded-for", format!("6.6.6.{status}"));
            let answer = send(request).await;
            assert_eq!(answer.status, status, "{kind:?}: {answer:?}");
            if status == 429 {
                assert_eq!(answer.said(), "429 rate_limited", "{kind:?}");
                assert!(answer.headers.contains_key("retry-after"), "{kind:?}: {answer:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_paths_of_onceward_are_unreachable_through_the_gateway() {
    let targets = [
        "/claim",
        "/claim/complete",
        "/outcome",
        "/token/redeem",
        "/token/release",
        "/tokens",
        "/metrics",
        "/dashboard",
        "/forward-auth",
        "/healthz",
        "/openapi.json",
        "/token/",
        "/TOKEN",
        "/token/../claim",
        "/sdk/",
        "/sdk/../metrics",
        "/sdk/..%2fmetrics",
        "/sdk/%2e%2e/metrics",
        "/sdk/./../metrics",
        "/sdk/onceward.js/../../metrics",
        "/metrics/../sdk/onceward.js",
        "/forward-auth/../token",
        "/forward-auth/%2e%2e/sdk/onceward.js",
        "//token",
        "/%74oken",
        "/token;a=1",
        "/token%00",
        "/token%20",
        "/token%0a",
        "/token%0d%0a",
        "/sdk/onceward.0123456789abcdefa.js",
        "/sdk/onceward-.js",
        "/sdk/onceward.js%3f",
    ];
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let before = stage.service_proxy.seen().len();
        let host = [("host", stage.gateway.url.trim_start_matches("http://"))];
        for target in targets {
            let answer = raw_http::request("GET", &stage.gateway.url, target, &host, "").await;
            assert!(answer.status < 500, "{kind:?} {target}: {answer:?}");
        }
        assert!(stage.application_proxy.seen().len() > 15, "{kind:?}: the other paths belong to the application");
        for seen in &stage.service_proxy.seen()[before..] {
            let path = seen.line.trim_start_matches("GET ");
            assert!(["/token", "/%74oken", "/sdk/onceward.js"].contains(&path), "{kind:?}: {seen:?}");
        }
        // On these paths a submission needs a token, like on any path of the application.
        for target in ["/token/redeem", "/claim", "/tokens", "/sdk/x"] {
            let answer = raw_http::post(&stage.gateway.url, target, &host, "{}").await;
            assert_eq!(answer.said(), "400 token_missing", "{kind:?} {target}");
        }
        assert_eq!(stage.effects(), 0, "{kind:?}");
    }
}

/// Asserts that the response is the HTML page of this rejection, without external resources.
fn assert_page(kind: GatewayKind, answer: &Answer, said: &str) {
    assert_eq!(answer.said(), said, "{kind:?}: {answer:?}");
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8", "{kind:?}: {answer:?}");
    assert_eq!(answer.headers.get_all("content-type").iter().count(), 1, "{kind:?}: {answer:?}");
    assert_eq!(answer.headers["cache-control"], "no-store", "{kind:?}");
    assert_eq!(answer.timing().as_deref(), Some(&said[4..]), "{kind:?}");
    let page = String::from_utf8_lossy(&answer.body);
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"), "{kind:?}: {page}");
    assert!(page.contains("<h1>") && (page.contains("<style>") || !page.contains('{')), "{kind:?}: {page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_navigation_receives_html_and_programs_json() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let used = stage.token().await;
        assert_eq!(stage.submit(&used).await.status, 200, "{kind:?}");
        for (token, said) in [("", "400 token_missing"), ("nonsense", "400 token_malformed"), (&used, "409 token_used")]
        {
            let page = send(stage.submission(Method::POST, token).header("accept", NAVIGATION)).await;
            assert_page(kind, &page, said);
            let text = String::from_utf8_lossy(&page.body).into_owned();
            assert!(text.contains(&format!("<code>{}</code>", &said[4..])), "{kind:?}: {text}");
            let policy = page.headers["content-security-policy"].to_str().unwrap();
            assert!(policy.starts_with("default-src 'none'"), "{kind:?}: {policy}");
            for accept in ["*/*", "application/json", "application/json, text/html;q=0.9", "application/problem+json"] {
                let answer = send(stage.submission(Method::POST, token).header("accept", accept)).await;
                assert_eq!((answer.said(), answer.problem().code.as_str()), (said.to_owned(), &said[4..]), "{kind:?}");
                assert!(!answer.headers.contains_key("content-security-policy"), "{kind:?}: {answer:?}");
            }
        }
        // The file extension of the path does not change the content type.
        for (accept, is_page) in [(NAVIGATION, true), ("*/*", false)] {
            let request = http().post(format!("{}/page.html", stage.gateway.url)).header("accept", accept);
            let answer = send(request).await;
            match is_page {
                true => assert_page(kind, &answer, "400 token_missing"),
                false => assert_eq!(answer.problem().code, Code::TokenMissing, "{kind:?}"),
            }
        }
        assert_eq!(stage.effects(), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn navigation_receives_html_without_onceward_or_valid_key() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let other = OncewardServer::start(&["--api-key", "another-key-of-gateways"]);
        stage.service_proxy.lead_to(&other.url);
        let navigates = || stage.submission(Method::POST, "ow1_x").header("accept", NAVIGATION);
        let page = send(navigates()).await;
        assert_page(kind, &page, "503 redeem_unknown");
        assert!(String::from_utf8_lossy(&page.body).contains("gateway is misconfigured"), "{kind:?}: {page:?}");
        assert_eq!(page.headers["retry-after"], "1", "{kind:?}");

        stage.service_proxy.lead_to(&format!("http://127.0.0.1:{}", free_port()));
        let page = send(navigates()).await;
        match kind {
            // Traefik cannot respond with a body of its own.
            GatewayKind::Traefik => assert_eq!(page.said(), "503 redeem_unknown"),
            _ => assert_page(kind, &page, "503 redeem_unknown"),
        }
        assert_eq!(page.headers["retry-after"], "1", "{kind:?}");
        // A failed token request has no outcome, as it cannot have run anything.
        let answer = send(http().post(format!("{}/token", stage.gateway.url))).await;
        assert!(answer.status >= 500 && answer.outcome.is_empty(), "{kind:?}: {answer:?}");
        assert_eq!(stage.effects(), 0, "{kind:?}");
    }
}

/// The page travels in a header, and the recipe's buffer for all headers is 8 KB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_sends_the_page_for_long_paths() {
    let service = OncewardServer::start(&["--api-key", KEY]);
    let gateway = Gateway::start(GatewayKind::Nginx, &[&service.url], &[&service.url]);
    // The page shows up to 256 bytes of the path, and some characters take more bytes in HTML.
    for path in ["&".repeat(255), "a".repeat(255), "a".repeat(256), "%C3".repeat(85), "%C3".repeat(1000)] {
        let request = http().post(format!("{}/{path}", gateway.url)).header("accept", NAVIGATION);
        assert_page(GatewayKind::Nginx, &send(request).await, "400 token_missing");
    }
}

#[test]
fn recipe_starts_with_the_limits_of_a_gateway() {
    for kind in GatewayKind::ALL {
        let recipe = kind.recipe();
        let first =
            recipe.lines().take_while(|line| line.starts_with('#')).collect::<Vec<_>>().join(" ").replace("# ", "");
        for limit in
            ["does not read bodies", "stores no responses", "stays used if the application fails", header::FIELD]
        {
            assert!(first.contains(limit), "{kind:?}: {limit}: {first}");
        }
        assert!(recipe.contains("trusted_proxies"), "{kind:?}");
    }
}
