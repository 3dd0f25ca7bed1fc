//! Intervals accept at most one equivalent request per subject and interval; locks accept one at a time.
//!
//! The test of two clocks, without HTTP, runs once: it tests the engine, not an adapter.

use std::sync::Arc;
use std::time::Duration;

use onceward::http::protect::IntervalPolicy;
use onceward::http::{KeySource as KeyFrom, Protect, SubjectSource as SubjectFrom};
use onceward::store::{Memory, Redis};
use onceward::{Effect, Fields, Guard, Intent, IntervalRules, ManualClock, Policy, Secret, Subject, Verdict};
use onceward_api::{Code, Retry};
use onceward_tests::client::{Answer, at_last, http, ran, send};
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::handler::Handler;
use onceward_tests::interval_routes::{HALF, every, plainly};
use onceward_tests::key_routes::{Pair, serve_one};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::until;
use onceward_tests::redis_server::{CompareCommands, RedisServer};
use onceward_tests::routes::Routes;
use onceward_tests::shop::{ORDER, STATUS, TAKES, TestServer, USER};
use onceward_tests::shop_handlers::{panics, purchase};
use onceward_tests::web_framework::WebFramework;
use reqwest::{Method, RequestBuilder};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::PEER;
use crate::tokens::remembered::sent;

on_every_framework! {
    duplicate_is_rejected_for_the_interval_and_then_runs,
    slow_handler_does_not_extend_its_interval,
    interval_ends_with_a_handler_that_outlives_it,
    interval_may_have_the_maximum_duration,
    duplicate_receives_the_message_without_retry_after,
    lock_rejection_has_retry_after_and_message,
    different_paths_methods_queries_and_bodies_are_independent,
    subjects_behind_one_address_are_independent,
    failure_releases_the_interval_and_success_keeps_it,
    corrected_request_runs_within_the_interval,
    panicked_handler_keeps_its_interval,
    lock_is_free_after_every_outcome,
    lock_ignores_content_and_requires_its_key,
    lock_holds_across_processes_with_different_secrets,
    interval_by_key_accepts_bodies_of_any_size,
    lock_is_free_after_a_panic,
    lock_of_a_killed_process_expires_after_its_interval (threads),
    late_owner_does_not_release_its_successor_s_claim (threads),
    concurrent_duplicates_on_two_processes_run_once (threads),
    interval_needs_one_command_or_two_if_short,
    interval_below_the_minimum_claim_keeps_its_length,
    handler_keeps_a_short_interval_until_it_ends,
    large_body_is_rejected_or_not_compared,
    only_fingerprint_fields_are_compared,
    unavailable_store_rejects_unless_the_route_fails_open,
    unreadable_record_rejects_even_with_fail_open,
    retry_after_a_lost_store_reply_runs (threads),
    interval_holds_across_processes_with_different_secrets,
}

const LONG: Duration = Duration::from_secs(10);
/// Pause between two requests.
const MOMENT: Duration = Duration::from_millis(20);
const MINUTE: Duration = Duration::from_secs(60);
const RAN: &str = "200 executed";
const TOO_SOON: &str = "409 too_soon";
const LOCKED: &str = "429 locked";

/// A server with a manual clock.
struct Bed {
    clock: ManualClock,
    served: TestServer,
    ledger: Ledger,
}

impl Bed {
    fn with<F: WebFramework>(rules: IntervalRules) -> Self {
        Self::changed::<F, _>(rules, |protect| protect)
    }

    fn changed<F: WebFramework, P>(
        rules: IntervalRules,
        change: impl FnOnce(Protect<F, IntervalPolicy>) -> Protect<F, P>,
    ) -> Self {
        let (clock, ledger) = (ManualClock::new(), Ledger::new());
        let guard = Guard::builder(Memory::with_clock((&clock).into())).clock((&clock).into()).build();
        let protect = change(Protect::<F, _>::interval(&guard, SubjectFrom::anonymous(), rules));
        let routes = Routes::new()
            .any("/it", protect.clone(), Handler::of_body(purchase))
            .any("/panic", protect.clone(), Handler::of_head(panics))
            .any("/items/{id}", protect, Handler::of_body(purchase));
        Self { clock, served: F::serve(&ledger, routes), ledger }
    }

    fn post(&self, path: &str) -> RequestBuilder {
        plainly(&self.served.url, path, "order")
    }

    async fn ask(&self) -> Answer {
        send(self.post("/it").body("tea")).await
    }
}

async fn duplicate_is_rejected_for_the_interval_and_then_runs<F: WebFramework>() {
    let bed = Bed::with::<F>(IntervalRules::new());
    assert_eq!(bed.ask().await.said(), RAN);
    for wait in [0, 499, 500] {
        bed.clock.advance(Duration::from_millis(wait));
        let early = bed.ask().await;
        assert_eq!((early.said().as_str(), early.problem().retry), (TOO_SOON, Retry::No));
        assert_eq!(early.headers.get("retry-after"), None, "a client that waited for it would run the duplicate");
        assert_eq!(early.headers["cache-control"], "no-store");
    }
    bed.clock.advance(Duration::from_millis(1));
    assert_eq!(bed.ask().await.said(), RAN, "the interval of a second has expired");
    assert_eq!(bed.ask().await.said(), TOO_SOON, "the next interval has begun");
    assert_eq!(bed.ledger.runs().len(), 2);
}

/// The claim is renewed before the handler ends, but the interval still counts from its start.
async fn slow_handler_does_not_extend_its_interval<F: WebFramework>() {
    let bed = Bed::with::<F>(every(MINUTE));
    let slow = tokio::spawn(send(bed.post("/it").header(TAKES, 300).body("tea")));
    until("it has begun", LONG, || async { bed.ledger.count("begun") == 1 }).await;
    bed.clock.advance(Duration::from_secs(50));
    assert_eq!(bed.ask().await.said(), TOO_SOON);
    assert_eq!(slow.await.unwrap().said(), RAN);
    bed.clock.advance(Duration::from_millis(9_999));
    assert_eq!(bed.ask().await.said(), TOO_SOON);
    bed.clock.advance(Duration::from_millis(1));
    assert_eq!(bed.ask().await.said(), RAN, "the interval of a minute has expired");
}

/// When the handler ends, the interval has expired, although the claim was just renewed.
async fn interval_ends_with_a_handler_that_outlives_it<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    for takes in [900, 0] {
        let answer = send(plainly(shop.url(), "/spaced/half", "order").header(TAKES, takes)).await;
        assert_eq!(answer.said(), RAN, "handler of {takes} ms");
    }
}

/// Two processes with different clocks on one store.
#[tokio::test]
async fn retry_after_of_a_lock_never_exceeds_its_interval() {
    let store = Arc::new(Memory::new());
    let (early, late) = (ManualClock::new(), ManualClock::new());
    late.advance(MINUTE * 60);
    let [early, late] = [early, late].map(|clock| Guard::builder(Arc::clone(&store)).clock((&clock).into()).build());
    let policy = Policy::interval(every(MINUTE).release_always());
    let intent = Intent::new("job", Subject::anonymous());
    let Ok(Verdict::Run(pass)) = late.check(&policy, &intent).await else { panic!("the lock is free") };
    let Ok(Verdict::Reject(rejection)) = early.check(&policy, &intent).await else { panic!("the lock is held") };
    assert_eq!((rejection.code(), rejection.retry_after()), (Code::Locked, Some(MINUTE)));
    pass.release().await.unwrap();
}

async fn interval_may_have_the_maximum_duration<F: WebFramework>() {
    let bed = Bed::with::<F>(every(Duration::MAX));
    assert_eq!([bed.ask().await.said(), bed.ask().await.said()], [RAN, TOO_SOON]);
}

async fn duplicate_receives_the_message_without_retry_after<F: WebFramework>() {
    let says = "One such order a minute is enough.";
    // With a key in place of the content, the second request is a duplicate too.
    let named = |protect: Protect<F, IntervalPolicy>| protect.from(KeyFrom::header(ORDER).unwrap());
    for bed in [Bed::with::<F>(every(MINUTE).message(says)), Bed::changed::<F, _>(every(MINUTE).message(says), named)] {
        assert_eq!(bed.ask().await.said(), RAN);
        for wait in [0, 100, 900, 58_500] {
            bed.clock.advance(Duration::from_millis(wait));
            let early = bed.ask().await;
            assert_eq!((early.said().as_str(), early.problem().retry), (TOO_SOON, Retry::No));
            assert_eq!((early.headers.get("retry-after"), early.problem().detail.as_str()), (None, says));
        }
        let page = send(bed.post("/it").header("accept", "text/html").body("tea")).await;
        let page = String::from_utf8_lossy(&page.body).into_owned();
        assert!(page.contains(says) && !page.contains("again"), "{page}");
        assert_eq!(bed.ledger.runs().len(), 1);
    }
}

async fn lock_rejection_has_retry_after_and_message<F: WebFramework>() {
    let bed = Bed::with::<F>(every(MINUTE).release_always().message("One such order at a time is enough."));
    let first = tokio::spawn(send(bed.post("/it").header(TAKES, 500).body("tea")));
    until("it has begun", LONG, || async { bed.ledger.count("begun") == 1 }).await;
    for (wait, seconds) in [(0, "60"), (100, "60"), (900, "59"), (38_500, "21")] {
        bed.clock.advance(Duration::from_millis(wait));
        let early = bed.ask().await;
        assert_eq!((early.said().as_str(), early.problem().retry), (LOCKED, Retry::Same));
        assert_eq!(early.headers["retry-after"], seconds);
        assert_eq!(early.problem().detail, "One such order at a time is enough.");
    }
    assert_eq!(first.await.unwrap().said(), RAN);
}

async fn different_paths_methods_queries_and_bodies_are_independent<F: WebFramework>() {
    let bed = Bed::with::<F>(every(MINUTE));
    let ask = |method: Method, path: &str, kind: &str, body: &'static str| {
        let url = format!("{}{path}", bed.served.url);
        http().request(method, url).header("content-type", kind).header(ORDER, "order").body(body)
    };
    let (json, text) = ("application/json", "text/plain");
    let all = [
        (Method::POST, "/it", json, r#"{"n":1}"#),
        (Method::PUT, "/it", json, r#"{"n":1}"#),
        (Method::PATCH, "/it", json, r#"{"n":1}"#),
        (Method::DELETE, "/it", json, r#"{"n":1}"#),
        (Method::POST, "/it?n=1", json, r#"{"n":1}"#),
        (Method::POST, "/it", json, r#"{"n":2}"#),
        (Method::POST, "/it", json, r#"{"n":"1"}"#),
        (Method::POST, "/it", text, r#"{"n":1}"#),
        (Method::POST, "/it", text, ""),
        (Method::POST, "/items/1", json, r#"{"n":1}"#),
        (Method::POST, "/items/2", json, r#"{"n":1}"#),
    ];
    for said in [RAN, TOO_SOON] {
        for (method, path, kind, body) in all.clone() {
            let answer = send(ask(method.clone(), path, kind, body)).await;
            assert_eq!(answer.said(), said, "{method} {path} {kind} {body}");
        }
    }
    let spaces = send(ask(Method::POST, "/it", json, "{ \"n\" : 1 }")).await;
    assert_eq!(spaces.said(), TOO_SOON, "white space does not matter");
    assert_eq!(bed.ledger.runs().len(), all.len());
}

async fn subjects_behind_one_address_are_independent<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let ask = async |user: &str| send(plainly(shop.url(), "/spaced/mine", user).header(USER, user).body("tea")).await;
    for user in ["alice", "bob", "carol"] {
        assert_eq!([ask(user).await.said(), ask(user).await.said()], [RAN, TOO_SOON], "{user}");
    }
    assert_eq!(send(plainly(shop.url(), "/spaced/mine", "anonymous").body("tea")).await.said(), "401 unauthorized");
    assert_eq!(shop.ledger.runs(), ["alice", "bob", "carol"]);
}

async fn failure_releases_the_interval_and_success_keeps_it<F: WebFramework>() {
    let bed = Bed::with::<F>(every(MINUTE));
    for status in (200..600).filter(|status| status % 7 == 0 || [422, 500, 501, 502, 503, 504].contains(status)) {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let url = format!("{}/it", bed.served.url);
        let ask = || client.post(&url).header(STATUS, status).header(ORDER, status).body(status.to_string());
        let effect = match status {
            200..400 => Effect::Applied,
            400..=501 | 503 => Effect::NotApplied,
            _ => Effect::Unknown,
        };
        assert_eq!(send(ask()).await.said(), ran(status, effect));
        let is_free = effect == Effect::NotApplied;
        let then = if is_free { ran(status, effect) } else { TOO_SOON.to_owned() };
        assert_eq!(send(ask()).await.said(), then, "{status}");
        assert_eq!(bed.ledger.count(&status.to_string()), 1 + usize::from(is_free));
    }
}

async fn corrected_request_runs_within_the_interval<F: WebFramework>() {
    let bed = Bed::with::<F>(every(MINUTE));
    let mistaken = || send(bed.post("/it").header(STATUS, 422).body("te"));
    assert_eq!(mistaken().await.said(), "422 not_applied");
    assert_eq!(mistaken().await.said(), "422 not_applied", "also without a correction");
    assert_eq!(bed.ask().await.said(), RAN);
    assert_eq!(bed.ask().await.said(), TOO_SOON);
}

async fn panicked_handler_keeps_its_interval<F: WebFramework>() {
    let bed = Bed::with::<F>(IntervalRules::new());
    let ask = || send(bed.post("/panic"));
    assert_eq!(ask().await.said(), "500 internal");
    assert_eq!(ask().await.said(), TOO_SOON);
    bed.clock.advance(Duration::from_secs(1));
    assert_eq!(ask().await.said(), "500 internal");
    assert_eq!(bed.ledger.runs().len(), 2);
}

async fn lock_is_free_after_every_outcome<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let ask = |id: &str, order: &str| plainly(shop.url(), &format!("/spaced/locked/{id}"), order);
    let ends =
        [(200, "executed"), (422, "not_applied"), (500, "not_applied"), (504, "unknown")].into_iter().enumerate();
    for (at, (status, outcome)) in ends {
        let name = format!("first-{status}");
        // Longer than its interval.
        let first = tokio::spawn(send(ask("7", &name).header(TAKES, 900).header(STATUS, status).body("tea")));
        until("it has begun", LONG, || async { shop.ledger.count("begun") == at + 1 }).await;
        while shop.ledger.count(&name) == 0 {
            let beside = send(ask("7", "beside").body("another tea")).await;
            // The first may have just ended, and then this one runs.
            assert!(beside.said() == LOCKED || shop.ledger.count(&name) == 1, "{}", beside.said());
            sleep(MOMENT).await;
        }
        assert_eq!(first.await.unwrap().said(), format!("{status} {outcome}"));
        for _ in 0..3 {
            assert_eq!(send(ask("7", "after").body("tea")).await.said(), RAN, "after {status}");
        }
    }
    let first = tokio::spawn(send(ask("8", "first").header(TAKES, 300)));
    until("it has begun", LONG, || async { shop.ledger.count("begun") == 5 }).await;
    assert_eq!(send(ask("9", "another")).await.said(), RAN, "another key");
    assert_eq!(send(ask("8", "beside")).await.said(), LOCKED);
    assert_eq!(first.await.unwrap().said(), RAN);
}

async fn lock_ignores_content_and_requires_its_key<F: WebFramework>() {
    let bed = Bed::changed::<F, _>(every(MINUTE).release_always(), |protect| {
        protect.action("settle-account").from(KeyFrom::header("x-account").unwrap())
    });
    let ask = |path: &str, account: &str| bed.post(path).header("x-account", account);
    let first = tokio::spawn(send(ask("/it", "1").header(TAKES, 300)));
    until("it has begun", LONG, || async { bed.ledger.count("begun") == 1 }).await;
    assert_eq!(send(ask("/items/5?x=1", "1").body("anything")).await.said(), LOCKED);
    assert_eq!(send(ask("/items/5", "2")).await.said(), RAN);
    assert_eq!(send(bed.post("/it")).await.said(), "400 key_missing");
    assert_eq!(first.await.unwrap().said(), RAN);
    assert_eq!(send(ask("/items/5", "1")).await.said(), RAN);
}

/// During a secret rotation, some processes sign with the new secret and others with the old one.
async fn lock_holds_across_processes_with_different_secrets<F: WebFramework>() {
    let (clock, ledger) = (ManualClock::new(), Ledger::new());
    let store = Arc::new(Memory::with_clock((&clock).into()));
    let [old, new] = ["the old secret of all", "the new secret of all"].map(|text| Secret::new(text).unwrap());
    let beds = [(&old, &new), (&new, &old)].map(|(first, second)| {
        let builder = Guard::builder(Arc::clone(&store)).clock((&clock).into());
        let guard = builder.secret(first.clone()).secret_previous(second.clone()).build();
        let rules = every(MINUTE).release_always();
        let protect = Protect::<F, _>::interval(&guard, SubjectFrom::anonymous(), rules)
            .from(KeyFrom::header("x-account").unwrap());
        serve_one(&ledger, protect)
    });
    let ask = |at: usize| plainly(&beds[at].url, "/it", "order").header("x-account", "1");
    let first = tokio::spawn(send(ask(0).header(TAKES, 500)));
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    assert_eq!(send(ask(1)).await.said(), LOCKED);
    assert_eq!(first.await.unwrap().said(), RAN);
    assert_eq!(send(ask(1)).await.said(), RAN);
}

/// The body is not compared, so the guard does not read it.
async fn interval_by_key_accepts_bodies_of_any_size<F: WebFramework>() {
    let name =
        |protect: Protect<F, IntervalPolicy>| protect.from(KeyFrom::header("x-account").unwrap()).body_limit(1_000);
    let bed = Bed::changed::<F, _>(every(MINUTE), name);
    let ask = |account: &str, size: usize| bed.post("/it").header("x-account", account).body(vec![b'x'; size]);
    assert_eq!(send(ask("1", 2_000)).await.said(), RAN);
    assert_eq!(send(ask("1", 3_000)).await.said(), TOO_SOON);
    assert_eq!(send(ask("2", 3_000)).await.said(), RAN);
    assert_eq!(send(bed.post("/it").body(vec![b'x'; 2_000])).await.said(), "400 key_missing");
    assert_eq!(bed.ledger.runs().len(), 2);
}

async fn lock_is_free_after_a_panic<F: WebFramework>() {
    let bed = Bed::with::<F>(every(MINUTE).release_always());
    let ask = || send(bed.post("/panic"));
    assert_eq!(ask().await.said(), "500 internal");
    until("the lock is free", Duration::from_secs(2), || async { ask().await.said() == "500 internal" }).await;
    assert_eq!(bed.ledger.runs().len(), 2);
}

/// Reply of `PTTL` for a missing key.
const GONE: i64 = -2;

/// Returns the longest PTTL of all claims in milliseconds.
fn life(redis: &RedisServer) -> i64 {
    let names: Vec<_> = redis.keys().into_iter().filter(|name| !name.contains(":secret:")).collect();
    names.iter().map(|name| redis.ask::<i64>(&format!("PTTL {name}"))).max().unwrap_or(GONE)
}

async fn lock_of_a_killed_process_expires_after_its_interval<F: WebFramework>() {
    let mut pair = Pair::start(PEER, &F::peer("onceward")).await;
    let path = "/spaced/locked/1";
    let lost = plainly(pair.one(), path, "lost").header(TAKES, 60_000);
    let lost = tokio::spawn(async move { lost.send().await });
    pair.begun(1).await;
    // A live process renews its lock.
    let end = Instant::now() + HALF * 3;
    while Instant::now() < end {
        assert_eq!(send(plainly(pair.other(), path, "early")).await.said(), LOCKED);
    }
    pair.peers[0].kill();
    let left = life(&pair.redis);
    assert!(left == GONE || (1..=HALF.as_millis() as i64).contains(&left), "it expires in {left} ms");
    assert!(lost.await.unwrap().is_err());
    until("the lock is free", LONG, || async { send(plainly(pair.other(), path, "next")).await.said() == RAN }).await;
    assert_eq!((pair.ledger.count("early"), pair.ledger.count("next")), (0, 1));
}

/// A process that was paused for longer than its interval resumes, and settles the claim that its successor owns by now.
async fn late_owner_scenario<F: WebFramework>(path: &str, status: u16, said: &str) {
    let pair = Pair::start(PEER, &F::peer("onceward")).await;
    let late = tokio::spawn(send(plainly(pair.one(), path, "late").header(TAKES, 200).header(STATUS, status)));
    pair.begun(1).await;
    pair.peers[0].freeze();
    let is_free = || async { pair.redis.keys().iter().all(|name| name.contains(":secret:")) };
    until("the interval expires", LONG, is_free).await;
    let successor = tokio::spawn(send(plainly(pair.other(), path, "successor").header(TAKES, 1_500)));
    pair.begun(2).await;
    pair.peers[0].thaw();
    assert_eq!(late.await.unwrap().status, status);
    let third = send(plainly(pair.other(), path, "third")).await;
    assert!(!successor.is_finished(), "the third request was in time");
    assert_eq!(third.said(), said, "while the successor runs, after {status}");
    assert_eq!(successor.await.unwrap().said(), RAN);
    assert_eq!(pair.ledger.count("third"), 0);
}

async fn late_owner_does_not_release_its_successor_s_claim<F: WebFramework>() {
    tokio::join!(
        late_owner_scenario::<F>("/spaced/half", 503, TOO_SOON),
        late_owner_scenario::<F>("/spaced/half", 200, TOO_SOON),
        late_owner_scenario::<F>("/spaced/locked/1", 200, LOCKED),
    );
}

async fn concurrent_duplicates_on_two_processes_run_once<F: WebFramework>() {
    let pair = Pair::start(PEER, &F::peer("onceward")).await;
    let client = http();
    for number in 0..10 {
        let mut racers = JoinSet::new();
        for racer in 0..40 {
            let url = [pair.one(), pair.other()][racer % 2];
            let request = client.post(format!("{url}/spaced/mine")).header(USER, "alice").body(number.to_string());
            let request = request.header(ORDER, number);
            racers.spawn(async move { at_last(request).await.said() });
        }
        let said = racers.join_all().await;
        let ran = said.iter().filter(|said| *said == RAN).count();
        assert_eq!((ran, pair.ledger.count(&number.to_string())), (1, 1), "{said:?}");
        assert!(said.iter().all(|said| [RAN, TOO_SOON].contains(&said.as_str())), "{said:?}");
    }
}

async fn interval_needs_one_command_or_two_if_short<F: WebFramework>() {
    let redis = RedisServer::start();
    let shop = F::shop(Redis::open(&redis.url()).unwrap().timeout(Duration::from_secs(5)));
    // Redis caches both scripts.
    for (status, path) in [(200, "/spaced/fifth"), (422, "/spaced/second")] {
        send(plainly(shop.url(), path, "").header(STATUS, status).body("warm")).await;
    }
    until("those intervals expire", LONG, || async { life(&redis) == GONE }).await;
    let CompareCommands { swap, remove } = redis.compare_commands();
    for (path, longest, status, first, second) in [
        ("/spaced/second", 1_000, 200, vec!["SET"], vec!["SET"]),
        ("/spaced/second", 0, 422, vec!["SET", remove], vec!["SET", remove]),
        ("/spaced/second", 1_000, 504, vec!["SET"], vec!["SET"]),
        ("/spaced/half", 500, 200, vec!["SET"], vec!["SET"]),
        ("/spaced/fifth", 200, 200, vec!["SET", swap], vec!["SET"]),
        ("/spaced/fifth", 0, 500, vec!["SET", remove], vec!["SET", remove]),
    ] {
        for expected in [first, second] {
            let monitor = redis.monitor();
            let answer = send(plainly(shop.url(), path, "a").header(STATUS, status)).await;
            assert_eq!(sent(&monitor), expected, "{path} {status}: {}", answer.said());
            let left = life(&redis);
            assert!(left == GONE || (1..=longest).contains(&left), "{path} {status}: {left} ms");
            for command in monitor.commands() {
                assert!(!command.contains("spaced"), "{command}");
            }
        }
        until("the interval expires", LONG, || async { life(&redis) == GONE }).await;
    }
}

async fn interval_below_the_minimum_claim_keeps_its_length<F: WebFramework>() {
    let redis = RedisServer::start();
    let shop = F::shop(Redis::open(&redis.url()).unwrap().timeout(Duration::from_secs(5)));
    let (path, fifth) = ("/spaced/fifth", Duration::from_millis(200));
    // The first use of a script is sent twice.
    send(plainly(shop.url(), path, "warm").body("warm")).await;
    let begun = Instant::now();
    assert_eq!(send(plainly(shop.url(), path, "effect")).await.said(), RAN);
    let left = life(&redis);
    assert!(left == GONE || (1..=fifth.as_millis() as i64).contains(&left), "it expires in {left} ms");
    loop {
        let again = send(plainly(shop.url(), path, "effect")).await;
        if again.said() == RAN {
            break;
        }
        assert_eq!(again.said(), TOO_SOON);
    }
    assert!(begun.elapsed() >= fifth, "it ran again after {:?}", begun.elapsed());
    assert_eq!(shop.ledger.count("effect"), 2);
}

async fn handler_keeps_a_short_interval_until_it_ends<F: WebFramework>() {
    let redis = RedisServer::start();
    let shop = F::shop(Redis::open(&redis.url()).unwrap().timeout(Duration::from_secs(5)));
    for (at, path) in ["/spaced/half", "/spaced/second"].into_iter().enumerate() {
        let slow = tokio::spawn(send(plainly(shop.url(), path, "slow").header(TAKES, 2_500)));
        until("it has begun", LONG, || async { shop.ledger.count("begun") == at + 1 }).await;
        while shop.ledger.count("slow") == at {
            let beside = send(plainly(shop.url(), path, "beside")).await;
            assert!(beside.said() == TOO_SOON || shop.ledger.count("slow") > at, "{path}: {}", beside.said());
            for name in redis.keys() {
                let life = redis.ask::<i64>(&format!("PTTL {name}"));
                assert!(life >= 0 || life == -2, "{name} has the PTTL {life}");
            }
            sleep(MOMENT).await;
        }
        assert_eq!(slow.await.unwrap().said(), RAN);
    }
}

/// Sends a body in these pieces, each in its own write.
async fn in_pieces(url: &str, pieces: &[&[u8]]) {
    let mut client = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
    client.set_nodelay(true).unwrap();
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    let head = format!("POST /it HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    for piece in pieces {
        client.write_all(piece).await.unwrap();
        sleep(MOMENT).await;
    }
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut client, &mut answer).await.unwrap();
}

async fn large_body_is_rejected_or_not_compared<F: WebFramework>() {
    let bed = Bed::changed::<F, _>(every(MINUTE), |protect| protect.body_limit(1_000));
    assert_eq!(send(bed.post("/it").body(vec![b'x'; 2_000])).await.said(), "413 body_too_large");

    let bed = Bed::changed::<F, _>(every(MINUTE), |protect| protect.body_limit(1_000).skip_large_bodies());
    let body = vec![b'x'; 4_000];
    in_pieces(&bed.served.url, &[&body[..900], &body[900..1_900], &body[1_900..]]).await;
    in_pieces(&bed.served.url, &[&body[..500], &body[500..1_500], &body[1_500..]]).await;
    in_pieces(&bed.served.url, &[&body[..]]).await;
    assert_eq!(bed.ledger.runs().len(), 1, "the same body three times");
    assert_eq!(send(bed.post("/it").body(vec![b'y'; 4_000])).await.said(), TOO_SOON, "a large body is not compared");
    assert_eq!(bed.ask().await.said(), RAN, "a small body is different content");
    assert_eq!(send(bed.post("/items/1").body(vec![b'x'; 4_000])).await.said(), RAN, "another path is another action");
}

async fn only_fingerprint_fields_are_compared<F: WebFramework>() {
    let bed =
        Bed::changed::<F, _>(every(MINUTE), |protect| protect.fingerprint(Fields::all_but(["/sent_at"]).unwrap()));
    let ask = async |body: &'static str| {
        send(bed.post("/it").header("content-type", "application/json").body(body)).await.said()
    };
    assert_eq!(ask(r#"{"n":1,"sent_at":1}"#).await, RAN);
    assert_eq!(ask(r#"{"n":1,"sent_at":2}"#).await, TOO_SOON);
    assert_eq!(ask(r#"{"n":2,"sent_at":2}"#).await, RAN);
}

async fn unavailable_store_rejects_unless_the_route_fails_open<F: WebFramework>() {
    let mut redis = RedisServer::start();
    let shop = F::shop(Redis::open(&redis.url()).unwrap());
    let ask = async |path: &str| send(plainly(shop.url(), path, path)).await;
    assert_eq!([ask("/spaced/open").await.said(), ask("/spaced/open").await.said()], [RAN, TOO_SOON]);
    assert_eq!(ask("/spaced/second").await.said(), RAN);
    assert_eq!(shop.guard.let_through(), 0);
    redis.kill();
    for _ in 0..2 {
        assert_eq!(ask("/spaced/open").await.said(), "200 unprotected");
        let closed = ask("/spaced/second").await;
        assert_eq!(
            (closed.said().as_str(), &closed.headers["retry-after"]),
            ("503 store_unavailable", &"1".parse().unwrap())
        );
    }
    assert_eq!((shop.ledger.count("/spaced/open"), shop.ledger.count("/spaced/second")), (3, 1));
    assert_eq!(shop.guard.let_through(), 2);
    redis.restart();
    until("the route is protected again", LONG, || async { ask("/spaced/open").await.said() == TOO_SOON }).await;

    // A guard that never reached its store.
    let nowhere = Guard::new(Redis::open("redis://127.0.0.1:1").unwrap());
    let ledger = Ledger::new();
    for (rules, said) in [(every(MINUTE).fail_open(), "200 unprotected"), (every(MINUTE), "503 store_unavailable")] {
        let served = serve_one(&ledger, Protect::<F, _>::interval(&nowhere, SubjectFrom::anonymous(), rules));
        assert_eq!(send(plainly(&served.url, "/it", "it")).await.said(), said);
    }
    assert_eq!(ledger.runs().len(), 1);
}

/// `fail_open` does not apply: the store replied, but with a record that only another version can read, as during a rolling update.
async fn unreadable_record_rejects_even_with_fail_open<F: WebFramework>() {
    let redis = RedisServer::start();
    let shop = F::shop(Redis::open(&redis.url()).unwrap());
    let ask = async || send(plainly(shop.url(), "/spaced/open", "order")).await.said();
    assert_eq!(ask().await, RAN);
    for name in redis.keys().iter().filter(|name| !name.contains(":secret:")) {
        redis.ask::<()>(&format!("SET {name} anything PX 60000"));
    }
    assert_eq!(ask().await, "503 store_unavailable");
    assert_eq!((shop.ledger.runs().len(), shop.guard.let_through()), (1, 0));
}

/// A request that was rejected because the reply of the store was lost is not a duplicate when it is retried.
async fn retry_after_a_lost_store_reply_runs<F: WebFramework>() {
    for fate in [TcpFault::LoseAnswer, TcpFault::SwallowAnswer, TcpFault::LoseRequest] {
        let redis = RedisServer::start();
        let proxy = Proxy::before(redis.port()).await;
        let guard = Guard::new(Redis::open(&proxy.url()).unwrap());
        let ledger = Ledger::new();
        let served = serve_one(&ledger, Protect::<F, _>::interval(&guard, SubjectFrom::anonymous(), every(MINUTE)));
        let ask = async |order: &str| send(plainly(&served.url, "/it", order).body(order.to_owned())).await.said();
        assert_eq!(ask("warm").await, RAN);
        proxy.next("SET\r\n", fate);
        assert_eq!(ask("effect").await, "503 store_unavailable");
        assert_eq!((proxy.struck(), ledger.count("effect")), (1, 0));
        until("the retry runs", Duration::from_secs(5), || async { ask("effect").await == RAN }).await;
        assert_eq!((ask("effect").await.as_str(), ledger.count("effect")), (TOO_SOON, 1));
    }
}

/// Requests are compared by content, independently of the secret of each process.
async fn interval_holds_across_processes_with_different_secrets<F: WebFramework>() {
    let (clock, ledger) = (ManualClock::new(), Ledger::new());
    let store = Arc::new(Memory::with_clock((&clock).into()));
    let [old, new] = ["the old secret of all", "the new secret of all"].map(|text| Secret::new(text).unwrap());
    let builder = || Guard::builder(Arc::clone(&store)).clock((&clock).into());
    let guards = [
        builder().secret(old.clone()).build(),
        builder().secret(old.clone()).secret_previous(new.clone()).build(),
        builder().secret(new.clone()).secret_previous(old).build(),
        builder().secret(new).build(),
        builder().build(),
    ];
    let beds = guards.map(|guard| {
        let protect = Protect::<F, _>::interval(&guard, SubjectFrom::anonymous(), every(MINUTE));
        serve_one(&ledger, protect)
    });
    for (at, first) in beds.iter().enumerate() {
        let ask = |bed: &TestServer| plainly(&bed.url, "/it", "order").body(format!("content {at}"));
        assert_eq!(send(ask(first)).await.said(), RAN);
        for other in &beds {
            assert_eq!(send(ask(other)).await.said(), TOO_SOON);
        }
    }
    assert_eq!(ledger.runs().len(), beds.len());
}
