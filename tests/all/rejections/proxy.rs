//! Rejections of the proxy, in the formats of its settings file.

use std::fmt::Write as _;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use onceward::store::{Memory, Redis};
use onceward::{Binding, Guard, Secret};
use onceward_api::{Code, header};
use onceward_tests::client::{Answer, ask_token, http, send, token};
use onceward_tests::legacy_shop::proxy_to;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::test_server::TestServer;
use reqwest::RequestBuilder;
use serde_json::Value;
use tempfile::NamedTempFile;

use super::formats::{Format, LANGUAGES};

const KEY: &str = header::IDEMPOTENCY_KEY;

/// The secret that signs tokens.
const SECRET: &str = "a secret of thirty-two bytes, or so";

/// Codes that no route of a proxy rejects with in its own format: those of claims, locks and panics, of the proxy's own routes, and of a
/// token whose reply from the store is lost, each time that it is sent.
const ELSEWHERE: [Code; 6] =
    [Code::ClaimLost, Code::Internal, Code::Locked, Code::MethodNotAllowed, Code::RateLimited, Code::RedeemUnknown];

/// Codes that tests of their own produce: those of an upstream that sends no usable response, and of a shutdown.
const SEPARATE: [Code; 4] = [Code::UpstreamUnavailable, Code::UpstreamTimeout, Code::UpstreamFailed, Code::Overloaded];

/// The routes of every format, and the envelope.
fn settings() -> NamedTempFile {
    let mut text = format!("require = \"key\"\nprofile = \"acp\"\nsecret = \"{SECRET}\"\n");
    for format in Format::ALL {
        let name = format.name();
        let choice = match format {
            Format::Problem | Format::Envelope => format!("rejections = \"{name}\"\nprofile = \"ietf\""),
            Format::Acp => String::new(),
            Format::Ucp | Format::Stripe => format!("profile = \"{name}\""),
        };
        let mut route = |path: &str, rules: &str| {
            write!(text, "[[proxy.route]]\npath = \"/{name}/{path}\"\n{rules}\n{choice}\n").unwrap();
        };
        route("key", "policy = \"key\"\nunknown = [599]\nbody_limit = \"64B\"");
        route("in-body", "policy = \"key\"\nkey_from = { body = \"/id\" }");
        route("mine", "policy = \"key\"\nsubject = { cookie = \"session\" }");
        route("token", "policy = \"token\"");
        route("interval", "policy = \"interval\"\nevery = \"1m\"");
    }
    text += "[proxy.envelope]\ncodes = { token_used = 20001, too_soon = \"A0506\" }\nmessage_field = \"msg\"\nstatus = 200\n";
    let file = NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// An application that takes as long, and responds with the status, that the request says.
pub(super) fn application() -> TestServer {
    let respond = async |headers: HeaderMap| {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u16>().ok();
        tokio::time::sleep(Duration::from_secs(number("x-takes").unwrap_or(0).into())).await;
        let kind = if headers.contains_key("x-stream") { "text/event-stream" } else { "text/plain" };
        let body = axum::body::Body::from_stream(futures_util::stream::iter([Ok::<_, std::io::Error>("done")]));
        (StatusCode::from_u16(number("x-status").unwrap_or(200)).unwrap(), [("content-type", kind)], body)
    };
    TestServer::run_router(Router::new().fallback(respond))
}

/// Guards with the secret of the proxy.
struct Guards {
    /// On its store.
    same: Guard,
    /// On another one, as if the store had restarted since.
    restarted: Guard,
    /// With another secret.
    foreign: Guard,
}

impl Guards {
    fn beside(redis: &RedisServer) -> Self {
        let secret = || Secret::new(SECRET).unwrap();
        Self {
            same: Guard::builder(Redis::open(&redis.url()).unwrap()).secret(secret()).build(),
            restarted: Guard::builder(Memory::new()).secret(secret()).build(),
            foreign: Guard::new(Memory::new()),
        }
    }
}

async fn issue(guard: &Guard) -> String {
    guard.issue(Duration::from_secs(60), Binding::none()).await.unwrap().as_str().to_owned()
}

/// Prepares a rejection with this code, and returns the request that receives it.
async fn provoke(code: Code, guards: &Guards, proxy: &OncewardServer, format: Format) -> Option<RequestBuilder> {
    let post = |path: &str| http().post(format!("{}/{}/{path}", proxy.url, format.name())).body("tea");
    let key = |path: &str| post(path).header(KEY, code.as_str());
    let first = async |request: RequestBuilder| drop(send(request).await);
    Some(match code {
        Code::TokenMissing => post("token"),
        Code::TokenMalformed => post("token").header(header::TOKEN, "x"),
        Code::TokenUsed => {
            let used = token(&format!("{}/_onceward", proxy.url)).await;
            first(post("token").header(header::TOKEN, &used)).await;
            post("token").header(header::TOKEN, &used)
        }
        Code::TokenInvalid => post("token").header(header::TOKEN, issue(&guards.foreign).await),
        Code::TokenStale => post("token").header(header::TOKEN, issue(&guards.restarted).await),
        Code::TokenRevoked => {
            let revoked = issue(&guards.same).await;
            guards.same.revoke(&revoked).await.unwrap();
            post("token").header(header::TOKEN, revoked)
        }
        Code::TokenExpired => {
            let answer = ask_token(&format!("{}/_onceward", proxy.url), r#"{"ttl":"1s"}"#).await;
            let expired: Value = serde_json::from_slice(&answer.body).unwrap();
            let request = post("token").header(header::TOKEN, expired["token"].as_str().unwrap());
            // A look does not use the token up.
            let is_expired = || send(request.try_clone().unwrap().header(header::LOOK, "true"));
            until("the token has expired", Duration::from_secs(20), async || {
                is_expired().await.outcome == "token_expired"
            })
            .await;
            request
        }
        Code::ReplyNotKept => {
            first(key("key").header("x-stream", "yes")).await;
            key("key")
        }
        Code::StoreUnavailable => key("key"),
        Code::KeyMissing => post("key"),
        Code::KeyMalformed => post("key").header(KEY, "a,b"),
        Code::KeyReused => {
            first(key("key")).await;
            key("key").body("milk")
        }
        Code::InProgress => {
            drop(tokio::spawn(key("key").header("x-takes", "60").send()));
            until("the first request is in flight", Duration::from_secs(20), async || {
                send(key("key").header(header::LOOK, "true")).await.outcome == "in_progress"
            })
            .await;
            key("key")
        }
        Code::OutcomeUnknown => {
            first(key("key").header("x-status", "599")).await;
            key("key")
        }
        Code::NotFound => key("key").header(header::LOOK, "true"),
        Code::BadRequest => key("key").header(header::LOOK, "perhaps"),
        Code::BodyTooLarge => key("key").body("x".repeat(65)),
        Code::UnsupportedMediaType => {
            post("in-body").header("content-type", "application/json").header("content-encoding", "gzip")
        }
        Code::Unauthorized => key("mine"),
        Code::TooSoon => {
            first(post("interval")).await;
            post("interval")
        }
        _ => return None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rejection_has_the_format_of_its_route() {
    let (application, file, redis) = (application(), settings(), RedisServer::start());
    let arguments = ["--config", file.path().to_str().unwrap(), "--store", &redis.url()];
    let (proxy, guards) = (proxy_to(&application.url, &arguments), Guards::beside(&redis));
    let mut redis = Some(redis);
    let (mut produced, last) = (0, Code::StoreUnavailable);
    for code in Code::ALL.into_iter().filter(|code| *code != last).chain([last]) {
        if code == last {
            redis.take();
        }
        let mut defaults = Vec::new();
        for format in Format::ALL {
            let Some(request) = provoke(code, &guards, &proxy, format).await else {
                assert!(ELSEWHERE.contains(&code) || SEPARATE.contains(&code), "{code} has no request");
                continue;
            };
            for (at, language) in LANGUAGES.into_iter().enumerate() {
                let answer = send(request.try_clone().unwrap().header("accept-language", language.0)).await;
                if format == Format::Problem {
                    defaults.push(answer.clone());
                }
                format.check(code, language, &answer, &defaults[at]);
                let is_echoed = format == Format::Acp && answer.headers.contains_key(KEY);
                assert_eq!(is_echoed, format == Format::Acp && has_key(&request), "{code} as {}", format.name());
                produced += 1;
            }
        }
    }
    let codes = Code::ALL.len() - ELSEWHERE.len() - SEPARATE.len();
    assert_eq!(produced, codes * Format::ALL.len() * LANGUAGES.len());
}

fn has_key(request: &RequestBuilder) -> bool {
    request.try_clone().unwrap().build().unwrap().headers().contains_key(KEY)
}

async fn failed(proxy: &OncewardServer, format: Format, language: &str) -> Answer {
    let request = http().post(format!("{}/{}/key", proxy.url, format.name())).header("accept-language", language);
    send(request.header(KEY, format!("in-{language}")).body("tea")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_of_the_upstream_has_the_format_of_its_route() {
    let file = settings();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let broken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = |address: std::net::SocketAddr| format!("http://{address}");
    let [closed_url, silent_url] = [&closed, &silent].map(|listener| url(listener.local_addr().unwrap()));
    let broken_url = url(broken.local_addr().unwrap());
    drop(closed);
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = broken.accept().await {
            tokio::spawn(async move { tokio::io::AsyncReadExt::read(&mut connection, &mut [0; 4096]).await });
        }
    });
    for (upstream, code, outcome) in [
        (closed_url, Code::UpstreamUnavailable, "not_applied"),
        (broken_url, Code::UpstreamFailed, "unknown"),
        (silent_url, Code::UpstreamTimeout, "unknown"),
    ] {
        assert!(SEPARATE.contains(&code));
        let arguments = ["--config", file.path().to_str().unwrap(), "--upstream-read-timeout", "500ms"];
        let proxy = proxy_to(&upstream, &arguments);
        for format in Format::ALL {
            for language in LANGUAGES {
                let answer = failed(&proxy, format, language.0).await;
                let what = format!("{code} as {} in {}", format.name(), language.0);
                format.check_shape(code, language, &answer);
                assert_eq!(
                    (answer.outcome.as_str(), answer.headers[header::RETRY].to_str().unwrap()),
                    (outcome, code.retry().as_str()),
                    "{what}"
                );
            }
        }
    }
}

/// While a shutdown waits for a run, the guard rejects new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejection_during_a_shutdown_has_the_format_of_its_route() {
    let (application, file) = (application(), settings());
    let proxy = proxy_to(&application.url, &["--config", file.path().to_str().unwrap(), "--last-call", "50ms"]);
    let url = proxy.url.clone();
    let post = |format: Format, key: &str| http().post(format!("{url}/{}/key", format.name())).header(KEY, key);
    drop(tokio::spawn(post(Format::Problem, "slow").header("x-takes", "60").send()));
    until("the slow run is in flight", Duration::from_secs(20), async || {
        send(post(Format::Problem, "slow").header(header::LOOK, "true")).await.outcome == "in_progress"
    })
    .await;
    proxy.terminate();
    until("new runs are rejected", Duration::from_secs(20), async || {
        send(post(Format::Problem, &uuid::Uuid::new_v4().to_string())).await.outcome == Code::Overloaded.as_str()
    })
    .await;
    for language in LANGUAGES {
        let rejected = async |format| send(post(format, "new").header("accept-language", language.0)).await;
        let default = rejected(Format::Problem).await;
        for format in Format::ALL {
            format.check(Code::Overloaded, language, &rejected(format).await, &default);
        }
    }
}

#[tokio::test]
async fn settings_choose_the_format_of_other_paths() {
    let (application, file) = (application(), settings());
    let path = file.path().to_str().unwrap();
    let by_profile = proxy_to(&application.url, &["--config", path]);
    let post = |proxy: &OncewardServer| send(http().post(format!("{}/other", proxy.url)));
    let missing = post(&by_profile).await;
    Format::Acp.check(Code::KeyMissing, LANGUAGES[0], &missing, &missing);
    let enveloped = proxy_to(&application.url, &["--config", path, "--rejections", "envelope"]);
    let missing = post(&enveloped).await;
    Format::Envelope.check(Code::KeyMissing, LANGUAGES[0], &missing, &missing);
    // The proxy's own routes keep their shape.
    let wrong = ask_token(&format!("{}/_onceward", enveloped.url), r#"{"ttl":"never"}"#).await;
    assert_eq!((wrong.said().as_str(), wrong.problem().code), ("400 bad_request", Code::BadRequest));
}
