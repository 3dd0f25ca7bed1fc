//! A handler that has taken effect and then returns an error that looks like one from an extractor or the router.

use actix_web::error::{
    ContentTypeError, ErrorNotFound, InternalError, JsonPayloadError, ParseError, PathError, PayloadError,
    QueryPayloadError, ReadlinesError, UrlencodedError,
};
use actix_web::http::StatusCode;
use actix_web::web::{self, Query};
use actix_web::{Error, HttpRequest, HttpResponse};
use onceward::actix::protect::KeyPolicy;
use onceward::actix::{ExtractorError, MarkEffect as _, Protect, SubjectFrom, entered};
use onceward::store::Memory;
use onceward::{Effect, Guard, KeyRules};
use onceward_tests::actix_handlers::header;
use onceward_tests::charging_app::{CHARGE, PROVIDER, charge, provider};
use onceward_tests::client::send;
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault};
use onceward_tests::key_routes::{buy, serve, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::shop::{ORDER, TestServer};

fn by_key(rules: KeyRules) -> Protect<KeyPolicy> {
    Protect::key(&Guard::new(Memory::new()), SubjectFrom::anonymous(), rules)
}

#[tokio::test]
async fn broken_upstream_response_is_charged_once() {
    for rules in [KeyRules::retryable(), KeyRules::at_most_once(), KeyRules::retryable().replay_everything()] {
        let ledger = Ledger::new();
        let provider = provider(&ledger);
        let way = FaultyHttpProxy::to(&provider.url, |_| HttpFault::CutAnswer(90)).await;
        let protect = by_key(rules.clone());
        let served = serve(&ledger, move |config| {
            config.service(web::resource("/pay").wrap(protect.clone()).route(web::post().to(charge)));
        });
        let pay = async || send(under(&served.url, "/pay", "k", "pay").header(PROVIDER, &way.url)).await;
        let (first, second) = (pay().await, pay().await);
        assert_eq!(ledger.count(CHARGE), 1, "{rules:?}: {} and {}", first.said(), second.said());
        assert_eq!([first.said(), second.said()], ["400 replayable", "400 replayed"], "{rules:?}");
        assert_eq!(first.body, second.body);
    }
}

/// Returns the error with this name, as a handler could return it.
fn error(name: &str) -> Error {
    let urlencoded = || serde::de::Error::custom("the other party's form cannot be read");
    let json = || serde_json::from_str::<u32>("the other party's JSON").unwrap_err();
    match name {
        "payload" => PayloadError::Incomplete(None).into(),
        "payload overflow" => PayloadError::Overflow.into(),
        "header" => ParseError::Header.into(),
        "content type" => ContentTypeError::ParseError.into(),
        "lines" => ReadlinesError::LimitOverflow.into(),
        "query" => Query::<Vec<(String, u32)>>::from_query("fee=none").unwrap_err().into(),
        "converted query" => QueryPayloadError::from(urlencoded()).into(),
        "path" => ErrorNotFound::<serde::de::value::Error>(urlencoded()),
        "json payload" => JsonPayloadError::from(PayloadError::Incomplete(None)).into(),
        "form payload" => UrlencodedError::from(PayloadError::Overflow).into(),
        "form" => UrlencodedError::from(urlencoded()).into(),
        "worded json" => {
            InternalError::from_response(JsonPayloadError::ContentType, HttpResponse::BadRequest().body("no JSON"))
                .into()
        }
        "json" => JsonPayloadError::Deserialize(json()).into(),
        "json type" => JsonPayloadError::ContentType.into(),
        "json overflow" => JsonPayloadError::Overflow { limit: 1 }.into(),
        "form type" => UrlencodedError::ContentType.into(),
        "form overflow" => UrlencodedError::Overflow { size: 2, limit: 1 }.into(),
        "path error" => PathError::Deserialize(urlencoded()).into(),
        "not entered" => ExtractorError::new(ErrorNotFound("an extractor that the handler has called")).into(),
        other => unreachable!("{other} is no error"),
    }
}

/// Errors that functions and conversions of actix-web can also return inside a handler.
const AMBIGUOUS: [&str; 12] = [
    "payload",
    "payload overflow",
    "header",
    "content type",
    "lines",
    "query",
    "converted query",
    "path",
    "json payload",
    "form payload",
    "form",
    "worded json",
];
/// Errors that only an extractor returns, unless a handler builds them explicitly.
const OF_EXTRACTORS: [&str; 6] = ["json", "json type", "json overflow", "form type", "form overflow", "path error"];

/// The request header that names the error to return.
const ERROR: &str = "x-error";

/// Takes effect, then returns the error that the request names.
async fn fails(request: HttpRequest, ledger: web::Data<Ledger>) -> Result<HttpResponse, Error> {
    ledger.record(header(&request, ORDER).unwrap());
    Err(error(header(&request, ERROR).unwrap()))
}

/// Serves a route whose handler returns the requested error.
fn failing(ledger: &Ledger, protect: Protect<KeyPolicy>) -> TestServer {
    serve(ledger, move |config| {
        config.service(web::resource("/it").wrap(protect.clone()).route(web::post().to(fails)));
    })
}

/// Sends the request for each error twice and returns the names of those that ran twice.
async fn run_twice(served: &TestServer, ledger: &Ledger, names: impl IntoIterator<Item = &str>) -> Vec<String> {
    let mut twice = Vec::new();
    for name in names {
        let key = name.replace(' ', "-");
        for _ in 0..2 {
            send(under(&served.url, "/it", &key, name).header(ERROR, name)).await;
        }
        if ledger.count(name) != 1 {
            twice.push(name.to_owned());
        }
    }
    twice
}

#[tokio::test]
async fn error_returned_by_a_handler_is_stored() {
    let ledger = Ledger::new();
    let served = failing(&ledger, by_key(KeyRules::retryable()));
    assert_eq!(run_twice(&served, &ledger, AMBIGUOUS).await, [""; 0]);
}

#[tokio::test]
async fn no_error_type_frees_a_key_at_most_once() {
    let ledger = Ledger::new();
    let served = failing(&ledger, by_key(KeyRules::at_most_once()));
    assert_eq!(run_twice(&served, &ledger, AMBIGUOUS.into_iter().chain(OF_EXTRACTORS)).await, [""; 0]);
}

#[tokio::test]
async fn default_service_that_takes_effect_runs_once() {
    let ledger = Ledger::new();
    for rules in [KeyRules::retryable(), KeyRules::at_most_once()] {
        let protect = by_key(rules);
        let served = serve(&ledger, move |config| {
            let empty = async |request: HttpRequest, ledger: web::Data<Ledger>| {
                ledger.record(header(&request, ORDER).unwrap());
                HttpResponse::NotFound().finish()
            };
            let worded = async |request: HttpRequest, ledger: web::Data<Ledger>| {
                ledger.record(header(&request, ORDER).unwrap());
                HttpResponse::NotFound().body("no such order")
            };
            let other_method = async |request: HttpRequest, ledger: web::Data<Ledger>| {
                ledger.record(header(&request, ORDER).unwrap());
                HttpResponse::MethodNotAllowed().finish()
            };
            config
                .service(web::scope("/empty").wrap(protect.clone()).default_service(web::to(empty)))
                .service(web::scope("/worded").wrap(protect.clone()).default_service(web::to(worded)))
                .service(web::resource("/method").wrap(protect.clone()).default_service(web::to(other_method)));
        });
        for (path, status) in [("/empty/x", 404), ("/worded/x", 404), ("/method", 405)] {
            let order = uuid::Uuid::new_v4().to_string();
            let said = [buy(&served.url, path, "k", &order).await, buy(&served.url, path, "k", &order).await];
            assert_eq!(ledger.count(&order), 1, "{path}");
            assert_eq!(
                said.map(|answer| answer.said()),
                [format!("{status} replayable"), format!("{status} replayed")],
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn error_of_a_marked_handler_is_stored_whatever_its_type() {
    for rules in [KeyRules::retryable(), KeyRules::at_most_once(), KeyRules::retryable().replay_everything()] {
        let ledger = Ledger::new();
        let protect = by_key(rules.clone());
        let served = serve(&ledger, move |config| {
            config.service(web::resource("/it").wrap(protect.clone()).route(web::post().to(entered(fails))));
        });
        let names = AMBIGUOUS.into_iter().chain(OF_EXTRACTORS).chain(["not entered"]);
        assert_eq!(run_twice(&served, &ledger, names).await, [""; 0], "{rules:?}");
    }
}

/// By default these statuses mean "not applied". A handler that forwards an upstream status can override that.
#[tokio::test]
async fn upstream_rejection_marked_unknown_is_not_rerun_at_most_once() {
    for status in [401, 403, 425, 429] {
        let ledger = Ledger::new();
        let protect = by_key(KeyRules::at_most_once());
        let served = serve(&ledger, move |config| {
            let charged = move |ledger: web::Data<Ledger>| async move {
                ledger.record(CHARGE);
                HttpResponse::build(StatusCode::from_u16(status).unwrap()).finish().effect(Effect::Unknown)
            };
            config.service(web::resource("/it").wrap(protect.clone()).route(web::post().to(entered(charged))));
        });
        let said = [buy(&served.url, "/it", "k", "").await.said(), buy(&served.url, "/it", "k", "").await.said()];
        assert_eq!(said, [format!("{status} unknown"), "409 outcome_unknown".to_owned()]);
        assert_eq!(ledger.count(CHARGE), 1, "{status}");
    }
}
