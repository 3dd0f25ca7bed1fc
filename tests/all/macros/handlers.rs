//! Handlers with `#[once]`: the responses to duplicates, and failures before the handler.

use std::time::Duration;

use onceward::http::{Envelope, Profile, Protection, SubjectSource};
use onceward::store::Memory;
use onceward::{Guard, Mode};
use onceward_api::Code;
use onceward_api::header::RETENTION;
use onceward_tests::annotated_shop::{Annotated, MESSAGE};
use onceward_tests::client::{Answer, http, send, token, token_for};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::until;
use onceward_tests::test_server::TestServer;
use reqwest::RequestBuilder;
use serde_json::{Value, json};

on_every_framework! {
    token_is_accepted_once,
    remembered_token_replays_the_response,
    key_replays_the_response_and_compares_content,
    key_in_the_body_needs_no_header,
    interval_rejects_a_duplicate_with_its_message,
    remembered_interval_replays_the_response,
    bound_token_is_followed_by_the_next,
    key_is_at_most_once_unless_retryable,
    optional_key_may_be_missing,
    extractor_rejection_frees_token_and_key,
    subject_of_one_handler_replaces_the_default,
    guard_that_is_off_passes_requests_on,
    two_applications_with_one_handler_have_their_own_guards,
    panic_is_rejected_as_internal_and_its_outcome_is_unknown,
    panic_response_has_the_format_of_the_protection,
    every_kind_of_response_is_stored_and_replayed,
    handler_without_arguments_runs_once,
    handler_counts_as_protected_route,
    protection_has_a_profile_and_shows_the_retention,
    profile_takes_precedence_over_the_attribute,
}

struct Served {
    server: TestServer,
    ledger: Ledger,
}

impl Served {
    fn on<F: Annotated>() -> Self {
        Self::with::<F>(Guard::new(Memory::new()))
    }

    /// Serves the shop with a changed `Protection`.
    fn by<F: Annotated>(change: impl FnOnce(Protection<F>) -> Protection<F>) -> Self {
        let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
        let protection = change(Protection::new(&guard, SubjectSource::anonymous()));
        Self { server: F::serve_protected(&guard, &ledger, protection), ledger }
    }

    fn with<F: Annotated>(guard: Guard) -> Self {
        let ledger = Ledger::new();
        Self { server: F::serve_annotated(&guard, &ledger), ledger }
    }

    fn url(&self) -> &str {
        &self.server.url
    }

    fn request(&self, path: &str) -> RequestBuilder {
        http().post(format!("{}{path}", self.url()))
    }

    async fn with_token(&self, path: &str, token: &str, body: &Value) -> Answer {
        send(self.request(path).header("onceward-token", token).json(body)).await
    }

    async fn with_key(&self, path: &str, key: &str, body: &Value) -> Answer {
        send(self.request(path).header("idempotency-key", key).json(body)).await
    }
}

fn order(id: &str) -> Value {
    json!({"order": {"id": id}})
}

fn failing(id: &str, status: u16) -> Value {
    json!({"order": {"id": id}, "status": status})
}

async fn token_is_accepted_once<F: Annotated>() {
    let shop = Served::on::<F>();
    let token = token(shop.url()).await;
    assert_eq!(shop.with_token("/orders", &token, &order("a")).await.said(), "201 executed");
    assert_eq!(shop.with_token("/orders", &token, &order("a")).await.said(), "409 token_used");
    assert_eq!(send(shop.request("/orders").json(&order("a"))).await.said(), "400 token_missing");
    assert_eq!(shop.ledger.runs(), ["a"]);
}

async fn remembered_token_replays_the_response<F: Annotated>() {
    let shop = Served::on::<F>();
    let token = token(shop.url()).await;
    let first = shop.with_token("/remembered", &token, &order("a")).await;
    let second = shop.with_token("/remembered", &token, &order("a")).await;
    assert_eq!((first.said(), second.said()), ("201 executed".to_owned(), "201 replayed".to_owned()));
    assert_eq!(first.body, second.body);
    assert_eq!(shop.with_token("/remembered", &token, &order("b")).await.said(), "409 token_used", "other content");
    assert_eq!(shop.ledger.runs(), ["a"]);
}

async fn key_replays_the_response_and_compares_content<F: Annotated>() {
    let shop = Served::on::<F>();
    let first = shop.with_key("/payments", "k", &order("a")).await;
    let second = shop.with_key("/payments", "k", &order("a")).await;
    assert_eq!((first.said(), second.said()), ("201 executed".to_owned(), "201 replayed".to_owned()));
    assert_eq!(first.body, second.body);
    assert_eq!(shop.with_key("/payments", "k", &order("b")).await.said(), "422 key_reused");
    assert_eq!(shop.with_key("/retryable", "k", &order("b")).await.said(), "201 executed", "another action");
    assert_eq!(send(shop.request("/payments").json(&order("a"))).await.said(), "400 key_missing");
    assert_eq!(shop.ledger.runs(), ["a", "b"]);
}

async fn key_in_the_body_needs_no_header<F: Annotated>() {
    let shop = Served::on::<F>();
    let submit = async |body: Value| send(shop.request("/by-order").json(&body)).await;
    let first = submit(order("a")).await;
    let second = submit(order("a")).await;
    assert_eq!((first.said(), second.said()), ("201 executed".to_owned(), "201 replayed".to_owned()));
    assert_eq!(first.body, second.body);
    assert_eq!(submit(failing("a", 202)).await.said(), "422 key_reused");
    assert_eq!(submit(json!({"order": {}})).await.said(), "400 key_missing");
    assert_eq!(shop.ledger.runs(), ["a"]);
}

async fn interval_rejects_a_duplicate_with_its_message<F: Annotated>() {
    let shop = Served::on::<F>();
    let submit = async |id: &str| send(shop.request("/messages").json(&order(id))).await;
    assert_eq!(submit("a").await.said(), "201 executed");
    let duplicate = submit("a").await;
    assert_eq!(duplicate.said(), "409 too_soon");
    assert_eq!(duplicate.problem().detail, MESSAGE);
    assert_eq!(submit("b").await.said(), "201 executed");
    let is_over = async || submit("a").await.said() == "201 executed";
    until("the interval ends", Duration::from_secs(10), is_over).await;
    assert_eq!(shop.ledger.runs(), ["a", "b", "a"]);
}

async fn remembered_interval_replays_the_response<F: Annotated>() {
    let shop = Served::on::<F>();
    let submit = async |id: &str| send(shop.request("/remembered-messages").json(&order(id))).await;
    let body = order("a");
    let (first, beside) = tokio::join!(submit("a"), send(shop.request("/remembered-messages").json(&body)));
    let mut said = [first.said(), beside.said()];
    said.sort();
    assert_eq!(said, ["201 executed", "201 replayed"], "the duplicate waits for the response");
    assert_eq!(first.body, beside.body);
    let again = submit("a").await;
    assert_eq!((again.said().as_str(), &again.body), ("201 replayed", &first.body));
    assert_eq!(submit("b").await.said(), "201 executed");
    assert_eq!(shop.ledger.runs(), ["a", "b"]);
}

async fn bound_token_is_followed_by_the_next<F: Annotated>() {
    let shop = Served::on::<F>();
    let unbound = token(shop.url()).await;
    assert_eq!(shop.with_token("/bound", &unbound, &order("a")).await.status, 403);
    let bound = token_for(shop.url(), r#"{"action": "POST /bound"}"#).await;
    let first = shop.with_token("/bound", &bound, &order("a")).await;
    assert_eq!(first.said(), "201 executed");
    let next = first.headers["onceward-next-token"].to_str().unwrap();
    assert_eq!(shop.with_token("/bound", next, &order("b")).await.said(), "201 executed");
    assert_eq!(shop.ledger.runs(), ["a", "b"]);
}

/// A 500 of the handler. Only a retryable key is free again.
async fn key_is_at_most_once_unless_retryable<F: Annotated>() {
    let shop = Served::on::<F>();
    assert_eq!(shop.with_key("/payments", "k", &failing("a", 500)).await.said(), "500 unknown");
    assert_eq!(shop.with_key("/payments", "k", &failing("a", 500)).await.outcome, "outcome_unknown");
    assert_eq!(send(shop.request("/by-order").json(&failing("b", 500))).await.said(), "500 unknown");
    assert_eq!(send(shop.request("/by-order").json(&failing("b", 500))).await.outcome, "outcome_unknown");
    assert_eq!(shop.with_key("/retryable", "k", &failing("c", 500)).await.said(), "500 not_applied");
    assert_eq!(shop.with_key("/retryable", "k", &failing("c", 500)).await.said(), "500 not_applied");
    assert_eq!(shop.ledger.runs(), ["a", "b", "c", "c"]);
}

async fn optional_key_may_be_missing<F: Annotated>() {
    let shop = Served::on::<F>();
    for _ in 0..2 {
        assert_eq!(send(shop.request("/retryable").json(&order("a"))).await.said(), "201 unprotected");
    }
    assert_eq!(shop.ledger.runs(), ["a", "a"]);
}

/// A naive attribute, which only wraps the route, would store these responses: a 422 is a response of the handler, as far as a layer
/// can see.
async fn extractor_rejection_frees_token_and_key<F: Annotated>() {
    let shop = Served::on::<F>();
    let token = token(shop.url()).await;
    let wrong = json!({"order": {"id": 7}});
    for path in ["/orders", "/remembered"] {
        let refused = shop.with_token(path, &token, &wrong).await;
        assert!((400..500).contains(&refused.status) && refused.outcome == "not_applied", "{path}: {refused:?}");
    }
    assert_eq!(shop.with_token("/orders", &token, &order("a")).await.said(), "201 executed");
    for path in ["/payments", "/retryable"] {
        let refused = shop.with_key(path, "k", &wrong).await;
        assert!((400..500).contains(&refused.status) && refused.outcome == "not_applied", "{path}: {refused:?}");
        assert_eq!(shop.with_key(path, "k", &order("b")).await.said(), "201 executed", "{path}");
    }
    // The handler's own 422 is stored: the mark shows that it ran.
    assert_eq!(shop.with_key("/payments", "own", &failing("c", 422)).await.said(), "422 executed");
    assert_eq!(shop.with_key("/payments", "own", &failing("c", 422)).await.said(), "422 replayed");
    assert_eq!(shop.ledger.runs(), ["a", "b", "b", "c"]);
}

async fn subject_of_one_handler_replaces_the_default<F: Annotated>() {
    let shop = Served::on::<F>();
    let pay = async |user: Option<&str>| {
        let request = shop.request("/mine").header("idempotency-key", "k").json(&order(user.unwrap_or("none")));
        send(user.into_iter().fold(request, |request, user| request.header("x-user", user))).await.said()
    };
    assert_eq!(pay(Some("alice")).await, "201 executed");
    assert_eq!(pay(Some("bob")).await, "201 executed", "another subject has keys of its own");
    assert_eq!(pay(Some("alice")).await, "201 replayed");
    assert_eq!(pay(None).await, "401 unauthorized");
    assert_eq!(shop.ledger.runs(), ["alice", "bob"]);
}

async fn guard_that_is_off_passes_requests_on<F: Annotated>() {
    let shop = Served::with::<F>(Guard::builder(Memory::new()).mode(Mode::Off).build());
    for _ in 0..2 {
        let answer = shop.with_key("/payments", "k", &order("a")).await;
        assert_eq!((answer.status, answer.outcome.as_str()), (201, ""));
    }
    assert_eq!(shop.ledger.runs(), ["a", "a"]);
}

/// The rules of a handler belong to one application, not to the process.
async fn two_applications_with_one_handler_have_their_own_guards<F: Annotated>() {
    let shops = [Served::on::<F>(), Served::on::<F>()];
    for shop in &shops {
        assert_eq!(shop.with_key("/payments", "k", &order("a")).await.said(), "201 executed");
    }
    assert_eq!(shops.each_ref().map(|shop| shop.ledger.runs().len()), [1, 1]);
}

async fn panic_is_rejected_as_internal_and_its_outcome_is_unknown<F: Annotated>() {
    let shop = Served::on::<F>();
    let first = shop.with_key("/panics", "k", &order("a")).await;
    assert_eq!((first.said().as_str(), first.problem().code), ("500 internal", Code::Internal));
    assert_eq!(first.headers["onceward-retry"], first.problem().retry.as_str());
    assert_eq!(shop.with_key("/panics", "k", &order("a")).await.said(), "409 outcome_unknown");

    let token = token(shop.url()).await;
    let first = shop.with_token("/panics-with-token", &token, &order("b")).await;
    assert_eq!((first.said().as_str(), first.problem().code), ("500 internal", Code::Internal));
    assert_eq!(shop.with_token("/panics-with-token", &token, &order("b")).await.status, 409);
    assert_eq!(shop.ledger.runs(), ["a", "b"]);
}

async fn panic_response_has_the_format_of_the_protection<F: Annotated>() {
    let envelope = Envelope::new().code(Code::Internal, 20_500).default_code(20_000);
    let shop = Served::by::<F>(|protection| protection.rejections(envelope));
    let code = |answer: &Answer| serde_json::from_slice::<Value>(&answer.body).unwrap()["code"].clone();
    let panicked = shop.with_key("/panics", "k", &order("a")).await;
    assert_eq!((panicked.said().as_str(), code(&panicked)), ("500 internal", json!(20_500)));
    let missing = send(shop.request("/payments").json(&order("a"))).await;
    assert_eq!((missing.outcome.as_str(), code(&missing)), ("key_missing", json!(20_000)));
}

async fn every_kind_of_response_is_stored_and_replayed<F: Annotated>() {
    let shop = Served::on::<F>();
    for (path, body, status) in
        [("/results", order("a"), 200), ("/results", failing("b", 422), 422), ("/responders", order("c"), 200)]
    {
        // In a key without quotes, a comma would separate two keys.
        let key = body.to_string().replace(['"', ','], "");
        let first = shop.with_key(path, &key, &body).await;
        let second = shop.with_key(path, &key, &body).await;
        let said = (first.said(), second.said());
        assert_eq!(said, (format!("{status} executed"), format!("{status} replayed")), "{path}");
        assert!(first.body.starts_with(b"receipt ") && first.body == second.body, "{path}");
        assert_eq!(first.headers.contains_key("x-shop"), path == "/responders");
    }
    assert_eq!(shop.with_key("/results", "own", &failing("d", 429)).await.said(), "429 not_applied");
    assert_eq!(shop.ledger.runs(), ["a", "b", "c", "d"]);
}

async fn handler_without_arguments_runs_once<F: Annotated>() {
    let shop = Served::on::<F>();
    let first = send(shop.request("/no-arguments").header("idempotency-key", "k")).await;
    let second = send(shop.request("/no-arguments").header("idempotency-key", "k")).await;
    assert_eq!((first.said(), second.said()), ("200 executed".to_owned(), "200 replayed".to_owned()));
    assert_eq!(first.body, second.body, "each run has a receipt of its own");
    assert_eq!(send(shop.request("/no-arguments")).await.said(), "400 key_missing");
}

async fn handler_counts_as_protected_route<F: Annotated>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let shop = Served { server: F::serve_required(&guard, &ledger), ledger };
    assert_eq!(shop.with_key("/payments", "k", &order("a")).await.said(), "201 executed");
    assert_eq!(shop.with_key("/payments", "k", &order("a")).await.said(), "201 replayed");
    assert_eq!(send(shop.request("/messages").json(&order("b"))).await.said(), "201 executed");
    for _ in 0..2 {
        assert_eq!(send(shop.request("/unprotected")).await.status, 500, "no guard has seen it");
    }
    assert_eq!(shop.with_key("/payments", "next", &order("c")).await.said(), "201 executed");
    assert_eq!(shop.ledger.runs(), ["a", "b", "c"]);
}

async fn protection_has_a_profile_and_shows_the_retention<F: Annotated>() {
    let shop = Served::by::<F>(|protection| protection.profile(Profile::UniversalCommerce).show_retention());
    let retention = |answer: &Answer| answer.headers.get(RETENTION).map(|value| value.to_str().unwrap().to_owned());
    let pay = async |order: Value| {
        let answer = shop.with_key("/payments", "k", &order).await;
        (answer.said(), retention(&answer))
    };
    let day = Some("86400".to_owned());
    assert_eq!(pay(order("a")).await, ("201 executed".to_owned(), day.clone()));
    assert_eq!(pay(order("a")).await, ("201 replayed".to_owned(), day));
    assert_eq!(pay(order("b")).await, ("409 key_reused".to_owned(), None), "the status of the profile");
    let token = token(shop.url()).await;
    let remembered = shop.with_token("/remembered", &token, &order("c")).await;
    assert_eq!((remembered.said().as_str(), retention(&remembered)), ("201 executed", Some("600".to_owned())));
    let message = || send(shop.request("/remembered-messages").json(&json!({"order": {"id": "d"}})));
    for said in ["201 executed", "201 replayed"] {
        let answer = message().await;
        assert_eq!((answer.said().as_str(), retention(&answer)), (said, Some("3600".to_owned())));
    }
    let plain = send(shop.request("/messages").json(&order("e"))).await;
    assert_eq!((plain.said().as_str(), retention(&plain)), ("201 executed", None));
}

/// The attribute says `retain = "1h"` and `optional`.
async fn profile_takes_precedence_over_the_attribute<F: Annotated>() {
    let name = F::header_name("x-kept-for");
    let shop = Served::by::<F>(|protection| protection.profile(Profile::AgenticCommerce).retention_header(&name));
    let first = shop.with_key("/retryable", "k", &order("a")).await;
    assert_eq!((first.said().as_str(), &first.headers["x-kept-for"]), ("201 executed", &"86400".parse().unwrap()));
    assert_eq!((&first.headers["idempotency-key"], first.headers.get(RETENTION)), (&"k".parse().unwrap(), None));
    let missing = send(shop.request("/retryable").json(&order("a"))).await;
    let body: Value = serde_json::from_slice(&missing.body).unwrap();
    assert_eq!((missing.said().as_str(), &body["code"]), ("400 key_missing", &json!("idempotency_key_required")));
    assert_eq!(shop.ledger.runs(), ["a"]);
}
