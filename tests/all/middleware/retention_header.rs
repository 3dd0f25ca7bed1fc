//! A route may say how long its responses are stored.

use onceward::http::protect::KeyPolicy;
use onceward::http::{Protect, SubjectSource};
use onceward::store::Memory;
use onceward::{Guard, KeyRules};
use onceward_api::header::RETENTION;
use onceward_tests::client::{Answer, send};
use onceward_tests::key_routes::{serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::shop::STATUS;
use onceward_tests::web_framework::WebFramework;

on_every_framework! {
    stored_response_and_its_replay_say_the_retention,
    route_without_the_setting_sends_no_retention,
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
