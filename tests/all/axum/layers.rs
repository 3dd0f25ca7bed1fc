//! Layers of tower-http inside and outside of the guard.

use std::time::Duration;

use axum::Router;
use axum::ServiceExt;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use futures_util::future::BoxFuture;
use onceward::axum::protect::{KeyPolicy, TokenPolicy};
use onceward::axum::{Protect, SubjectFrom, entered, token_route};
use onceward::store::Memory;
use onceward::{Guard, KeyRules};
use onceward_tests::axum_server::AxumServer;
use onceward_tests::client::{Answer, http, send, submit, token};
use onceward_tests::key_routes::{KEY, buy, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::until;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::normalize_path::NormalizePathLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

/// The timeout of the layers; the slow handlers take longer.
const SOON: Duration = Duration::from_millis(50);
/// Duration of a slow handler.
const SLOW: Duration = Duration::from_millis(300);

fn by_key(guard: &Guard) -> Protect<KeyPolicy> {
    Protect::key(guard, SubjectFrom::anonymous(), KeyRules::retryable())
}

fn by_token(guard: &Guard) -> Protect<TokenPolicy> {
    Protect::token(guard, SubjectFrom::anonymous())
}

/// Creates a handler that records when it begins and when it ends, and takes this long.
fn recording(
    ledger: &Ledger,
    takes: Duration,
) -> impl Fn() -> BoxFuture<'static, Recorded> + Clone + Send + Sync + use<> {
    let ledger = ledger.clone();
    move || {
        let ledger = ledger.clone();
        Box::pin(async move {
            ledger.record("begun");
            tokio::time::sleep(takes).await;
            ledger.record("ended");
            (StatusCode::CREATED, "tea ".repeat(2_000))
        })
    }
}

/// The response of a recording handler.
type Recorded = (StatusCode, String);

fn serve(guard: &Guard, route: MethodRouter) -> AxumServer {
    AxumServer::serve(Router::new().merge(token_route(guard, SubjectFrom::anonymous())).route("/it", route))
}

/// The statuses of a timeout, with those that the table of effects counts as applied, not applied and unknown.
const STATUSES: [u16; 8] = [200, 400, 401, 408, 429, 500, 503, 504];

fn timeout(status: u16) -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::from_u16(status).unwrap(), SOON)
}

/// Creates a route with a marked handler that takes this long.
fn marked(ledger: &Ledger, takes: Duration) -> MethodRouter {
    post(entered(recording(ledger, takes)))
}

#[tokio::test]
async fn timeout_inside_the_guard_leaves_a_token_unknown_and_used() {
    for status in STATUSES {
        let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
        let served = serve(&guard, marked(&ledger, SLOW).layer((by_token(&guard), timeout(status))));
        let token = token(&served.url).await;
        assert_eq!(send(submit(&served.url, "/it", &token, "")).await.said(), format!("{status} unknown"));
        assert_eq!(send(submit(&served.url, "/it", &token, "")).await.said(), "409 token_used", "{status}");
        assert_eq!(ledger.runs(), ["begun"], "{status}");
    }
}

#[tokio::test]
async fn timeout_inside_the_guard_leaves_a_key_unknown() {
    for status in STATUSES {
        let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
        let once = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once());
        let served = serve(&guard, marked(&ledger, SLOW).layer((once, timeout(status))));
        assert_eq!(buy(&served.url, "/it", "k", "").await.said(), format!("{status} unknown"));
        assert_eq!(buy(&served.url, "/it", "k", "").await.said(), "409 outcome_unknown", "{status}");
        assert_eq!(ledger.runs(), ["begun"], "{status}");
    }
}

#[tokio::test]
async fn timeout_inside_the_guard_without_a_mark_is_unknown_by_its_usual_status() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let slow = post(recording(&ledger, SLOW));
    let served = serve(&guard, slow.layer((by_token(&guard), timeout(408))));
    let token = token(&served.url).await;
    assert_eq!(send(submit(&served.url, "/it", &token, "")).await.said(), "408 unknown");
    assert_eq!(send(submit(&served.url, "/it", &token, "")).await.said(), "409 token_used");
}

/// A layer sees only the response, so these look like responses of the handler. The guide says so.
#[tokio::test]
async fn unmarked_handler_dropped_with_another_status_counts_by_that_status() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let timed_out = serve(&guard, post(recording(&ledger, SLOW)).layer((by_token(&guard), timeout(503))));
    let caught = serve(&guard, post(panicking(&ledger)).layer((by_token(&guard), CatchPanicLayer::new())));
    for (served, said) in [(timed_out, "503 not_applied"), (caught, "500 not_applied")] {
        let token = token(&served.url).await;
        for _ in 0..2 {
            assert_eq!(send(submit(&served.url, "/it", &token, "")).await.said(), said);
        }
    }
    assert_eq!((ledger.count("begun"), ledger.count("ended"), ledger.count("run")), (2, 0, 2));
}

/// Calls the handler a second time if the first call takes too long.
async fn call_again(request: Request, next: Next) -> Response {
    let (head, _) = request.into_parts();
    let copy = || Request::from_parts(head.clone(), Body::empty());
    match tokio::time::timeout(SOON, next.clone().run(copy())).await {
        Ok(response) => response,
        Err(_) => next.run(copy()).await,
    }
}

#[tokio::test]
async fn dropped_call_stays_unknown_after_a_second_call_returns() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let own = ledger.clone();
    let handler = entered(move || {
        let ledger = own.clone();
        async move {
            ledger.record("begun");
            if ledger.count("begun") == 1 {
                tokio::time::sleep(SLOW).await;
            }
            StatusCode::SERVICE_UNAVAILABLE
        }
    });
    let inner: MethodRouter = post(handler).layer(from_fn(call_again));
    let served = serve(&guard, inner.layer(by_token(&guard)));
    let token = token(&served.url).await;
    assert_eq!(send(submit(&served.url, "/it", &token, "")).await.said(), "503 unknown");
    assert_eq!(ledger.count("begun"), 2);
}

#[tokio::test]
async fn marked_handler_that_returns_in_time_counts_by_its_status() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let own = ledger.clone();
    let handler = entered(move |headers: HeaderMap| async move {
        own.record("run");
        StatusCode::from_bytes(headers["x-status"].as_bytes()).unwrap()
    });
    let served = serve(&guard, post(handler).layer((by_token(&guard), timeout(503))));
    let token = token(&served.url).await;
    for (status, said) in
        [(408, "408 not_applied"), (503, "503 not_applied"), (200, "200 executed"), (200, "409 token_used")]
    {
        let answer = send(submit(&served.url, "/it", &token, "").header("x-status", status)).await;
        assert_eq!(answer.said(), said);
    }
    assert_eq!(ledger.runs().len(), 3);
}

#[tokio::test]
async fn timeout_outside_the_guard_does_not_drop_the_handler() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let route = marked(&ledger, SLOW).layer((timeout(408), by_key(&guard)));
    let served = serve(&guard, route);
    let first = buy(&served.url, "/it", "k", "").await;
    assert_eq!((first.status, first.outcome.as_str()), (408, ""), "the response of the timeout");
    until("the handler has ended", Duration::from_secs(5), || async { ledger.count("ended") == 1 }).await;
    until("the response is stored", Duration::from_secs(5), || async {
        buy(&served.url, "/it", "k", "").await.said() == "201 replayed"
    })
    .await;
    assert_eq!(ledger.runs(), ["begun", "ended"]);
}

/// Serves a handler that records its run and panics.
fn panicking(ledger: &Ledger) -> impl Fn() -> std::future::Ready<StatusCode> + Clone + Send + Sync + use<> {
    let ledger = ledger.clone();
    move || {
        ledger.record("run");
        panic!("the handler panics on purpose")
    }
}

#[tokio::test]
async fn caught_panic_is_unknown_inside_and_outside_of_the_guard() {
    for is_inside in [true, false] {
        let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
        let handler = post(entered(panicking(&ledger)));
        let catch = CatchPanicLayer::new();
        let route = match is_inside {
            true => handler.layer((by_token(&guard), catch)),
            false => handler.layer((catch, by_token(&guard))),
        };
        let served = serve(&guard, route);
        let token = token(&served.url).await;
        let answer = send(submit(&served.url, "/it", &token, "")).await;
        // Inside, the response is that of the layer. Outside, the guard has caught the panic itself.
        assert_eq!(answer.said(), if is_inside { "500 unknown" } else { "500 internal" });
        assert_eq!(send(submit(&served.url, "/it", &token, "")).await.said(), "409 token_used", "{is_inside}");
        assert_eq!(ledger.runs(), ["run"]);
    }
}

async fn gzip(served: &AxumServer, key: &str, encoding: &str) -> Answer {
    send(under(&served.url, "/it", key, "").header("accept-encoding", encoding)).await
}

#[tokio::test]
async fn compression_outside_of_the_guard_follows_each_client() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let route = marked(&ledger, Duration::ZERO);
    let served = serve(&guard, route.layer((CompressionLayer::new(), by_key(&guard))));
    for (key, first, second) in [("a", "gzip", "identity"), ("b", "identity", "gzip"), ("c", "gzip", "gzip")] {
        let answers = [gzip(&served, key, first).await, gzip(&served, key, second).await];
        assert_eq!(answers.each_ref().map(Answer::said), ["201 executed", "201 replayed"]);
        for (answer, encoding) in answers.iter().zip([first, second]) {
            let is_gzip = answer.headers.get("content-encoding").is_some_and(|value| value == "gzip");
            assert_eq!(is_gzip, encoding == "gzip");
            assert_eq!(answer.body == "tea ".repeat(2_000), encoding == "identity");
        }
    }
    assert_eq!(ledger.count("ended"), 3);
}

#[tokio::test]
async fn compression_inside_of_the_guard_never_runs_twice() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let route = marked(&ledger, Duration::ZERO);
    let served = serve(&guard, route.layer((by_key(&guard), CompressionLayer::new())));
    for (encoding, second) in [("gzip", "409 reply_not_kept"), ("identity", "201 replayed")] {
        for said in ["201 executed", second, second] {
            assert_eq!(gzip(&served, encoding, encoding).await.said(), said, "{encoding}");
        }
    }
    assert_eq!(ledger.count("ended"), 2);
}

#[tokio::test]
async fn cors_outside_of_the_guard_is_on_every_response() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let route = marked(&ledger, Duration::ZERO).layer((CorsLayer::permissive(), by_key(&guard)));
    let served = serve(&guard, route);
    let ask =
        |key: &'static str| http().post(format!("{}/it", served.url)).header(KEY, key).header("origin", "https://a");
    for said in ["201 executed", "201 replayed"] {
        let answer = send(ask("k")).await;
        assert_eq!(
            (answer.said().as_str(), &answer.headers["access-control-allow-origin"]),
            (said, &"*".parse().unwrap())
        );
    }
    let rejected = send(ask("k").body("other content")).await;
    assert_eq!(rejected.said(), "422 key_reused");
    assert_eq!(rejected.headers["access-control-allow-origin"], "*");
}

#[tokio::test]
async fn cors_inside_of_the_guard_is_missing_on_replays() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let route = marked(&ledger, Duration::ZERO).layer((by_key(&guard), CorsLayer::permissive()));
    let served = serve(&guard, route);
    for (said, has_cors) in [("201 executed", true), ("201 replayed", false)] {
        let answer = send(under(&served.url, "/it", "k", "").header("origin", "https://a")).await;
        assert_eq!(
            (answer.said().as_str(), answer.headers.contains_key("access-control-allow-origin")),
            (said, has_cors)
        );
    }
}

#[tokio::test]
async fn trace_layer_inside_and_outside_changes_nothing() {
    for is_inside in [true, false] {
        let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
        let handler = marked(&ledger, Duration::ZERO);
        let trace = TraceLayer::new_for_http();
        let route = match is_inside {
            true => handler.layer((by_key(&guard), trace)),
            false => handler.layer((trace, by_key(&guard))),
        };
        let served = serve(&guard, route);
        let first = buy(&served.url, "/it", "k", "").await;
        let again = buy(&served.url, "/it", "k", "").await;
        assert_eq!((first.said().as_str(), again.said().as_str()), ("201 executed", "201 replayed"), "{is_inside}");
        assert_eq!(first.body, again.body);
    }
}

/// A handler that reads its whole body.
async fn measure(body: axum::body::Bytes) -> String {
    body.len().to_string()
}

/// Sends a body without a length, so that the limit is found while the body is read.
fn chunked(served: &AxumServer, key: &str, size: usize) -> reqwest::RequestBuilder {
    let chunks = (0..size / 1_000).map(|_| Ok::<_, std::io::Error>(bytes::Bytes::from_static(&[b'x'; 1_000])));
    under(&served.url, "/it", key, "").body(reqwest::Body::wrap_stream(futures_util::stream::iter(chunks)))
}

#[tokio::test]
async fn body_of_unknown_length_over_an_inner_limit_releases_the_key() {
    for limit in [0, 1] {
        let guard = Guard::new(Memory::new());
        let handler = post(entered(measure));
        let route = match limit {
            0 => handler.layer((by_key(&guard), RequestBodyLimitLayer::new(5_000))),
            _ => handler.layer((by_key(&guard), DefaultBodyLimit::max(5_000))),
        };
        let served = serve(&guard, route);
        assert_eq!(send(chunked(&served, "k", 6_000)).await.said(), "413 not_applied", "{limit}");
        let smaller = send(chunked(&served, "k", 4_000)).await;
        assert_eq!((smaller.said().as_str(), &smaller.body[..]), ("200 executed", &b"4000"[..]), "{limit}");
    }
}

/// The layer responds by the length, before the handler and its mark are reached.
#[tokio::test]
async fn body_of_known_length_over_an_inner_limit_is_stored() {
    let guard = Guard::new(Memory::new());
    let served = serve(&guard, post(entered(measure)).layer((by_key(&guard), RequestBodyLimitLayer::new(5_000))));
    let large = || send(under(&served.url, "/it", "k", "").body("x".repeat(6_000)));
    assert_eq!(large().await.said(), "413 replayable");
    assert_eq!(large().await.said(), "413 replayed");
}

#[tokio::test]
async fn body_limit_outside_of_the_guard_rejects_before_the_guard() {
    let guard = Guard::new(Memory::new());
    let served = serve(&guard, post(entered(measure)).layer((RequestBodyLimitLayer::new(5_000), by_key(&guard))));
    let large = under(&served.url, "/it", "k", "").body("x".repeat(6_000));
    assert_eq!(send(large).await.said(), "413 ", "by its length, before the guard");
    let answer = send(chunked(&served, "k", 6_000)).await;
    assert_eq!(answer.said(), "413 body_too_large", "while the guard reads it");
    assert_eq!(send(chunked(&served, "k", 4_000)).await.said(), "200 executed");
}

#[tokio::test]
async fn path_is_normalized_outside_of_the_router() {
    use tower::Layer as _;
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let routes = Router::new().route("/it", marked(&ledger, Duration::ZERO).layer(by_key(&guard)));
    let normal = NormalizePathLayer::trim_trailing_slash().layer(routes);
    let served = AxumServer::run(|listener| async move {
        axum::serve(listener, ServiceExt::<Request>::into_make_service(normal)).await
    });
    assert_eq!(buy(&served.url, "/it", "k", "").await.said(), "201 executed");
    assert_eq!(buy(&served.url, "/it/", "k", "").await.said(), "201 replayed");
    assert_eq!(ledger.count("ended"), 1);
}
