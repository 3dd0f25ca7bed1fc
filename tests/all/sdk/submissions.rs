//! The Rust SDK against guarded applications: one submission has one effect and a response with its outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::store::Memory;
use onceward_client::{Client, Code, Key, OncewardMiddleware, Outcome, RetryLimits};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first, smooth};
use onceward_tests::polling::until;
use onceward_tests::sdk_client::{builder, client};
use onceward_tests::shop::{ORDER, STATUS, Shop, USER};
use reqwest::redirect::Policy;
use serde_json::json;

#[tokio::test]
async fn submission_fetches_its_own_token() {
    let shop = Shop::on(Memory::new());
    let client = client();
    for order in ["one", "two", "three"] {
        let url = format!("{}/orders", shop.url());
        let answer = client.post(&url).header(ORDER, order).json(&json!({"tea": 2})).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.outcome(), answer.attempts()), (200, Some(Outcome::Executed), 1));
        assert_eq!(answer.text().await.unwrap(), "ordered with 9 bytes");
    }
    assert_eq!(shop.ledger.runs(), ["one", "two", "three"]);
}

#[tokio::test]
async fn every_method_is_a_submission() {
    let shop = Shop::on(Memory::new());
    let (client, url) = (client(), format!("{}/orders", shop.url()));
    for submission in [client.post(&url), client.put(&url), client.patch(&url), client.delete(&url)] {
        assert_eq!(submission.send().await.unwrap().outcome(), Some(Outcome::Executed));
    }
    assert_eq!(shop.ledger.runs().len(), 4);
}

#[tokio::test]
async fn existing_reqwest_client_is_supported() {
    let shop = Shop::on(Memory::new());
    let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    let client = Client::builder().http_without_redirects(http).with_keys_of("tests").build().unwrap();
    let answer = client.post(format!("{}/keyed/orders", shop.url())).send().await.unwrap();
    assert_eq!(answer.outcome(), Some(Outcome::Executed));
}

#[tokio::test]
async fn lost_response_is_replayed_by_key_and_remembered_token() {
    let shop = Shop::on(Memory::new());
    for (path, client) in [("/keyed/orders", builder().with_keys().build().unwrap()), ("/remembered/orders", client())]
    {
        for percent in [0, 20, 99] {
            let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(percent)])).await;
            let order = format!("{path} {percent}");
            let answer = client.post(format!("{}{path}", way.url)).header(ORDER, &order).send().await.unwrap();
            assert!(answer.is_replayed() && answer.attempts() == 2, "{order}: {answer:?}");
            assert_eq!(answer.text().await.unwrap().len(), 36, "the complete body");
            assert_eq!(shop.ledger.count(&order), 1);
        }
    }
}

#[tokio::test]
async fn used_token_is_unknown_only_after_an_own_lost_attempt() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0)])).await;
    let url = format!("{}/orders", way.url);
    let unknown = client().post(&url).header(ORDER, "lost").send().await.unwrap_err();
    assert!(unknown.is_unknown() && !unknown.is_duplicate() && !unknown.ran_nothing(), "{unknown:?}");
    assert_eq!((unknown.code(), unknown.attempts(), unknown.key()), (Some(Code::TokenUsed), 2, None));
    assert_eq!(shop.ledger.count("lost"), 1);

    way.plan(first([HttpFault::Reject(Code::TokenUsed)]));
    let duplicate = client().post(&url).header(ORDER, "refused").send().await.unwrap_err();
    assert!(duplicate.is_duplicate() && !duplicate.is_unknown() && duplicate.attempts() == 1, "{duplicate:?}");
    assert_eq!(shop.ledger.count("refused"), 0);
}

#[tokio::test]
async fn retry_after_is_obeyed() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::RefuseFor(Code::StoreUnavailable, 1)])).await;
    let begun = tokio::time::Instant::now();
    let answer = client().post(format!("{}/orders", way.url)).send().await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1) && answer.attempts() == 2);

    way.plan(first([HttpFault::RefuseFor(Code::Overloaded, 3600)]));
    let error = client().post(format!("{}/orders", way.url)).send().await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3600)), "the client does not wait for an hour");
    assert!(error.ran_nothing() && begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn stale_token_replaces_the_whole_pool_once() {
    let first_run = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(first_run.url(), smooth).await;
    let (client, url) = (client(), format!("{}/orders", way.url));
    client.warm_up(&url, 10).await.unwrap();
    client.post(&url).send().await.unwrap();
    // The second server has a new memory store, as after a restart.
    let second_run = Shop::on(Memory::new());
    way.lead_to(second_run.url());
    let answers: Vec<u32> = [client.post(&url).send().await, client.post(&url).send().await]
        .map(|answer| answer.unwrap().attempts())
        .to_vec();
    assert_eq!(answers, [2, 1], "only the first submission used a stale token");
    assert_eq!(second_run.ledger.runs().len(), 2);
}

#[tokio::test]
async fn own_key_is_returned_in_the_error_and_resumed() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), first(vec![HttpFault::CutAnswer(0); 5])).await;
    let url = format!("{}/keyed/orders", way.url);
    let key = onceward_client::generate_key(Some("jobs")).unwrap();
    let error = client().post(&url).key(key.clone()).header(ORDER, "a").body("tea").send().await.unwrap_err();
    assert!(error.is_unknown() && error.attempts() == 5, "{error:?}");
    let saved = error.key().unwrap().as_str().to_owned();
    assert_eq!(saved, key.as_str());
    assert!(!format!("{error} {error:?}").contains(&saved));

    // Later, in another process.
    let answer =
        client().post(&url).resume(Key::new(saved).unwrap()).header(ORDER, "a").body("tea").send().await.unwrap();
    assert!(answer.is_replayed());
    assert_eq!(shop.ledger.count("a"), 1);
}

#[tokio::test]
async fn credentials_are_refreshed_and_the_key_stays() {
    let shop = Shop::on(Memory::new());
    let (asked, refused) = (Arc::new(AtomicUsize::new(0)), HttpFault::Instead(401));
    let count = Arc::clone(&asked);
    let client = builder().with_keys().authorization(move |again| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        async move { Ok(format!("Bearer alice.{}", if again { number + 100 } else { 0 })) }
    });
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0), refused])).await;
    let url = format!("{}/keyed/bearer", way.url);
    let answer = client.build().unwrap().post(&url).header(ORDER, "a").send().await.unwrap();
    assert!(answer.is_replayed() && shop.ledger.count("a") == 1);
    let seen = way.submissions();
    let sent: Vec<_> = seen.iter().map(|seen| seen.header("authorization")).collect();
    assert_eq!(sent, ["Bearer alice.0", "Bearer alice.0", "Bearer alice.102"]);
    assert!(seen.iter().all(|request| request.header("idempotency-key") == seen[0].header("idempotency-key")));
}

#[tokio::test]
async fn failed_credential_refresh_leaves_earlier_attempt_unknown() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0)])).await;
    let asked = AtomicUsize::new(0);
    let client = builder().with_keys().authorization(move |_| {
        let is_first = asked.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if is_first { Ok("Bearer alice.1".to_owned()) } else { Err("the sign-in is down".into()) } }
    });
    let client = client.build().unwrap();
    let error = client.post(format!("{}/keyed/bearer", way.url)).header(ORDER, "a").send().await.unwrap_err();
    assert!(error.is_unknown() && error.key().is_some() && error.attempts() == 2, "{error:?}");
    assert!(error.to_string().contains("the sign-in is down") && shop.ledger.count("a") == 1, "{error}");
    let never = client.post(format!("{}/keyed/bearer", way.url)).send().await.unwrap_err();
    assert!(never.is_misuse() && never.ran_nothing(), "{never:?}");
}

#[tokio::test]
async fn hanging_credentials_end_at_the_deadline_and_block_no_other() {
    let shop = Shop::on(Memory::new());
    let limits = RetryLimits::new().attempt_timeout(Duration::from_millis(200)).deadline(Duration::from_secs(2));
    for (path, builder) in [("/keyed/orders", builder().with_keys()), ("/orders", builder())] {
        let asked = AtomicUsize::new(0);
        let client = builder.limits(limits).authorization(move |_| {
            let hangs = asked.fetch_add(1, Ordering::SeqCst) == 0;
            async move { if hangs { std::future::pending().await } else { Ok("Bearer alice.1".to_owned()) } }
        });
        let (client, url) = (client.build().unwrap(), format!("{}{path}", shop.url()));
        let first = tokio::time::timeout(Duration::from_secs(10), client.post(&url).send()).await;
        let error = first.expect("the submission ends by itself").unwrap_err();
        assert!(error.ran_nothing() && error.to_string().contains("could not be fetched"), "{path}: {error:?}");
        assert!(client.post(&url).send().await.is_ok(), "{path}");
    }
}

#[tokio::test]
async fn gateway_failure_after_a_lost_attempt_is_unknown() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0), HttpFault::Instead(403)])).await;
    let url = format!("{}/orders", way.url);
    let error = client().post(&url).header(ORDER, "lost").send().await.unwrap_err();
    assert!(error.is_unknown() && error.attempts() == 2, "{error:?}");
    assert_eq!(shop.ledger.count("lost"), 1);
    way.plan(first([HttpFault::Instead(403)]));
    assert_eq!(client().post(&url).send().await.unwrap().status(), 403, "nothing was lost before");
}

#[tokio::test]
async fn tokens_of_one_identity_are_not_used_for_another() {
    let shop = Shop::on(Memory::new());
    let client = builder().tokens_from(format!("{}/my", shop.url())).build().unwrap();
    let url = format!("{}/mine/bound", shop.url());
    for user in ["alice", "bob", "alice"] {
        let submission = client.post(&url).identity(USER, user).bound().header(ORDER, user);
        assert_eq!(submission.send().await.unwrap().outcome(), Some(Outcome::Executed), "{user}");
    }
    let anonymous = client.post(&url).bound().send().await.unwrap_err();
    assert!(anonymous.is_without_token() && anonymous.code() == Some(Code::Unauthorized), "{anonymous:?}");
    assert!(anonymous.to_string().contains("identity"), "{anonymous}");
}

#[tokio::test]
async fn any_application_status_is_returned_as_the_response() {
    let shop = Shop::on(Memory::new());
    for status in [400, 404, 409, 422, 429, 500, 503, 504] {
        let submission = client().post(format!("{}/orders", shop.url())).header(STATUS, status).header(ORDER, "own");
        assert_eq!(submission.send().await.unwrap().status().as_u16(), status);
    }
    assert_eq!(shop.ledger.count("own"), 8, "each ran once");
}

#[tokio::test]
async fn middleware_submits_unsafe_methods() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0)])).await;
    let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    let onceward = builder().http_without_redirects(http.clone()).with_keys().build().unwrap();
    let client = reqwest_middleware::ClientBuilder::new(http).with(OncewardMiddleware::new(onceward)).build();
    let url = format!("{}/keyed/orders", way.url);
    let answer = client.post(&url).header(ORDER, "a").body("tea").send().await.unwrap();
    assert_eq!((answer.headers()["onceward-outcome"].to_str().unwrap(), shop.ledger.count("a")), ("replayed", 1));

    let own = || client.post(&url).header(ORDER, "b").with_extension(Key::new("own").unwrap()).send();
    assert_eq!(own().await.unwrap().headers()["onceward-outcome"], "executed");
    assert_eq!(own().await.unwrap().headers()["onceward-outcome"], "replayed");
    let headed = client.post(&url).header(ORDER, "b").header("idempotency-key", "own").send().await.unwrap();
    assert_eq!(headed.headers()["onceward-outcome"], "replayed");
    let other = client.post(&url).body("other").with_extension(Key::new("own").unwrap()).send().await.unwrap_err();
    let reqwest_middleware::Error::Middleware(other) = other else { panic!("ours: {other}") };
    assert_eq!(other.downcast_ref::<onceward_client::Error>().unwrap().code(), Some(Code::KeyReused));

    assert_eq!(client.get(format!("{}/open", way.url)).send().await.unwrap().status(), 200);
    let question = way.seen().pop().unwrap();
    assert_eq!((question.line.as_str(), question.header("idempotency-key")), ("GET /open", ""));
}

#[tokio::test]
async fn dropped_submission_leaves_the_others_alone() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), |seen| match seen.fetches() {
        true => HttpFault::Delay(Duration::from_millis(200)),
        false => HttpFault::None,
    });
    let (way, client) = (way.await, client());
    let url = format!("{}/orders", way.url);
    let impatient = tokio::spawn(client.post(&url).send());
    until("the fetch is in flight", Duration::from_secs(5), || async { !way.seen().is_empty() }).await;
    let patient = tokio::spawn(client.post(&url).header(ORDER, "patient").send());
    impatient.abort();
    assert!(patient.await.unwrap().is_ok());
    assert_eq!(shop.ledger.runs(), ["patient"]);
}
