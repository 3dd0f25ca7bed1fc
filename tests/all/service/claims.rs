//! The claim API: a backend in any language runs a request once under its client's key.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use onceward::{Kind, Ticket};
use onceward_api::metric;
use onceward_tests::client::Answer;
use onceward_tests::metrics::Metrics;
use onceward_tests::polling::{holds_for, until};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::post;
use serde_json::{Value, json};
use tokio::sync::Notify;

fn asked(key: &str) -> Value {
    json!({"key": key, "action": "POST /payments", "subject": "alice"})
}

/// Returns the request body with more fields.
pub(crate) fn with(mut body: Value, more: Value) -> Value {
    let more = more.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(more);
    body
}

pub(crate) fn body(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

/// Returns the outcome: `run`, `replay`, or the code of a problem.
pub(crate) fn word(answer: &Answer) -> String {
    body(answer)["outcome"].as_str().map_or_else(|| answer.outcome.clone(), str::to_owned)
}

pub(crate) async fn claim(url: &str, asked: &Value) -> Answer {
    post(url, "/claim", asked).await
}

/// Claims a free key and returns its pass.
pub(crate) async fn pass(url: &str, asked: &Value) -> String {
    let answer = claim(url, asked).await;
    assert_eq!((answer.status, word(&answer).as_str()), (200, "run"), "{answer:?}");
    body(&answer)["pass"].as_str().expect("a pass").to_owned()
}

pub(crate) async fn say(url: &str, path: &str, pass: &str) -> String {
    post(url, path, &json!({ "pass": pass })).await.said()
}

pub(crate) fn reply() -> Value {
    json!({"status": 201, "headers": [["content-type", "text/plain"], ["link", "</a>"], ["link", "</b>"]], "body": "cGFpZA=="})
}

#[tokio::test]
async fn completed_claim_is_replayed_to_duplicates() {
    let redis = RedisServer::start();
    for store in ["memory:", &redis.url()] {
        let service = OncewardServer::start(&["--store", store]);
        let url = &service.url;
        let said = with(asked("k"), json!({"fingerprint": "10 EUR"}));
        let pass = pass(url, &said).await;
        let running = claim(url, &said).await;
        assert_eq!(
            (running.said().as_str(), &running.headers["retry-after"]),
            ("409 in_progress", &"1".parse().unwrap())
        );
        let other = with(asked("k"), json!({"fingerprint": "20 EUR"}));
        assert_eq!(claim(url, &other).await.said(), "422 key_reused", "takes precedence over in_progress");
        for _ in 0..2 {
            let completed = post(url, "/claim/complete", &json!({"pass": pass, "reply": reply()})).await;
            assert_eq!(completed.status, 204, "{completed:?}");
        }
        let replay = claim(url, &said).await;
        assert_eq!(body(&replay), json!({"outcome": "replay", "reply": reply()}));
        assert_eq!(replay.headers["cache-control"], "no-store");
        assert_eq!(claim(url, &other).await.said(), "422 key_reused");
        for path in ["/claim/release", "/claim/renew"] {
            assert_eq!(say(url, path, &pass).await, "409 claim_lost");
        }
        assert_eq!(word(&claim(url, &said).await), "replay", "a settled pass changes nothing");
    }
}

#[tokio::test]
async fn key_is_scoped_to_subject_and_action() {
    let service = OncewardServer::start(&[]);
    for more in [json!({}), json!({"subject": "bob"}), json!({"action": "POST /refunds"}), json!({"key": "other"})] {
        pass(&service.url, &with(asked("k"), more)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_32_concurrent_claims_at_two_processes_runs() {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url()]));
    for round in 0..20 {
        let said = asked(&format!("race-{round}"));
        let racers = (0..32).map(|racer| claim(&services[racer % 2].url, &said));
        let told: Vec<_> = join_all(racers).await.iter().map(word).collect();
        assert_eq!(told.iter().filter(|word| *word == "run").count(), 1, "{told:?}");
        assert_eq!(told.iter().filter(|word| *word == "in_progress").count(), 31, "{told:?}");
    }
}

#[tokio::test]
async fn pass_is_valid_at_every_process_unless_forged() {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url()]));
    let [here, there] = [&services[0].url, &services[1].url];
    let given = pass(here, &asked("k")).await;
    let stranger = OncewardServer::start(&[]);
    let forged = pass(&stranger.url, &asked("k")).await;
    for wrong in [forged.as_str(), "", "owp1_", "owp1_AAAA", &given[..given.len() - 4]] {
        for path in ["/claim/complete", "/claim/release", "/claim/renew"] {
            let refused = post(there, path, &json!({ "pass": wrong })).await;
            assert_eq!(refused.said(), "400 bad_request", "{path}");
            assert!(refused.problem().detail.contains("`pass`"), "{refused:?}");
        }
    }
    assert_eq!(claim(there, &asked("k")).await.said(), "409 in_progress", "no claim was changed");
    assert_eq!(say(there, "/claim/renew", &given).await, "204 ");
    for _ in 0..2 {
        assert_eq!(say(there, "/claim/release", &given).await, "204 ");
    }
    pass(here, &asked("k")).await;
}

#[tokio::test]
async fn unrenewed_claim_is_freed_or_held_after_its_lease() {
    let redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url()]);
    let url = &service.url;
    let brief = |key, at_most_once| with(asked(key), json!({"lease": "300ms", "at_most_once": at_most_once}));
    // As if the backend had crashed right after the claim.
    let (freed, held) = (pass(url, &brief("freed", false)).await, pass(url, &brief("held", true)).await);
    assert_eq!(claim(url, &brief("freed", false)).await.said(), "409 in_progress");
    let is_free = || async { word(&claim(url, &brief("freed", false)).await) == "run" };
    until("the lease has expired", Duration::from_secs(3), is_free).await;
    for path in ["/claim/complete", "/claim/release", "/claim/renew"] {
        assert_eq!(say(url, path, &freed).await, "409 claim_lost", "a later run has the key");
    }
    let is_unknown = || async { word(&claim(url, &brief("held", true)).await) == "outcome_unknown" };
    until("the outcome is unknown", Duration::from_secs(3), is_unknown).await;
    let state = async || body(&post(url, "/outcome", &asked("held")).await)["state"].clone();
    assert_eq!(state().await, "unknown");
    // The backend was only slow, and completes late.
    assert_eq!(post(url, "/claim/complete", &json!({"pass": held, "reply": reply()})).await.status, 204);
    assert_eq!(state().await, "done");
}

/// A naive payment service: it claims, works, completes, and never renews. Returns the outcome of its claim, or `paid`.
async fn pay(url: &str, claimed: &Value, work: impl Future<Output = ()>, payments: &AtomicUsize) -> String {
    let told = claim(url, claimed).await;
    if word(&told) != "run" {
        return word(&told);
    }
    work.await;
    payments.fetch_add(1, Ordering::SeqCst);
    post(url, "/claim/complete", &json!({"pass": body(&told)["pass"], "reply": reply()})).await;
    "paid".to_owned()
}

/// The first payment takes longer than its lease, and a duplicate arrives meanwhile. Returns an error if that pays twice.
pub(crate) async fn slow_payment(store: &str, more: Value) -> Result<(), String> {
    let service = OncewardServer::start(&["--store", store]);
    let (url, payments, bank) = (&service.url, AtomicUsize::new(0), Notify::new());
    let claimed = with(with(asked("k"), json!({"lease": "300ms"})), more);
    let is_running = || async { body(&post(url, "/outcome", &asked("k")).await)["state"] == "running" };
    let repeat = async {
        until("the key is claimed", Duration::from_secs(3), is_running).await;
        let mut told = "in_progress".to_owned();
        while told == "in_progress" {
            tokio::time::sleep(Duration::from_millis(10)).await;
            told = pay(url, &claimed, std::future::ready(()), &payments).await;
        }
        bank.notify_one();
        told
    };
    let (first, repeated) = tokio::join!(pay(url, &claimed, bank.notified(), &payments), repeat);
    let payments = payments.load(Ordering::SeqCst);
    if (payments, first.as_str(), repeated.as_str()) != (1, "paid", "outcome_unknown") {
        return Err(format!("{payments} payments: the first received {first}, its duplicate {repeated}"));
    }
    let later = claim(url, &claimed).await;
    let is_replay = body(&later) == json!({"outcome": "replay", "reply": reply()});
    if is_replay { Ok(()) } else { Err(format!("the late completion of the first is not stored: {later:?}")) }
}

#[tokio::test]
async fn slow_backend_without_renewals_pays_once() {
    let redis = RedisServer::start();
    for store in ["memory:", &redis.url()] {
        slow_payment(store, json!({})).await.unwrap();
    }
}

#[tokio::test]
async fn run_returns_lease_and_renewal_interval() {
    let service = OncewardServer::start(&[]);
    for (more, lease, renew_every) in [
        (json!({}), "15s", "5s"),
        (json!({"lease": "1s"}), "1s", "333ms"),
        (json!({"lease": "100ms", "at_most_once": false}), "100ms", "33ms"),
        (json!({"lease": "1h", "attempt": "one"}), "1h", "20m"),
    ] {
        let run = body(&claim(&service.url, &with(asked(lease), more)).await);
        assert_eq!(
            (&run["outcome"], &run["lease"], &run["renew_every"]),
            (&json!("run"), &json!(lease), &json!(renew_every))
        );
    }
}

#[tokio::test]
async fn late_renewal_keeps_the_claim() {
    let service = OncewardServer::start(&[]);
    let (url, brief) = (&service.url, with(asked("k"), json!({"lease": "200ms"})));
    let late = pass(url, &brief).await;
    let is_unknown = || async { claim(url, &brief).await.said() == "409 outcome_unknown" };
    until("its lease has expired", Duration::from_secs(3), is_unknown).await;
    assert_eq!(say(url, "/claim/renew", &late).await, "204 ");
    assert_eq!(claim(url, &brief).await.said(), "409 in_progress");
    until("its lease has expired again", Duration::from_secs(3), is_unknown).await;
    assert_eq!(say(url, "/claim/release", &late).await, "204 ");
    pass(url, &brief).await;
}

#[tokio::test]
async fn unsignable_pass_leaves_no_claim() {
    let redis = RedisServer::start();
    let secret = Ticket::of(Kind::Secret, b"signing").name("onceward");
    // The stored secret is unreadable; the rest of the store works.
    redis.ask::<()>(&format!("LPUSH {secret} anything"));
    let service = OncewardServer::start(&["--store", &redis.url()]);
    for at_most_once in [false, true] {
        let said = with(
            asked(&format!("at most once: {at_most_once}")),
            json!({"at_most_once": at_most_once, "lease": "60s"}),
        );
        assert_eq!(claim(&service.url, &said).await.said(), "503 store_unavailable");
        assert_eq!(redis.keys(), [secret.as_str()], "nothing is claimed");
    }
    redis.ask::<()>(&format!("DEL {secret}"));
    for at_most_once in [false, true] {
        let said = with(
            asked(&format!("at most once: {at_most_once}")),
            json!({"at_most_once": at_most_once, "lease": "60s"}),
        );
        let runs = || async { word(&claim(&service.url, &said).await) == "run" };
        until("the pass is signed", Duration::from_secs(5), runs).await;
    }
}

#[tokio::test]
async fn renewed_claim_outlives_its_lease() {
    let service = OncewardServer::start(&[]);
    let url = &service.url;
    let brief = with(asked("k"), json!({"lease": "600ms"}));
    let given = pass(url, &brief).await;
    let is_renewed = || async {
        let renewed = say(url, "/claim/renew", &given).await;
        renewed == "204 " && claim(url, &brief).await.said() == "409 in_progress"
    };
    holds_for("the claim is renewed", Duration::from_millis(1500), is_renewed).await;
}

#[tokio::test]
async fn same_attempt_gets_the_same_pass_at_every_process() {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url()]));
    for at_most_once in [false, true] {
        let key = format!("at most once: {at_most_once}");
        let one = with(asked(&key), json!({"attempt": "one", "at_most_once": at_most_once}));
        let given = pass(&services[0].url, &one).await;
        assert_eq!(pass(&services[1].url, &one).await, given);
        let two = with(asked(&key), json!({"attempt": "two", "at_most_once": at_most_once}));
        assert_eq!(claim(&services[1].url, &two).await.said(), "409 in_progress");
        post(&services[1].url, "/claim/complete", &json!({"pass": given, "reply": reply()})).await;
        assert_eq!(word(&claim(&services[0].url, &one).await), "replay", "a late claim runs nothing again");
    }
}

#[tokio::test]
async fn waiting_claim_receives_the_reply() {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url()]));
    let given = pass(&services[0].url, &asked("k")).await;
    let waiting = with(asked("k"), json!({"wait": "20s"}));
    let complete = async {
        let waits = || async { Metrics::of(&services[1].url).await.sum(metric::WAITING.name, &[]) == 1.0 };
        until("it waits", Duration::from_secs(5), waits).await;
        post(&services[0].url, "/claim/complete", &json!({"pass": given, "reply": reply()})).await
    };
    let (told, completed) = tokio::join!(claim(&services[1].url, &waiting), complete);
    assert_eq!((completed.status, word(&told).as_str()), (204, "replay"), "{told:?}");
    let other = pass(&services[0].url, &asked("other")).await;
    let brief = with(asked("other"), json!({"wait": "20ms"}));
    assert_eq!(claim(&services[1].url, &brief).await.said(), "409 in_progress");
    assert_eq!(say(&services[0].url, "/claim/release", &other).await, "204 ");
}

#[tokio::test]
async fn oversized_reply_leaves_a_marker_and_oversized_body_is_rejected() {
    let service = OncewardServer::start(&[]);
    let url = &service.url;
    let given = pass(url, &asked("k")).await;
    let large = json!({"pass": given, "reply": {"status": 200, "body": "QUFB".repeat(360_000)}});
    assert_eq!(post(url, "/claim/complete", &large).await.status, 204);
    assert_eq!(claim(url, &asked("k")).await.said(), "409 reply_not_kept");
    let far_too_large = json!({"pass": given, "reply": {"status": 200, "body": "QUFB".repeat(600_000)}});
    assert_eq!(post(url, "/claim/complete", &far_too_large).await.said(), "413 body_too_large");
}

#[tokio::test]
async fn outcome_lookup_changes_nothing() {
    let redis = RedisServer::start();
    for store in ["memory:", &redis.url()] {
        let service = OncewardServer::start(&["--store", store]);
        let url = &service.url;
        let outcome = async |asked: Value| body(&post(url, "/outcome", &asked).await);
        assert_eq!(outcome(asked("k")).await, json!({"state": "absent"}));
        let given = pass(url, &asked("k")).await;
        assert_eq!(outcome(asked("k")).await, json!({"state": "running"}));
        post(url, "/claim/complete", &json!({"pass": given, "reply": reply()})).await;
        assert_eq!(outcome(asked("k")).await, json!({"state": "done", "reply": reply()}));

        let token = onceward_tests::client::token(url).await;
        assert_eq!(outcome(json!({ "token": token })).await, json!({"state": "issued"}));
        assert_eq!(outcome(json!({ "token": token })).await, json!({"state": "issued"}), "a lookup uses nothing");
        assert_eq!(post(url, "/token/redeem", &json!({ "token": token })).await.status, 200);
        assert_eq!(outcome(json!({ "token": token })).await, json!({"state": "absent"}));
        let forged = post(url, "/outcome", &json!({"token": "ow1_x"})).await;
        assert_eq!(forged.said(), "400 token_malformed");
    }
}

#[tokio::test]
async fn bad_claim_is_rejected_by_field_and_claims_nothing() {
    let service = OncewardServer::start(&[]);
    let url = &service.url;
    let claims = [
        (json!({}), "key"),
        (json!({"key": "k", "action": "a"}), "subject"),
        (json!({"key": "k", "subject": "s"}), "action"),
        (with(asked("k"), json!({"action": ""})), "action"),
        (with(asked("k"), json!({"subject": ""})), "subject"),
        (with(asked("k"), json!({"subject": 7})), "subject"),
        (with(asked("k"), json!({"fingerprint": ""})), "fingerprint"),
        (with(asked("k"), json!({"lease": "99ms"})), "lease"),
        (with(asked("k"), json!({"lease": "2h"})), "lease"),
        (with(asked("k"), json!({"lease": 15})), "lease"),
        (with(asked("k"), json!({"lease": 15, "retain": 15})), "lease"),
        (with(asked("k"), json!({"retain": "soon", "wait": "soon"})), "retain"),
        (with(asked("k"), json!({"retain": "0s"})), "retain"),
        (with(asked("k"), json!({"retain": "401d"})), "retain"),
        (with(asked("k"), json!({"wait": "31s"})), "wait"),
        (with(asked("k"), json!({"at_most_once": "yes"})), "at_most_once"),
        (with(asked("k"), json!({"attempt": "a b"})), "attempt"),
        (with(asked("k"), json!({"atempt": "a"})), "atempt"),
    ];
    for (wrong, field) in claims {
        let refused = claim(url, &wrong).await;
        assert_eq!(refused.said(), "400 bad_request", "{wrong}");
        let named = refused.problem().detail;
        assert!(named.contains(&format!("`{field}`")), "{wrong}: {named}");
        assert!(field == "action" || !named.starts_with("`action`"), "the action is valid: {named}");
    }
    for key in [String::new(), "a\nb".to_owned(), "x".repeat(256)] {
        assert_eq!(claim(url, &asked(&key)).await.said(), "400 key_malformed");
    }
    let given = pass(url, &asked("k")).await;
    let replies = [
        (json!({"status": 99}), "status"),
        (json!({"status": 600}), "status"),
        (json!({"headers": []}), "status"),
        (json!({"status": 200, "body": "%%%"}), "body"),
        (json!({"status": 200, "headers": [["a b", "c"]]}), "headers"),
        (json!({"status": 200, "headers": [["a", "b\r\nc"]]}), "headers"),
        (json!({"status": 200, "headers": [["a"]]}), "reply"),
    ];
    for (wrong, field) in replies {
        let refused = post(url, "/claim/complete", &json!({"pass": given, "reply": wrong})).await;
        assert_eq!(refused.said(), "400 bad_request", "{wrong}");
        assert!(refused.problem().detail.contains(&format!("`{field}`")), "{wrong}: {}", refused.problem().detail);
    }
    assert_eq!(claim(url, &asked("k")).await.said(), "409 in_progress", "nothing was completed");
    for (wrong, field) in [
        (json!({}), "key"),
        (json!({"key": "k", "token": "t"}), "key"),
        (json!({"key": "k", "action": "a"}), "subject"),
        (json!({"key": "k", "subject": "s"}), "action"),
        (json!({"key": "k", "action": "", "subject": ""}), "action"),
    ] {
        let refused = post(url, "/outcome", &wrong).await;
        assert_eq!(refused.said(), "400 bad_request", "{wrong}");
        assert!(refused.problem().detail.contains(&format!("`{field}`")), "{wrong}");
    }
}

#[tokio::test]
async fn claim_and_outcome_require_the_api_key() {
    let service = OncewardServer::start(&["--api-key", "a-key-of-some-length"]);
    for path in ["/claim", "/claim/complete", "/claim/release", "/claim/renew", "/outcome"] {
        let refused = post(&service.url, path, &asked("k")).await;
        assert_eq!(
            (refused.said().as_str(), &refused.headers["www-authenticate"]),
            ("401 unauthorized", &"Bearer".parse().unwrap())
        );
        let wrong_method =
            onceward_tests::client::send(onceward_tests::client::http().get(format!("{}{path}", service.url))).await;
        assert_eq!(
            (wrong_method.said().as_str(), &wrong_method.headers["allow"]),
            ("405 method_not_allowed", &"POST".parse().unwrap())
        );
    }
}

#[tokio::test]
async fn unavailable_store_lets_no_claim_run() {
    let mut redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url()]);
    let given = pass(&service.url, &asked("k")).await;
    redis.kill();
    let refused = claim(&service.url, &asked("other")).await;
    assert_eq!((refused.said().as_str(), refused.headers.contains_key("retry-after")), ("503 store_unavailable", true));
    for path in ["/claim/complete", "/claim/release", "/claim/renew"] {
        assert_eq!(say(&service.url, path, &given).await, "503 store_unavailable");
    }
    assert_eq!(post(&service.url, "/outcome", &asked("k")).await.said(), "503 store_unavailable");
}
