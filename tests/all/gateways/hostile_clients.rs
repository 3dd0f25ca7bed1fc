//! What a client behind a gateway may try, to get a submission through unseen or to speak for the gateway.

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

/// Sends a head and, once Onceward was asked about it, a body. Reads until nothing comes any more.
async fn raw(stage: &Stage, head: &str, body: &str) -> String {
    let address = stage.gateway.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.expect("a gateway");
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    let before = stage.asked.seen().len();
    stream.write_all(head.as_bytes()).await.expect("the gateway reads it");
    until("Onceward is asked", Duration::from_secs(5), || async { stage.asked.seen().len() > before }).await;
    // It may be refused before it is sent to its end.
    let _ = stream.write_all(body.as_bytes()).await;
    while let Ok(Ok(count @ 1..)) = tokio::time::timeout(Duration::from_secs(3), stream.read(&mut piece)).await {
        answer.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&answer).to_lowercase()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_but_a_websocket_becomes_a_tunnel_in_which_submissions_would_pass_unseen() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        stage.handed_on.plan(|_| HttpFault::Instead(200));
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
            for seen in stage.handed_on.seen() {
                assert!(["", "websocket"].contains(&seen.header("upgrade")), "{kind:?} {upgrades:?}: {seen:?}");
            }
        }
        let before = stage.handed_on.seen().len();
        ask(&["websocket"]).await;
        let wanted = stage.handed_on.seen().get(before).map(|seen| seen.header("upgrade").to_owned());
        let as_promised = match kind {
            GatewayKind::Nginx => Some(""),
            GatewayKind::Envoy => None,
            _ => Some("websocket"),
        };
        assert_eq!(wanted.as_deref(), as_promised, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cannot_speak_for_the_gateway_in_another_spelling_nor_take_away_what_it_says() {
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
            // Traefik has none to hand on.
            assert_eq!(sent.header(header::ATTEMPT).is_empty(), kind == GatewayKind::Traefik, "{kind:?} {method}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_gateway_refuses_itself_after_the_token_was_redeemed_is_not_called_executed() {
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
        // More than nginx takes.
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
        assert_eq!(health.status, 200, "{kind:?}: it is still at work");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nginx_itself_fails_after_the_token_was_redeemed_nobody_is_told_to_send_the_same_again() {
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
