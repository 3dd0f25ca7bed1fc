//! Pages of an allowed origin can fetch tokens from the proxy and read its rejections.

use axum::Router;
use axum::http::StatusCode;
use onceward_api::header;
use onceward_tests::client::{Answer, http, send};
use onceward_tests::legacy_shop::proxy_to;
use onceward_tests::service::OncewardServer;
use onceward_tests::test_server::TestServer;

const SHOP: &str = "https://shop.example";
const ALLOWED: &str = "access-control-allow-origin";

/// An application that knows no CORS, and passes on the rejections of another service.
fn application() -> TestServer {
    let respond = async || (StatusCode::CREATED, [(header::RETRY, "no")], "private");
    TestServer::run_router(Router::new().fallback(respond))
}

fn proxy(application: &TestServer) -> OncewardServer {
    proxy_to(&application.url, &["--cors-origins", SHOP, "--require", "key"])
}

fn readable_by(answer: &Answer) -> Option<&str> {
    answer.headers.get(ALLOWED).map(|origin| origin.to_str().unwrap())
}

#[tokio::test]
async fn page_of_an_allowed_origin_fetches_tokens_and_reads_rejections() {
    let application = application();
    let proxy = proxy(&application);
    let token = format!("{}/_onceward/token", proxy.url);
    let preflight = http().request("OPTIONS".parse().unwrap(), &token).header("access-control-request-method", "POST");
    let permitted = send(preflight.header("origin", SHOP)).await;
    assert_eq!((permitted.status, readable_by(&permitted)), (204, Some(SHOP)));
    assert!(permitted.headers["access-control-allow-headers"].to_str().unwrap().contains(header::TOKEN));
    for (path, status) in [("/_onceward/token", 201), ("/orders", 400)] {
        let answer = send(http().post(format!("{}{path}", proxy.url)).header("origin", SHOP)).await;
        assert_eq!((answer.status, readable_by(&answer)), (status, Some(SHOP)), "{path}");
        let exposed = answer.headers["access-control-expose-headers"].to_str().unwrap();
        assert!(exposed.contains(header::OUTCOME) && exposed.contains(header::RETRY), "{exposed}");
    }
}

#[tokio::test]
async fn other_origins_and_responses_of_the_application_stay_unreadable() {
    let application = application();
    let proxy = proxy(&application);
    let orders = |origin: &str| http().post(format!("{}/orders", proxy.url)).header("origin", origin.to_owned());
    for request in [
        orders("https://evil.example"),
        orders("null"),
        http().post(format!("{}/_onceward/token", proxy.url)).header("origin", "https://evil.example"),
        orders(SHOP).header(header::IDEMPOTENCY_KEY, "k"),
        http().get(format!("{}/orders", proxy.url)).header("origin", SHOP),
    ] {
        let answer = send(request).await;
        assert_eq!(readable_by(&answer), None, "{answer:?}");
    }
    let preflight = http().request("OPTIONS".parse().unwrap(), format!("{}/orders", proxy.url)).header("origin", SHOP);
    let answered = send(preflight.header("access-control-request-method", "POST")).await;
    assert_eq!((answered.status, readable_by(&answered)), (201, None), "the application answers its own preflights");
}
