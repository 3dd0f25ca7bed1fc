//! Nested guards: when the inner guard rejects, replays, or has an unknown outcome, the outer guard reports the same.

use std::time::Duration;

use actix_web::web;
use onceward::actix::{KeyFrom, Protect, SubjectFrom};
use onceward::store::Memory;
use onceward::{Binding, Effect, Guard, Intent, IntervalRules, Key, KeyRules, Subject};
use onceward_tests::actix_handlers::{order, panics};
use onceward_tests::client::{Answer, http, send};
use onceward_tests::key_routes::{KEY, serve};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::{outlast, until};
use onceward_tests::shop::{ORDER, STATUS, TestServer};

/// The key of an outer guard.
const OUTER: &str = "x-outer";
const MOMENT: Duration = Duration::from_millis(100);

fn anyone() -> SubjectFrom {
    SubjectFrom::anonymous()
}

fn token(guard: &Guard) -> Protect {
    Protect::token(guard, anyone()).into_any()
}

fn remembered(guard: &Guard) -> Protect {
    Protect::token(guard, anyone()).remember(Duration::from_secs(600)).wait(Duration::ZERO).into_any()
}

fn outer_key(guard: &Guard) -> Protect {
    Protect::key(guard, anyone(), KeyRules::retryable().lease(MOMENT).unwrap())
        .from(KeyFrom::header(OUTER).unwrap())
        .into_any()
}

fn outer_held(guard: &Guard) -> Protect {
    Protect::key(guard, anyone(), KeyRules::at_most_once()).from(KeyFrom::header(OUTER).unwrap()).into_any()
}

fn key(guard: &Guard) -> Protect {
    Protect::key(guard, anyone(), KeyRules::retryable()).into_any()
}

fn held(guard: &Guard) -> Protect {
    Protect::key(guard, anyone(), KeyRules::at_most_once()).into_any()
}

fn interval(guard: &Guard) -> Protect {
    Protect::interval(guard, anyone(), IntervalRules::new().every(MOMENT).unwrap()).into_any()
}

/// Two guards, one on a scope and one on its routes.
struct Nest {
    guard: Guard,
    ledger: Ledger,
    served: TestServer,
}

impl Nest {
    fn of(outer: fn(&Guard) -> Protect, inner: fn(&Guard) -> Protect) -> Self {
        let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
        let (outer, inner) = (outer(&guard), inner(&guard));
        let served = serve(&ledger, move |config| {
            let panic = web::resource("/panic").wrap(inner.clone()).route(web::post().to(panics));
            let orders = web::resource("/orders").wrap(inner.clone()).route(web::post().to(order));
            config.service(web::scope("").wrap(outer.clone()).service(orders).service(panic));
        });
        Self { guard, ledger, served }
    }

    async fn token(&self) -> String {
        self.guard.issue(Duration::from_secs(600), Binding::none()).await.unwrap().as_str().to_owned()
    }

    /// Submits with `outer` as the token and as the key of the outer guard, which uses one of them.
    async fn submit(&self, path: &str, outer: &str, status: u16) -> Answer {
        let request = http().post(format!("{}{path}", self.served.url)).header(ORDER, "tea").header(STATUS, status);
        send(request.header(KEY, "k").header(OUTER, outer).header(onceward_api::header::TOKEN, outer)).await
    }
}

#[tokio::test]
async fn panic_behind_two_guards_leaves_the_outer_token_used() {
    for (what, outer, then) in [
        ("token", token as fn(&Guard) -> Protect, "409 token_used"),
        ("remembered", remembered, "409 outcome_unknown"),
        ("held key", outer_held, "409 outcome_unknown"),
    ] {
        let nest = Nest::of(outer, interval);
        let token = nest.token().await;
        assert_eq!(nest.submit("/panic", &token, 0).await.said(), "500 internal", "{what}");
        // The interval of the inner guard has expired by then, and rejects nothing.
        outlast(MOMENT).await;
        assert_eq!(nest.submit("/panic", &token, 0).await.said(), then, "{what}");
        assert_eq!(nest.ledger.count("tea"), 1, "{what}: the handler may have taken effect before it panicked");
    }
}

#[tokio::test]
async fn replay_of_an_inner_guard_is_not_executed() {
    for (what, outer) in [("token", token as fn(&Guard) -> Protect), ("remembered", remembered), ("key", outer_key)] {
        let nest = Nest::of(outer, key);
        assert_eq!(nest.submit("/orders", &nest.token().await, 201).await.said(), "201 executed", "{what}");
        let again = nest.submit("/orders", &nest.token().await, 201).await;
        assert_eq!(again.said(), "201 replayed", "{what}");
        assert_eq!(again.headers["idempotent-replayed"], "true", "{what}");
        assert_eq!(nest.ledger.count("tea"), 1, "{what}");
    }
}

/// The outcome of the first run is unknown until it is settled.
#[tokio::test]
async fn unknown_outcome_of_an_inner_guard_is_not_stored() {
    for (what, outer) in [("token", token as fn(&Guard) -> Protect), ("remembered", remembered), ("key", outer_key)] {
        let nest = Nest::of(outer, held);
        assert_eq!(nest.submit("/orders", &nest.token().await, 502).await.said(), "502 unknown", "{what}");
        let second = nest.token().await;
        assert_eq!(nest.submit("/orders", &second, 201).await.said(), "409 outcome_unknown", "{what}");
        let inner = Key::new("k").unwrap();
        let intent = Intent::new("POST /orders", Subject::anonymous()).key(&inner);
        let settled = nest.guard.settle(&KeyRules::at_most_once(), &intent, None, Effect::NotApplied, None).await;
        assert_eq!(settled.unwrap().into_result(), Ok(()), "{what}");
        if what == "key" {
            // The claim of the outer key expires with its lease, and then a retry runs.
            until("the key is free", Duration::from_secs(20), || async {
                nest.submit("/orders", &second, 201).await.said() == "201 executed"
            })
            .await;
        }
        assert_eq!(nest.ledger.count("tea"), if what == "key" { 2 } else { 1 }, "{what}");
    }
}
