//! The effect that a response reports decides whether its token is used or released.

use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::InternalError;
use actix_web::http::StatusCode;
use actix_web::middleware::{Next, from_fn};
use actix_web::{App, Error, HttpResponse, HttpServer, web};
use onceward::actix::{MarkEffect as _, Protect, SubjectFrom};
use onceward::store::Memory;
use onceward::{Binding, Effect, Guard, Intent, Policy, RecordState, Subject};
use onceward_api::header::NEXT_TOKEN;
use onceward_api::{Code, Retry};
use onceward_tests::actix_handlers;
use onceward_tests::client::{Answer, http, order, ran, send, submit, token};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::until;
use onceward_tests::shop::{self, EFFECT, STATUS, Shop, TestServer};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// True if the token can be redeemed once more.
async fn works_again(url: &str, token: &str, name: &str) -> bool {
    match order(url, token, name).await.said().as_str() {
        "200 executed" => true,
        "409 token_used" => false,
        other => panic!("{name}: {other}"),
    }
}

/// Sends an order with these headers and returns the outcome. Asserts that the token is valid again only if not applied.
async fn outcome(shop: &Shop, path: &str, headers: &[(&str, &str)]) -> String {
    let name = format!("{path} {headers:?}");
    let token = token(shop.url()).await;
    let first = headers
        .iter()
        .fold(submit(shop.url(), path, &token, &name), |request, (key, value)| request.header(*key, *value));
    let first = send(first).await;
    assert_eq!(shop.ledger.count(&name), 1, "{name}");
    let is_free = works_again(shop.url(), &token, &name).await;
    assert_eq!(shop.ledger.count(&name), if is_free { 2 } else { 1 }, "{name}");
    assert_eq!(is_free, first.outcome == "not_applied", "{name}: {first:?}");
    first.outcome
}

#[tokio::test]
async fn every_status_settles_the_token_as_documented() {
    let shop = Shop::on(Memory::new());
    let client = http();
    for status in 200..600 {
        let effect = match status {
            200..400 => Effect::Applied,
            400..500 | 500 | 501 | 503 => Effect::NotApplied,
            _ => Effect::Unknown,
        };
        let is_free = effect == Effect::NotApplied;
        let (token, name) = (token(shop.url()).await, status.to_string());
        let request = client.post(format!("{}/orders", shop.url())).header("connection", "close");
        let request = request.header(onceward_api::header::TOKEN, &token).header(shop::ORDER, &name);
        let first = send(request.header(STATUS, status)).await;
        assert_eq!(first.said(), ran(status, effect));
        assert_eq!(works_again(shop.url(), &token, &name).await, is_free, "{status}");
        assert_eq!(shop.ledger.count(&name), if is_free { 2 } else { 1 }, "{status}");
    }
}

#[tokio::test]
async fn released_token_is_valid_for_one_more_use() {
    let shop = Shop::on(Memory::new());
    let token = token(shop.url()).await;
    for _ in 0..5 {
        let failed = send(submit(shop.url(), "/orders", &token, "failed").header(STATUS, 422)).await;
        assert_eq!(failed.said(), "422 not_applied");
    }
    let racers = (0..16).map(|_| order(shop.url(), &token, "paid"));
    let said: Vec<_> = futures_util::future::join_all(racers).await.iter().map(Answer::said).collect();
    assert_eq!(said.iter().filter(|said| *said == "200 executed").count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|said| *said == "409 token_used").count(), 15, "{said:?}");
    assert_eq!((shop.ledger.count("failed"), shop.ledger.count("paid")), (5, 1));
}

#[tokio::test]
async fn effect_reported_by_the_handler_outranks_status() {
    let shop = Shop::on(Memory::new());
    for status in ["200", "201", "302", "400", "422", "500", "502", "503", "504"] {
        for (effect, said) in [("happened", "executed"), ("did not", "not_applied"), ("unknown", "unknown")] {
            let headers = [(STATUS, status), (EFFECT, effect)];
            assert_eq!(outcome(&shop, "/orders", &headers).await, said, "{status}, {effect}");
        }
    }
}

#[tokio::test]
async fn route_rule_outranks_status_but_not_the_handler() {
    let shop = Shop::on(Memory::new());
    let failed = ("x-failed", "yes");
    for (headers, said) in [
        (vec![failed], "not_applied"),
        (vec![failed, (STATUS, "502")], "not_applied"),
        (vec![failed, (EFFECT, "happened")], "executed"),
        (vec![failed, (EFFECT, "unknown")], "unknown"),
        (vec![failed, (STATUS, "422"), (EFFECT, "happened")], "executed"),
        (vec![(EFFECT, "did not")], "not_applied"),
        (vec![], "executed"),
        (vec![(STATUS, "422")], "not_applied"),
        (vec![(STATUS, "502")], "unknown"),
    ] {
        assert_eq!(outcome(&shop, "/judged", &headers).await, said, "{headers:?}");
    }
}

#[tokio::test]
async fn panicking_handler_leaves_its_token_used() {
    let shop = Shop::on(Memory::new());
    for run in 1..=6 {
        let token = token(shop.url()).await;
        let first = send(submit(shop.url(), "/panic", &token, "panic")).await;
        assert_eq!(first.said(), "500 internal");
        let problem = first.problem();
        assert_eq!((problem.code, problem.retry, problem.status), (Code::Internal, Retry::No, 500));
        assert_eq!((problem.kind.as_str(), problem.instance.as_deref()), ("/problems/internal", Some("/panic")));
        assert_eq!(first.headers["cache-control"], "no-store");
        assert!(!String::from_utf8_lossy(&first.body).contains("panics on purpose"), "the panic message is not sent");
        assert_eq!(send(submit(shop.url(), "/panic", &token, "panic")).await.said(), "409 token_used");
        assert!(!works_again(shop.url(), &token, "after").await);
        assert_eq!(shop.ledger.count("panic"), run);
    }
    let token = token(shop.url()).await;
    assert!(works_again(shop.url(), &token, "after").await);
    assert_eq!(shop.ledger.count("after"), 1);
}

#[tokio::test]
async fn every_unsafe_method_is_settled_alike() {
    let shop = Shop::on(Memory::new());
    for method in ["POST", "PUT", "PATCH", "DELETE", "PURGE"] {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let token = token(shop.url()).await;
        let said = [("422", "422 not_applied"), ("200", "200 executed"), ("200", "409 token_used")];
        for (status, expected) in said {
            let request = http().request(method.clone(), format!("{}/orders", shop.url()));
            let request = request.header(onceward_api::header::TOKEN, &token).header(shop::ORDER, method.as_str());
            assert_eq!(send(request.header(STATUS, status)).await.said(), expected, "{method}");
        }
        assert_eq!(shop.ledger.count(method.as_str()), 2, "{method}");
    }
}

/// Middleware that fails with the requested error, before or after the handler.
async fn breaks(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let told = |name: &str| actix_handlers::header(request.request(), name).map(str::to_owned);
    let status = told("x-break").map(|status| StatusCode::from_bytes(status.as_bytes()).expect("a status"));
    let (is_late, has_own_answer) = (told("x-late").is_some(), told("x-own-answer").is_some());
    let effect = told(EFFECT);
    let error = status.map(|status| -> Error {
        if !has_own_answer {
            return InternalError::new("broken", status).into();
        }
        let mut answer = HttpResponse::build(status).insert_header(("x-own-answer", "kept")).body("its own body");
        if effect.as_deref() == Some("did not") {
            answer = answer.effect(Effect::NotApplied);
        }
        InternalError::from_response("broken", answer).into()
    });
    match error {
        Some(error) if !is_late => Err(error),
        Some(error) => next.call(request).await.and(Err(error)),
        None => next.call(request).await,
    }
}

/// Serves a route and a scope with `breaks` inside the guard.
fn breaking(guard: &Guard, ledger: &Ledger) -> TestServer {
    let (guard, ledger) = (guard.clone(), web::Data::new(ledger.clone()));
    TestServer::run(move |listener| {
        let server = HttpServer::new(move || {
            let protect = || Protect::token(&guard, SubjectFrom::anonymous()).next_token();
            let orders = || web::resource("/orders").route(web::post().to(actix_handlers::order));
            App::new()
                .app_data(ledger.clone())
                .service(orders().wrap(from_fn(breaks)).wrap(protect()))
                .service(web::scope("/scope").wrap(from_fn(breaks)).wrap(protect()).service(orders()))
        });
        Ok(server.workers(1).disable_signals().listen(listener)?.run())
    })
}

async fn issue(guard: &Guard) -> String {
    guard.issue(Duration::from_secs(60), Binding::none()).await.expect("memory has room").as_str().to_owned()
}

#[tokio::test]
async fn inner_middleware_error_is_settled_like_a_response() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = breaking(&guard, &ledger);
    for path in ["/orders", "/scope/orders"] {
        for (status, outcome) in [
            (302, "executed"),
            (400, "not_applied"),
            (413, "not_applied"),
            (500, "not_applied"),
            (502, "unknown"),
            (503, "not_applied"),
        ] {
            let is_free = outcome == "not_applied";
            for is_late in [false, true] {
                let (token, name) = (issue(&guard).await, format!("{path} {status} {is_late}"));
                let request = submit(&served.url, path, &token, &name).header("x-break", status);
                let first = send(if is_late { request.header("x-late", "yes") } else { request }).await;
                assert_eq!(first.said(), format!("{status} {outcome}"), "{name}");
                assert_eq!(first.headers.contains_key(NEXT_TOKEN), !is_free, "{name}");
                assert_eq!(ledger.count(&name), usize::from(is_late), "{name}");
                assert_eq!(works_again(&served.url, &token, &name).await, is_free, "{name}");
                assert_eq!(ledger.count(&name), usize::from(is_late) + usize::from(is_free), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn error_with_its_own_response_is_judged_by_it() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = breaking(&guard, &ledger);
    for (status, effect, outcome) in [(409, "", "not_applied"), (502, "", "unknown"), (502, "did not", "not_applied")] {
        let (token, name) = (issue(&guard).await, format!("{status} {effect}"));
        let request = submit(&served.url, "/orders", &token, &name).header("x-break", status);
        let first = send(request.header("x-own-answer", "yes").header(EFFECT, effect)).await;
        assert_eq!(first.said(), format!("{status} {outcome}"), "{name}");
        assert_eq!((first.headers["x-own-answer"].as_bytes(), &first.body[..]), (&b"kept"[..], &b"its own body"[..]));
        assert_eq!(works_again(&served.url, &token, &name).await, outcome == "not_applied", "{name}");
    }
}

#[tokio::test]
async fn unmatched_route_releases_the_token() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let (protected, data) = (guard.clone(), web::Data::new(ledger.clone()));
    let served = TestServer::run(move |listener| {
        let server = HttpServer::new(move || {
            App::new()
                .app_data(data.clone())
                .wrap(Protect::token(&protected, SubjectFrom::anonymous()))
                .service(web::resource("/orders").route(web::post().to(actix_handlers::order)))
        });
        Ok(server.workers(1).disable_signals().listen(listener)?.run())
    });
    let token = issue(&guard).await;
    for path in ["/ordres", "/", "/orders/1", "/orders/"] {
        assert_eq!(send(submit(&served.url, path, &token, "lost")).await.said(), "404 not_applied", "{path}");
    }
    let wrong_method = http().put(format!("{}/orders", served.url)).header(onceward_api::header::TOKEN, &token);
    assert_eq!(send(wrong_method).await.said(), "405 not_applied");
    assert!(works_again(&served.url, &token, "found").await);
    assert!(!works_again(&served.url, &token, "found").await);
    assert_eq!(ledger.runs(), ["found"]);
}

#[tokio::test]
async fn truncated_submission_releases_its_token() {
    let shop = Shop::on(Memory::new());
    let token = token(shop.url()).await;
    let seen = || async {
        let (policy, intent) = (Policy::token(), Intent::new("POST /orders", Subject::anonymous()));
        shop.guard.look(&policy, &intent.credential(&token)).await.unwrap().state
    };
    let mut connection = TcpStream::connect(shop.url().trim_start_matches("http://")).await.unwrap();
    let head = format!("POST /orders HTTP/1.1\r\nhost: shop\r\nonceward-token: {token}\r\ncontent-length: 100\r\n\r\n");
    connection.write_all(format!("{head}half of it").as_bytes()).await.unwrap();
    until("the token is used", Duration::from_secs(5), || async { seen().await == RecordState::Absent }).await;
    drop(connection);
    until("the token is released", Duration::from_secs(5), || async { seen().await == RecordState::Issued }).await;
    assert_eq!(shop.ledger.runs().len(), 0);
    assert!(works_again(shop.url(), &token, "again").await);
    assert_eq!(shop.ledger.runs(), ["again"]);
}
