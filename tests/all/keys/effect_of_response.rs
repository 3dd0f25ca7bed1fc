//! The effect that a response reports decides whether its key replays, runs again, or is held.

use std::future::{Ready, ready};
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::{ErrorBadGateway, ErrorBadRequest, ErrorNotFound, ErrorServiceUnavailable, InternalError};
use actix_web::http::StatusCode;
use actix_web::http::header::ContentLength;
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, Form, Json, Path, Query, ServiceConfig};
use actix_web::{FromRequest, HttpRequest, HttpResponse};
use onceward::actix::{ExtractorError, Protect, SubjectFrom, entered};
use onceward::store::Memory;
use onceward::{Binding, Effect, Guard, KeyRules, ManualClock};
use onceward_api::header;
use onceward_tests::actix_handlers::order;
use onceward_tests::client::{Answer, URLENCODED, http, ran, send};
use onceward_tests::key_routes::{BRIEF, KEY, LEASE, buy, serve, serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::{holds_for, until};
use onceward_tests::shop::{EFFECT, ORDER, STATUS, Shop, TestServer};
use reqwest::RequestBuilder;
use serde_json::Value;

/// A server with a manual clock.
struct Bed {
    clock: ManualClock,
    served: TestServer,
    ledger: Ledger,
    client: reqwest::Client,
}

impl Bed {
    fn with(rules: KeyRules) -> Self {
        let (clock, ledger) = (ManualClock::new(), Ledger::new());
        let guard = Guard::builder(Memory::with_clock((&clock).into())).clock((&clock).into()).build();
        let protect = Protect::key(&guard, SubjectFrom::anonymous(), rules);
        let served = serve_one(&ledger, protect);
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { clock, served, ledger, client }
    }

    async fn ask(&self, status: u16) -> String {
        let request = self.client.post(format!("{}/it", self.served.url)).header("connection", "close");
        let request = request.header(KEY, status.to_string()).header(ORDER, status.to_string());
        send(request.header(STATUS, status)).await.said()
    }

    /// Asserts the outcome of every status: stored, released, or unknown, and the state after the lease.
    async fn settles(&self, effect: impl Fn(u16) -> Effect, unknown: &str, is_free_later: bool) {
        for status in 200..600 {
            assert_eq!(self.ask(status).await, ran(status, effect(status)));
            let (said, runs) = match effect(status) {
                Effect::Applied => (format!("{status} replayed"), 1),
                Effect::NotApplied => (format!("{status} not_applied"), 2),
                Effect::Unknown => (unknown.to_owned(), 1),
            };
            assert_eq!(self.ask(status).await, said, "{status}");
            assert_eq!(self.ledger.count(&status.to_string()), runs, "{status}");
        }
        self.clock.advance(Duration::from_secs(16));
        for status in (500..600).filter(|status| effect(*status) == Effect::Unknown) {
            let said = if is_free_later { format!("{status} unknown") } else { unknown.to_owned() };
            assert_eq!(self.ask(status).await, said, "{status} after the lease");
            assert_eq!(self.ledger.count(&status.to_string()), 1 + usize::from(is_free_later), "{status}");
        }
    }
}

fn usual(status: u16) -> Effect {
    match status {
        401 | 403 | 408 | 425 | 429 | 500 | 501 | 503 => Effect::NotApplied,
        200..500 => Effect::Applied,
        _ => Effect::Unknown,
    }
}

#[tokio::test]
async fn every_status_settles_the_key_as_documented() {
    Bed::with(KeyRules::retryable()).settles(usual, "409 in_progress", true).await;
}

#[tokio::test]
async fn every_status_settles_an_at_most_once_key_as_documented() {
    let held = |status| match status {
        408 | 500 | 501 | 503 => Effect::Unknown,
        other => usual(other),
    };
    Bed::with(KeyRules::at_most_once()).settles(held, "409 outcome_unknown", false).await;
}

#[tokio::test]
async fn every_status_replays_if_configured_to() {
    Bed::with(KeyRules::retryable().replay_everything()).settles(|_| Effect::Applied, "", false).await;
}

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

#[tokio::test]
async fn status_200_with_failure_is_released_by_the_route_rule() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()).judge_body(|head, body| {
        let said: Value = serde_json::from_slice(body).ok()?;
        (head.status == StatusCode::OK && said["code"] != 0).then_some(Effect::NotApplied)
    });
    let served = serve(&ledger, move |config| {
        let envelope = async |request: HttpRequest, ledger: web::Data<Ledger>| {
            let code: i64 = request.headers().get("x-code").and_then(|code| code.to_str().ok()?.parse().ok()).unwrap();
            made(request, ledger).await;
            HttpResponse::Ok().json(serde_json::json!({"code": code}))
        };
        config.service(web::resource("/it").wrap(protect.clone()).route(web::post().to(envelope)));
    });
    let ask = async |code: i64| send(under(&served.url, "/it", "k", "a").header("x-code", code)).await;
    assert_eq!(ask(7).await.said(), "200 not_applied");
    assert_eq!(ask(7).await.said(), "200 not_applied");
    let happened = ask(0).await;
    assert_eq!(happened.said(), "200 executed");
    let replay = ask(7).await;
    assert_eq!((replay.said().as_str(), replay.body), ("200 replayed", happened.body));
    assert_eq!(ledger.runs().len(), 3);
}

#[tokio::test]
async fn effect_reported_by_the_handler_outranks_the_status() {
    let shop = Shop::on(Memory::new());
    let ask = async |path: &str, status: &str, effect: &str| -> Answer {
        let key = format!("{path}-{status}-{}", effect.replace(' ', "-"));
        send(under(shop.url(), path, &key, &key).header(STATUS, status).header(EFFECT, effect)).await
    };
    for status in ["200", "400", "422", "500", "502", "503"] {
        for (path, effect, said) in [
            ("/keyed/orders", "happened", format!("{status} replayed")),
            ("/keyed/orders", "did not", format!("{status} not_applied")),
            ("/keyed/orders", "unknown", "409 in_progress".to_owned()),
            ("/keyed/held", "happened", format!("{status} replayed")),
            ("/keyed/held", "did not", format!("{status} not_applied")),
            ("/keyed/held", "unknown", "409 outcome_unknown".to_owned()),
        ] {
            let outcome = match effect {
                "happened" => "executed",
                "did not" => "not_applied",
                _ => "unknown",
            };
            assert_eq!(ask(path, status, effect).await.said(), format!("{status} {outcome}"));
            assert_eq!(ask(path, status, effect).await.said(), said, "{path} {status} {effect}");
        }
    }
}

#[tokio::test]
async fn panic_frees_the_key_after_lease_or_holds_it() {
    let shop = Shop::on(Memory::new());
    let (free, held) = ("/keyed/panic", "/keyed/held/panic");
    let broke = buy(shop.url(), free, "k", "free").await;
    assert_eq!(broke.said(), "500 internal");
    assert_eq!(buy(shop.url(), free, "k", "free").await.said(), "409 in_progress");
    until("the lease has expired", LEASE * 3, || async { buy(shop.url(), free, "k", "free").await.status == 500 })
        .await;
    assert_eq!(shop.ledger.count("free"), 2);

    assert_eq!(buy(shop.url(), held, "k", "held").await.said(), "500 internal");
    let is_unknown = || async { buy(shop.url(), held, "k", "held").await.said() == "409 outcome_unknown" };
    until("the outcome is unknown", BRIEF * 10, is_unknown).await;
    holds_for("the outcome stays unknown", BRIEF, is_unknown).await;
    assert_eq!(shop.ledger.count("held"), 1);
}
