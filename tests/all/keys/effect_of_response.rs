//! The effect that a response reports decides whether its key replays, runs again, or is held.

use std::time::Duration;

use onceward::http::{Protect, SubjectSource as SubjectFrom};
use onceward::store::Memory;
use onceward::{Effect, Guard, KeyRules, ManualClock};
use onceward_tests::call::Call;
use onceward_tests::client::{Answer, ran, send};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::{BRIEF, KEY, LEASE, buy, serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::{holds_for, until};
use onceward_tests::reply::Reply;
use onceward_tests::routes::Routes;
use onceward_tests::shop::{EFFECT, ORDER, STATUS, TestServer};
use onceward_tests::shop_handlers::order;
use onceward_tests::web_framework::WebFramework;
use serde_json::Value;

on_every_framework! {
    every_status_settles_the_key_as_documented,
    every_status_settles_an_at_most_once_key_as_documented,
    every_status_replays_if_configured_to,
    status_200_with_failure_is_released_by_the_route_rule,
    effect_reported_by_the_handler_outranks_the_status,
    panic_frees_the_key_after_lease_or_holds_it,
}

/// A server with a manual clock.
struct Bed {
    clock: ManualClock,
    served: TestServer,
    ledger: Ledger,
    client: reqwest::Client,
}

impl Bed {
    fn with<F: WebFramework>(rules: KeyRules) -> Self {
        let (clock, ledger) = (ManualClock::new(), Ledger::new());
        let guard = Guard::builder(Memory::with_clock((&clock).into())).clock((&clock).into()).build();
        let protect = Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), rules);
        let served = serve_one(&ledger, protect);
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { clock, served, ledger, client }
    }

    async fn ask(&self, status: u16) -> String {
        let request = self.client.post(format!("{}/it", self.served.url)).header("connection", "close");
        let request = request.header(KEY, status.to_string()).header(ORDER, status.to_string());
        send(request.header(STATUS, status)).await.said()
    }

    /// Asserts the outcome of every status: stored, released, or unknown, and the state after the lease.
    async fn settles(&self, effect: impl Fn(u16) -> Effect, unknown: &str, is_free_later: bool) {
        for status in 200..600 {
            assert_eq!(self.ask(status).await, ran(status, effect(status)));
            let (said, runs) = match effect(status) {
                Effect::Applied => (format!("{status} replayed"), 1),
                Effect::NotApplied => (format!("{status} not_applied"), 2),
                Effect::Unknown => (unknown.to_owned(), 1),
            };
            assert_eq!(self.ask(status).await, said, "{status}");
            assert_eq!(self.ledger.count(&status.to_string()), runs, "{status}");
        }
        self.clock.advance(Duration::from_secs(16));
        for status in (500..600).filter(|status| effect(*status) == Effect::Unknown) {
            let said = if is_free_later { format!("{status} unknown") } else { unknown.to_owned() };
            assert_eq!(self.ask(status).await, said, "{status} after the lease");
            assert_eq!(self.ledger.count(&status.to_string()), 1 + usize::from(is_free_later), "{status}");
        }
    }
}

fn usual<F: WebFramework>(status: u16) -> Effect {
    match status {
        408 => F::UNMARKED_TIMEOUT,
        401 | 403 | 425 | 429 | 500 | 501 | 503 => Effect::NotApplied,
        200..500 => Effect::Applied,
        _ => Effect::Unknown,
    }
}

async fn every_status_settles_the_key_as_documented<F: WebFramework>() {
    Bed::with::<F>(KeyRules::retryable()).settles(usual::<F>, "409 in_progress", true).await;
}

async fn every_status_settles_an_at_most_once_key_as_documented<F: WebFramework>() {
    let held = |status| match status {
        408 | 500 | 501 | 503 => Effect::Unknown,
        other => usual::<F>(other),
    };
    Bed::with::<F>(KeyRules::at_most_once()).settles(held, "409 outcome_unknown", false).await;
}

async fn every_status_replays_if_configured_to<F: WebFramework>() {
    Bed::with::<F>(KeyRules::retryable().replay_everything()).settles(|_| Effect::Applied, "", false).await;
}

async fn status_200_with_failure_is_released_by_the_route_rule<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect =
        Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()).judge_body(|head, body| {
            let said: Value = serde_json::from_slice(body).ok()?;
            (F::status(head) == 200 && said["code"] != 0).then_some(Effect::NotApplied)
        });
    let envelope = Handler::of_head(async |call: Call| {
        let code: i64 = call.header("x-code").and_then(|code| code.parse().ok()).unwrap();
        order(call).await;
        Reply::new(200).header("content-type", "application/json").body(serde_json::json!({"code": code}).to_string())
    });
    let served = F::serve(&ledger, Routes::new().post("/it", protect, envelope));
    let ask = async |code: i64| send(under(&served.url, "/it", "k", "a").header("x-code", code)).await;
    assert_eq!(ask(7).await.said(), "200 not_applied");
    assert_eq!(ask(7).await.said(), "200 not_applied");
    let happened = ask(0).await;
    assert_eq!(happened.said(), "200 executed");
    let replay = ask(7).await;
    assert_eq!((replay.said().as_str(), replay.body), ("200 replayed", happened.body));
    assert_eq!(ledger.runs().len(), 3);
}

async fn effect_reported_by_the_handler_outranks_the_status<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let ask = async |path: &str, status: &str, effect: &str| -> Answer {
        let key = format!("{path}-{status}-{}", effect.replace(' ', "-"));
        send(under(shop.url(), path, &key, &key).header(STATUS, status).header(EFFECT, effect)).await
    };
    for status in ["200", "400", "422", "500", "502", "503"] {
        for (path, effect, said) in [
            ("/keyed/orders", "happened", format!("{status} replayed")),
            ("/keyed/orders", "did not", format!("{status} not_applied")),
            ("/keyed/orders", "unknown", "409 in_progress".to_owned()),
            ("/keyed/held", "happened", format!("{status} replayed")),
            ("/keyed/held", "did not", format!("{status} not_applied")),
            ("/keyed/held", "unknown", "409 outcome_unknown".to_owned()),
        ] {
            let outcome = match effect {
                "happened" => "executed",
                "did not" => "not_applied",
                _ => "unknown",
            };
            assert_eq!(ask(path, status, effect).await.said(), format!("{status} {outcome}"));
            assert_eq!(ask(path, status, effect).await.said(), said, "{path} {status} {effect}");
        }
    }
}

async fn panic_frees_the_key_after_lease_or_holds_it<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let (free, held) = ("/keyed/panic", "/keyed/held/panic");
    let broke = buy(shop.url(), free, "k", "free").await;
    assert_eq!(broke.said(), "500 internal");
    assert_eq!(buy(shop.url(), free, "k", "free").await.said(), "409 in_progress");
    until("the lease has expired", LEASE * 3, || async { buy(shop.url(), free, "k", "free").await.status == 500 })
        .await;
    assert_eq!(shop.ledger.count("free"), 2);

    assert_eq!(buy(shop.url(), held, "k", "held").await.said(), "500 internal");
    let is_unknown = || async { buy(shop.url(), held, "k", "held").await.said() == "409 outcome_unknown" };
    until("the outcome is unknown", BRIEF * 10, is_unknown).await;
    holds_for("the outcome stays unknown", BRIEF, is_unknown).await;
    assert_eq!(shop.ledger.count("held"), 1);
}
