//! An error of middleware inside the guard settles the token like a response with its status.

use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::InternalError;
use actix_web::http::StatusCode;
use actix_web::middleware::{Next, from_fn};
use actix_web::{App, Error, HttpResponse, HttpServer, web};
use onceward::actix::{MarkEffect as _, Protect, SubjectFrom};
use onceward::store::Memory;
use onceward::{Binding, Effect, Guard};
use onceward_api::header::NEXT_TOKEN;
use onceward_tests::actix_handlers;
use onceward_tests::client::{order, send, submit};
use onceward_tests::ledger::Ledger;
use onceward_tests::shop::{EFFECT, TestServer};

/// True if the token can be redeemed once more.
async fn works_again(url: &str, token: &str, name: &str) -> bool {
    match order(url, token, name).await.said().as_str() {
        "200 executed" => true,
        "409 token_used" => false,
        other => panic!("{name}: {other}"),
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
