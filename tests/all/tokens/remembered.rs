//! A remembered token: the second click receives the first response, and nothing runs twice.
//!
//! The test of `Guard::check` runs once: it tests the engine, not an adapter.

use std::collections::HashSet;
use std::time::Duration;

use onceward::http::protect::RememberedPolicy;
use onceward::http::{Protect, SubjectSource as SubjectFrom};
use onceward::store::{Memory, Redis};
use onceward::{
    Attempt, Binding, Effect, Guard, Intent, KeyRules, ManualClock, Policy, Reply, Settled, Subject, TokenRules,
    Verdict,
};
use onceward_api::header::{LOOK, TOKEN};
use onceward_api::{Code, Retry};
use onceward_tests::client::{Answer, MULTIPART, URLENCODED, at_last, http, multipart, send, submit, token};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::{BRIEF, LEASE, Pair, SIZE, THEN};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::{outlast, until};
use onceward_tests::redis_server::{Monitor, RedisServer};
use onceward_tests::routes::Routes;
use onceward_tests::shop::{ORDER, STATUS, TAKES, TestServer, USER, user};
use onceward_tests::shop_handlers::{panics, purchase};
use onceward_tests::web_framework::WebFramework;
use reqwest::RequestBuilder;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::PEER;

on_every_framework! {
    second_click_gets_the_first_response,
    second_click_on_a_form_gets_the_first_response,
    second_click_on_an_upload_ignores_the_boundary,
    same_token_with_other_content_gets_no_replay,
    late_retry_of_an_expired_token_is_replayed,
    lookup_with_an_expired_token_finds_the_first_response,
    remembered_response_is_only_for_its_sender,
    rejected_form_releases_the_token_for_a_correction,
    unknown_outcome_is_never_run_again,
    remembered_token_is_released_for_its_remaining_ttl,
    attempt_and_remembered_token_do_not_mix,
    forgotten_token_is_used_or_expired_and_never_runs,
    panicking_handler_leaves_an_unknown_outcome,
    oversized_response_is_reported_and_never_rerun,
    oversized_body_is_rejected_and_uses_no_token,
    uncompared_body_never_receives_a_compared_response,
    killed_process_leaves_an_unknown_outcome (threads),
    process_frozen_beyond_the_lease_leaves_one_effect (threads),
    two_hundred_waiting_clicks_receive_one_response (threads),
    two_hundred_clicks_without_waiting_have_one_effect (threads),
    remembered_run_is_two_commands_and_a_replay_one,
    claim_survives_its_token_on_another_route (threads),
}

const LONG: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// A server with a manual clock.
struct Bed {
    clock: ManualClock,
    guard: Guard,
    served: TestServer,
    ledger: Ledger,
}

impl Bed {
    /// Serves a route where a duplicate does not wait.
    fn remembering<F: WebFramework>(retain: Duration) -> Self {
        Self::with::<F>(KeyRules::retryable().retain(retain), |protect| protect.wait(Duration::ZERO))
    }

    fn with<F: WebFramework>(
        rules: KeyRules,
        change: impl Fn(Protect<F, RememberedPolicy>) -> Protect<F, RememberedPolicy>,
    ) -> Self {
        let (clock, ledger) = (ManualClock::new(), Ledger::new());
        let guard = Guard::builder(Memory::with_clock((&clock).into())).clock((&clock).into()).build();
        let plain = Protect::<F, _>::token(&guard, SubjectFrom::anonymous());
        let protect = change(plain.clone().remember_by(rules));
        let purchase = || Handler::of_body(purchase);
        let routes = Routes::new()
            .any("/it", protect.clone(), purchase())
            .any("/other", protect.clone(), purchase())
            .any("/plain", plain, purchase())
            .any("/panic", protect, Handler::of_head(panics));
        let served = F::serve(&ledger, routes);
        Self { clock, guard, served, ledger }
    }

    async fn token(&self) -> String {
        token_of(&self.guard).await
    }

    fn post(&self, token: &str, path: &str) -> RequestBuilder {
        // A new connection: idle ones do not survive a manual clock.
        post(&self.served.url, path).header(TOKEN, token).header(ORDER, "order")
    }

    async fn say(&self, token: &str, path: &str, body: &'static str) -> Answer {
        send(self.post(token, path).body(body)).await
    }
}

/// Issues an unbound token.
async fn token_of(guard: &Guard) -> String {
    guard.issue(TTL, Binding::none()).await.unwrap().as_str().to_owned()
}

/// Builds a request that does not follow redirects.
fn post(url: &str, path: &str) -> RequestBuilder {
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    client.post(format!("{url}{path}"))
}

fn is_first_again(first: &Answer, second: &Answer) {
    assert_eq!((second.status, second.outcome.as_str()), (first.status, "replayed"), "{second:?}");
    assert_eq!((&second.body, &second.headers["location"]), (&first.body, &first.headers["location"]));
    assert_eq!(second.headers["idempotent-replayed"], "true");
    assert!(!first.headers.contains_key("idempotent-replayed"));
}

async fn second_click_gets_the_first_response<F: WebFramework>() {
    let bed = Bed::remembering::<F>(HOUR);
    for status in [200, 201, 303] {
        let token = bed.token().await;
        let click = || bed.post(&token, "/it").header(STATUS, status).body("tea");
        let (first, second) = (send(click()).await, send(click()).await);
        assert_eq!(first.said(), format!("{status} executed"));
        is_first_again(&first, &second);
        is_first_again(&first, &send(click()).await);
    }
    assert_eq!(bed.ledger.runs().len(), 3);
}

async fn second_click_on_a_form_gets_the_first_response<F: WebFramework>() {
    let bed = Bed::remembering::<F>(HOUR);
    let form = |token: &str, fields: &str| {
        let body = format!("_onceward={token}&{fields}");
        post(&bed.served.url, "/it").header("content-type", URLENCODED).header(STATUS, 303).body(body)
    };
    let token = bed.token().await;
    let first = send(form(&token, "item=tea&note=")).await;
    assert_eq!(first.said(), "303 executed");
    is_first_again(&first, &send(form(&token, "item=tea&note=")).await);
    assert_eq!(send(form(&token, "item=coffee&note=")).await.said(), "409 token_used");
    // The same from a script that sends the token in a header.
    let query = format!("/it?_onceward={token}");
    let elsewhere = post(&bed.served.url, &query).header("content-type", URLENCODED).body("note=&item=tea");
    is_first_again(&first, &send(elsewhere).await);
    assert_eq!(bed.ledger.runs().len(), 1);
}

async fn second_click_on_an_upload_ignores_the_boundary<F: WebFramework>() {
    let bed = Bed::remembering::<F>(HOUR);
    let token = bed.token().await;
    let parts = |file: &'static [u8]| multipart(&[("_onceward", token.as_bytes()), ("item", b"tea"), ("file", file)]);
    let form = |body: Vec<u8>, kind: &str| post(&bed.served.url, "/it").header("content-type", kind).body(body);
    let first = send(form(parts(b"leaf"), MULTIPART)).await;
    assert_eq!(first.said(), "200 executed");
    is_first_again(&first, &send(form(parts(b"leaf"), MULTIPART)).await);
    let between = |text: &str| text.replace("between-the-parts", "something-else");
    let body = between(&String::from_utf8(parts(b"leaf")).unwrap()).into_bytes();
    is_first_again(&first, &send(form(body, &between(MULTIPART))).await);
    assert_eq!(send(form(parts(b"another leaf"), MULTIPART)).await.said(), "409 token_used");
    assert_eq!(bed.ledger.runs().len(), 1);
}

async fn same_token_with_other_content_gets_no_replay<F: WebFramework>() {
    let bed = Bed::remembering::<F>(HOUR);
    let token = bed.token().await;
    let is_told = |other: &Answer| {
        assert_eq!((other.said().as_str(), other.problem().retry), ("409 token_used", Retry::No));
        assert!(other.problem().detail.contains("different content"), "{:?}", other.problem());
        assert!(!other.headers.contains_key("idempotent-replayed") && !other.headers.contains_key("location"));
        assert!(!other.headers.contains_key("retry-after"), "a retry would not help");
    };
    let slow = tokio::spawn(send(bed.post(&token, "/it").header(TAKES, 300).body("tea")));
    until("the handler runs", LONG, || async { bed.ledger.count("begun") == 1 }).await;
    is_told(&bed.say(&token, "/it", "coffee").await);
    let early = bed.say(&token, "/it", "tea").await;
    assert_eq!((early.said().as_str(), early.problem().retry), ("409 in_progress", Retry::Same));
    assert_eq!(early.headers["retry-after"], "1");

    let first = slow.await.unwrap();
    assert_eq!(first.said(), "200 executed");
    is_told(&bed.say(&token, "/it", "coffee").await);
    is_told(&bed.say(&token, "/it", "").await);
    is_told(&bed.say(&token, "/other", "tea").await);
    is_told(&bed.say(&token, "/it?size=2", "tea").await);
    let put = http().put(format!("{}/it", bed.served.url)).header(TOKEN, &token).body("tea");
    is_told(&send(put).await);
    is_first_again(&first, &bed.say(&token, "/it", "tea").await);
    assert_eq!(bed.ledger.count("order"), 1);
}

async fn late_retry_of_an_expired_token_is_replayed<F: WebFramework>() {
    let bed = Bed::remembering::<F>(HOUR);
    let (used, unused) = (bed.token().await, bed.token().await);
    let first = bed.say(&used, "/it", "tea").await;
    bed.clock.advance(TTL);
    is_first_again(&first, &bed.say(&used, "/it", "tea").await);
    assert_eq!(bed.say(&used, "/it", "coffee").await.said(), "409 token_used");
    let late = bed.say(&unused, "/it", "tea").await;
    assert_eq!((late.said().as_str(), late.problem().retry), ("410 token_expired", Retry::NewToken));
    assert_eq!(bed.ledger.runs().len(), 1);
}

async fn lookup_with_an_expired_token_finds_the_first_response<F: WebFramework>() {
    let bed = Bed::remembering::<F>(HOUR);
    let (used, unused) = (bed.token().await, bed.token().await);
    let look = async |token: &str| send(bed.post(token, "/it").header(LOOK, "true")).await;
    assert_eq!(look(&used).await.said(), "404 not_found");
    let first = bed.say(&used, "/it", "tea").await;
    is_first_again(&first, &look(&used).await);
    bed.clock.advance(TTL);
    is_first_again(&first, &look(&used).await);
    assert_eq!(look(&unused).await.said(), "410 token_expired");
    assert_eq!(bed.ledger.runs().len(), 1);
}

/// Any subject may send an unbound token, but only the first sender receives its response.
async fn remembered_response_is_only_for_its_sender<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let token = || Protect::<F, _>::token(&guard, user::<F>());
    let (remember, purchase) = (|| token().remember(HOUR), || Handler::of_body(purchase));
    let routes = Routes::new()
        .post("/it", remember().wait(Duration::ZERO), purchase())
        .post("/waiting", remember().wait(LONG), purchase())
        .post("/plain", token(), purchase());
    let served = F::serve(&ledger, routes);
    let ask = |token: &str, path: &str, user: &str| {
        post(&served.url, path).header(TOKEN, token).header(USER, user).header(ORDER, "order").body("tea")
    };
    let token = token_of(&guard).await;
    let first = send(ask(&token, "/it", "alice").header(TAKES, 300));
    let beside = async {
        until("the handler runs", LONG, || async { ledger.count("begun") == 1 }).await;
        for path in ["/it", "/waiting", "/plain"] {
            assert_eq!(send(ask(&token, path, "bob")).await.said(), "409 token_used", "{path}");
            let looked = send(ask(&token, path, "bob").header(LOOK, "true")).await;
            assert_eq!(looked.said(), "409 token_used", "{path}");
        }
        assert_eq!(send(ask(&token, "/it", "alice")).await.said(), "409 in_progress");
    };
    let (first, ()) = tokio::join!(first, beside);
    assert_eq!(first.said(), "200 executed");
    for look in ["false", "true"] {
        let ask = async |path: &str, user: &str| send(ask(&token, path, user).header(LOOK, look)).await;
        for (path, user) in [("/it", "bob"), ("/waiting", "bob"), ("/waiting", "alice"), ("/plain", "bob")] {
            let other = ask(path, user).await;
            assert_eq!(other.said(), "409 token_used", "{path} for {user}, looking: {look}");
            assert_ne!(other.body, first.body);
        }
        is_first_again(&first, &ask("/it", "alice").await);
    }
    assert_eq!(ledger.runs(), ["begun", "order"]);
}

/// Callers of `Guard::check` may have no content to compare. Then subject and action are compared.
#[tokio::test]
async fn remembered_token_without_fingerprint_compares_subject_and_action() {
    let guard = Guard::new(Memory::new());
    let policy = Policy::Token(TokenRules::new().remember(HOUR));
    let token = token_of(&guard).await;
    let intent = |action, user| Intent::new(action, Subject::named(user)).credential(&token);
    let said = async |action, user| match guard.check(&policy, &intent(action, user)).await.unwrap() {
        Verdict::Run(pass) => pass.complete(Some(Reply::new(201, "made"))).await.map(|_| "run".to_owned()).unwrap(),
        Verdict::Replay(reply) => format!("replay {}", reply.status()),
        Verdict::Reject(rejection) => rejection.code().to_string(),
    };
    assert_eq!(said("pay", "alice").await, "run");
    for (action, user, expected) in
        [("pay", "bob", "token_used"), ("ship", "alice", "token_used"), ("pay", "alice", "replay 201")]
    {
        assert_eq!(said(action, user).await, expected, "{action} for {user}");
        let looked = guard.look(&policy, &intent(action, user)).await.unwrap().into_reply();
        let looked =
            looked.map_or_else(|rejection| rejection.code().to_string(), |reply| format!("replay {}", reply.status()));
        assert_eq!(looked, expected, "{action} for {user}");
    }
}

async fn rejected_form_releases_the_token_for_a_correction<F: WebFramework>() {
    let bed = Bed::remembering::<F>(HOUR);
    let timeout = Some(408).filter(|_| F::UNMARKED_TIMEOUT == Effect::NotApplied);
    let rejected: Vec<_> = [400, 401, 403, 404, 409, 422, 429, 500, 501, 503].into_iter().chain(timeout).collect();
    for &status in &rejected {
        let token = bed.token().await;
        for _ in 0..2 {
            let mistaken = send(bed.post(&token, "/it").header(STATUS, status).body("te")).await;
            assert_eq!(mistaken.said(), format!("{status} not_applied"));
        }
        let corrected = bed.say(&token, "/it", "tea").await;
        assert_eq!(corrected.said(), "200 executed", "after {status}");
        is_first_again(&corrected, &bed.say(&token, "/it", "tea").await);
        assert_eq!(bed.say(&token, "/it", "te").await.said(), "409 token_used", "the mistake was not accepted");
    }
    assert_eq!(bed.ledger.count("order"), 3 * rejected.len());
}

async fn unknown_outcome_is_never_run_again<F: WebFramework>() {
    let bed = Bed::remembering::<F>(HOUR);
    let timeout = Some(408).filter(|_| F::UNMARKED_TIMEOUT == Effect::Unknown);
    let unknown: Vec<_> = [502, 504, 599].into_iter().chain(timeout).collect();
    for &status in &unknown {
        let token = bed.token().await;
        let ask = || send(bed.post(&token, "/it").header(STATUS, status).body("tea"));
        assert_eq!(ask().await.said(), format!("{status} unknown"));
        let unknown = ask().await;
        assert_eq!((unknown.said().as_str(), unknown.problem().retry), ("409 outcome_unknown", Retry::No));
        bed.clock.advance(Duration::from_secs(30));
        assert_eq!(ask().await.said(), "409 outcome_unknown", "the lease has expired");
        assert_eq!(bed.say(&token, "/it", "coffee").await.said(), "409 token_used");
    }
    assert_eq!(bed.ledger.runs().len(), unknown.len());
}

async fn remembered_token_is_released_for_its_remaining_ttl<F: WebFramework>() {
    let bed = Bed::remembering::<F>(HOUR);
    let policy = Policy::Token(TokenRules::new().remember(HOUR));
    for (age, said, then) in [(59_000, Settled::Released, "issued"), (59_001, Settled::Final, "gone")] {
        let token = bed.guard.issue(TTL, Binding::none()).await.unwrap();
        let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
        let Ok(Verdict::Run(pass)) = bed.guard.check(&policy, &intent).await else { panic!("valid token") };
        bed.clock.advance(Duration::from_millis(age));
        assert_eq!(pass.release().await.unwrap(), said);
        let again = bed.guard.check(&policy, &intent).await.unwrap();
        match (then, again) {
            ("issued", Verdict::Run(pass)) => assert_eq!(pass.release().await.unwrap(), Settled::Released),
            ("gone", Verdict::Reject(rejection)) => assert_eq!(rejection.code(), Code::TokenUsed),
            (_, other) => panic!("after {age} ms: {other:?}"),
        }
    }
}

async fn attempt_and_remembered_token_do_not_mix<F: WebFramework>() {
    let bed = Bed::remembering::<F>(HOUR);
    let (remembered, plain) = (Policy::Token(TokenRules::new().remember(HOUR)), Policy::token());
    let attempt = Attempt::new("an-attempt").unwrap();
    let one = bed.guard.issue(TTL, Binding::none()).await.unwrap();
    let intent = Intent::new("a", Subject::anonymous()).credential(one.as_str());
    let Ok(Verdict::Run(pass)) = bed.guard.check(&plain, &intent.clone().attempt(&attempt)).await else { panic!() };
    let Ok(Verdict::Reject(rejection)) = bed.guard.check(&remembered, &intent).await else { panic!("used token") };
    assert_eq!(rejection.code(), Code::TokenUsed);
    assert_eq!(pass.complete(None).await.unwrap(), Settled::Final);

    let token = bed.token().await;
    let first = bed.say(&token, "/it", "tea").await;
    let intent = Intent::new("a", Subject::anonymous()).credential(&token).attempt(&attempt);
    let Ok(Verdict::Reject(rejection)) = bed.guard.check(&plain, &intent).await else { panic!("used token") };
    assert_eq!(rejection.code(), Code::TokenUsed);
    is_first_again(&first, &bed.say(&token, "/it", "tea").await);
}

async fn forgotten_token_is_used_or_expired_and_never_runs<F: WebFramework>() {
    let bed = Bed::remembering::<F>(Duration::from_secs(20));
    let (happened, unknown) = (bed.token().await, bed.token().await);
    bed.say(&happened, "/it", "tea").await;
    assert_eq!(send(bed.post(&unknown, "/it").header(STATUS, 504)).await.said(), "504 unknown");
    bed.clock.advance(Duration::from_secs(21));
    assert_eq!(bed.say(&happened, "/it", "tea").await.said(), "409 token_used");
    assert_eq!(bed.say(&unknown, "/it", "").await.said(), "409 token_used");
    assert_eq!(bed.say(&happened, "/plain", "tea").await.said(), "409 token_used");
    bed.clock.advance(TTL);
    assert_eq!(bed.say(&happened, "/it", "tea").await.said(), "410 token_expired");
    assert_eq!(bed.say(&unknown, "/it", "").await.said(), "410 token_expired");
    assert_eq!(bed.ledger.runs().len(), 2);
}

async fn panicking_handler_leaves_an_unknown_outcome<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let token = token(shop.url()).await;
    let ask = || send(submit(shop.url(), "/remembered/panic", &token, "panic"));
    assert_eq!(ask().await.said(), "500 internal");
    until("the outcome is unknown", BRIEF * 10, || async {
        let said = ask().await.said();
        assert!(["409 in_progress", "409 outcome_unknown"].contains(&said.as_str()), "{said}");
        said == "409 outcome_unknown"
    })
    .await;
    assert_eq!(send(submit(shop.url(), "/orders", &token, "panic")).await.said(), "409 token_used");
    assert_eq!(ask().await.said(), "409 outcome_unknown");
    assert_eq!(shop.ledger.count("panic"), 1);
}

async fn oversized_response_is_reported_and_never_rerun<F: WebFramework>() {
    let bed = Bed::with::<F>(KeyRules::retryable().reply_limit(1_000), |protect| protect);
    let token = bed.token().await;
    let ask = || send(bed.post(&token, "/it").header(SIZE, 2_000));
    assert_eq!((ask().await.said(), ask().await.said()), ("200 executed".into(), "409 reply_not_kept".into()));
    assert_eq!(bed.ledger.runs().len(), 1);
}

async fn oversized_body_is_rejected_and_uses_no_token<F: WebFramework>() {
    let bed = Bed::with::<F>(KeyRules::retryable(), |protect| protect.body_limit(1_000));
    let token = bed.token().await;
    let large = send(bed.post(&token, "/it").body(vec![b'x'; 2_000])).await;
    assert_eq!(large.said(), "413 body_too_large");
    assert_eq!(bed.say(&token, "/it", "small").await.said(), "200 executed");
    assert_eq!(bed.ledger.runs().len(), 1);
}

async fn uncompared_body_never_receives_a_compared_response<F: WebFramework>() {
    let bed = Bed::with::<F>(KeyRules::retryable(), |protect| protect.body_limit(1_000).skip_large_bodies());
    let large = async |token: &str, path: &str| send(bed.post(token, path).body(vec![b'x'; 2_000])).await;
    let token = bed.token().await;
    let first = large(&token, "/it").await;
    assert_eq!(first.said(), "200 executed");
    assert_eq!(bed.say(&token, "/it", "small").await.said(), "409 token_used");
    assert_eq!(large(&token, "/other").await.said(), "409 token_used", "method, path and query are compared");
    is_first_again(&first, &large(&token, "/it").await);

    let token = bed.token().await;
    let first = bed.say(&token, "/it", "small").await;
    assert_eq!(large(&token, "/it").await.said(), "409 token_used");
    is_first_again(&first, &bed.say(&token, "/it", "small").await);
    assert_eq!(bed.ledger.runs().len(), 2);
}

/// Sends duplicates until the outcome is unknown; until then the response must be `in_progress`.
async fn until_unknown(ask: impl AsyncFn() -> Answer) {
    until("the outcome is unknown", LEASE * 3, || async {
        let said = ask().await.said();
        assert!(["409 in_progress", "409 outcome_unknown"].contains(&said.as_str()), "{said}");
        said == "409 outcome_unknown"
    })
    .await;
}

async fn killed_process_leaves_an_unknown_outcome<F: WebFramework>() {
    let mut pair = Pair::start(PEER, &F::peer("onceward")).await;
    let path = "/remembered/orders";
    let (before, after) = (token(pair.one()).await, token(pair.one()).await);
    // At the kill, one has taken effect and the other has not.
    let lost = [
        submit(pair.one(), path, &before, "before").header(TAKES, 60_000),
        submit(pair.one(), path, &after, "after").header(THEN, 60_000),
    ];
    let lost = lost.map(|request| tokio::spawn(async move { request.send().await }));
    pair.begun(1).await;
    until("the effect has happened", LONG, || async { pair.ledger.count("after") == 1 }).await;
    pair.peers[0].kill();
    for lost in lost {
        assert!(lost.await.unwrap().is_err());
    }
    for (token, order) in [(&before, "before"), (&after, "after")] {
        until_unknown(async || send(submit(pair.other(), path, token, order)).await).await;
    }
    outlast(LEASE).await;
    for (token, order, effects) in [(&before, "before", 0), (&after, "after", 1)] {
        assert_eq!(send(submit(pair.other(), path, token, order)).await.said(), "409 outcome_unknown");
        assert_eq!(send(submit(pair.other(), "/orders", token, order)).await.said(), "409 token_used");
        assert_eq!(send(submit(pair.other(), path, token, order)).await.said(), "409 outcome_unknown", "still");
        assert_eq!(pair.ledger.count(order), effects);
    }
}

async fn process_frozen_beyond_the_lease_leaves_one_effect<F: WebFramework>() {
    let pair = Pair::start(PEER, &F::peer("onceward")).await;
    let (path, token) = ("/remembered/brief", token(pair.one()).await);
    let first = tokio::spawn(send(submit(pair.one(), path, &token, "effect").header(TAKES, 200)));
    pair.begun(1).await;
    pair.peers[0].freeze();
    until_unknown(async || send(submit(pair.other(), path, &token, "effect")).await).await;
    pair.peers[0].thaw();
    let first = first.await.unwrap();
    assert_eq!(first.said(), "200 executed");
    is_first_again(&first, &send(submit(pair.other(), path, &token, "effect")).await);
    assert_eq!(pair.ledger.count("effect"), 1);
}

const RACERS: usize = 200;

/// Submits one token concurrently at both processes.
async fn race(pair: &Pair, path: &str, token: &str) -> Vec<Answer> {
    let client = http();
    let mut racers = JoinSet::new();
    for racer in 0..RACERS {
        let url = [pair.one(), pair.other()][racer % 2];
        let request = client.post(format!("{url}{path}")).header(TOKEN, token).header(ORDER, token);
        let request = request.header(TAKES, 100).body("tea");
        racers.spawn(at_last(request));
    }
    racers.join_all().await
}

async fn two_hundred_waiting_clicks_receive_one_response<F: WebFramework>() {
    let pair = Pair::start(PEER, &F::peer("onceward")).await;
    let token = token(pair.one()).await;
    let answers = race(&pair, "/remembered/waiting", &token).await;
    assert_eq!(pair.ledger.count(&token), 1);
    let told = |outcome: &str| answers.iter().filter(|answer| answer.outcome == outcome).count();
    assert_eq!((told("executed"), told("replayed")), (1, RACERS - 1));
    let different: HashSet<_> = answers.iter().map(|answer| (answer.status, answer.body.clone())).collect();
    assert_eq!(different.len(), 1);
    println!("{RACERS} submissions of one remembered token on two processes: one effect, {RACERS} identical responses");
}

async fn two_hundred_clicks_without_waiting_have_one_effect<F: WebFramework>() {
    let pair = Pair::start(PEER, &F::peer("onceward")).await;
    let token = token(pair.one()).await;
    let answers = race(&pair, "/remembered/orders", &token).await;
    let told = |outcome: &str| answers.iter().filter(|answer| answer.outcome == outcome).count();
    assert_eq!((told("executed"), told("replayed") + told("in_progress")), (1, RACERS - 1), "{answers:?}");
    let again = send(submit(pair.other(), "/remembered/orders", &token, "again").body("tea")).await;
    let mut different: HashSet<_> =
        answers.into_iter().filter(|answer| answer.status == 200).map(|answer| answer.body).collect();
    different.insert(again.body);
    assert_eq!((different.len(), pair.ledger.count(&token), pair.ledger.count("again")), (1, 1, 0));
}

/// Returns the names of the commands that the server received.
pub(crate) fn sent(monitor: &Monitor) -> Vec<String> {
    let name = |command: &String| command.split('"').nth(1).unwrap_or_default().to_owned();
    monitor.commands().iter().filter(|command| !command.contains(":secret:")).map(name).collect()
}

async fn remembered_run_is_two_commands_and_a_replay_one<F: WebFramework>() {
    let redis = RedisServer::start();
    let shop = F::shop(Redis::open(&redis.url()).unwrap().timeout(Duration::from_secs(5)));
    let path = "/remembered/orders";
    let guard = &shop.guard;
    let issue = async |ttl| guard.issue(ttl, Binding::none()).await.unwrap().as_str().to_owned();
    // From now on Redis has loaded the script.
    assert_eq!(send(submit(shop.url(), path, &issue(TTL).await, "")).await.status, 200);
    let swap = redis.compare_commands().swap;
    for (status, first, second) in [
        (200, vec![swap, swap], vec![swap]),
        (422, vec![swap, swap], vec![swap, swap]),
        (504, vec![swap, swap], vec![swap]),
    ] {
        let token = issue(TTL).await;
        for expected in [first, second] {
            let monitor = redis.monitor();
            let answer = send(submit(shop.url(), path, &token, "a").header(STATUS, status)).await;
            assert_eq!(sent(&monitor), expected, "{status}: {}", answer.said());
            for command in monitor.commands() {
                assert!(!command.contains(&token) && !command.contains("remembered"), "{command}");
            }
        }
    }
    let (other, brief) = (issue(TTL).await, issue(Duration::from_secs(1)).await);
    assert_eq!(send(submit(shop.url(), path, &other, "a").body("tea")).await.status, 200);
    let forged = Guard::new(Memory::new()).issue(TTL, Binding::none()).await.unwrap();
    until("the token has expired", LONG, || async {
        send(submit(shop.url(), "/orders", &brief, "")).await.status == 410
    })
    .await;
    let monitor = redis.monitor();
    assert_eq!(send(submit(shop.url(), path, forged.as_str(), "a")).await.said(), "403 token_invalid");
    assert_eq!(send(post(shop.url(), path)).await.said(), "400 token_missing");
    assert_eq!(sent(&monitor), [""; 0]);
    assert_eq!(send(submit(shop.url(), path, &other, "a").body("coffee")).await.said(), "409 token_used");
    assert_eq!(sent(&monitor), [swap]);
    assert_eq!(send(submit(shop.url(), path, &brief, "a")).await.said(), "410 token_expired");
    assert_eq!(sent(&monitor), [swap, "GET"], "a late retry is looked up");
    let spent = issue(TTL).await;
    assert_eq!(send(submit(shop.url(), "/orders", &spent, "a")).await.said(), "200 executed");
    let monitor = redis.monitor();
    assert_eq!(send(submit(shop.url(), path, &spent, "a")).await.said(), "409 token_used");
    let expected = if swap == "EVALSHA" { vec![swap] } else { vec![swap, "GET"] };
    assert_eq!(sent(&monitor), expected, "a used token needs no lookup");
    for name in redis.keys() {
        let life = redis.ask::<i64>(&format!("PTTL {name}"));
        assert!(life >= 0 || life == -2, "{name} has a TTL of {life}");
    }
}

/// While a handler runs for several leases, its token is sent constantly to a route that does not remember.
async fn claim_survives_its_token_on_another_route<F: WebFramework>() {
    let pair = Pair::start(PEER, &F::peer("onceward")).await;
    let (path, token) = ("/remembered/brief", token(pair.one()).await);
    let first = tokio::spawn(send(submit(pair.one(), path, &token, "effect").header(TAKES, 1_500)));
    pair.begun(1).await;
    let mut tries = 0;
    let end = Instant::now() + LONG;
    while !first.is_finished() {
        assert!(Instant::now() < end);
        tries += 1;
        let (plain, again) = tokio::join!(
            send(submit(pair.other(), "/orders", &token, "effect")),
            send(submit(pair.one(), path, &token, "effect")),
        );
        assert_eq!(plain.said(), "409 token_used");
        assert!(["409 in_progress", "200 replayed"].contains(&again.said().as_str()), "{}", again.said());
    }
    let first = first.await.unwrap();
    assert_eq!(first.said(), "200 executed");
    is_first_again(&first, &send(submit(pair.other(), path, &token, "effect")).await);
    assert_eq!(pair.ledger.count("effect"), 1);
    assert!(tries > 2, "{tries}");
}
