//! Defects of the code that this project started from, each by its number in the requirements: a duplicate arrives, and the layer
//! that should detect it fails.

use std::time::Duration;

use actix_web::web;
use actix_web::{App, HttpResponse, HttpServer};
use onceward::actix::protect::IntervalPolicy;
use onceward::actix::{Protect, SubjectFrom};
use onceward::store::{Memory, Redis};
use onceward::{Fields, Guard, IntervalRules, KeyRules, SettingError};
use onceward_api::Problem;
use onceward_tests::actix_handlers::{header, panics, purchase};
use onceward_tests::client::{URLENCODED, http, send, submit, token};
use onceward_tests::interval_routes::{HALF, every, plainly};
use onceward_tests::key_routes::{KEY, Pair, buy, serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{STATUS, Shop, TAKES, TestServer, USER};
use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::PEER;

const LONG: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);
const RAN: &str = "200 executed";
const TOO_SOON: &str = "409 too_soon";

fn spaced(rules: IntervalRules) -> Protect<IntervalPolicy> {
    Protect::interval(&Guard::new(Memory::new()), SubjectFrom::anonymous(), rules)
}

fn served<P: 'static>(protect: Protect<P>) -> (TestServer, Ledger) {
    let ledger = Ledger::new();
    (serve_one(&ledger, protect), ledger)
}

/// D5: SETNX without an expiry. Every claim expires by itself, also if its owner is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d05_every_claim_expires() {
    let mut pair = Pair::start(PEER, "onceward").await;
    let remembered = token(pair.one()).await;
    let slow = [
        plainly(pair.one(), "/spaced/second", "lost"),
        plainly(pair.one(), "/spaced/fifth", "lost"),
        plainly(pair.one(), "/spaced/locked/1", "lost"),
        under(pair.one(), "/keyed/orders", "k", "lost"),
        under(pair.one(), "/keyed/held", "k", "lost"),
        submit(pair.one(), "/remembered/orders", &remembered, "lost"),
    ];
    let lost = slow.map(|request| {
        let request = request.header(TAKES, 60_000);
        tokio::spawn(async move { request.send().await })
    });
    pair.begun(6).await;
    let all_expire = || {
        for name in pair.redis.keys() {
            let life = pair.redis.ask::<i64>(&format!("PTTL {name}"));
            // -2: it has expired since.
            assert!(life >= 0 || life == -2, "{name} has the PTTL {life}");
        }
    };
    assert!(pair.redis.keys().len() >= 6);
    let end = Instant::now() + Duration::from_millis(800);
    while Instant::now() < end {
        // Renewals happen meanwhile.
        all_expire();
    }
    pair.peers[0].kill();
    for lost in lost {
        assert!(lost.await.unwrap().is_err());
    }
    let all_expire = || pair.redis.keys().iter().all(|name| pair.redis.ask::<i64>(&format!("PTTL {name}")) != -1);
    assert!(all_expire());
    for path in ["/spaced/second", "/spaced/fifth", "/spaced/locked/1"] {
        let ask = async || send(plainly(pair.other(), path, path)).await.said() == RAN;
        until("it runs again", LONG, ask).await;
    }
    let ask = async || buy(pair.other(), "/keyed/orders", "k", "k").await.said() == RAN;
    until("it runs again", LONG, ask).await;
    assert!(all_expire());
}

/// D7: an interval below a second was rounded down to none.
#[tokio::test]
async fn d07_interval_below_a_second_is_not_truncated() {
    let redis = RedisServer::start();
    let guard = Guard::new(Redis::open(&redis.url()).unwrap().timeout(Duration::from_secs(5)));
    for millis in [1, 250, 300, 500, 999, 1_500] {
        let rules = every(Duration::from_millis(millis));
        let ledger = Ledger::new();
        let protect = Protect::interval(&guard, SubjectFrom::anonymous(), rules).action(format!("every {millis}"));
        let served = serve_one(&ledger, protect);
        let begun = Instant::now();
        assert_eq!(send(plainly(&served.url, "/it", "order")).await.said(), RAN);
        let again = send(plainly(&served.url, "/it", "order")).await.said();
        assert!(again == TOO_SOON || begun.elapsed() >= Duration::from_millis(millis), "{millis} ms");
        let lives: Vec<i64> = redis.keys().iter().map(|name| redis.ask(&format!("PTTL {name}"))).collect();
        assert!(lives.iter().all(|life| *life != -1), "{lives:?}");
        until("the interval expires", LONG, || async {
            send(plainly(&served.url, "/it", "order")).await.said() == RAN
        })
        .await;
        assert!(begun.elapsed() >= Duration::from_millis(millis), "{millis} ms");
    }
}

/// D8: thread-local state that a response of another type had left released the key of another request.
#[tokio::test]
async fn d08_request_never_releases_another_claim_of_its_thread() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let user = SubjectFrom::resolver(|request| header(request, USER).map(str::to_owned));
    let protect = Protect::interval(&guard, user, every(MINUTE));
    let data = web::Data::new(ledger.clone());
    let served = TestServer::run(move |listener| {
        let app = move || {
            let on = |path: &str| web::resource(path.to_owned()).wrap(protect.clone());
            let streamed = || async {
                HttpResponse::UnprocessableEntity()
                    .streaming(futures_util::stream::pending::<Result<web::Bytes, std::io::Error>>())
            };
            let fails = || async { Err::<HttpResponse, _>(actix_web::error::ErrorInternalServerError("no")) };
            App::new()
                .app_data(data.clone())
                .service(on("/it").route(web::route().to(purchase)))
                .service(on("/streamed").route(web::route().to(streamed)))
                .service(on("/fails").route(web::route().to(fails)))
                .service(on("/panic").route(web::route().to(panics)))
                .service(web::resource("/open").route(web::route().to(fails)))
        };
        // One thread for all requests.
        Ok(HttpServer::new(app).workers(1).disable_signals().listen(listener)?.run())
    });
    let ask = |path: &str, user: &str| plainly(&served.url, path, user).header(USER, user.to_owned());
    assert_eq!(send(ask("/it", "alice")).await.said(), RAN);
    let slow = tokio::spawn(send(ask("/it", "carol").header(TAKES, 400)));
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    for path in ["/it", "/streamed", "/fails", "/panic", "/open", "/nowhere"] {
        let status = if path == "/it" { 422 } else { 200 };
        // The result does not matter. The body of the streamed response is not read to its end.
        drop(ask(path, "bob").header(STATUS, status).send().await);
        for other in ["alice", "carol"] {
            assert_eq!(send(ask("/it", other)).await.said(), TOO_SOON, "{other}, after bob's {path}");
        }
    }
    assert_eq!(slow.await.unwrap().said(), RAN);
    assert_eq!(send(ask("/it", "carol")).await.said(), TOO_SOON);
    assert_eq!([ledger.count("alice"), ledger.count("carol")], [1, 1]);
}

/// D9: a request that failed released the key, even if another request owned it by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d09_only_its_owner_frees_a_claim() {
    let redis = RedisServer::start();
    let (guard, ledger) = (Guard::new(Redis::open(&redis.url()).unwrap()), Ledger::new());
    let both = [(every(MINUTE), TOO_SOON), (every(MINUTE).release_always(), "429 locked")];
    for (at, (rules, beside)) in both.into_iter().enumerate() {
        let protect = Protect::interval(&guard, SubjectFrom::anonymous(), rules).action(format!("rules {at}"));
        let served = serve_one(&ledger, protect);
        let ask = |order: &str| plainly(&served.url, "/it", order);
        let first = tokio::spawn(send(ask("first").header(TAKES, 300).header(STATUS, 422)));
        until("it has begun", LONG, || async { ledger.count("begun") == 2 * at + 1 }).await;
        // The store loses the claim long before its renewal.
        for name in redis.keys().iter().filter(|name| !name.contains(":secret:")) {
            redis.ask::<()>(&format!("DEL {name}"));
        }
        let successor = tokio::spawn(send(ask("successor").header(TAKES, 900)));
        until("it has begun", LONG, || async { ledger.count("begun") == 2 * at + 2 }).await;
        assert_eq!(first.await.unwrap().said(), "422 not_applied");
        assert_eq!(send(ask("third")).await.said(), beside);
        assert!(!successor.is_finished(), "the third request was in time");
        assert_eq!(successor.await.unwrap().said(), RAN);
    }
    assert_eq!(ledger.count("third"), 0);
}

/// D10: without X-Real-IP all clients were the same subject, and with it any client could pose as another.
#[tokio::test]
async fn d10_forwarding_headers_never_change_the_subject() {
    let guard = Guard::new(Memory::new());
    let by_address = SubjectFrom::client_address();
    let by_user = SubjectFrom::resolver(|request| header(request, USER).map(str::to_owned));
    let (address, addressed) = served(Protect::interval(&guard, by_address, every(MINUTE)).action("by address"));
    let (user, used) = served(Protect::interval(&guard, by_user, every(MINUTE)).action("by user"));
    let claimed = |url: &str, who: &str| {
        let request = plainly(url, "/it", "order");
        ["x-real-ip", "x-forwarded-for", "forwarded"].iter().fold(request, |request, name| request.header(*name, who))
    };
    assert_eq!(send(plainly(&address.url, "/it", "order")).await.said(), RAN);
    for who in ["192.0.2.1", "192.0.2.2", "for=192.0.2.3", "", "289.13.2.12"] {
        assert_eq!(
            send(claimed(&address.url, who)).await.said(),
            TOO_SOON,
            "{who}: the subject is the address of the connection"
        );
    }
    assert_eq!(addressed.runs().len(), 1);

    for _ in 0..2 {
        assert_eq!(
            send(claimed(&user.url, "192.0.2.1")).await.said(),
            "401 unauthorized",
            "a request without a subject is rejected"
        );
    }
    for name in ["alice", "bob"] {
        let ask = || send(claimed(&user.url, "192.0.2.1").header(USER, name));
        assert_eq!([ask().await.said(), ask().await.said()], [RAN, TOO_SOON], "{name}");
    }
    assert_eq!(used.runs().len(), 2);
}

/// D11: the method was not part of the key.
#[tokio::test]
async fn d11_methods_on_one_path_are_independent() {
    let (served, ledger) = served(spaced(every(MINUTE)));
    let methods = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    for said in [RAN, TOO_SOON] {
        for method in methods.clone() {
            let answer = send(http().request(method.clone(), format!("{}/it", served.url)).body("tea")).await;
            assert_eq!(answer.said(), said, "{method}");
        }
    }
    let look = send(http().get(format!("{}/it", served.url))).await;
    assert_eq!((look.status, look.outcome.as_str()), (200, ""), "a GET is not checked");
    assert_eq!(ledger.runs().len(), methods.len() + 1);
}

/// D12: a null argument crashed the filter.
#[tokio::test]
async fn d12_empty_and_null_bodies_are_content() {
    let guard = Guard::new(Memory::new());
    let anonymous = SubjectFrom::anonymous;
    let protects = [
        (Protect::interval(&guard, anonymous(), every(MINUTE)).action("interval").into_any(), "", TOO_SOON),
        (Protect::key(&guard, anonymous(), KeyRules::retryable()).action("key").into_any(), KEY, "200 replayed"),
    ];
    let json = "application/json";
    let said = [
        (None, None),
        (Some(json), None),
        (Some(json), Some("null")),
        (Some(json), Some("{}")),
        (Some(json), Some(r#"{"item":null}"#)),
        (Some(json), Some("[null]")),
        (Some(json), Some(r#"""#)),
        (Some(json), Some("{")),
        (Some(URLENCODED), Some("")),
        (Some(URLENCODED), Some("item=")),
        (Some(URLENCODED), Some("item")),
        (Some(URLENCODED), Some("&=&")),
        (Some("multipart/form-data"), Some("")),
        (Some("multipart/form-data; boundary=x"), Some("--x--\r\n")),
        (Some(""), Some("null")),
        (Some("null"), Some("null")),
    ];
    for (protect, name, again) in protects {
        let (served, ledger) = served(protect);
        for (number, (kind, body)) in said.into_iter().enumerate() {
            let ask = || {
                let mut request = plainly(&served.url, "/it", "order");
                if !name.is_empty() {
                    request = request.header(name, number);
                }
                if let Some(kind) = kind {
                    request = request.header("content-type", kind);
                }
                if let Some(body) = body { request.body(body) } else { request }
            };
            let first = send(ask()).await;
            // A field without a value may equal one with an empty value, but it is never an error.
            assert!([RAN, TOO_SOON].contains(&first.said().as_str()), "{kind:?} {body:?}: {}", first.said());
            assert_eq!(send(ask()).await.said(), again, "{kind:?} {body:?}");
        }
        assert!(ledger.runs().len() >= said.len() - 2, "{}", ledger.runs().len());
    }
    let shop = Shop::on(Memory::new());
    for (kind, body) in [(json, "null"), (json, ""), (URLENCODED, "item")] {
        let token = token(shop.url()).await;
        let ask =
            || send(submit(shop.url(), "/remembered/orders", &token, "a").header("content-type", kind).body(body));
        assert_eq!([ask().await.said(), ask().await.said()], [RAN, "200 replayed"], "{kind} {body}");
    }
}

/// Sends these bytes on one connection and returns everything that the server sends back.
async fn raw(url: &str, requests: &str) -> String {
    let mut client = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
    client.write_all(requests.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

/// D13: the rejection had the content type of HTML, and the exception then wrote a second response.
#[tokio::test]
async fn d13_rejection_is_one_problem_response() {
    let shop = Shop::on(Memory::new());
    let url = shop.url();
    let (spent, remembered) = (token(url).await, token(url).await);
    assert_eq!(send(submit(url, "/orders", &spent, "a")).await.status, 200);
    assert_eq!(send(submit(url, "/remembered/orders", &remembered, "a").body("other")).await.status, 200);
    assert_eq!(send(under(url, "/keyed/orders", "k", "a").body("other")).await.status, 200);
    assert_eq!(send(plainly(url, "/spaced/mine", "a").header(USER, "alice")).await.status, 200);
    for (path, head, code) in [
        ("/spaced/mine", "x-user: alice".to_owned(), "too_soon"),
        ("/spaced/mine", "x-other: alice".to_owned(), "unauthorized"),
        ("/orders", format!("Onceward-Token: {spent}"), "token_used"),
        ("/orders", "Onceward-Token: ow1_what".to_owned(), "token_malformed"),
        ("/remembered/orders", format!("Onceward-Token: {remembered}"), "token_used"),
        ("/keyed/orders", "Idempotency-Key: k".to_owned(), "key_reused"),
        ("/keyed/orders", "x-nothing: k".to_owned(), "key_missing"),
    ] {
        let request = format!("POST {path} HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n{head}\r\n");
        // Twice on one connection: bytes after the first response would become part of the second.
        let answers = raw(url, &format!("{request}\r\n{request}Connection: close\r\n\r\n")).await;
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 2, "{answers}");
        let mut rest = answers.as_str();
        for _ in 0..2 {
            let (head, body) = rest.split_once("\r\n\r\n").unwrap();
            let values = |name: &str| {
                let lines = head.lines().filter_map(|line| line.split_once(": "));
                lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect::<Vec<_>>()
            };
            assert_eq!(values("content-type"), [Problem::CONTENT_TYPE], "{code}");
            assert_eq!(values("onceward-outcome"), [code]);
            let length: usize = values("content-length")[0].parse().unwrap();
            let problem: Problem = serde_json::from_str(&body[..length]).unwrap();
            assert_eq!(problem.code.as_str(), code);
            assert!(head.starts_with(&format!("HTTP/1.1 {} ", problem.status)), "{head}");
            rest = &body[length..];
        }
        assert_eq!(rest, "", "{code}: bytes after the response");
    }
    let person = send(plainly(url, "/spaced/mine", "a").header(USER, "alice").header("accept", "text/html")).await;
    assert_eq!(person.headers["content-type"], "text/html; charset=utf-8");
    assert!(person.body.starts_with(b"<!doctype html>"), "the body is HTML");
    assert_eq!(shop.ledger.runs().len(), 4);
}

/// D14: a duplicate ran if the handler was slower than the interval.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d14_duplicates_are_rejected_while_a_slow_handler_runs() {
    let pair = Pair::start(PEER, "patient").await;
    let path = "/spaced/half";
    let begun = Instant::now();
    let first = tokio::spawn(send(plainly(pair.one(), path, "effect").header(TAKES, 3_000)));
    pair.begun(1).await;
    let mut refused_late = 0;
    while begun.elapsed() < HALF * 6 {
        let again = send(plainly(pair.other(), path, "effect").header(TAKES, 3_000)).await;
        if first.is_finished() {
            break;
        }
        assert_eq!((again.said().as_str(), again.headers.get("retry-after")), (TOO_SOON, None));
        refused_late += usize::from(begun.elapsed() > HALF * 2);
    }
    assert!(refused_late > 0, "no duplicate was rejected after a second");
    assert_eq!(first.await.unwrap().said(), RAN);
    assert_eq!((pair.ledger.count("begun"), pair.ledger.count("effect")), (1, 1));
}

/// Builds a multipart form. Each part has a name, a file name if it is a file, and content.
fn form(parts: &[(&str, Option<&str>, &str)]) -> String {
    let part = |(name, file, value): &(&str, Option<&str>, &str)| {
        let file = file.map(|file| format!("; filename=\"{file}\"\r\nContent-Type: text/plain")).unwrap_or_default();
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{value}\r\n")
    };
    parts.iter().map(part).collect::<String>() + "--x--\r\n"
}

/// D15: the first element of a list decided whether the whole list was files.
#[tokio::test]
async fn d15_every_part_of_a_form_is_compared() {
    let upload = |url: &str, parts: &[(&str, Option<&str>, &str)]| {
        plainly(url, "/it", "order").header("content-type", "multipart/form-data; boundary=x").body(form(parts))
    };
    let (a, b) = (("files", Some("a.txt"), "one"), ("files", Some("b.txt"), "two"));
    let (other, text, note) = (("files", Some("b.txt"), "three"), ("files", None, "text"), ("files", None, "note"));

    let (all, ledger) = served(spaced(every(MINUTE)));
    let lists = [vec![a], vec![a, b], vec![a, other], vec![a, b, b], vec![a, text], vec![a, note], vec![b, a]];
    for said in [RAN, TOO_SOON] {
        for list in &lists {
            assert_eq!(send(upload(&all.url, list)).await.said(), said, "{list:?}");
        }
    }
    assert_eq!(ledger.runs().len(), lists.len());

    // Without its files, every other part still counts, at any position of the list.
    let (rest, ledger) = served(spaced(every(MINUTE)).fingerprint(Fields::all().without_files()));
    for (list, said) in [
        (vec![a, text], RAN),
        (vec![b, text], TOO_SOON),
        (vec![text, b, a], TOO_SOON),
        (vec![text], TOO_SOON),
        (vec![a, note], RAN),
        (vec![text, a, note], RAN),
        (vec![a, b], RAN),
        (vec![other], TOO_SOON),
    ] {
        assert_eq!(send(upload(&rest.url, &list)).await.said(), said, "{list:?}");
    }
    assert_eq!(ledger.runs().len(), 4);
}

/// D19: an interval of zero was accepted, and protected nothing.
#[test]
fn d19_interval_of_zero_is_rejected() {
    for none in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999)] {
        assert_eq!(IntervalRules::new().every(none), Err(SettingError::IntervalTooShort), "{none:?}");
    }
    let error = SettingError::IntervalTooShort.to_string();
    assert!(error.contains("at least 1 millisecond"), "{error}");
    assert!(IntervalRules::new().every(Duration::from_millis(1)).is_ok());
}
