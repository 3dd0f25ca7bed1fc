//! Replay of the first response: its stored headers, its retention, and the rejection if it was not stored.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use onceward::http::protect::KeyPolicy;
use onceward::http::{Protect, SubjectSource as SubjectFrom};
use onceward::store::{Memory, Redis};
use onceward::{Guard, KeyRules, ManualClock};
use onceward_tests::call::Call;
use onceward_tests::client::{Answer, send};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::{SIZE, buy, serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::reply::Reply;
use onceward_tests::routes::{Layer, Route, Routes};
use onceward_tests::shop::{STATUS, TestServer};
use onceward_tests::shop_handlers::purchase;
use onceward_tests::web_framework::WebFramework;

on_every_framework! {
    replay_has_content_headers_and_no_credentials,
    replay_without_cache_control_is_not_cached,
    compression_outside_the_guard_follows_each_client,
    compression_inside_the_guard_never_runs_twice,
    oversized_or_streamed_response_is_not_stored_or_rerun,
    expired_key_runs_again,
    expired_key_runs_again_on_redis,
    record_of_another_version_is_never_overwritten,
}

const MIB: usize = 1024 * 1024;

fn by_key<F: WebFramework>(rules: KeyRules) -> Protect<F, KeyPolicy> {
    Protect::<F, _>::key(&Guard::new(Memory::new()), SubjectFrom::anonymous(), rules)
}

/// Headers that are stored by default, stored if configured, and never stored.
const KEPT: [(&str, &str); 12] = [
    ("cache-control", "private"),
    ("cache-control", "max-age=5"),
    ("content-disposition", "inline"),
    ("content-language", "de"),
    ("content-type", "text/x-receipt"),
    ("etag", "\"1\""),
    ("link", "</a>; rel=next"),
    ("link", "</b>; rel=prev"),
    ("location", "/receipts/1"),
    ("vary", "accept"),
    ("vary", "accept-language"),
    ("x-request-cost", "7"),
];
const NEVER: [(&str, &str); 9] = [
    ("set-cookie", "session=1"),
    ("set-cookie", "other=2"),
    ("authorization", "Bearer x"),
    ("www-authenticate", "Basic"),
    ("onceward-next-token", "ow1_x"),
    ("onceward-anything", "x"),
    ("proxy-authenticate", "Basic"),
    ("idempotent-replayed", "false"),
    ("x-trace", "abc"),
];

fn values<'a>(answer: &'a Answer, name: &str) -> Vec<&'a str> {
    answer.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

async fn replay_has_content_headers_and_no_credentials<F: WebFramework>() {
    let ledger = Ledger::new();
    let mut protect = by_key::<F>(KeyRules::retryable()).keep_header(F::header_name("x-request-cost"));
    for name in ["set-cookie", "authorization", "date", "onceward-anything", "www-authenticate"] {
        protect = protect.keep_header(F::header_name(name));
    }
    let handler = Handler::of_head(async |call: Call| {
        call.ledger.record("run");
        let reply = KEPT.iter().chain(&NEVER).fold(Reply::new(201), |reply, (name, value)| reply.header(name, value));
        reply.header("date", "Thu, 01 Jan 1970 00:00:00 GMT").body("a receipt")
    });
    let served = F::serve(&ledger, Routes::new().post("/it", protect, handler));
    let first = buy(&served.url, "/it", "k", "").await;
    assert_eq!(values(&first, "set-cookie"), ["session=1", "other=2"], "the first response is sent unchanged");
    for _ in 0..2 {
        let replay = buy(&served.url, "/it", "k", "").await;
        assert_eq!((replay.said().as_str(), &replay.body[..]), ("201 replayed", &b"a receipt"[..]));
        for (name, _) in KEPT {
            assert_eq!(values(&replay, name), values(&first, name), "{name}");
        }
        for (name, _) in NEVER.iter().filter(|(name, _)| *name != "idempotent-replayed") {
            assert!(!replay.headers.contains_key(*name), "{name}");
        }
        assert_eq!(values(&replay, "idempotent-replayed"), ["true"]);
        assert_eq!(values(&replay, "onceward-outcome"), ["replayed"]);
        assert_ne!(values(&replay, "date"), ["Thu, 01 Jan 1970 00:00:00 GMT"]);
        assert_eq!(replay.headers["content-length"], "9");
    }
    assert_eq!(ledger.runs().len(), 1);
}

async fn replay_without_cache_control_is_not_cached<F: WebFramework>() {
    let ledger = Ledger::new();
    let served = serve_one(&ledger, by_key::<F>(KeyRules::retryable()));
    let first = buy(&served.url, "/it", "k", "").await;
    let replay = buy(&served.url, "/it", "k", "").await;
    assert!(!first.headers.contains_key("cache-control"));
    assert_eq!(values(&replay, "cache-control"), ["no-store"]);
    assert_eq!(values(&replay, "location"), values(&first, "location"));
}

/// Serves a route that compresses outside or inside its guard.
fn compressing<F: WebFramework>(ledger: &Ledger, is_outside: bool) -> TestServer {
    let handler = Handler::of_head(async |call: Call| {
        call.ledger.record(&format!("{:?}", call.header("accept-encoding")));
        Reply::new(200).header("content-type", "text/plain").body("tea ".repeat(2_000))
    });
    let (it, protect) = (Route::post("/it", handler), by_key::<F>(KeyRules::retryable()));
    if is_outside {
        return F::serve(ledger, Routes::new().route(it.wrap(protect)).wrap(Layer::Compress));
    }
    F::serve(ledger, Routes::new().route(it.wrap(Layer::Compress).wrap(protect)))
}

async fn compression_outside_the_guard_follows_each_client<F: WebFramework>() {
    let ledger = Ledger::new();
    let served = compressing::<F>(&ledger, true);
    let plain = "tea ".repeat(2_000);
    let ask = async |key: &str, encoding: &str| {
        send(under(&served.url, "/it", key, "").header("accept-encoding", encoding)).await
    };
    for (key, first, second) in [("a", "gzip", "identity"), ("b", "identity", "gzip"), ("c", "gzip", "gzip")] {
        let answers = [ask(key, first).await, ask(key, second).await];
        assert_eq!(answers.each_ref().map(Answer::said), ["200 executed", "200 replayed"]);
        for (answer, encoding) in answers.iter().zip([first, second]) {
            if encoding == "gzip" {
                assert_eq!(answer.headers["content-encoding"], "gzip");
                assert!(answer.body.starts_with(b"\x1f\x8b") && answer.body.len() < plain.len());
            } else {
                assert!(!answer.headers.contains_key("content-encoding"));
                assert_eq!(answer.body, plain);
            }
        }
    }
    assert_eq!(ledger.runs().len(), 3);
}

async fn compression_inside_the_guard_never_runs_twice<F: WebFramework>() {
    let ledger = Ledger::new();
    let served = compressing::<F>(&ledger, false);
    for (encoding, second) in [("gzip", "409 reply_not_kept"), ("identity", "200 replayed")] {
        for said in ["200 executed", second, second] {
            let answer = send(under(&served.url, "/it", encoding, "").header("accept-encoding", encoding)).await;
            assert_eq!(answer.said(), said, "{encoding}");
        }
    }
    assert_eq!(ledger.runs().len(), 2);
}

async fn oversized_or_streamed_response_is_not_stored_or_rerun<F: WebFramework>() {
    let ledger = Ledger::new();
    let (protect, small) = (by_key::<F>(KeyRules::retryable()), by_key(KeyRules::retryable().reply_limit(1_000)));
    let streamed = Handler::of_head(async |call: Call| {
        call.ledger.record("streamed");
        Reply::new(200).streamed(stream::iter([Ok(Bytes::from_static(b"in pieces"))]))
    });
    let routes = Routes::new()
        .post("/it", protect.clone(), Handler::of_body(purchase))
        .post("/small", small, Handler::of_body(purchase))
        .post("/streamed", protect, streamed);
    let served = F::serve(&ledger, routes);
    let buy_large =
        async |path: &str, key: &str, size: usize| send(under(&served.url, path, key, key).header(SIZE, size)).await;
    for (path, size, is_kept) in [
        ("/it", MIB - 1_000, true),
        ("/it", MIB + 1, false),
        ("/it", 50 * MIB, false),
        ("/small", 500, true),
        ("/small", 1_001, false),
    ] {
        let key = format!("{path}-{size}");
        let first = buy_large(path, &key, size).await;
        assert_eq!((first.said().as_str(), first.body.len()), ("200 executed", size + 36), "{key}");
        for _ in 0..2 {
            let second = buy_large(path, &key, size).await;
            assert_eq!(second.said(), if is_kept { "200 replayed" } else { "409 reply_not_kept" }, "{key}");
            assert!(!is_kept || second.body == first.body);
        }
        assert_eq!(ledger.count(&key), 1, "{key}");
    }
    assert_eq!(&buy(&served.url, "/streamed", "k", "").await.body[..], b"in pieces");
    let refused = buy(&served.url, "/streamed", "k", "").await;
    assert_eq!(refused.said(), "409 reply_not_kept");
    assert_eq!(refused.problem().retry, onceward_api::Retry::No);
    assert_eq!(ledger.count("streamed"), 1);
}

async fn expired_key_runs_again<F: WebFramework>() {
    let (clock, ledger) = (ManualClock::new(), Ledger::new());
    let guard = Guard::builder(Memory::with_clock((&clock).into())).clock((&clock).into()).build();
    let served = serve_one(&ledger, Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()));
    let said = async || buy(&served.url, "/it", "k", "a").await.said();
    assert_eq!([said().await, said().await], ["200 executed", "200 replayed"]);
    clock.advance(Duration::from_secs(24 * 60 * 60 - 1));
    assert_eq!(said().await, "200 replayed", "a day, less a second");
    clock.advance(Duration::from_secs(1));
    assert_eq!([said().await, said().await], ["200 executed", "200 replayed"]);
    assert_eq!(ledger.runs().len(), 2);
}

async fn expired_key_runs_again_on_redis<F: WebFramework>() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    for rules in [KeyRules::retryable(), KeyRules::at_most_once()] {
        let rules = rules.lease(Duration::from_millis(300)).unwrap().retain(Duration::from_secs(1));
        let served =
            serve_one(&ledger, Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), rules).action(served_name()));
        let said = async || buy(&served.url, "/it", "k", "a").await.said();
        assert_eq!([said().await, said().await], ["200 executed", "200 replayed"]);
        until("it runs again", Duration::from_secs(5), || async { said().await == "200 executed" }).await;
    }
    assert_eq!(ledger.runs().len(), 4);
}

/// Returns an action name that no other server uses.
fn served_name() -> String {
    uuid::Uuid::new_v4().to_string()
}

async fn record_of_another_version_is_never_overwritten<F: WebFramework>() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let served = serve_one(&ledger, Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()));
    assert_eq!(send(under(&served.url, "/it", "k", "a").header(STATUS, 201)).await.said(), "201 executed");
    let name = redis.keys().into_iter().find(|name| name.contains(":key:")).unwrap();
    for strange in ["\u{2}d-and-more", "\u{1}z", "\u{1}i", "x"] {
        redis.ask::<()>(&format!("SET {name} {strange} EX 100"));
        let refused = buy(&served.url, "/it", "k", "a").await;
        assert_eq!(refused.said(), "503 store_unavailable", "{strange:?}");
        assert_eq!(refused.headers["retry-after"], "1");
        assert_eq!(redis.ask::<String>(&format!("GET {name}")), strange, "the record is unchanged");
    }
    assert_eq!(ledger.runs().len(), 1);
}
