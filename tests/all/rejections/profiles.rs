//! The profiles, each by the statements of its public text:
//! the IETF draft-ietf-httpapi-idempotency-key-header-07, sections 2.6 and 2.7; Agentic Commerce Protocol 2026-04-17, RFC agentic_checkout,
//! section 6; Universal Commerce Protocol 2026-08-25, signatures (replay protection) and checkout over REST; Stripe API v1, idempotent requests.

use std::time::Duration;

use onceward::http::{Profile, Protect, SubjectSource};
use onceward::store::Memory;
use onceward::testing::{self, FailingStore};
use onceward::{Guard, KeyRules};
use onceward_tests::client::{Answer, http, send};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::KEY;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::until;
use onceward_tests::reply::Reply;
use onceward_tests::routes::Routes;
use onceward_tests::shop::{STATUS, TAKES, TestServer};
use onceward_tests::shop_handlers::purchase;
use onceward_tests::web_framework::WebFramework;
use serde_json::{Value, json};

on_every_framework! {
    ietf_draft_is_the_default,
    agentic_commerce_requires_and_echoes_the_key,
    agentic_commerce_compares_json_by_meaning,
    agentic_commerce_runs_again_after_a_server_error,
    universal_commerce_compares_bytes_and_reports_conflicts,
    stripe_replays_failures_of_a_handler_that_are_certain,
    stripe_stores_neither_a_failed_login_nor_a_gateway_error,
    profiles_store_for_a_day_at_least,
}

const HOUR: Duration = Duration::from_secs(3600);
const LONG: Duration = Duration::from_secs(20);

/// Routes of one profile: `/orders` at most once, and `/retryable`.
fn routes<F: WebFramework>(guard: &Guard, profile: Profile) -> Routes<F> {
    let key = |rules: KeyRules| {
        let key = Protect::<F, _>::key(guard, SubjectSource::anonymous(), rules.retain(HOUR));
        key.optional().profile(profile)
    };
    let json = Handler::of_json(|call, _| async move {
        call.ledger.record("order");
        Reply::new(201)
    });
    let required = Protect::<F, _>::key(guard, SubjectSource::anonymous(), KeyRules::at_most_once()).profile(profile);
    Routes::new()
        .post("/orders", key(KeyRules::at_most_once()), Handler::of_body(purchase))
        .post("/retryable", key(KeyRules::retryable()), Handler::of_body(purchase))
        .post("/required", required, Handler::of_body(purchase))
        .post("/json", key(KeyRules::at_most_once()), json.marked())
}

struct Api {
    served: TestServer,
    ledger: Ledger,
}

impl Api {
    fn new<F: WebFramework>(guard: &Guard, profile: Profile) -> Self {
        let ledger = Ledger::new();
        Self { served: F::serve(&ledger, routes::<F>(guard, profile)), ledger }
    }

    fn of<F: WebFramework>(profile: Profile) -> Self {
        Self::new::<F>(&Guard::new(Memory::new()), profile)
    }

    fn post(&self, path: &str, key: &str, body: &'static str) -> reqwest::RequestBuilder {
        let request = http().post(format!("{}{path}", self.served.url)).header("content-type", "application/json");
        if key.is_empty() { request.body(body) } else { request.header(KEY, key).body(body) }
    }

    async fn send(&self, path: &str, key: &str, body: &'static str) -> Answer {
        send(self.post(path, key, body)).await
    }

    /// Sends a request whose key is in flight.
    async fn send_in_flight(&self) -> Answer {
        let before = self.ledger.runs().len();
        drop(tokio::spawn(self.post("/orders", "in-flight", "{}").header(TAKES, "60000").send()));
        until("the first request runs", LONG, async || self.ledger.runs().len() > before).await;
        self.send("/orders", "in-flight", "{}").await
    }
}

fn body(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

fn text<'a>(answer: &'a Answer, header: &str) -> Option<&'a str> {
    answer.headers.get(header)?.to_str().ok()
}

fn is_replay_of(second: &Answer, first: &Answer) -> bool {
    (second.status, &second.body) == (first.status, &first.body)
        && text(second, "idempotent-replayed") == Some("true")
        && first.outcome == "executed"
}

async fn ietf_draft_is_the_default<F: WebFramework>() {
    let api = Api::of::<F>(Profile::Ietf);
    let missing = api.send("/required", "", "{}").await;
    let first = api.send("/orders", "\"8e03978e\"", "{}").await;
    let other = api.send("/orders", "8e03978e", "[]").await;
    for (answer, status) in [(&missing, 400), (&other, 422), (&api.send_in_flight().await, 409)] {
        let problem = answer.problem();
        assert_eq!((answer.status, problem.status), (status, status), "{answer:?}");
        assert!(
            problem.kind.ends_with(problem.code.as_str()) && !problem.title.is_empty(),
            "a link to the text: {problem:?}"
        );
    }
    assert!(is_replay_of(&api.send("/orders", "8e03978e", "{}").await, &first), "{first:?}");
    assert_eq!(text(&first, KEY), None, "the draft has no echo");
}

async fn agentic_commerce_requires_and_echoes_the_key<F: WebFramework>() {
    let api = Api::of::<F>(Profile::AgenticCommerce);
    for path in ["/orders", "/retryable", "/required"] {
        let missing = api.send(path, "", "{}").await;
        let said = (missing.status, &body(&missing)["type"], &body(&missing)["code"]);
        assert_eq!(said, (400, &json!("invalid_request"), &json!("idempotency_key_required")), "{path}");
        assert!(body(&missing)["message"].is_string());
    }
    assert_eq!(api.ledger.runs().len(), 0, "also a route with an optional key requires it");
    let first = api.send("/orders", "k", "{}").await;
    let again = api.send("/orders", "k", "{}").await;
    assert!(is_replay_of(&again, &first), "{first:?} {again:?}");
    let other = api.send("/orders", "k", "[]").await;
    assert_eq!((other.status, &body(&other)["code"]), (422, &json!("idempotency_conflict")));
    let running = api.send_in_flight().await;
    assert_eq!((running.status, &body(&running)["code"]), (409, &json!("idempotency_in_flight")));
    assert!(text(&running, "retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()), "{running:?}");
    for (answer, key) in [(&first, "k"), (&again, "k"), (&other, "k"), (&running, "in-flight")] {
        assert_eq!(text(answer, KEY), Some(key), "{answer:?}");
    }
    for answer in [&other, &running] {
        assert_eq!(body(answer)["type"], "invalid_request", "all idempotency errors have this type");
    }
    assert_eq!(api.send("/retryable", "k", "[]").await.said(), "200 executed", "keys belong to a path");
}

async fn agentic_commerce_compares_json_by_meaning<F: WebFramework>() {
    let api = Api::of::<F>(Profile::AgenticCommerce);
    let first = api.send("/orders", "k", r#"{"amount":1.0,"items":[1,2],"note":null}"#).await;
    for same in [r#"{"items":[1,2],"note":null,"amount":1.0}"#, r#"{ "amount": 1, "items": [1, 2], "note": null }"#] {
        assert!(is_replay_of(&api.send("/orders", "k", same).await, &first), "{same}");
    }
    for other in [r#"{"amount":1.0,"items":[1,2]}"#, r#"{"amount":1.0,"items":[2,1],"note":null}"#] {
        assert_eq!(api.send("/orders", "k", other).await.said(), "422 key_reused", "{other}");
    }
}

async fn agentic_commerce_runs_again_after_a_server_error<F: WebFramework>() {
    let api = Api::of::<F>(Profile::AgenticCommerce);
    let failing = |path, key| api.post(path, key, "{}").header(STATUS, "500");
    assert_eq!(send(failing("/retryable", "k")).await.said(), "500 not_applied");
    assert_eq!(api.send("/retryable", "k", "{}").await.said(), "200 executed");
    // At most once is stricter on purpose: after a 500 of the handler the outcome is unknown.
    assert_eq!(send(failing("/orders", "k")).await.said(), "500 unknown");
    let again = api.send("/orders", "k", "{}").await;
    assert_eq!((again.said().as_str(), &body(&again)["type"]), ("409 outcome_unknown", &json!("processing_error")));
}

async fn universal_commerce_compares_bytes_and_reports_conflicts<F: WebFramework>() {
    let api = Api::of::<F>(Profile::UniversalCommerce);
    let first = api.send("/orders", "k", r#"{"a":1,"b":2}"#).await;
    assert!(is_replay_of(&api.send("/orders", "k", r#"{"a":1,"b":2}"#).await, &first));
    for other in [r#"{"b":2,"a":1}"#, r#"{"a":1.0,"b":2}"#, r#"{"a":1, "b":2}"#] {
        let conflict = api.send("/orders", "k", other).await;
        assert_eq!((conflict.said().as_str(), &body(&conflict)["code"]), ("409 key_reused", &json!("key_reused")));
        assert!(body(&conflict)["content"].is_string() && text(&conflict, "content-type") == Some("application/json"));
    }
    assert_eq!(api.ledger.runs().len(), 1);
    let missing = api.send("/required", "", "{}").await;
    assert_eq!((missing.status, &body(&missing)["code"]), (400, &json!("key_missing")));
    let store = FailingStore::new(Memory::new());
    let closed = Api::new::<F>(&Guard::new(store.clone()), Profile::UniversalCommerce);
    store.fail_not_executed();
    let refused = closed.send("/orders", "k", "{}").await;
    assert_eq!((refused.status, closed.ledger.runs().len()), (503, 0), "fails closed");
    assert!(text(&refused, "retry-after").is_some(), "{refused:?}");
}

async fn stripe_replays_failures_of_a_handler_that_are_certain<F: WebFramework>() {
    let api = Api::of::<F>(Profile::Stripe);
    for status in ["200", "400", "402", "403", "404", "409", "422", "425", "500", "501", "503", "505"] {
        let request = || api.post("/orders", status, "{}").header(STATUS, status);
        let (first, second) = (send(request()).await, send(request()).await);
        assert_eq!((first.status, &first.body), (second.status, &second.body), "{status}");
        assert_eq!((second.outcome.as_str(), text(&second, "idempotent-replayed")), ("replayed", Some("true")));
    }
    let other = api.send("/orders", "200", "[]").await;
    assert_eq!((other.status, &body(&other)["error"]["type"]), (400, &json!("idempotency_error")));
    assert_eq!(text(&other, "stripe-should-retry"), Some("false"));
    let running = api.send_in_flight().await;
    assert_eq!((running.status, &body(&running)["error"]["code"]), (409, &json!("idempotency_key_in_use")));
    assert_eq!(text(&running, "stripe-should-retry"), Some("true"));
    // What failed before the handler began is not stored.
    let before = api.ledger.runs().len();
    for _ in 0..2 {
        let invalid = api.send("/json", "invalid", "not JSON").await;
        assert_eq!((invalid.status / 100, invalid.outcome.as_str()), (4, "not_applied"), "{invalid:?}");
    }
    assert_eq!(api.send("/json", "invalid", "{}").await.said(), "201 executed");
    assert_eq!(api.ledger.runs().len(), before + 1);
}

async fn stripe_stores_neither_a_failed_login_nor_a_gateway_error<F: WebFramework>() {
    let api = Api::of::<F>(Profile::Stripe);
    // Stripe stores these too: docs/profiles.md says why Onceward does not.
    for path in ["/orders", "/retryable"] {
        for status in ["401", "429"] {
            for _ in 0..2 {
                let failed = send(api.post(path, status, "{}").header(STATUS, status)).await;
                assert_eq!(failed.said(), format!("{status} not_applied"), "{path}");
            }
            assert_eq!(api.send(path, status, "{}").await.said(), "200 executed", "{path} {status}");
        }
        for status in ["502", "504"] {
            let failed = send(api.post(path, status, "{}").header(STATUS, status)).await;
            assert_eq!(failed.said(), format!("{status} unknown"), "{path}");
            let before = api.ledger.runs().len();
            let code = if path == "/orders" { "outcome_unknown" } else { "in_progress" };
            assert_eq!(api.send(path, status, "{}").await.said(), format!("409 {code}"), "{path} {status}");
            assert_eq!(api.ledger.runs().len(), before, "{path} {status}");
        }
    }
}

async fn profiles_store_for_a_day_at_least<F: WebFramework>() {
    for profile in Profile::ALL {
        let (guard, clock) = testing::guard();
        let api = Api::new::<F>(&guard, profile);
        let first = api.send("/orders", "k", "{}").await;
        clock.advance(23 * HOUR);
        let later = api.send("/orders", "k", "{}").await;
        // The routes retain for an hour.
        assert_eq!(is_replay_of(&later, &first), profile != Profile::Ietf, "{profile}: {later:?}");
        clock.advance(25 * HOUR);
        let new = api.send("/orders", "k", r#"{"other":1}"#).await;
        assert_eq!(new.said(), "200 executed", "{profile}: an expired key is new");
    }
}
