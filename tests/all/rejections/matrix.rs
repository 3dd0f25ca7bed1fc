//! Every code that a protected route can produce, in every format and language, on every framework: each by a real request.

use std::time::Duration;

use onceward::http::{KeySource, Protect, SubjectSource};
use onceward::store::Memory;
use onceward::testing::{self, FailingStore};
use onceward::{Binding, Guard, IntervalRules, KeyRules, Secret};
use onceward_api::{Code, header};
use onceward_tests::client::{http, send};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::KEY;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::until;
use onceward_tests::routes::Routes;
use onceward_tests::shop::{STATUS, TAKES, user};
use onceward_tests::shop_handlers::{order, panics};
use onceward_tests::web_framework::WebFramework;
use reqwest::RequestBuilder;

use super::formats::{Format, LANGUAGES};

on_every_framework! {
    every_rejection_has_the_format_of_its_route(threads),
}

const LONG: Duration = Duration::from_secs(60);

/// Codes that no protected route of the library produces: those of claims, token requests and the proxy.
const ELSEWHERE: [Code; 6] = [
    Code::ClaimLost,
    Code::RateLimited,
    Code::MethodNotAllowed,
    Code::UpstreamUnavailable,
    Code::UpstreamTimeout,
    Code::UpstreamFailed,
];

/// The guards of the routes, by what is wrong with them.
struct Guards {
    sound: Guard,
    /// Its tokens have expired.
    late: Guard,
    /// Its store has lost the tokens that `sound` issued.
    restarted: Guard,
    /// Its store is unavailable.
    unavailable: Guard,
    /// Its store loses every reply.
    deaf: Guard,
    draining: Guard,
    /// Has another secret.
    foreign: Guard,
    expired: String,
    lost: String,
    unheard: String,
}

impl Guards {
    async fn new() -> Self {
        let secret = Secret::random();
        let sharing = || Guard::builder(Memory::new()).secret(secret.clone()).build();
        let (sound, restarted) = (sharing(), sharing());
        let (late, clock) = testing::guard();
        let expired = issue(&late).await;
        clock.advance(LONG * 2);
        let (down, silent) = (FailingStore::new(Memory::new()), FailingStore::new(Memory::new()));
        let (unavailable, deaf) = (Guard::new(down.clone()), Guard::new(silent.clone()));
        let (lost, unheard) = (issue(&sound).await, issue(&deaf).await);
        down.fail_not_executed();
        silent.fail_unknown();
        let draining = Guard::new(Memory::new());
        draining.shut_down().await;
        let foreign = Guard::new(Memory::new());
        Self { sound, late, restarted, unavailable, deaf, draining, foreign, expired, lost, unheard }
    }

    /// The routes in one format.
    fn routes<F: WebFramework>(&self, format: Format) -> Routes<F> {
        let anyone = SubjectSource::anonymous;
        let once = KeyRules::at_most_once;
        let token = |guard| Protect::<F, _>::token(guard, anyone()).rejections(format.of_library());
        let key = |guard| Protect::<F, _>::key(guard, anyone(), once()).rejections(format.of_library());
        let every = |rules| Protect::<F, _>::interval(&self.sound, anyone(), rules).rejections(format.of_library());
        let small = Protect::<F, _>::key(&self.sound, anyone(), once().reply_limit(4)).rejections(format.of_library());
        let mine = Protect::<F, _>::key(&self.sound, user::<F>(), once()).rejections(format.of_library());
        let minute = || IntervalRules::new().every(LONG).unwrap();
        let ordered = || Handler::of_body(order);
        Routes::new()
            .post("/token", token(&self.sound), ordered())
            .post("/late", token(&self.late), ordered())
            .post("/restarted", token(&self.restarted), ordered())
            .post("/deaf", token(&self.deaf), ordered())
            .post("/key", key(&self.sound), ordered())
            .post("/unavailable", key(&self.unavailable), ordered())
            .post("/draining", key(&self.draining), ordered())
            .post("/small", small, ordered())
            .post("/mine", mine, ordered())
            .post("/short", key(&self.sound).body_limit(4), ordered())
            .post("/in-body", key(&self.sound).from(KeySource::body("/id").unwrap()), ordered())
            .post("/panics", key(&self.sound), Handler::of_head(panics))
            .post("/interval", every(minute()), ordered())
            .post("/lock", every(minute().release_always()), ordered())
    }

    /// Prepares a rejection with this code, and returns the request that receives it, as often as it is sent.
    async fn provoke(&self, code: Code, base: &str, ledger: &Ledger) -> Option<RequestBuilder> {
        let post = |path: &str| http().post(format!("{base}{path}")).body("tea");
        let token = |path: &str, token: &str| post(path).header(header::TOKEN, token);
        let key = |path: &str| post(path).header(KEY, code.as_str());
        let first = async |request: RequestBuilder| drop(send(request).await);
        let running = async |request: RequestBuilder| {
            let before = ledger.runs().len();
            drop(tokio::spawn(request.header(TAKES, LONG.as_millis().to_string()).send()));
            until("the first request runs", LONG, async || ledger.runs().len() > before).await;
        };
        Some(match code {
            Code::TokenMissing => post("/token"),
            Code::TokenMalformed => token("/token", "not-a-token"),
            Code::TokenInvalid => token("/token", &issue(&self.foreign).await),
            Code::TokenExpired => token("/late", &self.expired),
            Code::TokenUsed => {
                let used = issue(&self.sound).await;
                first(token("/token", &used)).await;
                token("/token", &used)
            }
            Code::TokenRevoked => {
                let revoked = issue(&self.sound).await;
                self.sound.revoke(&revoked).await.unwrap();
                token("/token", &revoked)
            }
            Code::TokenStale => token("/restarted", &self.lost),
            Code::RedeemUnknown => token("/deaf", &self.unheard),
            Code::KeyMissing => post("/key"),
            Code::KeyMalformed => post("/key").header(KEY, "a,b"),
            Code::KeyReused => {
                first(key("/key")).await;
                key("/key").body("milk")
            }
            Code::InProgress => {
                running(key("/key")).await;
                key("/key")
            }
            Code::OutcomeUnknown => {
                first(key("/key").header(STATUS, "502")).await;
                key("/key")
            }
            Code::NotFound => key("/key").header(header::LOOK, "true"),
            Code::ReplyNotKept => {
                first(key("/small")).await;
                key("/small")
            }
            Code::StoreUnavailable => key("/unavailable"),
            Code::TooSoon => {
                first(post("/interval")).await;
                post("/interval")
            }
            Code::Locked => {
                running(post("/lock")).await;
                post("/lock")
            }
            Code::Overloaded => key("/draining"),
            Code::Unauthorized => key("/mine"),
            Code::BadRequest => key("/key").header(header::LOOK, "perhaps"),
            Code::BodyTooLarge => key("/short").body("more than four bytes"),
            Code::UnsupportedMediaType => {
                post("/in-body").header("content-type", "application/json").header("content-encoding", "gzip")
            }
            // A panic keeps its key: each request needs another.
            Code::Internal => post("/panics"),
            _ => return None,
        })
    }
}

async fn issue(guard: &Guard) -> String {
    guard.issue(LONG, Binding::none()).await.unwrap().as_str().to_owned()
}

async fn every_rejection_has_the_format_of_its_route<F: WebFramework>() {
    let (guards, ledger) = (Guards::new().await, Ledger::new());
    let scopes = Format::ALL
        .into_iter()
        .fold(Routes::<F>::new(), |routes, format| routes.scope(&format!("/{}", format.name()), guards.routes(format)));
    let served = F::serve(&ledger, scopes);
    for code in Code::ALL {
        let mut defaults = Vec::new();
        for format in Format::ALL {
            let base = format!("{}/{}", served.url, format.name());
            let Some(request) = guards.provoke(code, &base, &ledger).await else {
                assert!(ELSEWHERE.contains(&code), "{code} has no request");
                continue;
            };
            let before = ledger.runs().len();
            let send_as = async |name: &str, value: &str| {
                let request = request.try_clone().unwrap().header(name, value);
                send(if code == Code::Internal { request.header(KEY, format!("{name}-{value}")) } else { request })
                    .await
            };
            for (at, language) in LANGUAGES.into_iter().enumerate() {
                let answer = send_as("accept-language", language.0).await;
                if format == Format::Problem {
                    defaults.push(answer.clone());
                }
                format.check(code, language, &answer, &defaults[at]);
            }
            let page = send_as("accept", "text/html").await;
            assert_eq!((page.status, page.outcome.as_str()), (code.status(), code.as_str()), "{page:?}");
            assert_eq!(page.headers["content-type"], "text/html; charset=utf-8", "{code}");
            assert_eq!(page.headers["onceward-retry"], code.retry().as_str(), "{code}");
            let ran = ledger.runs().len() - before;
            assert_eq!(ran, if code == Code::Internal { LANGUAGES.len() + 1 } else { 0 }, "{code} runs nothing");
        }
    }
}
