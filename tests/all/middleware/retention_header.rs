//! A route may say how long its responses are stored.

use std::time::Duration;

use onceward::http::protect::{IntervalPolicy, KeyPolicy, TokenPolicy};
use onceward::http::{Protect, SubjectSource};
use onceward::store::Memory;
use onceward::{Guard, IntervalRules, KeyRules};
use onceward_api::header::RETENTION;
use onceward_tests::client::{self, Answer, send, submit};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::{serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::routes::Routes;
use onceward_tests::shop::STATUS;
use onceward_tests::shop_handlers::{SIZE, echo, purchase};
use onceward_tests::web_framework::WebFramework;

on_every_framework! {
    stored_response_and_its_replay_say_the_retention,
    route_without_the_setting_sends_no_retention,
    response_that_is_not_stored_has_no_retention,
    remembered_token_and_interval_say_the_retention_under_any_name,
}

fn said(answer: &Answer) -> (String, Option<&str>) {
    (answer.said(), answer.headers.get(RETENTION).and_then(|value| value.to_str().ok()))
}

async fn stored_response_and_its_replay_say_the_retention<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    let protect = Protect::<F, KeyPolicy>::key(&guard, SubjectSource::anonymous(), KeyRules::at_most_once());
    let served = serve_one(&Ledger::new(), protect.show_retention());
    for (key, status, expected) in [
        ("a", 200, [("200 executed", Some("86400")), ("200 replayed", Some("86400"))]),
        ("b", 404, [("404 replayable", Some("86400")), ("404 replayed", Some("86400"))]),
        ("c", 429, [("429 not_applied", None), ("429 not_applied", None)]),
        ("d", 504, [("504 unknown", None), ("409 outcome_unknown", None)]),
    ] {
        for (outcome, retention) in expected {
            let answer = send(under(&served.url, "/it", key, "order").header(STATUS, status)).await;
            assert_eq!(said(&answer), (outcome.to_owned(), retention), "{key}");
        }
    }
}

async fn route_without_the_setting_sends_no_retention<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    let protect = Protect::<F, KeyPolicy>::key(&guard, SubjectSource::anonymous(), KeyRules::at_most_once());
    let served = serve_one(&Ledger::new(), protect);
    for outcome in ["200 executed", "200 replayed"] {
        assert_eq!(said(&send(under(&served.url, "/it", "a", "order")).await), (outcome.to_owned(), None));
    }
}

async fn response_that_is_not_stored_has_no_retention<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let rules = || KeyRules::at_most_once().reply_limit(1_000);
    let protect = || Protect::<F, KeyPolicy>::key(&guard, SubjectSource::anonymous(), rules()).show_retention();
    let routes = Routes::new().any("/large", protect(), Handler::of_body(purchase)).any(
        "/streamed",
        protect(),
        Handler::of_stream(echo),
    );
    let served = F::serve(&ledger, routes);
    for path in ["/large", "/streamed"] {
        for outcome in ["200 executed", "409 reply_not_kept"] {
            let answer = send(under(&served.url, path, "a", "order").header(SIZE, 2_000).body("tea")).await;
            assert_eq!(said(&answer), (outcome.to_owned(), None), "{path}");
        }
    }
    assert_eq!(said(&send(under(&served.url, "/large", "b", "order")).await).1, Some("86400"));
}

async fn remembered_token_and_interval_say_the_retention_under_any_name<F: WebFramework>() {
    let (guard, ledger, name) = (Guard::new(Memory::new()), Ledger::new(), F::header_name("x-kept-for"));
    let token = Protect::<F, TokenPolicy>::token(&guard, SubjectSource::anonymous());
    let interval = |millis| {
        let rules = IntervalRules::new().every(Duration::from_millis(millis)).unwrap();
        Protect::<F, IntervalPolicy>::interval(&guard, SubjectSource::anonymous(), rules).remember()
    };
    let routes = Routes::new()
        .any(
            "/remembered",
            token.remember(Duration::from_secs(600)).retention_header(&name),
            Handler::of_body(purchase),
        )
        .any("/interval", interval(60_500).retention_header(&name), Handler::of_body(purchase))
        .any("/short", interval(500).show_retention(), Handler::of_body(purchase))
        .tokens(&guard, SubjectSource::anonymous());
    let served = F::serve(&ledger, routes);
    let token = client::token(&served.url).await;
    for (path, header, seconds) in
        [("/remembered", "x-kept-for", "600"), ("/interval", "x-kept-for", "60"), ("/short", RETENTION, "1")]
    {
        for outcome in ["200 executed", "200 replayed"] {
            let answer = send(submit(&served.url, path, &token, "order")).await;
            let told = answer.headers.get(header).map(|value| value.to_str().unwrap());
            assert_eq!((answer.said().as_str(), told), (outcome, Some(seconds)), "{path}");
        }
    }
}
