//! Nested guards: when the inner guard rejects, replays, or has an unknown outcome, the outer guard reports the same.

use std::time::Duration;

use onceward::http::{KeySource as KeyFrom, Protect, SubjectSource as SubjectFrom};
use onceward::store::Memory;
use onceward::{Binding, Effect, Guard, Intent, IntervalRules, Key, KeyRules, Subject};
use onceward_tests::client::{Answer, http, send};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::KEY;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::{outlast, until};
use onceward_tests::routes::Routes;
use onceward_tests::shop::{ORDER, STATUS, TestServer};
use onceward_tests::shop_handlers::{order, panics};
use onceward_tests::web_framework::WebFramework;

on_every_framework! {
    panic_behind_two_guards_leaves_the_outer_token_used,
    replay_of_an_inner_guard_is_not_executed,
    unknown_outcome_of_an_inner_guard_is_not_stored,
}

/// The key of an outer guard.
const OUTER: &str = "x-outer";
const MOMENT: Duration = Duration::from_millis(100);

fn anyone<F: WebFramework>() -> SubjectFrom<F::Request> {
    SubjectFrom::anonymous()
}

fn token<F: WebFramework>(guard: &Guard) -> Protect<F> {
    Protect::<F, _>::token(guard, anyone::<F>()).into_any()
}

fn remembered<F: WebFramework>(guard: &Guard) -> Protect<F> {
    Protect::<F, _>::token(guard, anyone::<F>()).remember(Duration::from_secs(600)).wait(Duration::ZERO).into_any()
}

fn outer_key<F: WebFramework>(guard: &Guard) -> Protect<F> {
    Protect::<F, _>::key(guard, anyone::<F>(), KeyRules::retryable().lease(MOMENT).unwrap())
        .from(KeyFrom::header(OUTER).unwrap())
        .into_any()
}

fn outer_held<F: WebFramework>(guard: &Guard) -> Protect<F> {
    Protect::<F, _>::key(guard, anyone::<F>(), KeyRules::at_most_once())
        .from(KeyFrom::header(OUTER).unwrap())
        .into_any()
}

fn key<F: WebFramework>(guard: &Guard) -> Protect<F> {
    Protect::<F, _>::key(guard, anyone::<F>(), KeyRules::retryable()).into_any()
}

fn held<F: WebFramework>(guard: &Guard) -> Protect<F> {
    Protect::<F, _>::key(guard, anyone::<F>(), KeyRules::at_most_once()).into_any()
}

fn interval<F: WebFramework>(guard: &Guard) -> Protect<F> {
    Protect::<F, _>::interval(guard, anyone::<F>(), IntervalRules::new().every(MOMENT).unwrap()).into_any()
}

/// Two guards, one on a scope and one on its routes.
struct Nest {
    guard: Guard,
    ledger: Ledger,
    served: TestServer,
}

impl Nest {
    fn of<F: WebFramework>(outer: fn(&Guard) -> Protect<F>, inner: fn(&Guard) -> Protect<F>) -> Self {
        let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
        let (outer, inner) = (outer(&guard), inner(&guard));
        let routes = Routes::new().post("/orders", inner.clone(), Handler::of_body(order)).post(
            "/panic",
            inner,
            Handler::of_head(panics),
        );
        let served = F::serve(&ledger, Routes::new().scope("", routes.wrap(outer)));
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

async fn panic_behind_two_guards_leaves_the_outer_token_used<F: WebFramework>() {
    for (what, outer, then) in [
        ("token", token as fn(&Guard) -> Protect<F>, "409 token_used"),
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

async fn replay_of_an_inner_guard_is_not_executed<F: WebFramework>() {
    for (what, outer) in [("token", token as fn(&Guard) -> Protect<F>), ("remembered", remembered), ("key", outer_key)]
    {
        let nest = Nest::of(outer, key);
        assert_eq!(nest.submit("/orders", &nest.token().await, 201).await.said(), "201 executed", "{what}");
        let again = nest.submit("/orders", &nest.token().await, 201).await;
        assert_eq!(again.said(), "201 replayed", "{what}");
        assert_eq!(again.headers["idempotent-replayed"], "true", "{what}");
        assert_eq!(nest.ledger.count("tea"), 1, "{what}");
    }
}

/// The outcome of the first run is unknown until it is settled.
async fn unknown_outcome_of_an_inner_guard_is_not_stored<F: WebFramework>() {
    for (what, outer) in [("token", token as fn(&Guard) -> Protect<F>), ("remembered", remembered), ("key", outer_key)]
    {
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
