//! Keys that cannot be read or are ambiguous: they are rejected, and never treated as absent or as another key.

use std::time::Duration;

use onceward::actix::Actix;
use onceward::http::{KeySource as KeyFrom, Protect, SubjectSource as SubjectFrom};
use onceward::store::Memory;
use onceward::{Guard, IntervalRules, KeyRules};
use onceward_tests::call::Call;
use onceward_tests::client::{URLENCODED, http, send};
use onceward_tests::handler::Handler;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::reply::Reply;
use onceward_tests::routes::Routes;
use onceward_tests::shop::{ORDER, TestServer};
use onceward_tests::shop_handlers::order;
use onceward_tests::web_framework::WebFramework;
use serde_json::Value;

on_every_framework! {
    key_in_a_compressed_body_is_rejected,
    non_utf8_keys_are_rejected_in_queries_and_forms,
}

/// `{"seq":7}`, compressed.
pub(crate) const GZIPPED: &[u8] =
    &[31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 171, 86, 42, 78, 45, 84, 178, 50, 175, 5, 0, 235, 27, 211, 243, 9, 0, 0, 0];

async fn receive(call: Call, message: Value) -> Reply {
    call.ledger.record(&message["seq"].to_string());
    Reply::new(201)
}

fn messages<F: WebFramework, P>(ledger: &Ledger, protect: Protect<F, P>) -> TestServer {
    F::serve(ledger, Routes::new().post("/messages", protect, Handler::of_json(receive)))
}

async fn key_in_a_compressed_body_is_rejected<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    let every = IntervalRules::new().every(Duration::from_secs(60)).unwrap();
    let seq = || KeyFrom::body("/seq").unwrap();
    let keyed = || Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()).from(seq());
    let spaced = || Protect::<F, _>::interval(&guard, SubjectFrom::anonymous(), every).from(seq());
    let parts = KeyFrom::parts([KeyFrom::header(ORDER).unwrap(), KeyFrom::body("/seq").unwrap()]);
    for (what, protect) in [
        ("a key", keyed().into_any()),
        ("an optional key", keyed().optional().into_any()),
        ("an optional name", spaced().optional().into_any()),
        ("an optional part", keyed().from(parts).optional().into_any()),
    ] {
        let ledger = Ledger::new();
        let served = messages(&ledger, protect.action(what));
        let request = || http().post(format!("{}/messages", served.url)).header(ORDER, "a");
        let post = || request().header("content-type", "application/json");
        for encoding in ["gzip", "GZIP", "identity, gzip"] {
            let answer = send(post().header("content-encoding", encoding).body(GZIPPED)).await;
            assert_eq!(answer.said(), "415 unsupported_media_type", "{what}, {encoding}");
            assert!(answer.problem().detail.contains("Content-Encoding"), "{}", answer.problem().detail);
        }
        assert_eq!(ledger.runs().len(), 0, "{what}");
        let plain = send(post().header("content-encoding", "identity").body(r#"{"seq":7}"#)).await;
        assert_eq!((plain.said().as_str(), ledger.count("7")), ("201 executed", 1), "{what}");
    }
}

/// actix-web decompresses the body before `Json` reads it. axum does not, and its `Json` rejects the compressed bytes.
#[tokio::test]
async fn compressed_body_with_a_header_key_is_accepted() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = messages(&ledger, Protect::<Actix, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()));
    for said in ["201 executed", "201 replayed"] {
        let request = http().post(format!("{}/messages", served.url)).header("idempotency-key", "k");
        let request = request.header("content-type", "application/json").header("content-encoding", "gzip");
        assert_eq!(send(request.body(GZIPPED)).await.said(), said);
    }
    assert_eq!(ledger.count("7"), 1);
}

/// Lossy decoding would map all of them to the same text.
async fn non_utf8_keys_are_rejected_in_queries_and_forms<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let every = IntervalRules::new().every(Duration::from_secs(60)).unwrap();
    let keyed = Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
    let named = Protect::<F, _>::interval(&guard, SubjectFrom::anonymous(), every);
    let mut routes = Routes::new();
    for (place, from) in [("query", KeyFrom::query("id")), ("form", KeyFrom::body("/id").unwrap())] {
        let (keyed, named) = (keyed.clone().from(from.clone()), named.clone().from(from));
        for (kind, protect) in [("key", keyed.into_any()), ("name", named.into_any())] {
            routes = routes.post(&format!("/{kind}/{place}"), protect, Handler::of_body(order));
        }
    }
    let served = F::serve(&ledger, routes);
    let submit = async |path: &str, id: &str| {
        let request = http().post(format!("{}{path}?id={id}", served.url)).header(ORDER, path);
        send(request.header("content-type", URLENCODED).body(format!("id={id}"))).await
    };
    for path in ["/key/query", "/key/form", "/name/query", "/name/form"] {
        for id in ["%FF", "%FE", "%C3", "a%80b", "%EF%BF%BD"] {
            let answer = submit(path, id).await;
            assert_eq!(answer.said(), "400 key_malformed", "{path} {id}");
            assert!(answer.problem().detail.contains("UTF-8"), "{}", answer.problem().detail);
        }
        assert_eq!(ledger.count(path), 0, "{path}");
        assert_eq!(submit(path, "caf%C3%A9").await.said(), "200 executed", "{path}");
    }
}
