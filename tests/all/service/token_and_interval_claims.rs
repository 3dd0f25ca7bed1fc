//! The claim API with tokens and intervals: a backend in any language returns the first response to the second click.

use std::time::Duration;

use futures_util::future::join_all;
use onceward_tests::client::{token, token_for};
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::post;
use serde_json::{Value, json};

use super::claims::{body, claim, pass, reply, say, with, word};

fn order(token: &str) -> Value {
    json!({"token": token, "action": "POST /orders"})
}

fn comment(said: &str) -> Value {
    json!({"interval": "1s", "action": "POST /comments", "subject": "alice", "fingerprint": said})
}

async fn complete(url: &str, pass: &str) -> String {
    post(url, "/claim/complete", &json!({"pass": pass, "reply": reply()})).await.said()
}

#[tokio::test]
async fn second_click_receives_the_first_response_at_any_process() {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url()]));
    let memory = OncewardServer::start(&[]);
    for [here, there] in [[&services[0].url, &services[1].url], [&memory.url; 2]] {
        let token = token(here).await;
        let first = pass(here, &order(&token)).await;
        assert_eq!(claim(there, &order(&token)).await.said(), "409 in_progress");
        assert_eq!(say(there, "/claim/renew", &first).await, "204 ");
        for url in [there, here] {
            assert_eq!(complete(url, &first).await, "204 ");
        }
        for url in [here, there] {
            let replay = claim(url, &order(&token)).await;
            assert_eq!(body(&replay), json!({"outcome": "replay", "reply": reply()}));
            let seen = post(url, "/outcome", &order(&token)).await;
            assert_eq!(body(&seen), json!({"state": "done", "reply": reply()}));
        }
        for path in ["/claim/release", "/claim/renew"] {
            assert_eq!(say(here, path, &first).await, "409 claim_lost");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_32_concurrent_claims_of_a_token_at_two_processes_runs() {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url()]));
    for _ in 0..20 {
        let asked = order(&token(&services[0].url).await);
        let told = join_all((0..32).map(|racer| claim(&services[racer % 2].url, &asked))).await;
        let told: Vec<_> = told.iter().map(word).collect();
        assert_eq!(told.iter().filter(|word| *word == "run").count(), 1, "{told:?}");
        assert_eq!(told.iter().filter(|word| *word == "in_progress").count(), 31, "{told:?}");
    }
}

/// One half of the callers redeems the token, the other claims it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_claimed_and_redeemed_concurrently_is_accepted_once() {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url()]));
    for _ in 0..20 {
        let token = token(&services[0].url).await;
        let racers = (0..32).map(|racer| {
            let (url, asked) = (&services[racer / 2 % 2].url, order(&token));
            async move {
                match racer % 2 {
                    0 => claim(url, &asked).await,
                    _ => post(url, "/token/redeem", &asked).await,
                }
            }
        });
        let accepted = join_all(racers).await.iter().filter(|answer| answer.status == 200).count();
        assert_eq!(accepted, 1);
    }
}

#[tokio::test]
async fn released_token_is_valid_again_and_abandoned_one_unknown() {
    let service = OncewardServer::start(&[]);
    let url = &service.url;
    let token = token(url).await;
    let first = pass(url, &order(&token)).await;
    for _ in 0..2 {
        assert_eq!(say(url, "/claim/release", &first).await, "204 ");
    }
    let brief = with(order(&token), json!({"lease": "200ms"}));
    let second = pass(url, &brief).await;
    assert_eq!(say(url, "/claim/release", &first).await, "409 claim_lost", "that is another run");
    let is_unknown = || async { claim(url, &brief).await.said() == "409 outcome_unknown" };
    until("its lease has expired", Duration::from_secs(3), is_unknown).await;
    assert_eq!(post(url, "/token/redeem", &order(&token)).await.said(), "409 token_used");
    assert_eq!(complete(url, &second).await, "204 ", "the backend was only slow");
    assert_eq!(word(&claim(url, &brief).await), "replay");
}

#[tokio::test]
async fn repeated_attempt_gets_the_same_pass() {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url()]));
    let [here, there] = [&services[0].url, &services[1].url];
    let token = token(here).await;
    for asked in [order(&token), with(comment("a"), json!({"interval": "1m"}))] {
        let named = with(asked.clone(), json!({"attempt": "one"}));
        let first = pass(here, &named).await;
        assert_eq!(pass(there, &named).await, first);
        assert_eq!(claim(here, &asked).await.status, 409);
        assert_eq!(say(there, "/claim/release", &first).await, "204 ");
        assert_ne!(pass(there, &named).await, first, "a released run has ended");
    }
}

#[tokio::test]
async fn duplicate_of_a_token_waits_for_the_response() {
    let service = OncewardServer::start(&[]);
    let url = &service.url;
    let asked = order(&token(url).await);
    let first = pass(url, &asked).await;
    let waiting = with(asked.clone(), json!({"wait": "10s"}));
    let (waited, completed) = tokio::join!(claim(url, &waiting), async {
        until("the duplicate waits", Duration::from_secs(5), || async {
            String::from_utf8_lossy(&onceward_tests::service_calls::get(url, "/metrics").await.body)
                .contains("onceward_waiting_duplicates 1")
        })
        .await;
        complete(url, &first).await
    });
    assert_eq!((word(&waited).as_str(), completed.as_str()), ("replay", "204 "));
}

#[tokio::test]
async fn token_claim_checks_action_subject_and_sender() {
    let service = OncewardServer::start(&[]);
    let url = &service.url;
    let bound = token_for(url, r#"{"action":"POST /orders","subject":"alice"}"#).await;
    let asked = |token: &str, more| with(order(token), more);
    for (more, said) in [
        (json!({}), "403 token_invalid"),
        (json!({"subject": "bob"}), "403 token_invalid"),
        (json!({"subject": "alice", "action": "POST /refunds"}), "403 token_invalid"),
        (json!({"subject": "alice", "bound": true}), "200 "),
    ] {
        assert_eq!(claim(url, &asked(&bound, more.clone())).await.said(), said, "{more}");
    }
    let unbound = token(url).await;
    assert_eq!(claim(url, &asked(&unbound, json!({"bound": true}))).await.said(), "403 token_invalid");
    let first = pass(url, &asked(&unbound, json!({"subject": "alice", "fingerprint": "tea"}))).await;
    complete(url, &first).await;
    for (more, said) in [
        (json!({"subject": "bob", "fingerprint": "tea"}), "409 token_used"),
        (json!({"fingerprint": "tea"}), "409 token_used"),
        (json!({"subject": "alice", "fingerprint": "coffee"}), "409 token_used"),
        (json!({"subject": "alice", "fingerprint": "tea"}), "200 "),
    ] {
        assert_eq!(claim(url, &asked(&unbound, more.clone())).await.said(), said, "{more}");
    }
    for (token, said) in [("", "400 token_malformed"), ("ow1_x", "400 token_malformed")] {
        assert_eq!(claim(url, &order(token)).await.said(), said);
    }
    let strange = token(&OncewardServer::start(&[]).url).await;
    assert_eq!(claim(url, &order(&strange)).await.said(), "403 token_invalid");
}

#[tokio::test]
async fn same_content_is_accepted_once_per_interval_over_http() {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url()]));
    let [here, there] = [&services[0].url, &services[1].url];
    let first = claim(here, &comment("a")).await;
    assert_eq!((&body(&first)["lease"], &body(&first)["renew_every"]), (&json!("1s"), &json!("666ms")));
    assert_eq!(claim(there, &comment("a")).await.said(), "409 too_soon");
    let other = [json!({"fingerprint": "b"}), json!({"subject": "bob"}), json!({"action": "POST /likes"})];
    for more in other {
        pass(there, &with(comment("a"), more)).await;
    }
    assert_eq!(complete(there, body(&first)["pass"].as_str().unwrap()).await, "204 ");
    assert_eq!(claim(here, &comment("a")).await.said(), "409 too_soon", "a success keeps the interval");
    let is_over = || async { word(&claim(here, &comment("a")).await) == "run" };
    until("the interval has ended", Duration::from_secs(5), is_over).await;

    let failed = pass(here, &with(comment("c"), json!({"interval": "1h"}))).await;
    assert_eq!(say(there, "/claim/release", &failed).await, "204 ");
    pass(there, &with(comment("c"), json!({"interval": "1h"}))).await;

    let named = json!({"key": "newsletter", "interval": "1h", "action": "send", "subject": "editor"});
    pass(here, &named).await;
    assert_eq!(claim(there, &named).await.said(), "409 too_soon");
}

#[tokio::test]
async fn remembered_interval_returns_the_reply_until_it_ends() {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url()]));
    let [here, there] = [&services[0].url, &services[1].url];
    let asked = with(comment("a"), json!({"interval": "3s", "remember": true}));
    let first = pass(here, &asked).await;
    assert_eq!(claim(there, &asked).await.said(), "409 in_progress");
    let waiting = with(asked.clone(), json!({"wait": "10s"}));
    let (waited, completed) = tokio::join!(claim(there, &waiting), complete(there, &first));
    assert_eq!((body(&waited), completed.as_str()), (json!({"outcome": "replay", "reply": reply()}), "204 "));
    assert_eq!(complete(here, &first).await, "204 ", "it can be repeated");
    assert_eq!(word(&claim(here, &asked).await), "replay");
    assert_eq!(word(&claim(here, &with(asked.clone(), json!({"fingerprint": "b"}))).await), "run");
    let is_over = || async { word(&claim(there, &asked).await) == "run" };
    until("the interval has ended", Duration::from_secs(6), is_over).await;
    assert_eq!(say(here, "/claim/release", &first).await, "409 claim_lost", "that is another run");

    let named =
        json!({"key": "k", "interval": "1h", "remember": true, "action": "a", "subject": "s", "fingerprint": "x"});
    let failed = pass(here, &named).await;
    assert_eq!(say(there, "/claim/release", &failed).await, "204 ");
    assert_eq!(complete(there, &pass(here, &named).await).await, "204 ");
    assert_eq!(word(&claim(there, &named).await), "replay");
    assert_eq!(claim(there, &with(named, json!({"fingerprint": "y"}))).await.said(), "422 key_reused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_32_concurrent_claims_of_an_interval_runs() {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url()]));
    for round in 0..20 {
        let asked = with(comment(&round.to_string()), json!({"interval": "1m"}));
        let told = join_all((0..32).map(|racer| claim(&services[racer % 2].url, &asked))).await;
        let told: Vec<_> = told.iter().map(word).collect();
        assert_eq!(told.iter().filter(|word| *word == "run").count(), 1, "{told:?}");
        assert_eq!(told.iter().filter(|word| *word == "too_soon").count(), 31, "{told:?}");
    }
}

#[tokio::test]
async fn field_without_effect_on_a_claim_is_rejected() {
    let service = OncewardServer::start(&[]);
    let token = token(&service.url).await;
    let key = || json!({"key": "k", "action": "a", "subject": "alice"});
    for (asked, field) in [
        (json!({"action": "a", "subject": "alice"}), "`key`, `token` or `interval`"),
        (with(order(&token), json!({"key": "k"})), "`token`"),
        (with(order(&token), json!({"interval": "2s"})), "`token`"),
        (with(order(&token), json!({"at_most_once": false})), "`at_most_once`"),
        (with(key(), json!({"bound": true})), "`bound`"),
        (json!({"key": "k", "action": "a"}), "`subject`"),
        (json!({"interval": "2s", "action": "a"}), "`subject`"),
        (with(key(), json!({"action": ""})), "`action`"),
        (with(comment("a"), json!({"lease": "2s"})), "`lease`"),
        (with(comment("a"), json!({"retain": "2s"})), "`retain`"),
        (with(comment("a"), json!({"wait": "2s"})), "`wait`"),
        (with(comment("a"), json!({"at_most_once": true})), "`at_most_once`"),
        (with(comment("a"), json!({"key": "k"})), "`fingerprint`"),
        (with(comment("a"), json!({"interval": "299ms"})), "`interval`"),
        (with(comment("a"), json!({"interval": "86401s"})), "`interval`"),
        (with(comment("a"), json!({"interval": "soon"})), "duration"),
    ] {
        let answer = claim(&service.url, &asked).await;
        assert_eq!(answer.said(), "400 bad_request", "{asked}");
        assert!(answer.problem().detail.contains(field), "{asked}: {}", answer.problem().detail);
    }
    assert_eq!(word(&claim(&service.url, &order(&token)).await), "run", "the token was not used");
}
