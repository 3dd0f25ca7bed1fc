//! A request that an extractor, middleware or the router rejects before the handler: whether its key or token is valid again. The errors
//! of extractors are types of actix-web.

use std::future::{Ready, ready};
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::{ErrorBadGateway, ErrorBadRequest, ErrorNotFound, ErrorServiceUnavailable, InternalError};
use actix_web::http::header::ContentLength;
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, Form, Json, Path, Query, ServiceConfig};
use actix_web::{FromRequest, HttpRequest, HttpResponse};
use onceward::actix::{ExtractorError, Protect, SubjectFrom, entered};
use onceward::store::Memory;
use onceward::{Binding, Guard, KeyRules};
use onceward_api::header;
use onceward_tests::actix_handlers::order;
use onceward_tests::client::{URLENCODED, http, send};
use onceward_tests::key_routes::{KEY, serve, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::shop::ORDER;
use reqwest::RequestBuilder;

/// A custom extractor that requires a header.
struct SignatureExtractor;

impl FromRequest for SignatureExtractor {
    type Error = actix_web::Error;
    type Future = Ready<Result<Self, Self::Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let wrong = |error| Err(ExtractorError::new(error).into());
        ready(match request.headers().get("x-signed").map(|signed| signed.as_bytes()) {
            Some(b"yes") => Ok(Self),
            Some(_) => wrong(ErrorServiceUnavailable("temporarily unavailable")),
            None => wrong(ErrorBadRequest("not signed")),
        })
    }
}

async fn made(request: HttpRequest, ledger: web::Data<Ledger>) -> HttpResponse {
    order(request, ledger, web::Bytes::new()).await
}

/// A custom extractor whose errors are not marked as extractor errors.
struct AdmissionExtractor;

impl FromRequest for AdmissionExtractor {
    type Error = actix_web::Error;
    type Future = Ready<Result<Self, Self::Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let led_away = || InternalError::from_response("led away", HttpResponse::SeeOther().finish()).into();
        ready(match request.headers().get("x-admitted").map(|admitted| admitted.as_bytes()) {
            Some(b"yes") => Ok(Self),
            Some(b"ask") => Err(led_away()),
            Some(_) => Err(ErrorBadGateway("the directory does not answer")),
            None => Err(ErrorBadRequest("not admitted")),
        })
    }
}

type Data = web::Data<Ledger>;

/// Routes with extractors that may reject the request, all under one action. Handlers are marked, except those under `/bare`.
fn extracting<P: 'static>(protect: Protect<P>) -> impl Fn(&mut ServiceConfig) + Clone + Send {
    move |config| {
        let on = |path: &str| web::resource(path.to_owned()).wrap(protect.clone().action("extract"));
        let json = async |request: HttpRequest, ledger: Data, _: Json<Vec<u32>>| made(request, ledger).await;
        let form = async |request: HttpRequest, ledger: Data, _: Form<Vec<(String, u32)>>| made(request, ledger).await;
        let query =
            async |request: HttpRequest, ledger: Data, _: Query<Vec<(String, u32)>>| made(request, ledger).await;
        let path = async |request: HttpRequest, ledger: Data, _: Path<u32>| made(request, ledger).await;
        let length = async |request: HttpRequest, ledger: Data, _: web::Header<Number>| made(request, ledger).await;
        let text = async |request: HttpRequest, ledger: Data, _: String| made(request, ledger).await;
        let signed = async |request: HttpRequest, ledger: Data, _: SignatureExtractor| made(request, ledger).await;
        let admitted = async |request: HttpRequest, ledger: Data, _: AdmissionExtractor| made(request, ledger).await;
        config
            .service(on("/json").route(web::post().to(entered(json))))
            .service(on("/form").route(web::post().to(entered(form))))
            .service(on("/query").route(web::post().to(entered(query))))
            .service(on("/path/{id}").route(web::post().to(entered(path))))
            .service(on("/header").route(web::post().to(entered(length))))
            .service(on("/text").route(web::post().to(entered(text))))
            .service(on("/signed").route(web::post().to(entered(signed))))
            .service(on("/admitted").route(web::post().to(entered(admitted))))
            .service(on("/bare/json").route(web::post().to(json)))
            .service(on("/bare/form").route(web::post().to(form)))
            .service(on("/bare/query").route(web::post().to(query)))
            .service(on("/bare/path/{id}").route(web::post().to(path)))
            .service(on("/bare/header").route(web::post().to(length)))
            .service(on("/bare/text").route(web::post().to(text)))
            .service(on("/bare/signed").route(web::post().to(signed)))
            .service(on("/bare/admitted").route(web::post().to(admitted)));
    }
}

/// A header that is a number.
struct Number(#[allow(dead_code, reason = "only its presence counts")] ContentLength);

impl actix_web::http::header::TryIntoHeaderValue for Number {
    type Error = std::convert::Infallible;

    fn try_into_value(self) -> Result<actix_web::http::header::HeaderValue, Self::Error> {
        Ok(actix_web::http::header::HeaderValue::from_static("0"))
    }
}

impl actix_web::http::header::Header for Number {
    fn name() -> actix_web::http::header::HeaderName {
        actix_web::http::header::HeaderName::from_static("x-number")
    }

    fn parse<M: actix_web::HttpMessage>(message: &M) -> Result<Self, actix_web::error::ParseError> {
        let number = message.headers().get("x-number").and_then(|value| value.to_str().ok()?.parse().ok());
        number.map(|number: usize| Self(ContentLength::from(number))).ok_or(actix_web::error::ParseError::Header)
    }
}

/// A request that an extractor rejects with this status, and its corrected version.
struct Case {
    what: &'static str,
    status: u16,
    mistaken: RequestBuilder,
    corrected: RequestBuilder,
}

/// Returns one rejected request per kind of extractor, for the routes under `root`.
fn cases(url: &str, root: &str) -> Vec<Case> {
    let post = |path: &str| http().post(format!("{url}{root}{path}"));
    let json = |body: &'static str| post("/json").header("content-type", "application/json").body(body);
    let form = |body: &'static str| post("/form").header("content-type", URLENCODED).body(body);
    let text = |body: &'static [u8]| post("/text").header("content-type", "text/plain").body(body);
    let with = |path: &str, name: &str, value: &str| post(path).header(name, value);
    let admitted = |value: &str| with("/admitted", "x-admitted", value);
    let case = |what, status, mistaken, corrected| Case { what, status, mistaken, corrected };
    vec![
        case("json", 400, json("[1"), json("[1]")),
        case("json type", 400, post("/json").header("content-type", "text/plain").body("[1]"), json("[1]")),
        case("form type", 415, post("/form").header("content-type", "text/plain").body("a=1"), form("a=1")),
        case("form", 400, form("a=x"), form("a=1")),
        case("query", 400, post("/query?a=x"), post("/query?a=1")),
        case("path", 404, post("/path/x"), post("/path/1")),
        case("header", 400, with("/header", "x-number", "x"), with("/header", "x-number", "1")),
        case("text", 400, text(b"\xff"), text(b"a")),
        case("own", 400, post("/signed"), with("/signed", "x-signed", "yes")),
        case("busy", 503, with("/signed", "x-signed", "?"), with("/signed", "x-signed", "yes")),
        case("plain", 400, post("/admitted"), admitted("yes")),
        case("plain redirect", 303, admitted("ask"), admitted("yes")),
        case("plain bad gateway", 502, admitted("?"), admitted("yes")),
    ]
}

/// Sends each rejected request and then the corrected one under the same key, and returns the names of the cases that ran.
async fn correctable(url: &str, root: &str, ledger: &Ledger) -> Vec<&'static str> {
    let mut ran = Vec::new();
    for Case { what, status, mistaken, corrected } in cases(url, root) {
        let order = uuid::Uuid::new_v4().to_string();
        let mistaken = send(mistaken.header(KEY, &order).header(ORDER, &order)).await;
        assert_eq!(mistaken.status, status, "{root} {what}");
        assert_eq!(ledger.count(&order), 0, "{root} {what}");
        let corrected = send(corrected.header(KEY, &order).header(ORDER, &order)).await;
        match ledger.count(&order) {
            0 => assert_ne!(corrected.status, 200, "{root} {what}"),
            1 => {
                assert_eq!(corrected.said(), "200 executed", "{root} {what}");
                ran.push(what);
            }
            more => panic!("{root} {what}: {more} runs"),
        }
    }
    ran
}

#[tokio::test]
async fn extractor_rejection_of_a_marked_handler_may_be_corrected() {
    let ledger = Ledger::new();
    for rules in [KeyRules::retryable(), KeyRules::at_most_once(), KeyRules::retryable().replay_everything()] {
        let guard = Guard::new(Memory::new());
        let served = serve(&ledger, extracting(Protect::key(&guard, SubjectFrom::anonymous(), rules.clone())));
        let all: Vec<_> = cases(&served.url, "").into_iter().map(|case| case.what).collect();
        assert_eq!(correctable(&served.url, "", &ledger).await, all, "{rules:?}");
    }
}

#[tokio::test]
async fn unmarked_handler_allows_correcting_certain_extractor_errors() {
    let ledger = Ledger::new();
    let certain = ["json", "json type", "form type", "own", "busy"].as_slice();
    let marked = ["own", "busy"].as_slice();
    for (rules, expected) in [
        (KeyRules::retryable(), certain),
        (KeyRules::retryable().replay_everything(), certain),
        (KeyRules::at_most_once(), marked),
    ] {
        let guard = Guard::new(Memory::new());
        let served = serve(&ledger, extracting(Protect::key(&guard, SubjectFrom::anonymous(), rules.clone())));
        assert_eq!(correctable(&served.url, "/bare", &ledger).await, expected, "{rules:?}");
    }
}

#[tokio::test]
async fn unmarked_handler_with_uncompared_body_keeps_the_key() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect =
        Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()).body_limit(10).skip_large_bodies();
    let served = serve(&ledger, extracting(protect));
    let post = || under(&served.url, "/bare/json", "k", "a").header("content-type", "application/json");
    let (first, second) = (send(post().body("[1, 2, 3, 4, 5")).await, send(post().body("[1, 2, 3, 4, 5")).await);
    assert_eq!([first.said(), second.said()], ["400 replayable", "400 replayed"]);
}

#[tokio::test]
async fn token_stays_valid_if_a_marked_handler_is_not_entered() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let token = || Protect::token(&guard, SubjectFrom::anonymous());
    let remember = KeyRules::retryable().replay_everything();
    for protect in [token().into_any(), token().remember_by(remember).into_any()] {
        let served = serve(&ledger, extracting(protect));
        for admitted in ["?", "ask"] {
            let good = guard.issue(Duration::from_secs(60), Binding::none()).await.unwrap();
            let ask = async |root: &str, admitted: &str| {
                let request = http().post(format!("{}{root}/admitted", served.url)).header(ORDER, good.as_str());
                send(request.header(header::TOKEN, good.as_str()).header("x-admitted", admitted)).await
            };
            assert!([502, 303].contains(&ask("", admitted).await.status));
            assert_eq!(ask("", "yes").await.said(), "200 executed");
            assert_eq!(ledger.count(good.as_str()), 1);
        }
    }
}

/// Middleware between guard and handler that fails before or after the handler, as the request asks.
async fn between(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let when = request.headers().get("x-fail").map(|when| when.as_bytes().to_vec());
    match when.as_deref() {
        Some(b"before") => Err(ErrorBadRequest("before")),
        Some(b"after") => next.call(request).await.and(Err(ErrorBadRequest("after"))),
        _ => next.call(request).await,
    }
}

#[tokio::test]
async fn middleware_error_after_a_marked_handler_is_stored() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once());
    let served = serve(&ledger, move |config| {
        let admitted = async |request: HttpRequest, ledger: Data, _: AdmissionExtractor| made(request, ledger).await;
        let route = web::resource("/it").wrap(from_fn(between)).wrap(protect.clone());
        config.service(route.route(web::post().to(entered(admitted))));
    });
    let ask = async |key: &str, admitted: &str, when: &str| {
        send(under(&served.url, "/it", key, key).header("x-admitted", admitted).header("x-fail", when)).await
    };
    assert_eq!(ask("after", "yes", "after").await.status, 400);
    assert_eq!(ask("after", "yes", "after").await.said(), "400 replayed");
    assert_eq!(ledger.count("after"), 1, "the handler was entered");
    assert_eq!(
        ask("rejected", "?", "after").await.status,
        400,
        "an extractor rejects the request, then the middleware fails"
    );
    assert_eq!(ask("rejected", "yes", "").await.said(), "200 executed", "the handler was not entered");
    assert_eq!(ask("before", "yes", "before").await.status, 400);
    assert_eq!(ask("before", "yes", "").await.said(), "400 replayed", "no mark was reached, so it is uncertain");
    assert_eq!((ledger.count("rejected"), ledger.count("before")), (1, 0));
}

#[tokio::test]
async fn unmatched_route_response_is_stored_under_a_key() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
    let served = serve(&ledger, move |config| {
        let orders = || web::resource("/orders").route(web::post().to(made));
        let nowhere = async || Err::<HttpResponse, _>(ExtractorError::new(ErrorNotFound("no such page")));
        config.service(web::scope("/scope").wrap(protect.clone()).service(orders())).service(
            web::scope("/marked")
                .wrap(protect.clone().action("marked"))
                .service(orders())
                .default_service(web::to(nowhere)),
        );
    });
    // A default service of the application may have taken effect, and its response looks the same.
    let post = |path: &str, key: &str| under(&served.url, path, key, key);
    for path in ["/scope/ordres", "/scope", "/scope/orders/1"] {
        let said = [send(post(path, "k")).await.said(), send(post(path, "k")).await.said()];
        assert_eq!(said, ["404 replayable", "404 replayed"], "{path}");
    }
    let put = || http().put(format!("{}/scope/orders", served.url)).header(KEY, "k");
    assert_eq!([send(put()).await.said(), send(put()).await.said()], ["405 replayable", "405 replayed"]);
    assert_eq!(send(post("/scope/orders", "k")).await.said(), "200 executed", "another action");
    // A default service that is marked as without effect frees the key.
    assert_eq!(send(post("/marked/ordres", "m")).await.status, 404);
    assert_eq!(send(post("/marked/orders", "m")).await.said(), "200 executed");
    assert_eq!(ledger.runs(), ["k", "m"]);
}
