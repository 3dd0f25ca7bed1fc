//! Duplicates of a run in flight.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::{LEASE, LONG, Stage};
use onceward_tests::shop::TAKES;
use reqwest::RequestBuilder;
use tokio::time::sleep;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Returns the number of parallel duplicates; `make contract` sets more than `make test`.
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
fn duplicates() -> usize {
    std::env::var("DUPLICATES").map_or(24, |count| count.parse().expect("DUPLICATES is a number"))
}

/// Sends a request, and repeats it while another one is in flight.
async fn insist(request: RequestBuilder) -> Answer {
    loop {
        let answer = send(request.try_clone().unwrap()).await;
        match answer.outcome.as_str() {
            "in_progress" => sleep(PAUSE).await,
            _ => return answer,
        }
    }
}

pub(super) async fn duplicate_of_a_run_in_flight_is_rejected(stack: Stack) {
    let stage = Stage::of(stack).shops(2).open().await;
    let slow = tokio::spawn(send(stage.shop().submit("/orders", "k").header(TAKES, 1_500)));
    stage.recorded("begun", 1).await;
    for shop in &stage.shops {
        let refused = send(shop.submit("/orders", "k")).await;
        assert_eq!(refused.said(), "409 in_progress", "{refused:?}");
        assert_eq!(refused.headers["onceward-retry"], "same");
        assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
        assert_eq!(refused.problem().status, 409);
        let other = send(shop.submit("/orders", "k").body("another")).await;
        assert_eq!(other.said(), "422 key_reused", "takes precedence over in_progress");
    }
    let first = slow.await.unwrap();
    assert_eq!(first.said(), "201 executed");
    let second = send(stage.shops[1].submit("/orders", "k")).await;
    assert_eq!((second.said().as_str(), second.body), ("201 replayed", first.body));
    assert_eq!(stage.ledger.count("order"), 1);
}

/// The handler takes three leases, so that only a renewed claim lives that long.
pub(super) async fn slow_handler_keeps_its_claim(stack: Stack) {
    let stage = Stage::of(stack).shops(2).lease(LEASE).open().await;
    let takes = (LEASE * 3).as_millis().to_string();
    let runs = ["/orders", "/retryable"]
        .map(|path| (path, tokio::spawn(send(stage.shop().submit(path, "k").header(TAKES, &takes)))));
    stage.recorded("begun", 2).await;
    join_all(runs.map(async |(path, slow)| {
        while !slow.is_finished() {
            let said = send(stage.shops[1].submit(path, "k")).await.said();
            assert!(["409 in_progress", "201 replayed"].contains(&said.as_str()), "{path}: beside a live run: {said}");
            sleep(PAUSE).await;
        }
        assert_eq!(slow.await.unwrap().said(), "201 executed", "{path}");
    }))
    .await;
    assert_eq!((stage.ledger.count("begun"), stage.ledger.count("order")), (2, 2));
}

pub(super) async fn waiting_duplicate_receives_the_response(stack: Stack) {
    let stage = Stage::of(stack).shops(2).wait(LONG).open().await;
    let slow = tokio::spawn(send(stage.shop().submit("/orders", "k").header(TAKES, 700)));
    stage.recorded("begun", 1).await;
    let second = send(stage.shops[1].submit("/orders", "k")).await;
    assert_eq!(second.said(), "201 replayed", "{second:?}");
    assert_eq!(slow.await.unwrap().body, second.body);
    assert_eq!(stage.ledger.count("order"), 1);
}

pub(super) async fn parallel_duplicates_over_two_processes_run_once(stack: Stack) {
    let stage = Stage::of(stack).shops(2).open().await;
    let requests = (0..duplicates()).map(|at| insist(stage.shops[at % 2].submit("/orders", "k")));
    let answers = join_all(requests).await;
    assert_eq!(stage.ledger.count("order"), 1, "{} duplicates", answers.len());
    let executed = answers.iter().filter(|answer| answer.said() == "201 executed").count();
    let replayed = answers.iter().filter(|answer| answer.said() == "201 replayed").count();
    assert_eq!((executed, replayed), (1, answers.len() - 1));
    assert_eq!(answers.iter().map(|answer| &answer.body).collect::<HashSet<_>>().len(), 1, "one response");
}

/// A double click sends the form twice at the same time, with the token in the header or in the hidden field.
pub(super) async fn double_click_with_a_remembered_token_runs_once(stack: Stack) {
    let stage = Stage::of(stack).shops(2).open().await;
    for (round, in_field) in [true, false].into_iter().enumerate() {
        let token = token(&stage.shop().url).await;
        let click = |shop: usize| {
            let request = http().post(format!("{}/forms", stage.shops[shop].url));
            let form = [("item", "tea"), ("_onceward", token.as_str())];
            if in_field { request.form(&form) } else { request.header("onceward-token", &token).form(&form[..1]) }
        };
        let answers = join_all([0, 1, 0].map(|shop| insist(click(shop).header(TAKES, 100)))).await;
        assert_eq!(stage.ledger.count("order"), round + 1, "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| answer.said() == "201 executed").count(), 1, "{answers:?}");
        assert!(answers.iter().all(|answer| answer.body == answers[0].body), "{answers:?}");
        assert_eq!(send(click(1)).await.said(), "201 replayed");
    }
}
