//! Submissions with a token or key run once, and duplicates receive the first response.

use onceward_api::header;
use onceward_tests::client::{Answer, MULTIPART, http, multipart, send};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first, smooth};
use onceward_tests::legacy_shop::{LegacyShop, proxy_to};
use onceward_tests::polling::until;
use onceward_tests::raw_http;
use onceward_tests::redis_server::RedisServer;
use reqwest::RequestBuilder;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

use super::submission::{LONG, form, keyed, order, token, tokened};

/// Sends a request twice, and checks that the second receives the first response without its cookies.
async fn twice(request: RequestBuilder) -> [Answer; 2] {
    let again = request.try_clone().unwrap();
    let answers = [send(request).await, send(again).await];
    let [first, second] = &answers;
    assert_eq!((first.said().as_str(), second.said().as_str()), ("201 executed", "201 replayed"), "{answers:?}");
    assert_eq!((first.body.is_empty(), &first.body), (false, &second.body));
    assert_eq!(second.headers[header::IDEMPOTENT_REPLAYED], "true");
    assert!(!first.headers.contains_key(header::IDEMPOTENT_REPLAYED) && !second.headers.contains_key("set-cookie"));
    answers
}

#[tokio::test]
async fn token_from_any_source_runs_once_and_replays() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    twice(form(&proxy, "/orders", &token(&proxy).await)).await;
    twice(order(&proxy, &format!("/orders?a=1&_onceward={}", token(&proxy).await), "milk")).await;
    let parts = multipart(&[("_onceward", token(&proxy).await.as_bytes()), ("file", &[b'x'; 5000])]);
    let upload = http().post(format!("{}/uploads", proxy.url)).header("content-type", MULTIPART).body(parts.clone());
    twice(upload).await;
    let [first, second] = twice(tokened(&proxy, "/api/orders", &token(&proxy).await)).await;
    for (name, kept) in [("location", true), ("x-cost", true), ("set-cookie", false)] {
        assert!(first.headers.contains_key(name), "{name}");
        assert_eq!(first.headers.get(name).filter(|_| kept), second.headers.get(name), "{name}");
    }
    let items: Vec<_> = shop.orders().iter().map(|order| order["item"].as_str().unwrap().to_owned()).collect();
    assert_eq!(items, ["tea", "milk", &format!("{} bytes", parts.len()), "tea"]);
}

#[tokio::test]
async fn key_runs_once_and_replays_the_same_content_only() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    twice(keyed(&proxy, "/api/orders", "one")).await;
    let other = order(&proxy, "/api/orders", "milk").header(header::IDEMPOTENCY_KEY, "one");
    let other = send(other).await;
    assert_eq!((other.said().as_str(), shop.orders().len()), ("422 key_reused", 1));
    assert!(!String::from_utf8_lossy(&other.body).contains("tea"), "{other:?}");
    twice(keyed(&proxy, "/api/orders", "two")).await;
    assert_eq!(shop.orders().len(), 2);
}

#[tokio::test]
async fn used_token_with_other_content_is_rejected() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let token = token(&proxy).await;
    assert_eq!(send(tokened(&proxy, "/orders", &token)).await.said(), "201 executed");
    let other = order(&proxy, "/orders", "milk").header(header::TOKEN, &token);
    assert_eq!(send(other).await.said(), "409 token_used");
    assert_eq!(send(tokened(&proxy, "/others", &token)).await.said(), "409 token_used");
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_duplicates_through_two_proxies_all_receive_the_first_response() {
    let (shop, redis) = (LegacyShop::start(), RedisServer::start());
    let patient = ["--store", &redis.url(), "--store-timeout", "5s"];
    let proxies = [shop.proxy(&patient), shop.proxy(&patient)];
    let token = token(&proxies[0]).await;
    let mut sent = JoinSet::new();
    for number in 0..30 {
        sent.spawn(send(tokened(&proxies[number % 2], "/api/orders?slow=0.3", &token)));
    }
    let answers = sent.join_all().await;
    assert_eq!(shop.orders().len(), 1);
    let executed = answers.iter().filter(|answer| answer.said() == "201 executed").count();
    assert_eq!(executed, 1);
    for answer in &answers {
        assert!(answer.said() == "201 executed" || answer.said() == "201 replayed", "{answer:?}");
        assert_eq!(answer.body, answers[0].body);
    }
}

#[tokio::test]
async fn concurrent_duplicate_of_a_key_is_told_to_retry() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let first = tokio::spawn(send(keyed(&proxy, "/orders?slow=1", "k")));
    until("the first request runs", LONG, || std::future::ready(shop.orders().len() == 1)).await;
    let second = send(keyed(&proxy, "/orders?slow=1", "k")).await;
    assert_eq!(second.said(), "409 in_progress");
    assert_eq!(first.await.unwrap().said(), "201 executed");
    assert_eq!(send(keyed(&proxy, "/orders?slow=1", "k")).await.said(), "201 replayed");
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn submission_without_token_or_key_passes_unprotected() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    for count in 1..=2 {
        let answer = send(order(&proxy, "/orders", "tea")).await;
        assert_eq!((answer.said().as_str(), shop.orders().len()), ("201 unprotected", count));
        assert!(!answer.headers.contains_key(header::IDEMPOTENT_REPLAYED));
    }
    let page = send(http().get(format!("{}/", proxy.url))).await;
    assert_eq!((page.status, page.outcome.as_str()), (200, ""), "a GET request is no submission");
    assert_eq!(shop.orders()[0]["run"], Value::Null, "no run without protection");
}

#[tokio::test]
async fn required_token_or_key_rejects_submissions_without_it() {
    let shop = LegacyShop::start();
    for (require, with_token, with_key, with_neither) in [
        ("token", "201 executed", "400 token_missing", "400 token_missing"),
        ("key", "400 key_missing", "201 executed", "400 key_missing"),
        ("either", "201 executed", "201 executed", "400 token_missing"),
    ] {
        let proxy = shop.proxy(&["--require", require]);
        let before = shop.orders().len();
        let token = token(&proxy).await;
        let said = [
            send(tokened(&proxy, "/orders", &token)).await.said(),
            send(keyed(&proxy, "/orders", "k")).await.said(),
            send(order(&proxy, "/orders", "tea")).await.said(),
        ];
        assert_eq!(said, [with_token, with_key, with_neither], "{require}");
        let ran = said.iter().filter(|said| said.as_str() == "201 executed").count();
        assert_eq!(shop.orders().len() - before, ran, "{require}");
        assert_eq!(send(http().get(format!("{}/", proxy.url))).await.status, 200, "{require}");
    }
}

#[tokio::test]
async fn lookup_returns_the_outcome_and_never_reaches_the_upstream() {
    let shop = LegacyShop::start();
    let upstream = FaultyHttpProxy::to(&shop.url, smooth).await;
    let proxy = proxy_to(&upstream.url, &[]);
    let token = token(&proxy).await;
    for request in [keyed(&proxy, "/api/orders", "k"), tokened(&proxy, "/api/orders", &token)] {
        let seen = upstream.seen().len();
        let look = || send(request.try_clone().unwrap().header(header::LOOK, "true"));
        let absent = look().await;
        assert_eq!((absent.said().as_str(), upstream.seen().len()), ("404 not_found", seen));
        let run = send(request.try_clone().unwrap()).await;
        assert_eq!((run.said().as_str(), upstream.seen().len()), ("201 executed", seen + 1));
        let found = look().await;
        assert_eq!((found.said().as_str(), &found.body), ("201 replayed", &run.body));
        assert_eq!(upstream.seen().len(), seen + 1);
    }
    assert_eq!(send(order(&proxy, "/orders", "tea").header(header::LOOK, "true")).await.status, 400);
    assert_eq!((upstream.seen().len(), shop.orders().len()), (2, 2));
}

#[tokio::test]
async fn upstream_receives_the_run_and_no_forged_header() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    for (number, forged) in ["Onceward-Run", "Onceward_Run", "onceward-run_", "Onceward-Outcome"].iter().enumerate() {
        let request = keyed(&proxy, "/api/orders", &format!("k{number}")).header(*forged, "forged");
        let answer = send(request).await;
        let run = serde_json::from_slice::<Value>(&answer.body).unwrap()["run"].clone();
        let line = shop.orders().pop().unwrap();
        assert_eq!((&line["run"], line["key"].as_str()), (&run, Some(format!("k{number}").as_str())));
        assert!(run.as_str().is_some_and(|run| !run.is_empty() && run != "forged"), "{forged}: {run}");
    }
    let mut runs: Vec<_> = shop.orders().iter().map(|order| order["run"].to_string()).collect();
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 4, "each submission has a run of its own");
    let token = token(&proxy).await;
    let protected = tokened(&proxy, "/sink", &token);
    for request in [protected, order(&proxy, "/sink", "tea")] {
        let request = request.header("onceward-run", "forged").header("ONCEWARD_RUN", "forged");
        let request = request.header("onceward-attempt", "forged").header("onceward-look", "false");
        let seen = send(request).await;
        let names = header_names(&seen.body);
        assert!(!names.iter().any(|name| name == "onceward_run" || name == "onceward-attempt"), "{names:?}");
        assert!(!names.iter().any(|name| name == "onceward-look"), "{names:?}");
        assert!(!String::from_utf8_lossy(&seen.body).contains("forged"), "{seen:?}");
    }
}

fn header_names(body: &[u8]) -> Vec<String> {
    let body: Value = serde_json::from_slice(body).unwrap();
    body["headers"].as_array().unwrap().iter().map(|pair| pair[0].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn disconnected_client_finds_its_response_later() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let token = token(&proxy).await;
    let target = "/api/orders?slow=0.4";
    let mut stream = raw_http::connect(&proxy.url).await;
    let host = proxy.url.trim_start_matches("http://");
    let request = format!(
        "POST {target} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nonceward-token: {token}\r\n\
         content-length: 14\r\n\r\n{{\"item\":\"tea\"}}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    until("the submission runs", LONG, || std::future::ready(shop.orders().len() == 1)).await;
    drop(stream);
    let later = send(tokened(&proxy, target, &token)).await;
    assert_eq!(later.said(), "201 replayed", "{later:?}");
    assert_eq!(serde_json::from_slice::<Value>(&later.body).unwrap()["order"], 1);
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn lost_response_is_fetched_by_the_same_request() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    let token = token(&proxy).await;
    let network = FaultyHttpProxy::to(&proxy.url, first([HttpFault::CutAnswer(40), HttpFault::CutAnswer(0)])).await;
    let submit = || {
        let body = [("_onceward", token.as_str()), ("item", "tea")];
        http().post(format!("{}/orders", network.url)).form(&body).send()
    };
    for _ in 0..2 {
        assert!(submit().await.is_err(), "the response is lost");
    }
    let third = Answer::of(submit().await.unwrap()).await;
    assert_eq!((third.said().as_str(), shop.orders().len()), ("201 replayed", 1));
}
