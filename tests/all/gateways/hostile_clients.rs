//! Attacks by a client behind a gateway: submissions that bypass the check, and forged headers of the gateway.

use std::time::Duration;

use onceward_api::header;
use onceward_tests::client::{http, send, token};
use onceward_tests::faulty_http_proxy::HttpFault;
use onceward_tests::gateway::{Gateway, GatewayKind, KEY};
use onceward_tests::polling::until;
use onceward_tests::service::OncewardServer;
use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gateways::recipes::Stage;

/// Sends a request head and, after the gateway's auth request, a body. Reads until no more bytes arrive.
async fn raw(stage: &Stage, head: &str, body: &str) -> String {
    let address = stage.gateway.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.expect("a gateway");
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    let before = stage.service_proxy.seen().len();
    stream.write_all(head.as_bytes()).await.expect("the gateway reads the head");
    until("the gateway sends its auth request", Duration::from_secs(5), || async {
        stage.service_proxy.seen().len() > before
    })
    .await;
    // The gateway may reject the request before the whole body is sent.
    let _ = stream.write_all(body.as_bytes()).await;
    while let Ok(Ok(count @ 1..)) = tokio::time::timeout(Duration::from_secs(3), stream.read(&mut piece)).await {
        answer.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&answer).to_lowercase()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_websocket_upgrades_are_forwarded() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        stage.application_proxy.plan(|_| HttpFault::Instead(200));
        let ask = |upgrades: &[&'static str]| {
            let request = stage.submission(Method::GET, "").header("connection", "upgrade");
            let request =
                request.header("sec-websocket-version", "13").header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==");
            let request = request.header("http2-settings", "AAMAAABkAARAAAAAAAIAAAAA");
            send(upgrades.iter().fold(request, |request, name| request.header("upgrade", *name)))
        };
        for upgrades in [
            &["h2c"][..],
            &["H2C"],
            &["h2c, foo"],
            &["foo, h2c"],
            &["websocket, h2c"],
            &["h2c", "websocket"],
            &["websocket", "h2c"],
        ] {
            ask(upgrades).await;
            for seen in stage.application_proxy.seen() {
                assert!(["", "websocket"].contains(&seen.header("upgrade")), "{kind:?} {upgrades:?}: {seen:?}");
            }
        }
        let before = stage.application_proxy.seen().len();
        ask(&["websocket"]).await;
        let wanted = stage.application_proxy.seen().get(before).map(|seen| seen.header("upgrade").to_owned());
        let as_promised = match kind {
            GatewayKind::Nginx => Some(""),
            GatewayKind::Envoy => None,
            _ => Some("websocket"),
        };
        assert_eq!(wanted.as_deref(), as_promised, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_cannot_forge_or_remove_gateway_headers() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        for method in [Method::POST, Method::GET] {
            let request = stage.submission(method.clone(), &stage.token().await);
            let request = request.header("onceward_outcome", "redeemed").header("Onceward_Attempt", "mine");
            let request = request.header("connection", "close, onceward-outcome, onceward-attempt");
            assert_eq!(send(request).await.status, 200, "{kind:?} {method}");
            let sent = stage.last();
            let spelled_otherwise = sent.headers.keys().find(|name| name.starts_with("onceward_"));
            assert_eq!(spelled_otherwise, None, "{kind:?} {method}");
            let redeemed = if method == Method::POST { "redeemed" } else { "" };
            assert_eq!(sent.header(header::OUTCOME), redeemed, "{kind:?} {method}");
            // Traefik has no attempt to forward.
            assert_eq!(sent.header(header::ATTEMPT).is_empty(), kind == GatewayKind::Traefik, "{kind:?} {method}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_rejection_after_the_redeem_is_not_executed() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let head = |token: &str| {
            format!(
                "POST /open HTTP/1.1\r\nhost: {}\r\n{}: {token}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
                stage.gateway.url.trim_start_matches("http://"),
                header::TOKEN
            )
        };
        let broken = "no length\r\n".to_owned();
        // More than nginx accepts.
        let large = format!("200000\r\n{}\r\n0\r\n\r\n", "x".repeat(0x0020_0000));
        let bodies = if kind == GatewayKind::Nginx { vec![broken, large] } else { vec![broken] };
        for body in bodies {
            let answer = raw(&stage, &head(&stage.token().await), &body).await;
            assert!(answer.starts_with("http/1.1 4") || answer.starts_with("http/1.1 50"), "{kind:?}: {answer}");
            for word in ["executed", "retry-after", "store_unavailable", "redeem_unknown"] {
                assert!(!answer.contains(word), "{kind:?}: {answer}");
            }
            // Traefik cannot tell its own 500 from the application's.
            let outcome = if kind == GatewayKind::Traefik { "redeemed" } else { "unknown" };
            assert!(answer.contains(&format!("\r\nonceward-outcome: {outcome}\r\n")), "{kind:?}: {answer}");
            assert!(answer.contains(&format!("\r\nserver-timing: onceward;desc={outcome}\r\n")), "{kind:?}: {answer}");
            assert_eq!(answer.matches("onceward-outcome").count(), 1, "{kind:?}: {answer}");
        }
        assert_eq!(stage.effects(), 0, "{kind:?}");
        let health = send(http().get(format!("{}/open", stage.gateway.url))).await;
        assert_eq!(health.status, 200, "{kind:?}: the gateway still works");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_failure_after_the_redeem_is_unknown() {
    let service = OncewardServer::start(&["--api-key", KEY]);
    let recipe = GatewayKind::Nginx.recipe().replace("\":redeemed\" http://application", "\":redeemed\" nowhere");
    assert_ne!(recipe, GatewayKind::Nginx.recipe());
    let gateway = Gateway::with(GatewayKind::Nginx, &recipe, &[&service.url], &[&service.url]);
    let submission = http().post(format!("{}/open", gateway.url)).header(header::TOKEN, token(&service.url).await);
    let answer = send(submission).await;
    assert_eq!(
        (answer.said().as_str(), answer.headers.contains_key("retry-after")),
        ("500 unknown", false),
        "{answer:?}"
    );
}
