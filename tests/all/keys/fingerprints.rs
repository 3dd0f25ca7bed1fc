//! Requests that count as equal under one key.

use onceward::http::protect::KeyPolicy;
use onceward::http::{Protect, SubjectSource as SubjectFrom};
use onceward::store::Memory;
use onceward::{Fields, Guard, KeyRules};
use onceward_tests::client::{Answer, URLENCODED, send};
use onceward_tests::key_routes::{serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::shop::TestServer;
use onceward_tests::web_framework::WebFramework;

on_every_framework! {
    json_is_compared_without_member_order,
    form_is_compared_without_field_order_or_boundary,
    only_configured_fields_are_compared,
    body_above_the_limit_is_rejected_or_runs_uncompared,
}

const JSON: &str = "application/json";
const REPLAYED: &str = "200 replayed";
const REUSED: &str = "422 key_reused";

struct Bed {
    served: TestServer,
    ledger: Ledger,
}

impl Bed {
    fn with<F: WebFramework>(shape: impl FnOnce(Protect<F, KeyPolicy>) -> Protect<F, KeyPolicy>) -> Self {
        let ledger = Ledger::new();
        let protect = Protect::<F, _>::key(&Guard::new(Memory::new()), SubjectFrom::anonymous(), KeyRules::retryable());
        Self { served: serve_one(&ledger, shape(protect)), ledger }
    }

    async fn ask(&self, key: &str, kind: &str, body: &[u8]) -> Answer {
        let request = under(&self.served.url, "/it", key, key).body(body.to_vec());
        send(if kind.is_empty() { request } else { request.header("content-type", kind) }).await
    }

    /// Sends two bodies under one key and returns the outcome of the second.
    async fn second(&self, kind: (&str, &str), one: &[u8], other: &[u8]) -> String {
        let key = uuid::Uuid::new_v4().to_string();
        let first = self.ask(&key, kind.0, one).await;
        assert_eq!(first.said(), "200 executed");
        let second = self.ask(&key, kind.1, other).await;
        assert_eq!(self.ledger.count(&key), 1);
        if second.outcome == "replayed" {
            assert_eq!(first.body, second.body);
        }
        second.said()
    }

    async fn json(&self, one: &str, other: &str) -> String {
        self.second((JSON, JSON), one.as_bytes(), other.as_bytes()).await
    }
}

async fn json_is_compared_without_member_order<F: WebFramework>() {
    let bed = Bed::with::<F>(|protect| protect);
    for (one, other, said) in [
        (r#"{"amount":5,"to":"bob"}"#, r#"{ "to" : "bob", "amount": 5 }"#, REPLAYED),
        (r#"{"a":{"x":1,"y":[{"p":1,"q":2}]}}"#, r#"{"a":{"y":[{"q":2,"p":1}],"x":1}}"#, REPLAYED),
        (r#"{"name":"\u0041"}"#, r#"{"name":"A"}"#, REPLAYED),
        (r#"{"amount":5}"#, r#"{"amount":6}"#, REUSED),
        (r#"{"amount":5}"#, r#"{"amount":"5"}"#, REUSED),
        (r#"{"amount":1}"#, r#"{"amount":1.0}"#, REPLAYED),
        (r#"{"amount":1e2}"#, r#"{"amount":100}"#, REPLAYED),
        (r#"{"n":9007199254740993}"#, r#"{"n":9007199254740992}"#, REUSED),
        (r#"{"n":123456789012345678901234567890}"#, r#"{"n":123456789012345678901234567891}"#, REUSED),
        (r#"{"n":123456789012345678901234567890}"#, r#"{ "n": 123456789012345678901234567890}"#, REPLAYED),
        ("[1,2]", "[2,1]", REUSED),
        (r#"{"a":null}"#, "{}", REUSED),
        // A duplicate member is ambiguous between JSON parsers, so the body is compared byte for byte.
        (r#"{"a":1,"a":2}"#, r#"{"a":1,"a":2}"#, REPLAYED),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#, REUSED),
        (r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#, REUSED),
        (r#"{"a":1,"a":2}"#, r#"{"a":1, "a":2}"#, REUSED),
        ("{broken", "{broken", REPLAYED),
        ("{broken", "{ broken", REUSED),
    ] {
        assert_eq!(bed.json(one, other).await, said, "{one} {other}");
    }
    assert_eq!(bed.second((JSON, "application/json; charset=utf-8"), b"{}", b"{}").await, REUSED);
    assert_eq!(bed.second((JSON, "APPLICATION/json"), b"{}", b"{}").await, REPLAYED);
    assert_eq!(bed.second(("", ""), b"{}", b"{ }").await, REUSED);
    assert_eq!(bed.second(("text/plain", "text/html"), b"a", b"a").await, REUSED);
    assert_eq!(bed.second(("", ""), b"", b"").await, REPLAYED);
    assert_eq!(bed.second(("", ""), b"", b"a").await, REUSED);
}

/// Builds a multipart form with this boundary. A part is a name, an optional filename, and a value.
fn form(boundary: &str, parts: &[(&str, Option<&str>, &str)]) -> (String, Vec<u8>) {
    let part = |(name, file, value): &(&str, Option<&str>, &str)| {
        let file = file.map_or(String::new(), |file| format!("; filename=\"{file}\""));
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{value}\r\n")
    };
    let body: String = parts.iter().map(part).collect();
    (format!("multipart/form-data; boundary={boundary}"), format!("{body}--{boundary}--\r\n").into_bytes())
}

async fn form_is_compared_without_field_order_or_boundary<F: WebFramework>() {
    let bed = Bed::with::<F>(|protect| protect);
    for (one, other, said) in [
        ("a=1&b=2", "b=2&a=1", REPLAYED),
        ("a=%31+x", "a=1%20x", REPLAYED),
        ("a=1&a=2", "a=2&a=1", REUSED),
        ("a=1", "a=2", REUSED),
        ("a=1&_onceward=x", "_onceward=y&a=1", REPLAYED),
    ] {
        assert_eq!(bed.second((URLENCODED, URLENCODED), one.as_bytes(), other.as_bytes()).await, said, "{one} {other}");
    }
    let (kind, body) = form("one", &[("item", None, "tea"), ("file", Some("a.txt"), "--two\r\n")]);
    for (boundary, parts, said) in [
        ("another", [("item", None, "tea"), ("file", Some("a.txt"), "--two\r\n")], REPLAYED),
        ("another", [("file", Some("a.txt"), "--two\r\n"), ("item", None, "tea")], REPLAYED),
        ("another", [("item", None, "tee"), ("file", Some("a.txt"), "--two\r\n")], REUSED),
        ("another", [("item", None, "tea"), ("file", Some("b.txt"), "--two\r\n")], REUSED),
        ("one", [("item", None, "tea"), ("file", Some("a.txt"), "--twO\r\n")], REUSED),
    ] {
        let (other_kind, other) = form(boundary, &parts);
        assert_eq!(bed.second((&kind, &other_kind), &body, &other).await, said, "{boundary} {parts:?}");
    }
}

async fn only_configured_fields_are_compared<F: WebFramework>() {
    let only = Bed::with::<F>(|protect| protect.fingerprint(Fields::only(["/amount", "/to/name"]).unwrap()));
    for (one, other, said) in [
        (r#"{"amount":5,"to":{"name":"b"},"sent":1}"#, r#"{"sent":2,"to":{"name":"b","x":0},"amount":5}"#, REPLAYED),
        (r#"{"amount":5,"to":{"name":"b"}}"#, r#"{"amount":5,"to":{"name":"c"}}"#, REUSED),
        (r#"{"amount":5}"#, r#"{"amount":5,"to":{"name":null}}"#, REUSED),
    ] {
        assert_eq!(only.json(one, other).await, said, "{one} {other}");
    }
    let but = Bed::with::<F>(|protect| protect.fingerprint(Fields::all_but(["/sent"]).unwrap()));
    assert_eq!(but.json(r#"{"a":1,"sent":1}"#, r#"{"sent":2,"a":1}"#).await, REPLAYED);
    assert_eq!(but.json(r#"{"a":1,"sent":1}"#, r#"{"a":1}"#).await, REPLAYED);
    assert_eq!(but.json(r#"{"a":1,"sent":1}"#, r#"{"a":2,"sent":1}"#).await, REUSED);
    assert_eq!(but.second((URLENCODED, URLENCODED), b"a=1&sent=1", b"sent=2&a=1").await, REPLAYED);

    let without = Bed::with::<F>(|protect| protect.fingerprint(Fields::all().without_files()));
    let (kind, one) = form("one", &[("item", None, "tea"), ("file", Some("a"), "one scan")]);
    let (_, other) = form("one", &[("item", None, "tea"), ("file", Some("b"), "another scan")]);
    let (_, changed) = form("one", &[("item", None, "tee"), ("file", Some("a"), "one scan")]);
    assert_eq!(without.second((&kind, &kind), &one, &other).await, REPLAYED);
    assert_eq!(without.second((&kind, &kind), &one, &changed).await, REUSED);
}

async fn body_above_the_limit_is_rejected_or_runs_uncompared<F: WebFramework>() {
    let bed = Bed::with::<F>(|protect| protect.body_limit(1_000));
    for size in [999, 1_000] {
        assert_eq!(bed.second(("", ""), &vec![b'a'; size], &vec![b'b'; size]).await, REUSED, "{size}");
    }
    for size in [1_001, 300_000] {
        let refused = bed.ask("large", "", &vec![b'a'; size]).await;
        assert_eq!(refused.said(), "413 body_too_large", "{size}");
    }
    assert_eq!(bed.ledger.count("large"), 0);
    let usual = Bed::with::<F>(|protect| protect);
    assert_eq!(usual.ask("large", "", &vec![b'a'; 256 * 1024 + 1]).await.said(), "413 body_too_large");
    assert_eq!(usual.ask("small", "", &vec![b'a'; 256 * 1024]).await.said(), "200 executed");

    let lenient = Bed::with::<F>(|protect| protect.body_limit(1_000).skip_large_bodies());
    assert_eq!(lenient.second(("", ""), &[b'a'; 5_000], &[b'b'; 6_000]).await, REPLAYED, "not compared");
    assert_eq!(lenient.second(("", ""), &[b'a'; 900], &[b'b'; 900]).await, REUSED, "compared");
}
