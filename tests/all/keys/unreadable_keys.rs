//! Keys that cannot be read or are ambiguous: they are rejected, and never treated as absent or as another key.

use std::time::Duration;

use actix_web::{HttpResponse, web};
use onceward::actix::{KeyFrom, Protect, SubjectFrom};
use onceward::store::Memory;
use onceward::{Guard, IntervalRules, KeyRules};
use onceward_tests::actix_handlers::order;
use onceward_tests::client::{URLENCODED, http, send};
use onceward_tests::key_routes::serve;
use onceward_tests::ledger::Ledger;
use onceward_tests::shop::{ORDER, TestServer};
use serde_json::Value;

/// `{"seq":7}`, compressed.
pub(crate) const GZIPPED: &[u8] =
    &[31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 171, 86, 42, 78, 45, 84, 178, 50, 175, 5, 0, 235, 27, 211, 243, 9, 0, 0, 0];

/// actix-web decompresses the body before `Json` reads it.
async fn receive(ledger: web::Data<Ledger>, message: web::Json<Value>) -> HttpResponse {
    ledger.record(&message["seq"].to_string());
    HttpResponse::Created().finish()
}

fn messages<P: 'static>(ledger: &Ledger, protect: Protect<P>) -> TestServer {
    serve(ledger, move |config| {
        config.service(web::resource("/messages").wrap(protect.clone()).route(web::post().to(receive)));
    })
}

#[tokio::test]
async fn key_in_a_compressed_body_is_rejected() {
    let guard = Guard::new(Memory::new());
    let every = IntervalRules::new().every(Duration::from_secs(60)).unwrap();
    let seq = || KeyFrom::body("/seq").unwrap();
    let keyed = || Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()).from(seq());
    let spaced = || Protect::interval(&guard, SubjectFrom::anonymous(), every).from(seq());
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

#[tokio::test]
async fn compressed_body_with_a_header_key_is_accepted() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = messages(&ledger, Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()));
    for said in ["201 executed", "201 replayed"] {
        let request = http().post(format!("{}/messages", served.url)).header("idempotency-key", "k");
        let request = request.header("content-type", "application/json").header("content-encoding", "gzip");
        assert_eq!(send(request.body(GZIPPED)).await.said(), said);
    }
    assert_eq!(ledger.count("7"), 1);
}

/// Lossy decoding would map all of them to the same text.
#[tokio::test]
async fn non_utf8_keys_are_rejected_in_queries_and_forms() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let every = IntervalRules::new().every(Duration::from_secs(60)).unwrap();
    let keyed = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
    let named = Protect::interval(&guard, SubjectFrom::anonymous(), every);
    let served = serve(&ledger, move |config| {
        for (place, from) in [("query", KeyFrom::query("id")), ("form", KeyFrom::body("/id").unwrap())] {
            let (keyed, named) = (keyed.clone().from(from.clone()), named.clone().from(from));
            for (kind, protect) in [("key", keyed.into_any()), ("name", named.into_any())] {
                config.service(web::resource(format!("/{kind}/{place}")).wrap(protect).route(web::post().to(order)));
            }
        }
    });
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
