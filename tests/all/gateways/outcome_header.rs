//! The `Onceward-Outcome` of every response of a gateway: by it the client decides whether to retry, and with which token.

use std::time::Duration;

use onceward_api::{Code, Retry, header};
use onceward_tests::client::{Answer, http, send};
use onceward_tests::faulty_http_proxy::{HttpFault, RecordedRequest, first, smooth};
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::gateway::{Gateway, GatewayKind, KEY};
use onceward_tests::listening_port::free_port;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::STATUS;
use reqwest::Method;

use crate::gateways::recipes::{Stage, executed};

/// Returns the status and the outcome. Asserts that a response has at most one outcome header, and the same in `Server-Timing`.
fn said(answer: &Answer) -> String {
    assert!(answer.headers.get_all(header::OUTCOME).iter().count() <= 1, "{answer:?}");
    assert_eq!(answer.timing().unwrap_or_default(), answer.outcome, "{answer:?}");
    answer.said()
}

/// Asserts the response of a gateway that received no verdict: the token may be used, and the client needs a new one.
fn assert_lost(kind: GatewayKind, answer: &Answer) {
    assert_eq!(said(answer), "503 redeem_unknown", "{kind:?}: {answer:?}");
    assert_eq!(answer.headers["cache-control"], "no-store", "{kind:?}");
    // Traefik cannot send a body of its own.
    if kind != GatewayKind::Traefik {
        let problem = answer.problem();
        assert_eq!(
            (problem.code, problem.retry, problem.status),
            (Code::RedeemUnknown, Retry::NewToken, 503),
            "{kind:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_verdict_requires_a_new_token_which_passes() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let losses = [
            HttpFault::CutAnswer(0),
            // Each of these truncates the head at another place.
            HttpFault::CutAnswer(40),
            HttpFault::CutAnswer(60),
            HttpFault::CutAnswer(80),
            HttpFault::CutAnswer(99),
            HttpFault::After(502),
            // Longer than the timeout of any gateway.
            HttpFault::Delay(Duration::from_secs(60)),
        ];
        for (round, loss) in losses.into_iter().enumerate() {
            let token = stage.token().await;
            let plan = loss.clone();
            stage.service_proxy.plan(move |_| plan.clone());
            assert_lost(kind, &stage.submit(&token).await);
            stage.service_proxy.plan(smooth);
            assert_eq!(stage.application_proxy.seen().len(), round, "{kind:?} {loss:?}: nothing was forwarded");
            assert_eq!(
                stage.submit(&token).await.said(),
                "409 token_used",
                "{kind:?} {loss:?}: the token was redeemed"
            );
            let next = stage.submit(&stage.token().await).await;
            assert_eq!(next.said(), executed(kind, "200"), "{kind:?} {loss:?}");
            assert_eq!(stage.effects(), round + 1, "{kind:?} {loss:?}");
        }
    }
}

/// A gateway that retries its auth request over a new connection names the same attempt; otherwise it does not retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verdict_lost_on_reused_connection_is_not_token_used() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        for percent in [0, 50] {
            for _ in 0..3 {
                assert_eq!(stage.submit(&stage.token().await).await.said(), executed(kind, "200"), "{kind:?}");
            }
            stage.service_proxy.plan(first([HttpFault::CutAnswer(percent)]));
            let (before, answer) = (stage.effects(), stage.submit(&stage.token().await).await);
            let ran = stage.effects() - before;
            match ran {
                0 => assert_lost(kind, &answer),
                _ => assert_eq!((answer.said(), ran), (executed(kind, "200"), 1), "{kind:?} {percent}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_redis_reply_requires_a_new_token_which_passes() {
    for kind in GatewayKind::ALL {
        let redis = RedisServer::start();
        let proxy = Proxy::before(redis.port()).await;
        // Longer than the default, for a busy machine, and shorter than the timeout of any gateway.
        let patient = ["--api-key", KEY, "--store", &proxy.url(), "--store-timeout", "1s"];
        let stage = Stage::on(kind, &patient).await;
        // Redis caches the script at its first use.
        assert_eq!(stage.submit(&stage.token().await).await.status, 200, "{kind:?}");
        for (round, fate) in [TcpFault::LoseAnswer, TcpFault::SwallowAnswer].into_iter().enumerate() {
            let token = stage.token().await;
            // Traefik names no attempt, so the token is deleted instead of swapped.
            let commands = redis.compare_commands();
            proxy.next(if kind == GatewayKind::Traefik { commands.remove } else { commands.swap_word() }, fate);
            let answer = stage.submit(&token).await;
            assert_eq!(proxy.struck(), round + 1, "{kind:?} {fate:?}: the reply was lost");
            assert_eq!(said(&answer), "503 redeem_unknown", "{kind:?} {fate:?}: {answer:?}");
            assert_eq!(answer.problem().retry, Retry::NewToken, "{kind:?} {fate:?}");
            assert_eq!(stage.effects(), round + 1, "{kind:?} {fate:?}: nothing was forwarded");
            // The broken connection may have to be replaced first.
            let is_used = || async {
                let again = stage.submit(&token).await.outcome;
                assert!(["store_unavailable", "redeem_unknown", "token_used"].contains(&&*again), "{kind:?}: {again}");
                again == "token_used"
            };
            until("the token was redeemed", Duration::from_secs(10), is_used).await;
            assert_eq!(stage.submit(&stage.token().await).await.said(), executed(kind, "200"), "{kind:?} {fate:?}");
            assert_eq!(stage.effects(), round + 2, "{kind:?} {fate:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_client_succeeds_after_a_lost_verdict() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let client = onceward_tests::sdk_client::builder()
            .tokens_from(&stage.service.url)
            .send_tokens_to(&stage.gateway.url)
            .build()
            .unwrap();
        stage.service_proxy.plan(first([HttpFault::CutAnswer(0)]));
        let answer = client.post(format!("{}/open", stage.gateway.url)).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.attempts()), (200, 2), "{kind:?}: {answer:?}");
        assert_eq!(stage.effects(), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn application_responses_are_executed_except_502_and_504() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let statuses = ["200", "201", "302", "400", "403", "404", "409", "422", "429", "500", "501", "503", "505"];
        for status in statuses {
            let request = stage.submission(Method::POST, &stage.token().await).header(STATUS, status);
            let answer = send(request).await;
            assert_eq!(said(&answer), executed(kind, status), "{kind:?}: {answer:?}");
            assert_eq!(answer.body, "ordered with 0 bytes", "{kind:?} {status}");
        }
        for status in ["502", "504"] {
            let request = stage.submission(Method::POST, &stage.token().await).header(STATUS, status);
            let answer = send(request).await;
            assert_eq!(said(&answer), format!("{status} unknown"), "{kind:?}: {answer:?}");
            assert!(!answer.headers.contains_key("retry-after"), "{kind:?} {status}");
            // Traefik can mark the response only in exchange for its body.
            if kind != GatewayKind::Traefik {
                assert_eq!(answer.body, "ordered with 0 bytes", "{kind:?} {status}");
            }
        }
        assert_eq!(stage.effects(), statuses.len() + 2, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_or_missing_application_response_is_unknown() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        for percent in [0, 20] {
            stage.application_proxy.plan(move |_| HttpFault::CutAnswer(percent));
            let token = stage.token().await;
            let answer = stage.submit(&token).await;
            // Traefik turns a truncated response head into a 500, which it cannot tell from the application's own.
            let wanted = if kind == GatewayKind::Traefik && percent > 0 { "500 redeemed" } else { "502 unknown" };
            assert_eq!(said(&answer), wanted, "{kind:?} {percent}: {answer:?}");
            assert!(!answer.headers.contains_key("retry-after"), "{kind:?} {percent}");
            assert_eq!(stage.submit(&token).await.said(), "409 token_used", "{kind:?} {percent}");
        }
        assert_eq!(stage.effects(), 2, "{kind:?}");

        let nowhere = format!("http://127.0.0.1:{}", free_port());
        let lonely = Gateway::start(kind, &[&stage.service.url], &[&nowhere]);
        let request = http().post(format!("{}/open", lonely.url)).header(header::TOKEN, stage.token().await);
        let answer = send(request).await;
        assert!([502, 503].contains(&answer.status), "{kind:?}: {answer:?}");
        assert_eq!(said(&answer), format!("{} unknown", answer.status), "{kind:?}: {answer:?}");
        assert!(!answer.headers.contains_key("retry-after"), "{kind:?}");
    }
}

/// With shorter timeouts than those of the recipes. Caddy and Traefik have no timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn application_that_times_out_is_unknown() {
    let limits = [
        (GatewayKind::Nginx, "proxy_next_upstream off;", "proxy_next_upstream off; proxy_read_timeout 1s;"),
        (GatewayKind::Envoy, "timeout: 60s", "timeout: 1s"),
        (GatewayKind::HaProxy, "timeout server  60s", "timeout server 1s"),
    ];
    for (kind, from, to) in limits {
        let stage = Stage::set(kind).await;
        let recipe = kind.recipe().replace(from, to);
        assert_ne!(recipe, kind.recipe());
        let gateway = Gateway::with(kind, &recipe, &[&stage.service.url], &[&stage.application_proxy.url]);
        stage.application_proxy.plan(|_| HttpFault::Delay(Duration::from_secs(60)));
        let request = http().post(format!("{}/open", gateway.url)).header(header::TOKEN, stage.token().await);
        assert_eq!(said(&send(request).await), "504 unknown", "{kind:?}");
        assert_eq!(stage.effects(), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcome_header_of_the_application_is_ignored() {
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        for (method, status, wanted) in [
            (Method::POST, "200", executed(kind, "200")),
            (Method::POST, "502", "502 unknown".to_owned()),
            (Method::GET, "200", "200 ".to_owned()),
            (Method::GET, "502", "502 ".to_owned()),
        ] {
            let claims = "onceward-outcome: not_applied\r\nserver-timing: db;dur=7, onceward;desc=not_applied";
            let head = format!("HTTP/1.1 {status} So\r\n{claims}\r\ncontent-length: 0\r\n\r\n");
            stage.application_proxy.plan(move |_| HttpFault::Raw(head.clone().into_bytes()));
            let token = if method == Method::POST { stage.token().await } else { String::new() };
            let answer = send(stage.submission(method.clone(), &token)).await;
            assert_eq!(answer.said(), wanted, "{kind:?} {method} {status}");
            if method == Method::POST {
                said(&answer);
            }
            // Only Traefik, and Caddy after a 502, replace the application's `Server-Timing` header.
            if status == "200" && kind != GatewayKind::Traefik {
                assert!(answer.timings().contains(&"db;dur=7".to_owned()), "{kind:?} {method}: {answer:?}");
            }
        }
    }
}

/// The gateway names the attempt of each request and ignores names from the client: a client that could name an attempt could
/// have one token accepted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_names_attempts_and_ignores_client_names() {
    const NAMES: [&str; 9] = [
        "onceward-attempt",
        "x-request-id",
        "x-correlation-id",
        "x-unique-id",
        "x-amzn-trace-id",
        "traceparent",
        "x-b3-traceid",
        "x-client-trace-id",
        "x-envoy-force-trace",
    ];
    const MINE: &str = "0af76519-16cd-43dd-8448-eb211c80319c";
    for kind in GatewayKind::ALL {
        let stage = Stage::set(kind).await;
        let token = stage.token().await;
        for said in [&*executed(kind, "200"), "409 token_used"] {
            let request = stage.submission(Method::POST, &token);
            let request = NAMES.iter().fold(request, |request, name| request.header(*name, MINE));
            assert_eq!(send(request).await.said(), said, "{kind:?}");
        }
        let mut named: Vec<_> = stage
            .service_proxy
            .seen()
            .iter()
            .map(|seen: &RecordedRequest| seen.header(header::ATTEMPT).to_owned())
            .collect();
        assert!(named.iter().all(|name| !name.contains(MINE)), "{kind:?}: {named:?}");
        named.sort();
        named.dedup();
        // Traefik names no attempt.
        assert_eq!(named.len(), if kind == GatewayKind::Traefik { 1 } else { 2 }, "{kind:?}: {named:?}");
        assert_eq!(stage.effects(), 1, "{kind:?}");
    }
}
