//! Looking up the outcome of a submission without running it, and settling an unknown outcome.

use std::time::Duration;

use onceward::http::{Protect, SubjectSource as SubjectFrom};
use onceward::store::{Memory, Redis};
use onceward::{Effect, Guard, Intent, Key, KeyRules, NoReply, Policy, RecordState, Reply, Settled, Subject};
use onceward_api::Code;
use onceward_api::header::LOOK;
use onceward_tests::client::{Answer, http, send, submit, token};
use onceward_tests::key_routes::{BRIEF, SIZE, buy, serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{ORDER, STATUS, TAKES, TestServer};
use onceward_tests::web_framework::WebFramework;

on_every_framework! {
    lookup_returns_the_stored_outcome_and_runs_nothing,
    lookup_without_a_key_runs_nothing,
    look_header_false_runs_and_an_invalid_one_is_rejected,
    unknown_outcome_is_settled_as_applied,
    unknown_outcome_is_settled_as_not_applied,
    live_run_cannot_be_settled_by_others,
    unstorable_reply_leaves_a_readable_record,
}

const LONG: Duration = Duration::from_secs(5);

async fn look(url: &str, path: &str, key: &str) -> Answer {
    send(under(url, path, key, "looked").header(LOOK, "true")).await
}

async fn lookup_returns_the_stored_outcome_and_runs_nothing<F: WebFramework>() {
    let redis = RedisServer::start();
    let shop = F::shop(Redis::open(&redis.url()).unwrap());
    for path in ["/keyed/orders", "/keyed/held"] {
        let absent = look(shop.url(), path, "k").await;
        assert_eq!(absent.said(), "404 not_found");
        assert_eq!(absent.problem().retry, onceward_api::Retry::No);

        let slow = tokio::spawn(send(under(shop.url(), path, "k", path).header(TAKES, 300).body("tea")));
        until("the handler runs", LONG, || async { look(shop.url(), path, "k").await.said() == "409 in_progress" })
            .await;
        assert!(look(shop.url(), path, "k").await.headers.contains_key("retry-after"));
        let first = slow.await.unwrap();
        let seen = look(shop.url(), path, "k").await;
        assert_eq!((seen.said().as_str(), &seen.body), ("200 replayed", &first.body), "without the request body");
        assert_eq!(seen.headers["idempotent-replayed"], "true");
        assert_eq!(shop.ledger.count(path), 1);

        send(under(shop.url(), path, "large", "large").header(SIZE, 2 * 1024 * 1024)).await;
        assert_eq!(look(shop.url(), path, "large").await.said(), "409 reply_not_kept");
    }
    send(under(shop.url(), "/keyed/held", "lost", "lost").header(STATUS, 504)).await;
    assert_eq!(look(shop.url(), "/keyed/held", "lost").await.said(), "409 outcome_unknown");
    let large = under(shop.url(), "/keyed/orders", "k", "looked").header(LOOK, "true").body(vec![0; 300 * 1024]);
    assert_eq!(send(large).await.said(), "200 replayed", "a look needs no body, however large");
    assert_eq!(shop.ledger.count("looked"), 0);
}

async fn lookup_without_a_key_runs_nothing<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    for path in ["/keyed/orders", "/keyed/optional"] {
        let request = http().post(format!("{}{path}", shop.url())).header(LOOK, "true").header(ORDER, "looked");
        assert_eq!(send(request).await.said(), "400 key_missing", "{path}");
    }
    assert_eq!(shop.ledger.count("looked"), 0);
}

async fn look_header_false_runs_and_an_invalid_one_is_rejected<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    for path in ["/keyed/orders", "/keyed/optional", "/keyed/held"] {
        let ask = |key: &str, look: &str| send(under(shop.url(), path, key, path).header(LOOK, look));
        for look in ["maybe", "1", "0", "TRUE", "no", ""] {
            let refused = ask("k", look).await;
            assert_eq!(refused.said(), "400 bad_request", "{look}");
            assert!(refused.problem().detail.contains("Onceward-Look"), "{refused:?}");
        }
        assert_eq!(shop.ledger.count(path), 0, "neither a lookup nor a run");
        assert_eq!(ask("k", "true").await.said(), "404 not_found");
        assert_eq!(ask("k", "false").await.said(), "200 executed");
        assert_eq!(ask("k", "false").await.said(), "200 replayed");
        assert_eq!(ask("k", "true").await.said(), "200 replayed");
        assert_eq!(shop.ledger.count(path), 1);
    }
    let token = token(shop.url()).await;
    let ask = |look: &str| send(submit(shop.url(), "/orders", &token, "token").header(LOOK, look));
    assert_eq!(ask("perhaps").await.said(), "400 bad_request");
    assert_eq!(ask("false").await.said(), "200 executed", "the rejected request did not use the token");
    assert_eq!(shop.ledger.count("token"), 1);
}

/// An at-most-once route, its intent, and its guard.
struct HeldRoute {
    guard: Guard,
    served: TestServer,
    ledger: Ledger,
    rules: KeyRules,
    key: Key,
}

impl HeldRoute {
    fn new<F: WebFramework>() -> Self {
        let (guard, ledger, rules) =
            (Guard::new(Memory::new()), Ledger::new(), KeyRules::at_most_once().lease(BRIEF).unwrap());
        let served = serve_one(&ledger, Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), rules.clone()));
        Self { guard, served, ledger, rules, key: Key::new("k").unwrap() }
    }

    fn intent(&self) -> Intent<'_> {
        Intent::new("POST /it", Subject::anonymous()).key(&self.key)
    }

    async fn settle(&self, effect: Effect, reply: Option<Reply>) -> Settled {
        self.guard.settle(&self.rules, &self.intent(), None, effect, reply).await.unwrap()
    }

    async fn seen(&self) -> RecordState {
        self.guard.look(&Policy::key(self.rules.clone()), &self.intent()).await.unwrap().state
    }

    async fn buy(&self, status: u16) -> String {
        send(under(&self.served.url, "/it", "k", "a").header(STATUS, status)).await.said()
    }
}

fn refused(settled: &Settled) -> Option<Code> {
    settled.clone().into_result().err().map(|rejection| rejection.code())
}

async fn unknown_outcome_is_settled_as_applied<F: WebFramework>() {
    let held = HeldRoute::new::<F>();
    assert_eq!(held.seen().await, RecordState::Absent);
    assert_eq!(refused(&held.settle(Effect::Applied, None).await), Some(Code::NotFound));
    assert_eq!(held.buy(504).await, "504 unknown");
    assert_eq!(held.buy(200).await, "409 outcome_unknown");
    assert!(matches!(held.seen().await, RecordState::Unknown(_)));

    let reply = Reply::new(201, "it was booked").header("location", "/bookings/1").header("set-cookie", "x");
    for _ in 0..2 {
        assert_eq!(held.settle(Effect::Applied, Some(reply.clone())).await, Settled::Final);
    }
    assert_eq!(held.seen().await, RecordState::Done(Ok(reply.clone())));
    let replay = buy(&held.served.url, "/it", "k", "a").await;
    assert_eq!((replay.said().as_str(), &replay.body[..]), ("201 replayed", &b"it was booked"[..]));
    assert_eq!(replay.headers["location"], "/bookings/1");
    let other = send(under(&held.served.url, "/it", "k", "a").body("something else")).await;
    assert_eq!(other.said(), "422 key_reused", "the fingerprint is still stored");
    assert_eq!(refused(&held.settle(Effect::NotApplied, None).await), Some(Code::ClaimLost), "too late");
    assert_eq!(held.ledger.runs().len(), 1);
}

async fn unknown_outcome_is_settled_as_not_applied<F: WebFramework>() {
    let held = HeldRoute::new::<F>();
    assert_eq!(held.buy(504).await, "504 unknown");
    for _ in 0..2 {
        assert_eq!(held.settle(Effect::NotApplied, None).await, Settled::Released);
    }
    assert_eq!(held.seen().await, RecordState::Absent);
    assert_eq!([held.buy(200).await, held.buy(200).await], ["200 executed", "200 replayed"]);
    assert_eq!(held.ledger.runs().len(), 2);
}

async fn live_run_cannot_be_settled_by_others<F: WebFramework>() {
    let held = HeldRoute::new::<F>();
    let slow = tokio::spawn(send(under(&held.served.url, "/it", "k", "a").header(TAKES, 1_000)));
    until("the handler runs", LONG, || async { held.ledger.count("begun") == 1 }).await;
    // Longer than the lease, which is renewed meanwhile.
    while !slow.is_finished() {
        let resolved = [held.settle(Effect::Applied, None).await, held.settle(Effect::NotApplied, None).await];
        if matches!(held.seen().await, RecordState::Running(_)) {
            assert_eq!(resolved.each_ref().map(refused), [Some(Code::InProgress); 2]);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(slow.await.unwrap().said(), "200 executed");
    assert_eq!((held.buy(200).await.as_str(), held.ledger.count("a")), ("200 replayed", 1));
}

async fn unstorable_reply_leaves_a_readable_record<F: WebFramework>() {
    for reply in
        [Reply::new(200, "x").header("x-long", vec![b'x'; 70_000]), Reply::new(200, vec![b'x'; 2 * 1024 * 1024])]
    {
        let held = HeldRoute::new::<F>();
        assert_eq!(held.buy(504).await, "504 unknown");
        assert_eq!(held.settle(Effect::Applied, Some(reply)).await, Settled::Final);
        assert_eq!(held.seen().await, RecordState::Done(Err(NoReply::TooLarge)));
        assert_eq!(held.buy(200).await, "409 reply_not_kept");
        assert_eq!(held.ledger.runs().len(), 1);
    }
}
