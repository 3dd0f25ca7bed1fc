//! What an answer says about the effect decides whether a key replays, runs again, or waits.

use std::future::{Ready, ready};
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::error::{ErrorBadRequest, ErrorServiceUnavailable};
use actix_web::http::StatusCode;
use actix_web::http::header::ContentLength;
use actix_web::web::{self, Form, Json, Path, Query, ServiceConfig};
use actix_web::{FromRequest, HttpRequest, HttpResponse};
use onceward::actix::{NotEntered, Protect, SubjectFrom};
use onceward::store::Memory;
use onceward::{Effect, Guard, KeyRules, ManualClock};
use onceward_tests::client::{Answer, URLENCODED, http, ran, send};
use onceward_tests::keyed::{BRIEF, KEY, LEASE, buy, serve, serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::shop::{EFFECT, ORDER, STATUS, Served, Shop, order};
use onceward_tests::wait::until;
use reqwest::RequestBuilder;
use serde_json::Value;

/// A server on a clock of its own.
struct Bed {
    clock: ManualClock,
    served: Served,
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

    /// Asserts what becomes of every status: kept, free again, or unknown and then what `lapsed` says of it.
    async fn settles(&self, effect: impl Fn(u16) -> Effect, unknown: &str, is_free_later: bool) {
        for status in 200..600 {
            assert_eq!(self.ask(status).await, ran(status, effect(status)));
            let (said, runs) = match effect(status) {
                Effect::Happened => (format!("{status} replayed"), 1),
                Effect::DidNotHappen => (format!("{status} not_applied"), 2),
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
        401 | 403 | 408 | 425 | 429 | 500 | 501 | 503 => Effect::DidNotHappen,
        200..500 => Effect::Happened,
        _ => Effect::Unknown,
    }
}

#[tokio::test]
async fn every_status_settles_the_key_as_the_table_says() {
    Bed::with(KeyRules::new()).settles(usual, "409 in_progress", true).await;
}

#[tokio::test]
async fn every_status_settles_a_key_that_is_held_as_the_table_says() {
    let held = |status| match status {
        408 | 500 | 501 | 503 => Effect::Unknown,
        other => usual(other),
    };
    Bed::with(KeyRules::new().hold()).settles(held, "409 outcome_unknown", false).await;
}

#[tokio::test]
async fn every_status_replays_where_everything_does() {
    Bed::with(KeyRules::new().replay_everything()).settles(|_| Effect::Happened, "", false).await;
}

/// An extractor of the application's own, which wants a header.
struct Signed;

impl FromRequest for Signed {
    type Error = actix_web::Error;
    type Future = Ready<Result<Self, Self::Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let wrong = |error| Err(NotEntered::new(error).into());
        ready(match request.headers().get("x-signed").map(|signed| signed.as_bytes()) {
            Some(b"yes") => Ok(Self),
            Some(_) => wrong(ErrorServiceUnavailable("nobody can tell at the moment")),
            None => wrong(ErrorBadRequest("not signed")),
        })
    }
}

async fn made(request: HttpRequest, ledger: web::Data<Ledger>) -> HttpResponse {
    order(request, ledger, web::Bytes::new()).await
}

/// Routes whose handlers take what the request may not have, all under one action.
fn extracting(protect: Protect) -> impl Fn(&mut ServiceConfig) + Clone + Send {
    move |config| {
        let on = |path: &str| web::resource(path.to_owned()).wrap(protect.clone().action("extract"));
        type Data = web::Data<Ledger>;
        let json = async |request: HttpRequest, ledger: Data, _: Json<Vec<u32>>| made(request, ledger).await;
        let form = async |request: HttpRequest, ledger: Data, _: Form<Vec<(String, u32)>>| made(request, ledger).await;
        let query =
            async |request: HttpRequest, ledger: Data, _: Query<Vec<(String, u32)>>| made(request, ledger).await;
        let path = async |request: HttpRequest, ledger: Data, _: Path<u32>| made(request, ledger).await;
        let length = async |request: HttpRequest, ledger: Data, _: web::Header<Number>| made(request, ledger).await;
        let signed = async |request: HttpRequest, ledger: Data, _: Signed| made(request, ledger).await;
        config
            .service(on("/json").route(web::post().to(json)))
            .service(on("/form").route(web::post().to(form)))
            .service(on("/query").route(web::post().to(query)))
            .service(on("/path/{id}").route(web::post().to(path)))
            .service(on("/header").route(web::post().to(length)))
            .service(on("/signed").route(web::post().to(signed)));
    }
}

/// A header that is a number.
struct Number(#[allow(dead_code, reason = "only whether it is there counts")] ContentLength);

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

#[tokio::test]
async fn what_was_refused_before_the_handler_was_entered_may_be_corrected_under_the_same_key() {
    let ledger = Ledger::new();
    for rules in [KeyRules::new(), KeyRules::new().hold(), KeyRules::new().replay_everything()] {
        let guard = Guard::new(Memory::new());
        let served = serve(&ledger, extracting(Protect::key(&guard, SubjectFrom::anonymous(), rules)));
        let post = |path: &str| under(&served.url, path, path.split(['/', '?']).nth(1).unwrap(), path);
        let json = |body: &'static str| post("/json").header("content-type", "application/json").body(body);
        let form = |body: &'static str| post("/form").header("content-type", URLENCODED).body(body);
        let wrong_type = post("/json").header("content-type", "text/plain").body("[1]");
        let cases: Vec<(&str, u16, RequestBuilder, RequestBuilder)> = vec![
            ("json", 400, json("[1"), json("[1]")),
            ("json type", 400, wrong_type, json("[1]")),
            ("form", 400, form("a=x"), form("a=1")),
            ("query", 400, post("/query?a=x"), post("/query?a=1")),
            ("path", 404, post("/path/x"), post("/path/1")),
            ("header", 400, post("/header").header("x-number", "x"), post("/header").header("x-number", "1")),
            ("own", 400, post("/signed"), post("/signed").header("x-signed", "yes")),
            ("busy", 503, post("/signed").header("x-signed", "?"), post("/signed").header("x-signed", "yes")),
        ];
        let mut wrong = Vec::new();
        for (what, status, mistaken, corrected) in cases {
            let key = format!("{what} {}", uuid::Uuid::new_v4());
            let name = |request: RequestBuilder| {
                let (client, request) = request.build_split();
                let mut request = request.unwrap();
                request.headers_mut().insert(KEY, format!("\"{}\"", key.replace(' ', "-")).parse().unwrap());
                request.headers_mut().insert(ORDER, key.parse().unwrap());
                RequestBuilder::from_parts(client, request)
            };
            let first = send(name(mistaken)).await;
            let second = send(name(corrected)).await;
            let said = [first.said(), second.said()];
            if said != [format!("{status} not_applied"), "200 executed".to_owned()] || ledger.count(&key) != 1 {
                wrong.push((what, said));
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

#[tokio::test]
async fn where_no_route_matches_the_key_stays_free() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::new()).action("all");
    let served = serve(&ledger, move |config| {
        let scope = web::scope("/scope").wrap(protect.clone());
        let gone = |_: HttpRequest| async { HttpResponse::NotFound().finish() };
        let orders = web::resource("/orders").route(web::post().to(made));
        let scope = scope.service(web::resource("/gone").route(web::post().to(gone))).service(orders);
        config.service(scope);
    });
    let post = |path: &str, key: &str| under(&served.url, &format!("/scope{path}"), key, key);
    for path in ["/ordres", "", "/orders/1"] {
        assert_eq!(send(post(path, "k")).await.said(), "404 not_applied", "{path}");
    }
    let put = http().put(format!("{}/scope/orders", served.url)).header(KEY, "k");
    assert_eq!(send(put).await.said(), "405 not_applied", "no method matches");
    assert_eq!(send(post("/orders", "k")).await.said(), "200 executed");
    assert_eq!(send(post("/orders", "k")).await.said(), "200 replayed");
    assert_eq!(ledger.runs(), ["k"]);

    let gone = [send(post("/gone", "g")).await.said(), send(post("/gone", "g")).await.said()];
    assert_eq!(gone, ["404 executed", "404 replayed"], "a handler's own 404 is an answer");
}

#[tokio::test]
async fn a_200_that_tells_of_a_failure_is_released_by_the_route_s_own_word() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::new()).judge_body(|head, body| {
        let said: Value = serde_json::from_slice(body).ok()?;
        (head.status == StatusCode::OK && said["code"] != 0).then_some(Effect::DidNotHappen)
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
async fn what_a_handler_says_of_its_own_answer_goes_before_everything() {
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
async fn a_handler_that_panics_leaves_its_key_to_the_lease_or_held() {
    let shop = Shop::on(Memory::new());
    let (free, held) = ("/keyed/panic", "/keyed/held/panic");
    let broke = buy(shop.url(), free, "k", "free").await;
    assert_eq!(broke.said(), "500 internal");
    assert_eq!(buy(shop.url(), free, "k", "free").await.said(), "409 in_progress");
    until("the lease is over", LEASE * 3, || async { buy(shop.url(), free, "k", "free").await.status == 500 }).await;
    assert_eq!(shop.ledger.count("free"), 2);

    assert_eq!(buy(shop.url(), held, "k", "held").await.said(), "500 internal");
    until("nobody can tell", BRIEF * 10, || async {
        buy(shop.url(), held, "k", "held").await.said() == "409 outcome_unknown"
    })
    .await;
    tokio::time::sleep(BRIEF).await;
    assert_eq!(buy(shop.url(), held, "k", "held").await.said(), "409 outcome_unknown");
    assert_eq!(shop.ledger.count("held"), 1);
}
