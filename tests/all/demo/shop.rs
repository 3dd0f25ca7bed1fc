//! The demo shop over HTTP. The page shows counts of the server, which these tests check.

use std::time::Duration;

use futures_util::future::join_all;
use onceward_api::metric;
use onceward_tests::client::{Answer, URLENCODED, http, send, token};
use onceward_tests::metrics::Metrics;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::get;
use reqwest::RequestBuilder;
use serde_json::Value;

/// The body of the form.
pub(crate) const ORDER: &str = "item=tea&quantity=1&name=Ada";

/// A visitor of the shop, identified by a cookie.
pub(crate) struct Customer {
    pub(crate) url: String,
    pub(crate) cookie: String,
}

impl Customer {
    /// Opens the page as a new visitor.
    pub(crate) async fn new(service: &OncewardServer) -> Self {
        let page = get(&service.url, "/").await;
        let cookie = page.headers["set-cookie"].to_str().unwrap();
        for said in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(said), "{cookie}");
        }
        Self { url: service.url.clone(), cookie: cookie.split(';').next().unwrap().to_owned() }
    }

    /// Builds an order at a counter, with these additional headers.
    pub(crate) fn order(&self, counter: &str, headers: &[(&str, &str)]) -> RequestBuilder {
        self.body(counter, headers, ORDER)
    }

    /// Like [`order`](Self::order), with another body.
    pub(crate) fn body(&self, counter: &str, headers: &[(&str, &str)], body: &str) -> RequestBuilder {
        let request = http().post(format!("{}/demo/orders/{counter}", self.url)).header("cookie", &self.cookie);
        let request = request.header("content-type", URLENCODED).body(body.to_owned());
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
    }

    /// Returns the counts of the server.
    pub(crate) async fn tally(&self) -> Value {
        let state = send(http().get(format!("{}/demo/state", self.url)).header("cookie", &self.cookie)).await;
        serde_json::from_slice::<Value>(&state.body).unwrap()["tally"].clone()
    }

    /// Returns one count of the server.
    pub(crate) async fn count(&self, kind: &str) -> u64 {
        self.tally().await[kind].as_u64().unwrap()
    }

    /// Returns the headers of a new order at this counter: a new token, a new key, or none.
    async fn named(&self, counter: &str) -> Vec<(&'static str, String)> {
        match counter {
            "token" | "remembered" => vec![("onceward-token", token(&self.url).await)],
            "key" => vec![("idempotency-key", uuid::Uuid::new_v4().to_string())],
            _ => Vec::new(),
        }
    }

    /// Sends an order three times concurrently. Returns the responses, the executed one first.
    async fn triple_click(&self, counter: &str, conduct: &str) -> Vec<Answer> {
        let named = self.named(counter).await;
        let mut headers: Vec<(&str, &str)> = named.iter().map(|(name, value)| (*name, value.as_str())).collect();
        headers.push(("demo-handler", conduct));
        let mut answers = join_all([(); 3].map(|()| send(self.order(counter, &headers)))).await;
        answers.sort_by_key(|answer| answer.outcome != "executed");
        answers
    }
}

fn said(answers: &[Answer]) -> Vec<String> {
    answers.iter().map(Answer::said).collect()
}

#[tokio::test]
async fn triple_click_is_one_order_under_every_policy() {
    let service = OncewardServer::start(&[]);
    for conduct in ["slow", ""] {
        let customer = Customer::new(&service).await;
        let answers = customer.triple_click("unguarded", conduct).await;
        assert_eq!(said(&answers), ["201 unprotected"; 3]);
        assert_eq!((customer.count("unguarded").await, customer.count("guarded").await), (3, 0));
        for (placed, (counter, duplicate)) in [
            ("remembered", "201 replayed"),
            ("token", "409 token_used"),
            ("key", "201 replayed"),
            ("interval", "409 too_soon"),
        ]
        .into_iter()
        .enumerate()
        {
            let answers = customer.triple_click(counter, conduct).await;
            assert_eq!(said(&answers), ["201 executed", duplicate, duplicate], "{counter}, {conduct}");
            assert_eq!(customer.count("guarded").await, placed as u64 + 1, "{counter}, {conduct}");
            if duplicate == "201 replayed" {
                assert!(answers.iter().all(|answer| answer.body == answers[0].body), "{answers:?}");
            }
        }
        let tally = customer.tally().await;
        assert_eq!((&tally["executed"], &tally["replayed"], &tally["refused"]), (&4.into(), &4.into(), &4.into()));
    }
}

#[tokio::test]
async fn failed_order_can_be_retried_with_the_same_token() {
    let service = OncewardServer::start(&[]);
    let customer = Customer::new(&service).await;
    for (placed, counter) in ["remembered", "token", "key", "interval"].into_iter().enumerate() {
        let named = customer.named(counter).await;
        let named: Vec<(&str, &str)> = named.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let failing = [&named[..], &[("demo-handler", "fails")]].concat();
        for _ in 0..2 {
            assert_eq!(send(customer.order(counter, &failing)).await.said(), "503 not_applied", "{counter}");
        }
        assert_eq!(customer.count("guarded").await, placed as u64, "{counter}");
        assert_eq!(send(customer.order(counter, &named)).await.said(), "201 executed", "{counter}");
        assert_eq!(customer.count("guarded").await, placed as u64 + 1, "{counter}");
    }
    let failed = send(customer.order("unguarded", &[("demo-handler", "fails")])).await;
    assert_eq!((failed.said().as_str(), customer.count("unguarded").await), ("503 unprotected", 0));
    assert_eq!(customer.count("failed").await, 8);
}

/// Returns true if the body of the response is truncated.
async fn is_lost(request: RequestBuilder) -> bool {
    let answer = request.send().await.expect("the head of a response");
    assert!(!answer.headers().contains_key("onceward-outcome"), "a lost response names no outcome");
    answer.bytes().await.is_err()
}

#[tokio::test]
async fn lost_response_is_one_order_with_a_guard() {
    let service = OncewardServer::start(&[]);
    let customer = Customer::new(&service).await;
    let loses = ("demo-handler", "loses");
    for again in 1..=2 {
        assert!(is_lost(customer.order("unguarded", &[loses])).await);
        assert_eq!(customer.count("unguarded").await, again);
    }
    for (placed, (counter, again)) in [
        ("remembered", "201 replayed"),
        ("key", "201 replayed"),
        ("token", "409 token_used"),
        ("interval", "409 too_soon"),
    ]
    .into_iter()
    .enumerate()
    {
        let named = customer.named(counter).await;
        let named: Vec<(&str, &str)> = named.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let losing = [&named[..], &[loses]].concat();
        assert!(is_lost(customer.order(counter, &losing)).await, "{counter}");
        for _ in 0..2 {
            assert_eq!(send(customer.order(counter, &losing)).await.said(), again, "{counter}");
        }
        assert_eq!(customer.count("guarded").await, placed as u64 + 1, "{counter}");
    }
}

#[tokio::test]
async fn visitors_have_separate_counts_keys_and_intervals() {
    let service = OncewardServer::start(&[]);
    let customers = [Customer::new(&service).await, Customer::new(&service).await];
    for customer in &customers {
        let key = [("idempotency-key", "the-same-for-all")];
        assert_eq!(send(customer.order("key", &key)).await.said(), "201 executed");
        assert_eq!(send(customer.order("interval", &[])).await.said(), "201 executed");
        assert_eq!(send(customer.order("unguarded", &[])).await.said(), "201 unprotected");
    }
    let passer_by = Customer { url: service.url.clone(), cookie: "onceward-demo=nonsense".to_owned() };
    assert_eq!(send(passer_by.order("interval", &[])).await.said(), "201 executed");
    for customer in &customers {
        assert_eq!((customer.count("guarded").await, customer.count("unguarded").await), (2, 1));
    }
    assert_eq!((passer_by.count("guarded").await, passer_by.count("unguarded").await), (1, 0));
    let over = http().post(format!("{}/demo/start-over", service.url)).header("cookie", &customers[0].cookie);
    assert_eq!(send(over).await.status, 204);
    assert_eq!((customers[0].count("guarded").await, customers[1].count("guarded").await), (0, 2));
    let known = http().get(format!("{}/", service.url)).header("cookie", &customers[0].cookie);
    assert!(!send(known).await.headers.contains_key("set-cookie"), "a returning visitor keeps the cookie");
}

#[tokio::test]
async fn corrected_order_is_accepted_with_the_same_token() {
    let service = OncewardServer::start(&[]);
    let customer = Customer::new(&service).await;
    for counter in ["remembered", "token"] {
        let form = format!("_onceward={}&", token(&service.url).await);
        for wrong in ["item=gold&quantity=1&name=Ada", "item=tea&quantity=0&name=Ada", "item=tea&quantity=1&name=+"] {
            let answer = send(customer.body(counter, &[], &format!("{form}{wrong}"))).await;
            assert_eq!(answer.said(), "422 not_applied", "{answer:?}");
        }
        let right = send(customer.body(counter, &[], &format!("{form}{ORDER}"))).await;
        assert_eq!(right.said(), "201 executed", "the token in the form is still valid");
    }
    assert_eq!(customer.count("guarded").await, 2);
}

#[tokio::test]
async fn demo_is_served_only_where_it_is_on() {
    let redis = RedisServer::start();
    for (arguments, is_on) in [
        (vec![], true),
        (vec!["--demo", "off"], false),
        (vec!["--store", redis.url().as_str()], false),
        (vec!["--store", redis.url().as_str(), "--demo"], true),
    ] {
        let service = OncewardServer::start(&arguments);
        let page = String::from_utf8(get(&service.url, "/").await.body.to_vec()).unwrap();
        assert_eq!(page.contains("Click three times"), is_on, "{arguments:?}");
        assert_eq!(page.contains("Onceward is running"), !is_on, "{arguments:?}");
        for path in ["/demo/state", "/demo/demo.css"] {
            assert_eq!(get(&service.url, path).await.status, if is_on { 200 } else { 404 }, "{arguments:?} {path}");
        }
        if is_on {
            let customer = Customer::new(&service).await;
            assert_eq!(said(&customer.triple_click("remembered", "slow").await)[0], "201 executed");
            assert_eq!(customer.count("guarded").await, 1, "{arguments:?}");
        }
    }
}

#[tokio::test]
async fn slow_order_finishes_during_graceful_shutdown() {
    let service = OncewardServer::start(&[]);
    let customer = Customer::new(&service).await;
    let named = token(&service.url).await;
    let order = customer.order("remembered", &[("onceward-token", &named), ("demo-handler", "slow")]);
    let answer = tokio::spawn(send(order));
    let is_running = || async { Metrics::of(&service.url).await.sum(metric::RUNNING.name, &[]) == 1.0 };
    until("the handler runs", Duration::from_secs(5), is_running).await;
    service.terminate();
    assert_eq!(answer.await.unwrap().said(), "201 executed");
}
