//! Concurrent clicks with a remembered token: one runs, and the others wait for its response.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use onceward::http::{Protect, SubjectSource as SubjectFrom};
use onceward::store::{Memory, Redis};
use onceward::{Binding, Guard};
use onceward_tests::client::{Answer, at_last, http, send, submit, token};
use onceward_tests::key_routes::{Pair, serve_one};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{ORDER, STATUS, TAKES, TestServer};
use onceward_tests::web_framework::WebFramework;

use crate::PEER;

on_every_framework! {
    concurrent_clicks_run_once_and_get_the_first_response (threads),
    clicks_in_two_processes_get_the_first_response (threads),
    one_waiter_elsewhere_runs_after_a_rejected_first_run (threads),
    unknown_outcome_is_not_decided_again,
    waiting_can_be_turned_off,
    one_waiter_runs_after_a_rejected_first_run (threads),
}

const TEN_MINUTES: Duration = Duration::from_secs(600);
const LONG: Duration = Duration::from_secs(10);
const CLICKS: usize = 200;

/// A server with the first route of the README.
struct Bed {
    guard: Guard,
    served: TestServer,
    ledger: Ledger,
}

impl Bed {
    fn on<F: WebFramework>(guard: Guard) -> Self {
        let ledger = Ledger::new();
        let protect = Protect::<F, _>::token(&guard, SubjectFrom::anonymous()).remember(TEN_MINUTES);
        Self { served: serve_one(&ledger, protect), guard, ledger }
    }

    /// Sends concurrent clicks to a slow handler.
    async fn click(&self, times: usize, status: u16) -> Vec<Answer> {
        let token = self.guard.issue(TEN_MINUTES, Binding::none()).await.unwrap();
        let client = http();
        let click = || {
            let click = client.post(format!("{}/it", self.served.url)).header("onceward-token", token.as_str());
            tokio::spawn(send(click.header(ORDER, "order").header(TAKES, 300).header(STATUS, status)))
        };
        join_all((0..times).map(|_| click())).await.into_iter().map(Result::unwrap).collect()
    }
}

/// Counts the responses by status and outcome.
fn counted(answers: &[Answer]) -> BTreeMap<String, usize> {
    answers.iter().fold(BTreeMap::new(), |mut counted, answer| {
        *counted.entry(answer.said()).or_default() += 1;
        counted
    })
}

async fn concurrent_clicks_run_once_and_get_the_first_response<F: WebFramework>() {
    let redis = RedisServer::start();
    let on_redis = Guard::new(Redis::open(&redis.url()).unwrap().timeout(LONG));
    for guard in [Guard::new(Memory::new()), on_redis] {
        let bed = Bed::on::<F>(guard);
        let answers = bed.click(CLICKS, 201).await;
        let expected = BTreeMap::from([("201 executed".to_owned(), 1), ("201 replayed".to_owned(), CLICKS - 1)]);
        assert_eq!(counted(&answers), expected);
        assert!(answers.iter().all(|answer| answer.body == answers[0].body), "all receive the same response");
        assert_eq!(bed.ledger.count("order"), 1);
    }
}

/// One token may use a quarter of the seats, by default more than 200.
async fn clicks_in_two_processes_get_the_first_response<F: WebFramework>() {
    let pair = Pair::start(PEER, &F::peer("patient")).await;
    let token = token(pair.one()).await;
    let clicks = join_all((0..CLICKS).map(|click| {
        let url = [pair.one(), pair.other()][click % 2];
        tokio::spawn(at_last(submit(url, "/remembered/default", &token, "order").header(TAKES, 300)))
    }));
    let answers: Vec<_> = clicks.await.into_iter().map(Result::unwrap).collect();
    let expected = BTreeMap::from([("200 executed".to_owned(), 1), ("200 replayed".to_owned(), CLICKS - 1)]);
    assert_eq!(counted(&answers), expected);
    assert_eq!(pair.ledger.count("order"), 1);
}

/// The token is valid again, and every process sees it.
async fn one_waiter_elsewhere_runs_after_a_rejected_first_run<F: WebFramework>() {
    let pair = Pair::start(PEER, &F::peer("patient")).await;
    let token = token(pair.one()).await;
    let click = |url: &str, status: u16, order: &str| {
        let click = submit(url, "/remembered/default", &token, order).header(TAKES, 500).header(STATUS, status);
        tokio::spawn(send(click))
    };
    let first = click(pair.one(), 422, "rejected");
    pair.begun(1).await;
    let others = join_all((0..10).map(|_| click(pair.other(), 201, "second"))).await;
    let others: Vec<_> = others.into_iter().map(Result::unwrap).collect();
    assert_eq!(first.await.unwrap().status, 422);
    let expected = BTreeMap::from([("201 executed".to_owned(), 1), ("201 replayed".to_owned(), 9)]);
    assert_eq!(counted(&others), expected);
    assert_eq!((pair.ledger.count("rejected"), pair.ledger.count("second")), (1, 1));
}

async fn unknown_outcome_is_not_decided_again<F: WebFramework>() {
    let bed = Bed::on::<F>(Guard::new(Memory::new()));
    let answers = bed.click(20, 504).await;
    let (ran, waited): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 504);
    assert_eq!(ran.len(), 1);
    assert_eq!(counted(&waited), BTreeMap::from([("409 outcome_unknown".to_owned(), 19)]));
    assert_eq!(bed.ledger.count("order"), 1);
}

async fn waiting_can_be_turned_off<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let remember = Protect::<F, _>::token(&guard, SubjectFrom::anonymous()).remember(TEN_MINUTES);
    assert!(format!("{remember:?}").contains("wait: Some(10s)"), "{remember:?}");
    let bed = Bed { served: serve_one(&ledger, remember.wait(Duration::ZERO)), guard, ledger };
    let answers = bed.click(20, 201).await;
    let expected = BTreeMap::from([("201 executed".to_owned(), 1), ("409 in_progress".to_owned(), 19)]);
    assert_eq!(counted(&answers), expected);
}

/// The handler rejects the first click, so nothing was applied.
async fn one_waiter_runs_after_a_rejected_first_run<F: WebFramework>() {
    let redis = RedisServer::start();
    let on_redis = Guard::new(Redis::open(&redis.url()).unwrap().timeout(LONG));
    for guard in [Guard::new(Memory::new()), on_redis] {
        let bed = Bed::on::<F>(guard);
        let token = bed.guard.issue(TEN_MINUTES, Binding::none()).await.unwrap();
        let click = |status: u16, order: &str| {
            let click = http().post(format!("{}/it", bed.served.url)).header("onceward-token", token.as_str());
            tokio::spawn(send(click.header(ORDER, order).header(TAKES, 500).header(STATUS, status)))
        };
        let first = click(422, "rejected");
        until("the handler runs", LONG, || async { bed.ledger.count("begun") == 1 }).await;
        let others = join_all((0..20).map(|_| click(201, "second"))).await;
        let others: Vec<_> = others.into_iter().map(Result::unwrap).collect();
        assert_eq!(first.await.unwrap().status, 422);
        let expected = BTreeMap::from([("201 executed".to_owned(), 1), ("201 replayed".to_owned(), 19)]);
        assert_eq!(counted(&others), expected);
        assert_eq!((bed.ledger.count("rejected"), bed.ledger.count("second")), (1, 1));
    }
}
