//! The effect that a response reports decides whether its token is used or released.

use std::time::Duration;

use onceward::http::{Protect, SubjectSource as SubjectFrom};
use onceward::store::Memory;
use onceward::{Binding, Effect, Guard, Intent, Policy, RecordState, Subject};
use onceward_api::{Code, Retry};
use onceward_tests::client::{Answer, http, order, ran, send, submit, token};
use onceward_tests::handler::Handler;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::until;
use onceward_tests::routes::{Route, Routes};
use onceward_tests::shop::{EFFECT, ORDER, STATUS, Shop};
use onceward_tests::shop_handlers;
use onceward_tests::web_framework::WebFramework;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

on_every_framework! {
    every_status_settles_the_token_as_documented,
    released_token_is_valid_for_one_more_use,
    effect_reported_by_the_handler_outranks_status,
    route_rule_outranks_status_but_not_the_handler,
    panicking_handler_leaves_its_token_used,
    every_unsafe_method_is_settled_alike,
    unmatched_route_releases_the_token,
    truncated_submission_releases_its_token,
}

/// True if the token can be redeemed once more.
async fn works_again(url: &str, token: &str, name: &str) -> bool {
    match order(url, token, name).await.said().as_str() {
        "200 executed" => true,
        "409 token_used" => false,
        other => panic!("{name}: {other}"),
    }
}

/// Sends an order with these headers and returns the outcome. Asserts that the token is valid again only if not applied.
async fn outcome(shop: &Shop, path: &str, headers: &[(&str, &str)]) -> String {
    let name = format!("{path} {headers:?}");
    let token = token(shop.url()).await;
    let first = headers
        .iter()
        .fold(submit(shop.url(), path, &token, &name), |request, (key, value)| request.header(*key, *value));
    let first = send(first).await;
    assert_eq!(shop.ledger.count(&name), 1, "{name}");
    let is_free = works_again(shop.url(), &token, &name).await;
    assert_eq!(shop.ledger.count(&name), if is_free { 2 } else { 1 }, "{name}");
    assert_eq!(is_free, first.outcome == "not_applied", "{name}: {first:?}");
    first.outcome
}

async fn every_status_settles_the_token_as_documented<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let client = http();
    for status in 200..600 {
        let effect = match status {
            200..400 => Effect::Applied,
            408 => F::UNMARKED_TIMEOUT,
            400..500 | 500 | 501 | 503 => Effect::NotApplied,
            _ => Effect::Unknown,
        };
        let is_free = effect == Effect::NotApplied;
        let (token, name) = (token(shop.url()).await, status.to_string());
        let request = client.post(format!("{}/orders", shop.url())).header("connection", "close");
        let request = request.header(onceward_api::header::TOKEN, &token).header(ORDER, &name);
        let first = send(request.header(STATUS, status)).await;
        assert_eq!(first.said(), ran(status, effect));
        assert_eq!(works_again(shop.url(), &token, &name).await, is_free, "{status}");
        assert_eq!(shop.ledger.count(&name), if is_free { 2 } else { 1 }, "{status}");
    }
}

async fn released_token_is_valid_for_one_more_use<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let token = token(shop.url()).await;
    for _ in 0..5 {
        let failed = send(submit(shop.url(), "/orders", &token, "failed").header(STATUS, 422)).await;
        assert_eq!(failed.said(), "422 not_applied");
    }
    let racers = (0..16).map(|_| order(shop.url(), &token, "paid"));
    let said: Vec<_> = futures_util::future::join_all(racers).await.iter().map(Answer::said).collect();
    assert_eq!(said.iter().filter(|said| *said == "200 executed").count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|said| *said == "409 token_used").count(), 15, "{said:?}");
    assert_eq!((shop.ledger.count("failed"), shop.ledger.count("paid")), (5, 1));
}

async fn effect_reported_by_the_handler_outranks_status<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    for status in ["200", "201", "302", "400", "422", "500", "502", "503", "504"] {
        for (effect, said) in [("happened", "executed"), ("did not", "not_applied"), ("unknown", "unknown")] {
            let headers = [(STATUS, status), (EFFECT, effect)];
            assert_eq!(outcome(&shop, "/orders", &headers).await, said, "{status}, {effect}");
        }
    }
}

async fn route_rule_outranks_status_but_not_the_handler<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let failed = ("x-failed", "yes");
    for (headers, said) in [
        (vec![failed], "not_applied"),
        (vec![failed, (STATUS, "502")], "not_applied"),
        (vec![failed, (EFFECT, "happened")], "executed"),
        (vec![failed, (EFFECT, "unknown")], "unknown"),
        (vec![failed, (STATUS, "422"), (EFFECT, "happened")], "executed"),
        (vec![(EFFECT, "did not")], "not_applied"),
        (vec![], "executed"),
        (vec![(STATUS, "422")], "not_applied"),
        (vec![(STATUS, "502")], "unknown"),
    ] {
        assert_eq!(outcome(&shop, "/judged", &headers).await, said, "{headers:?}");
    }
}

async fn panicking_handler_leaves_its_token_used<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    for run in 1..=6 {
        let token = token(shop.url()).await;
        let first = send(submit(shop.url(), "/panic", &token, "panic")).await;
        assert_eq!(first.said(), "500 internal");
        let problem = first.problem();
        assert_eq!((problem.code, problem.retry, problem.status), (Code::Internal, Retry::No, 500));
        assert_eq!((problem.kind.as_str(), problem.instance.as_deref()), ("/problems/internal", Some("/panic")));
        assert_eq!(first.headers["cache-control"], "no-store");
        assert!(!String::from_utf8_lossy(&first.body).contains("panics on purpose"), "the panic message is not sent");
        assert_eq!(send(submit(shop.url(), "/panic", &token, "panic")).await.said(), "409 token_used");
        assert!(!works_again(shop.url(), &token, "after").await);
        assert_eq!(shop.ledger.count("panic"), run);
    }
    let token = token(shop.url()).await;
    assert!(works_again(shop.url(), &token, "after").await);
    assert_eq!(shop.ledger.count("after"), 1);
}

async fn every_unsafe_method_is_settled_alike<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    for method in ["POST", "PUT", "PATCH", "DELETE", "PURGE"] {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let token = token(shop.url()).await;
        let said = [("422", "422 not_applied"), ("200", "200 executed"), ("200", "409 token_used")];
        for (status, expected) in said {
            let request = http().request(method.clone(), format!("{}/orders", shop.url()));
            let request = request.header(onceward_api::header::TOKEN, &token).header(ORDER, method.as_str());
            assert_eq!(send(request.header(STATUS, status)).await.said(), expected, "{method}");
        }
        assert_eq!(shop.ledger.count(method.as_str()), 2, "{method}");
    }
}

async fn issue(guard: &Guard) -> String {
    guard.issue(Duration::from_secs(60), Binding::none()).await.expect("memory has room").as_str().to_owned()
}

async fn unmatched_route_releases_the_token<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let orders = Route::post("/orders", Handler::of_body(shop_handlers::order));
    let protect = Protect::<F, _>::token(&guard, SubjectFrom::anonymous());
    let served = F::serve(&ledger, Routes::new().route(orders).wrap(protect));
    let token = issue(&guard).await;
    for path in ["/ordres", "/", "/orders/1", "/orders/"] {
        assert_eq!(send(submit(&served.url, path, &token, "lost")).await.said(), "404 not_applied", "{path}");
    }
    let wrong_method = http().put(format!("{}/orders", served.url)).header(onceward_api::header::TOKEN, &token);
    assert_eq!(send(wrong_method).await.said(), "405 not_applied");
    assert!(works_again(&served.url, &token, "found").await);
    assert!(!works_again(&served.url, &token, "found").await);
    assert_eq!(ledger.runs(), ["found"]);
}

async fn truncated_submission_releases_its_token<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let token = token(shop.url()).await;
    let seen = || async {
        let (policy, intent) = (Policy::token(), Intent::new("POST /orders", Subject::anonymous()));
        shop.guard.look(&policy, &intent.credential(&token)).await.unwrap().state
    };
    let mut connection = TcpStream::connect(shop.url().trim_start_matches("http://")).await.unwrap();
    let head = format!("POST /orders HTTP/1.1\r\nhost: shop\r\nonceward-token: {token}\r\ncontent-length: 100\r\n\r\n");
    connection.write_all(format!("{head}half of it").as_bytes()).await.unwrap();
    until("the token is used", Duration::from_secs(5), || async { seen().await == RecordState::Absent }).await;
    drop(connection);
    until("the token is released", Duration::from_secs(5), || async { seen().await == RecordState::Issued }).await;
    assert_eq!(shop.ledger.runs().len(), 0);
    assert!(works_again(shop.url(), &token, "again").await);
    assert_eq!(shop.ledger.runs(), ["again"]);
}
