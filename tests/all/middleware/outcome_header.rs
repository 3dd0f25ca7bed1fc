//! The `Onceward-Outcome` header of a response, under every policy.

use std::time::Duration;

use onceward::http::{Protect, SubjectSource as SubjectFrom};
use onceward::store::{Memory, Redis};
use onceward::{Binding, Guard, IntervalRules, KeyRules, ManualClock};
use onceward_api::header::{NEXT_TOKEN, TOKEN};
use onceward_tests::call::Call;
use onceward_tests::client::{Answer, http, send};
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::KEY;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::routes::{Route, Routes};
use onceward_tests::shop::{ORDER, STATUS, TAKES, TestServer};
use onceward_tests::shop_handlers::order;
use onceward_tests::web_framework::WebFramework;
use reqwest::{Method, RequestBuilder};

on_every_framework! {
    outcome_is_repeated_for_pages_unless_it_took_effect,
    request_that_enters_no_handler_is_not_applied,
    stored_error_is_executed_only_with_entered_handler,
    outcome_states_the_effect_of_the_run,
    token_that_expires_during_the_run_is_not_released,
    release_that_does_not_reach_the_store_is_not_released,
}

const LONG: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);

/// Every policy, by the name of its scope.
const POLICIES: [&str; 5] = ["token", "remembered", "key", "optional", "interval"];

fn protect<F: WebFramework>(guard: &Guard, policy: &str) -> Protect<F> {
    let anyone = SubjectFrom::anonymous;
    let protect = match policy {
        "token" => Protect::<F, _>::token(guard, anyone()).next_token().into_any(),
        "remembered" => Protect::<F, _>::token(guard, anyone()).remember(TTL).next_token().into_any(),
        "key" => Protect::<F, _>::key(guard, anyone(), KeyRules::retryable()).into_any(),
        "optional" => Protect::<F, _>::key(guard, anyone(), KeyRules::retryable()).optional().into_any(),
        "interval" => {
            let rules = IntervalRules::new().every(MINUTE).expect("an interval of 1 ms or more");
            Protect::<F, _>::interval(guard, anyone(), rules).into_any()
        }
        other => unreachable!("{other}"),
    };
    protect.action(policy.to_owned())
}

/// One scope for each policy, with a handler that requires JSON and one that accepts any body.
fn routes<F: WebFramework>(guard: &Guard) -> Routes<F> {
    POLICIES.into_iter().fold(Routes::new(), |routes, policy| {
        let scope = Routes::new()
            .route(Route::post("/json", Handler::of_json(async |call: Call, _| order(call).await).marked()))
            .route(Route::post("/any", Handler::of_body(order)));
        routes.scope(&format!("/{policy}"), scope.wrap(protect(guard, policy)))
    })
}

/// A submission under one of the policies, with its own token or key.
struct Submission<'a> {
    served: &'a TestServer,
    policy: &'static str,
    credential: String,
}

impl<'a> Submission<'a> {
    async fn new(guard: &Guard, served: &'a TestServer, policy: &'static str) -> Self {
        let credential = match policy {
            "token" | "remembered" => guard.issue(TTL, Binding::none()).await.unwrap().as_str().to_owned(),
            _ => uuid::Uuid::new_v4().to_string(),
        };
        Self { served, policy, credential }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}/{}{path}", self.served.url, self.policy);
        // A new connection each time: with a manual clock, idle ones are not kept alive.
        let request = http().request(method, url).header("connection", "close").header(ORDER, self.policy);
        match self.policy {
            "token" | "remembered" => request.header(TOKEN, &self.credential),
            "key" => request.header(KEY, &self.credential),
            _ => request,
        }
    }

    async fn ask(&self, status: u16) -> Answer {
        send(self.request(Method::POST, "/any").header(STATUS, status)).await
    }
}

/// After a navigation, a page's script can read only the `Server-Timing` header.
async fn outcome_is_repeated_for_pages_unless_it_took_effect<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = F::serve(&ledger, routes(&guard));
    for (policy, again) in [("token", "409 token_used"), ("remembered", "200 replayed")] {
        let one = Submission::new(&guard, &served, policy).await;
        for (status, said) in [(500, "500 not_applied"), (422, "422 not_applied"), (200, "200 executed"), (200, again)]
        {
            let answer = one.ask(status).await;
            let timing = Some(&said[4..]).filter(|outcome| !["executed", "replayed"].contains(outcome));
            assert_eq!((answer.said(), answer.timing().as_deref()), (said.to_owned(), timing), "{policy}");
        }
        let lost = Submission::new(&guard, &served, policy).await.ask(502).await;
        assert_eq!((lost.said(), lost.timing().as_deref()), ("502 unknown".into(), Some("unknown")), "{policy}");
    }
}

/// Under a key, only the mark of `entered` distinguishes a handler's response from the router's.
async fn request_that_enters_no_handler_is_not_applied<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = F::serve(&ledger, routes(&guard));
    for policy in POLICIES {
        let one = Submission::new(&guard, &served, policy).await;
        let json = |body: &'static str| {
            one.request(Method::POST, "/json").header("content-type", "application/json").body(body)
        };
        if !["key", "optional"].contains(&policy) {
            let unmatched = if F::SCOPES_INCLUDE_UNMATCHED { "404 not_applied" } else { "404 " };
            assert_eq!(send(one.request(Method::POST, "/nowhere")).await.said(), unmatched, "{policy}");
            assert_eq!(send(one.request(Method::PUT, "/any")).await.said(), "405 not_applied", "{policy}");
        }
        let is_known = policy != "optional" || F::KNOWS_EXTRACTOR_ERRORS;
        let rejected = if is_known { "400 not_applied" } else { "400 unprotected" };
        assert_eq!(send(json("{")).await.said(), rejected, "{policy}");
        assert_eq!(ledger.count(policy), 0, "{policy}");
        let corrected = if policy == "optional" { "200 unprotected" } else { "200 executed" };
        assert_eq!(send(json("1")).await.said(), corrected, "{policy}");
        assert_eq!(ledger.count(policy), 1, "{policy}");
    }
}

/// Under a key an error response is stored, since the router's looks like a handler's. Its outcome does not claim that a handler ran.
async fn stored_error_is_executed_only_with_entered_handler<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = F::serve(&ledger, routes(&guard));
    let by_key = async |method: Method, path: &str, status: u16| {
        let one = Submission::new(&guard, &served, "key").await;
        let request = || {
            let request = one.request(method.clone(), path).header("content-type", "application/json").body("1");
            request.header(STATUS, status)
        };
        [send(request()).await.said(), send(request()).await.said()]
    };
    let unmatched = if F::SCOPES_INCLUDE_UNMATCHED { ["404 replayable", "404 replayed"] } else { ["404 "; 2] };
    assert_eq!(by_key(Method::POST, "/nowhere", 200).await, unmatched);
    assert_eq!(by_key(Method::PUT, "/any", 200).await, ["405 replayable", "405 replayed"]);
    assert_eq!(ledger.count("key"), 0);
    assert_eq!(by_key(Method::POST, "/any", 422).await, ["422 replayable", "422 replayed"]);
    assert_eq!(by_key(Method::POST, "/json", 422).await, ["422 executed", "422 replayed"]);
    assert_eq!(ledger.count("key"), 2);
}

async fn outcome_states_the_effect_of_the_run<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = F::serve(&ledger, routes(&guard));
    for policy in POLICIES {
        for (status, outcome) in [(200, "executed"), (503, "not_applied"), (502, "unknown")] {
            let one = Submission::new(&guard, &served, policy).await;
            let outcome = match (policy, outcome) {
                ("optional", "executed" | "unknown") => "unprotected",
                (_, outcome) => outcome,
            };
            // Each body has its own interval.
            let request = one.request(Method::POST, "/any").header(STATUS, status).body(status.to_string());
            assert_eq!(send(request).await.said(), format!("{status} {outcome}"), "{policy}");
        }
    }
}

/// A token that expires in less than a second is not given back. Nothing took effect, and the client needs a new token.
async fn token_that_expires_during_the_run_is_not_released<F: WebFramework>() {
    let (clock, ledger) = (ManualClock::new(), Ledger::new());
    let guard = Guard::builder(Memory::with_clock((&clock).into())).clock((&clock).into()).build();
    let served = F::serve(&ledger, routes(&guard));
    for policy in ["token", "remembered"] {
        let one = Submission::new(&guard, &served, policy).await;
        clock.advance(TTL - Duration::from_secs(1));
        let back = one.ask(422).await;
        assert_eq!(back.said(), "422 not_applied", "{policy}: one second is left");
        assert!(!back.headers.contains_key(NEXT_TOKEN), "{policy}: the token is valid again");
        clock.advance(Duration::from_millis(1));
        let used = one.ask(422).await;
        assert_eq!(used.said(), "422 not_released", "{policy}");
        assert!(used.headers.contains_key(NEXT_TOKEN), "{policy}: the token is used");
        assert_eq!(one.ask(200).await.said(), "409 token_used", "{policy}");
        assert_eq!(ledger.count(policy), 2, "{policy}");
    }
}

/// The store cannot be reached when a run that was not applied is released. A plain token counts as used. The release of a key, an
/// interval or a remembered token is retried in the background.
async fn release_that_does_not_reach_the_store_is_not_released<F: WebFramework>() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let proxy = Proxy::before(redis.port()).await;
    let guard = Guard::new(Redis::open(&proxy.url()).unwrap());
    let served = F::serve(&ledger, routes(&guard));
    for (policy, command) in [("token", "SET\r\n"), ("remembered", "EVAL"), ("key", "EVAL"), ("interval", "EVAL")] {
        let one = Submission::new(&guard, &served, policy).await;
        let begun = ledger.count("begun");
        let failing = tokio::spawn(send(
            one.request(Method::POST, "/any").header(STATUS, 503).header(TAKES, 300).header("connection", "close"),
        ));
        until("it has begun", LONG, || async { ledger.count("begun") == begun + 1 }).await;
        proxy.next(command, TcpFault::LoseRequest);
        assert_eq!(failing.await.unwrap().said(), "503 not_released", "{policy}");
        let then = if policy == "token" { "409 token_used" } else { "200 executed" };
        until("the next request has its outcome", LONG, || async { one.ask(200).await.said() == then }).await;
        assert_eq!(ledger.count(policy), if policy == "token" { 1 } else { 2 }, "{policy}");
    }
}
