//! Remembered intervals: the same content from the same subject receives the first response until the interval ends.
//!
//! Tests that call the guard without HTTP run once: they test the engine, not an adapter.

use std::collections::HashSet;
use std::time::Duration;

use onceward::http::protect::{IntervalPolicy, RememberedIntervalPolicy};
use onceward::http::{KeySource as KeyFrom, Protect, Protection};
use onceward::store::{Memory, Sql};
use onceward::testing::FailingStore;
use onceward::{
    Effect, Fields, Guard, Intent, IntervalRules, Key, KeyRules, ManualClock, Policy, Reply, RunOutcome, Settled,
    Subject, Verdict, testing,
};
use onceward_api::{Code, header};
use onceward_tests::client::{Answer, at_last, http, send};
use onceward_tests::database::Sqlite;
use onceward_tests::handler::Handler;
use onceward_tests::interval_routes::{every, plainly};
use onceward_tests::key_routes::Pair;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::routes::Routes;
use onceward_tests::shop::{ORDER, STATUS, TAKES, TestServer, USER, user};
use onceward_tests::shop_handlers::{SIZE, panics, purchase};
use onceward_tests::web_framework::WebFramework;
use reqwest::RequestBuilder;
use tokio::task::JoinSet;

use crate::PEER;

on_every_framework! {
    duplicate_receives_the_response_until_the_interval_ends,
    duplicate_of_a_run_in_flight_waits_for_its_response,
    waiting_duplicate_receives_the_response_of_a_run_longer_than_the_interval,
    run_without_effect_ends_the_interval_at_once,
    one_waiter_runs_if_the_first_was_not_applied,
    unknown_outcome_lasts_until_the_interval_ends,
    subjects_and_contents_do_not_share_a_response,
    named_interval_rejects_other_content_under_its_name,
    selected_fields_decide_which_requests_share_a_response,
    large_response_and_large_request_are_not_replayed,
    look_returns_the_stored_response,
    rules_that_remember_replay_from_every_constructor,
    large_bodies_never_share_a_response,
    short_interval_lasts_a_second_after_its_run,
    failed_store_rejects_unless_the_interval_fails_open,
    concurrent_duplicates_on_two_processes_receive_one_response (threads),
    concurrent_duplicates_on_one_process_receive_one_response (threads),
    concurrent_duplicates_on_two_processes_and_sqlite_receive_one_response (threads),
    owner_that_crashed_keeps_the_interval_until_its_end (threads),
}

const LONG: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);
const MILLISECOND: Duration = Duration::from_millis(1);
const RAN: &str = "200 executed";
const REPLAYED: &str = "200 replayed";

/// A server with a manual clock.
struct Bed {
    clock: ManualClock,
    served: TestServer,
    ledger: Ledger,
}

impl Bed {
    fn new<F: WebFramework>() -> Self {
        Self::changed::<F, _>(IntervalRules::new().every(MINUTE).unwrap(), |protect| protect)
    }

    fn changed<F: WebFramework, P>(
        rules: IntervalRules,
        change: impl FnOnce(Protect<F, RememberedIntervalPolicy>) -> Protect<F, P>,
    ) -> Self {
        let (clock, ledger) = (ManualClock::new(), Ledger::new());
        let guard = Guard::builder(Memory::with_clock((&clock).into())).clock((&clock).into()).build();
        let protect = change(Protect::<F, IntervalPolicy>::interval(&guard, user::<F>(), rules).remember());
        let routes = Routes::new().any("/it", protect.clone(), Handler::of_body(purchase)).any(
            "/panic",
            protect,
            Handler::of_head(panics),
        );
        Self { clock, served: F::serve(&ledger, routes), ledger }
    }

    fn post(&self, path: &str) -> RequestBuilder {
        plainly(&self.served.url, path, "order").header(USER, "alice")
    }

    async fn ask(&self) -> Answer {
        send(self.post("/it").body("tea")).await
    }
}

async fn duplicate_receives_the_response_until_the_interval_ends<F: WebFramework>() {
    let bed = Bed::new::<F>();
    for runs in 1..=2 {
        let first = bed.ask().await;
        assert_eq!((first.said().as_str(), bed.ledger.runs().len()), (RAN, runs));
        for wait in [Duration::ZERO, MINUTE / 2, MINUTE / 2 - MILLISECOND] {
            bed.clock.advance(wait);
            let again = bed.ask().await;
            assert_eq!((again.said().as_str(), &again.body), (REPLAYED, &first.body));
            assert_eq!(
                (&again.headers["idempotent-replayed"], bed.ledger.runs().len()),
                (&"true".parse().unwrap(), runs)
            );
        }
        // A replay does not extend the interval.
        bed.clock.advance(MILLISECOND);
    }
}

async fn duplicate_of_a_run_in_flight_waits_for_its_response<F: WebFramework>() {
    let bed = Bed::new::<F>();
    let slow = tokio::spawn(send(bed.post("/it").header(TAKES, 300).body("tea")));
    until("it has begun", LONG, || async { bed.ledger.count("begun") == 1 }).await;
    let second = bed.ask().await;
    let first = slow.await.unwrap();
    assert_eq!((first.said().as_str(), second.said().as_str()), (RAN, REPLAYED));
    assert_eq!((first.body, bed.ledger.count("order")), (second.body, 1));

    let impatient = Bed::changed::<F, _>(every(MINUTE), |protect| protect.wait(Duration::ZERO));
    let slow = tokio::spawn(send(impatient.post("/it").header(TAKES, 300).body("tea")));
    until("it has begun", LONG, || async { impatient.ledger.count("begun") == 1 }).await;
    let second = impatient.ask().await;
    assert_eq!((second.said().as_str(), &second.headers["retry-after"]), ("409 in_progress", &"1".parse().unwrap()));
    assert_eq!(slow.await.unwrap().said(), RAN);
}

/// Both requests arrive within the interval, but the response is there only after it. A request after that runs.
async fn waiting_duplicate_receives_the_response_of_a_run_longer_than_the_interval<F: WebFramework>() {
    let ledger = Ledger::new();
    let guard = Guard::new(Memory::new());
    let short = every(Duration::from_millis(100));
    let protect = Protect::<F, IntervalPolicy>::interval(&guard, user::<F>(), short).remember();
    let served = F::serve(&ledger, Routes::new().any("/it", protect, Handler::of_body(purchase)));
    let ask = |order: &str| plainly(&served.url, "/it", order).header(USER, "alice").body("tea");
    let slow = tokio::spawn(send(ask("first").header(TAKES, 1_200)));
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    let second = send(ask("second")).await;
    let first = slow.await.unwrap();
    assert_eq!((first.said().as_str(), second.said().as_str()), (RAN, REPLAYED));
    assert_eq!(first.body, second.body);
    until("the interval has ended", LONG, || async { send(ask("third")).await.said() == RAN }).await;
    assert_eq!((ledger.count("second"), ledger.count("third")), (0, 1));
}

async fn run_without_effect_ends_the_interval_at_once<F: WebFramework>() {
    let bed = Bed::new::<F>();
    for status in [422, 404, 500, 503] {
        let said = send(bed.post("/it").header(STATUS, status).body("tea")).await.said();
        assert_eq!(said, format!("{status} not_applied"));
    }
    assert_eq!([bed.ask().await.said(), bed.ask().await.said()], [RAN, REPLAYED]);
}

async fn one_waiter_runs_if_the_first_was_not_applied<F: WebFramework>() {
    let bed = Bed::new::<F>();
    let failed = tokio::spawn(send(bed.post("/it").header(TAKES, 300).header(STATUS, 503).body("tea")));
    until("it has begun", LONG, || async { bed.ledger.count("begun") == 1 }).await;
    let waiters: JoinSet<_> = (0..8).map(|_| send(bed.post("/it").body("tea"))).collect();
    let answers = waiters.join_all().await;
    assert_eq!(failed.await.unwrap().said(), "503 not_applied");
    let bodies: HashSet<_> = answers.iter().map(|answer| answer.body.clone()).collect();
    let ran = answers.iter().filter(|answer| answer.said() == RAN).count();
    let replayed = answers.iter().filter(|answer| answer.said() == REPLAYED).count();
    assert_eq!((ran, replayed, bodies.len(), bed.ledger.count("order")), (1, 7, 1, 2), "{answers:?}");
}

async fn unknown_outcome_lasts_until_the_interval_ends<F: WebFramework>() {
    let bed = Bed::new::<F>();
    let ask = |path: &str| send(bed.post(path).header(STATUS, 504).body("tea"));
    for (path, first) in [("/it", "504 unknown"), ("/panic", "500 internal")] {
        assert_eq!(ask(path).await.said(), first);
        for wait in [Duration::ZERO, MINUTE - MILLISECOND] {
            bed.clock.advance(wait);
            let again = ask(path).await;
            assert_eq!(again.said(), "409 outcome_unknown", "{path}");
        }
        bed.clock.advance(MILLISECOND);
        assert_eq!(ask(path).await.said(), first, "{path}");
    }
    assert_eq!(bed.ledger.count("order"), 4);
}

async fn subjects_and_contents_do_not_share_a_response<F: WebFramework>() {
    let bed = Bed::new::<F>();
    let mut bodies = HashSet::new();
    for said in [RAN, REPLAYED] {
        for (user, content) in [("alice", "tea"), ("bob", "tea"), ("alice", "coffee"), ("bob", "")] {
            let answer = send(plainly(&bed.served.url, "/it", "order").header(USER, user).body(content)).await;
            assert_eq!(answer.said(), said, "{user} {content}");
            bodies.insert(answer.body);
        }
    }
    assert_eq!((bodies.len(), bed.ledger.runs().len()), (4, 4));
}

async fn named_interval_rejects_other_content_under_its_name<F: WebFramework>() {
    let name = |protect: Protect<F, RememberedIntervalPolicy>| protect.from(KeyFrom::header(ORDER).unwrap());
    let bed = Bed::changed::<F, _>(every(MINUTE), name);
    let ask = async |order: &str, body: &'static str| {
        send(plainly(&bed.served.url, "/it", order).header(USER, "alice").body(body)).await
    };
    let first = ask("1", "tea").await;
    let again = ask("1", "tea").await;
    assert_eq!((first.said().as_str(), again.said().as_str(), &first.body), (RAN, REPLAYED, &again.body));
    assert_eq!(ask("1", "coffee").await.said(), "422 key_reused");
    assert_eq!(ask("2", "coffee").await.said(), RAN);
    let unnamed = http().post(format!("{}/it", bed.served.url)).header(USER, "alice").body("tea");
    assert_eq!(send(unnamed).await.said(), "400 key_missing");
}

async fn selected_fields_decide_which_requests_share_a_response<F: WebFramework>() {
    let fields = |protect: Protect<F, RememberedIntervalPolicy>| protect.fingerprint(Fields::only(["/n"]).unwrap());
    let bed = Bed::changed::<F, _>(every(MINUTE), fields);
    let ask = async |body: &'static str| {
        send(bed.post("/it").header("content-type", "application/json").body(body)).await.said()
    };
    assert_eq!(ask(r#"{"n":1,"sent_at":1}"#).await, RAN);
    assert_eq!(ask(r#"{"n":1,"sent_at":2}"#).await, REPLAYED);
    assert_eq!(ask(r#"{"n":2,"sent_at":2}"#).await, RAN);
}

async fn large_response_and_large_request_are_not_replayed<F: WebFramework>() {
    let bed = Bed::changed::<F, _>(every(MINUTE).reply_limit(1_000), |protect| protect.body_limit(1_000));
    let ask = |size: usize| send(bed.post("/it").header(SIZE, size).body("tea"));
    assert_eq!(ask(2_000).await.said(), RAN);
    assert_eq!(ask(2_000).await.said(), "409 reply_not_kept");
    bed.clock.advance(MINUTE);
    assert_eq!(ask(2_000).await.said(), RAN);
    assert_eq!(send(bed.post("/it").body(vec![b'x'; 2_000])).await.said(), "413 body_too_large");
}

async fn look_returns_the_stored_response<F: WebFramework>() {
    let bed = Bed::new::<F>();
    let look = || send(bed.post("/it").header("onceward-look", "true").body("tea"));
    assert_eq!(look().await.said(), "404 not_found");
    let first = bed.ask().await;
    let looked = look().await;
    assert_eq!((looked.said().as_str(), looked.body), (REPLAYED, first.body));
    assert_eq!(bed.ledger.runs().len(), 1);
}

/// The rules may say `remember` themselves, and `Protection` builds the same middleware as `Protect`.
async fn rules_that_remember_replay_from_every_constructor<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let rules = || every(MINUTE).remember();
    let constructed = [
        Protect::<F, IntervalPolicy>::interval(&guard, user::<F>(), rules()).into_any(),
        Protection::<F>::new(&guard, user::<F>()).interval(rules()).into_any(),
        Protection::<F>::new(&guard, user::<F>()).interval(every(MINUTE)).remember().into_any(),
    ];
    let paths = ["/protect", "/protection", "/remember"];
    let routes = constructed
        .into_iter()
        .zip(paths)
        .fold(Routes::new(), |routes, (protect, path)| routes.any(path, protect, Handler::of_body(purchase)));
    let served = F::serve(&ledger, routes);
    for path in paths {
        let ask = || plainly(&served.url, path, path).header(USER, "alice").header(TAKES, 300).body("tea");
        let runs = ledger.count("begun");
        let slow = tokio::spawn(send(ask()));
        until("it has begun", LONG, || async { ledger.count("begun") == runs + 1 }).await;
        let beside = send(ask()).await;
        let first = slow.await.unwrap();
        assert_eq!((first.said().as_str(), beside.said().as_str()), (RAN, REPLAYED), "{path}");
        let again = send(ask()).await;
        assert_eq!((again.said().as_str(), &again.body, &beside.body), (REPLAYED, &first.body, &first.body), "{path}");
        assert_eq!(ledger.count(path), 1);
    }
}

/// Bodies over the limit have one fingerprint. Without a name, they would be one request.
async fn large_bodies_never_share_a_response<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let of = |rules| Protect::<F, IntervalPolicy>::interval(&guard, user::<F>(), rules).body_limit(1_000);
    let named = of(every(MINUTE)).remember().from(KeyFrom::header(ORDER).unwrap()).skip_large_bodies();
    let routes = Routes::new()
        .any("/remembered", of(every(MINUTE).remember()).skip_large_bodies(), Handler::of_body(purchase))
        .any("/plain", of(every(MINUTE)).skip_large_bodies(), Handler::of_body(purchase))
        .any("/named", named, Handler::of_body(purchase));
    let served = F::serve(&ledger, routes);
    let ask = async |path: &str, order: &str, body: &str| {
        send(plainly(&served.url, path, order).header(USER, "alice").body(body.repeat(2_000))).await.said()
    };
    for body in ["x", "y"] {
        assert_eq!(ask("/remembered", body, body).await, "413 body_too_large");
        assert_eq!(ask("/named", body, body).await, RAN);
    }
    // Without a stored response, only time is lost.
    assert_eq!([ask("/plain", "p", "x").await, ask("/plain", "q", "y").await], [RAN, "409 too_soon"]);
    assert_eq!(ledger.runs(), ["x", "y", "p"]);
}

async fn short_interval_lasts_a_second_after_its_run<F: WebFramework>() {
    for interval in [MILLISECOND, Duration::from_millis(500), Duration::from_millis(1_500)] {
        let bed = Bed::changed::<F, _>(every(interval), |protect| protect);
        let (end, unknown) = (interval.max(Duration::from_secs(1)), || send(bed.post("/panic").body("tea")));
        assert_eq!((bed.ask().await.said().as_str(), unknown().await.status), (RAN, 500));
        // The outcome of a panic is written in the background.
        let look = || send(bed.post("/panic").header(header::LOOK, "true").body("tea"));
        until("the outcome is stored", LONG, async || look().await.outcome == "outcome_unknown").await;
        bed.clock.advance(end - MILLISECOND);
        assert_eq!(bed.ask().await.said(), REPLAYED, "{interval:?}");
        assert_eq!(unknown().await.said(), "409 outcome_unknown", "{interval:?}");
        bed.clock.advance(MILLISECOND);
        assert_eq!((bed.ask().await.said().as_str(), unknown().await.status), (RAN, 500), "{interval:?}");
    }
}

async fn failed_store_rejects_unless_the_interval_fails_open<F: WebFramework>() {
    let (store, ledger) = (FailingStore::new(Memory::new()), Ledger::new());
    let guard = Guard::new(store.clone());
    let of = |rules: IntervalRules| Protect::<F, IntervalPolicy>::interval(&guard, user::<F>(), rules.remember());
    let routes = Routes::new().any("/closed", of(every(MINUTE)), Handler::of_body(purchase)).any(
        "/open",
        of(every(MINUTE).fail_open()),
        Handler::of_body(purchase),
    );
    let served = F::serve(&ledger, routes);
    let ask = async |path: &str, body: &'static str| {
        let answer = send(plainly(&served.url, path, path).header(USER, "alice").body(body)).await;
        (answer.said(), answer.body)
    };
    let stored = [ask("/closed", "tea").await, ask("/open", "tea").await];
    assert!(stored.iter().all(|(said, _)| said == RAN), "{stored:?}");

    store.fail_not_executed();
    for body in ["tea", "milk"] {
        assert_eq!(ask("/closed", body).await.0, "503 store_unavailable");
        assert_eq!(ask("/open", body).await.0, "200 unprotected");
    }
    assert_eq!((guard.let_through(), ledger.count("/closed"), ledger.count("/open")), (2, 1, 3));

    store.recover();
    for (path, (_, body)) in ["/closed", "/open"].into_iter().zip(stored) {
        assert_eq!(ask(path, "tea").await, (REPLAYED.to_owned(), body), "the response from before the failure");
        assert_eq!(ask(path, "milk").await.0, RAN, "nothing was stored during the failure");
    }
}

/// Races for ten contents.
async fn race(urls: [&str; 2], ledger: &Ledger) {
    let client = http();
    for number in 0..10 {
        let mut racers = JoinSet::new();
        for racer in 0..30 {
            let request = client.post(format!("{}/spaced/remembered", urls[racer % 2])).header(USER, "alice");
            let request = request.header(ORDER, number).header(TAKES, 30).body(number.to_string());
            racers.spawn(at_last(request));
        }
        let answers = racers.join_all().await;
        let ran = answers.iter().filter(|answer| answer.said() == RAN).count();
        let replayed = answers.iter().filter(|answer| answer.said() == REPLAYED).count();
        let bodies: HashSet<_> = answers.iter().map(|answer| answer.body.clone()).collect();
        assert_eq!((ran, replayed, bodies.len(), ledger.count(&number.to_string())), (1, 29, 1, 1), "{answers:?}");
    }
}

async fn concurrent_duplicates_on_two_processes_receive_one_response<F: WebFramework>() {
    let pair = Pair::start(PEER, &F::peer("onceward")).await;
    race([pair.one(), pair.other()], &pair.ledger).await;
}

async fn concurrent_duplicates_on_one_process_receive_one_response<F: WebFramework>() {
    let ledger = Ledger::new();
    let peer = Peer::start(PEER, &F::peer("onceward"), "memory:", &ledger);
    race([&peer.url; 2], &ledger).await;
}

async fn concurrent_duplicates_on_two_processes_and_sqlite_receive_one_response<F: WebFramework>() {
    let (file, ledger) = (Sqlite::with("").await, Ledger::new());
    Sql::migrate(&file.url()).await.unwrap();
    let peers = [(); 2].map(|()| Peer::start(PEER, &F::peer("onceward"), &file.url(), &ledger));
    race([&peers[0].url, &peers[1].url], &ledger).await;
}

async fn owner_that_crashed_keeps_the_interval_until_its_end<F: WebFramework>() {
    let mut pair = Pair::start(PEER, &F::peer("onceward")).await;
    let path = "/spaced/remembered/brief";
    let ask = |url: &str, order: &str| plainly(url, path, order).header(USER, "alice").body("tea");
    let lost = ask(pair.one(), "lost").header(TAKES, 60_000);
    let lost = tokio::spawn(async move { lost.send().await });
    pair.begun(1).await;
    pair.peers[0].kill();
    assert!(lost.await.unwrap().is_err());
    assert_eq!(send(ask(pair.other(), "early")).await.said(), "409 in_progress");
    let next = || async { send(ask(pair.other(), "next")).await.said() == RAN };
    until("the interval has ended", LONG, next).await;
    assert_eq!((pair.ledger.count("early"), pair.ledger.count("next")), (0, 1));
    assert_eq!(send(ask(pair.other(), "next")).await.said(), REPLAYED);
}

#[tokio::test]
async fn function_runs_once_per_interval_and_returns_its_value() {
    let (guard, clock) = testing::guard();
    let policy = Policy::interval(every(MINUTE).remember());
    let name = Key::new("daily-report").unwrap();
    let intent = Intent::new("report", Subject::anonymous()).key(&name);
    let run = async |value: u32| guard.run(&policy, &intent, || async move { Ok::<_, std::io::Error>(value) }).await;
    assert_eq!(run(1).await.unwrap(), RunOutcome::Executed(1));
    assert_eq!(run(2).await.unwrap(), RunOutcome::Replayed(1));
    clock.advance(MINUTE);
    assert_eq!(run(3).await.unwrap(), RunOutcome::Executed(3));
}

/// The last call decides: a lock stores no reply.
#[tokio::test]
async fn lock_and_stored_reply_replace_each_other() {
    let (guard, _clock) = testing::guard();
    for (rules, expected) in [
        (every(MINUTE).remember().release_always(), Code::Locked),
        (every(MINUTE).release_always().remember(), Code::InProgress),
        (every(MINUTE), Code::TooSoon),
    ] {
        let (policy, action) = (Policy::interval(rules), expected.as_str());
        let intent = Intent::new(action, Subject::anonymous());
        let Ok(Verdict::Run(_pass)) = guard.check(&policy, &intent).await else { panic!("the interval is free") };
        let Ok(Verdict::Reject(rejection)) = guard.check(&policy, &intent).await else { panic!("a run is in flight") };
        assert_eq!(rejection.code(), expected);
    }
}

/// An operator settles a run whose outcome is unknown: its reply is replayed until the interval ends, and not for the retention of a key.
#[tokio::test]
async fn settled_reply_expires_with_its_interval() {
    let (guard, clock) = testing::guard();
    let policy = Policy::interval(every(MINUTE).remember());
    let intent = Intent::new("job", Subject::anonymous());
    let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("the interval is free") };
    let ticket = pass.ticket();
    clock.advance(MINUTE / 2);
    pass.unknown().await.unwrap();
    let (rules, reply) = (KeyRules::at_most_once(), Some(Reply::new(201, "made")));
    let settled = guard.settle_ticket(&rules, ticket, None, Effect::Applied, reply).await.unwrap();
    assert_eq!(settled, Settled::Final);
    clock.advance(MINUTE / 2 - MILLISECOND);
    assert!(matches!(guard.check(&policy, &intent).await, Ok(Verdict::Replay(reply)) if reply.status() == 201));
    clock.advance(MILLISECOND);
    assert!(matches!(guard.check(&policy, &intent).await, Ok(Verdict::Run(_))));
}

/// A backend settles the run with a signed pass, at another process.
#[tokio::test]
async fn signed_pass_stores_the_reply_until_the_interval_ends() {
    let (guard, clock) = testing::guard();
    let policy = Policy::interval(every(MINUTE).remember());
    let intent = Intent::new("job", Subject::anonymous());
    for (elapsed, left) in [(MINUTE / 3, MINUTE * 2 / 3), (MINUTE * 2, Duration::from_secs(1))] {
        let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("the interval is free") };
        let signed = pass.into_signed().await.unwrap().unwrap();
        let mut waited = Duration::ZERO;
        while waited < elapsed {
            assert!(guard.open_pass(&signed).await.unwrap().unwrap().renew().await.unwrap());
            clock.advance(MINUTE / 3);
            waited += MINUTE / 3;
        }
        let opened = guard.open_pass(&signed).await.unwrap().unwrap();
        for _ in 0..2 {
            assert_eq!(opened.complete(Some(Reply::new(201, "made"))).await.unwrap(), Settled::Final);
        }
        clock.advance(left - MILLISECOND);
        assert!(matches!(guard.check(&policy, &intent).await, Ok(Verdict::Replay(_))), "after {elapsed:?}");
        clock.advance(MILLISECOND);
        // The interval has ended, and a late retry of the completion does not bring its reply back.
        assert_eq!(opened.complete(Some(Reply::new(201, "made"))).await.unwrap(), Settled::Final);
        let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("the interval has ended") };
        pass.release().await.unwrap();
    }
}
