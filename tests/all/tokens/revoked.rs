//! A token that an operator has revoked is rejected as revoked, never as used.
//!
//! Tests of the command line and of the client SDK run once, on actix-web.

use std::time::Duration;

use actix_web::{HttpResponse, web};
use onceward::actix::{Protect, SubjectFrom};
use onceward::store::{Memory, Redis, Sql};
use onceward::{Binding, Guard, Revocation};
use onceward_api::Retry;
use onceward_tests::actix_handlers;
use onceward_tests::client::{Answer, http, order, send, submit, token};
use onceward_tests::command_output::{parsed, said};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, smooth};
use onceward_tests::key_routes::serve;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{OncewardServer, run};
use onceward_tests::service_calls::post;
use onceward_tests::web_framework::WebFramework;
use serde_json::{Value, json};

on_every_framework! {
    revoked_token_is_rejected_on_every_store_and_route,
    token_is_revoked_on_a_full_redis_too,
}

const MINUTE: Duration = Duration::from_secs(60);
/// Store timeout for a busy machine.
const LATE: Duration = Duration::from_secs(5);

#[track_caller]
fn assert_revoked(answer: &Answer) {
    assert_eq!(answer.said(), "410 token_revoked");
    let problem = answer.problem();
    assert_eq!(problem.retry, Retry::No, "a new token would undo the revocation");
    let text = format!("{} {}", problem.title, problem.detail);
    assert!(text.contains("revoked") && text.contains("Nothing ran") && !text.contains("already"), "{text}");
}

/// Asserts the rejection on every route, with and without a lookup.
async fn assert_is_rejected<F: WebFramework>(guard: Guard) {
    let shop = F::shop_with(guard.clone());
    let url = shop.url();
    let token = guard.issue(MINUTE, Binding::none()).await.unwrap();
    assert_eq!(guard.revoke(token.as_str()).await.unwrap(), Revocation::Now);
    for path in ["/orders", "/remembered/orders", "/next", "/orders"] {
        assert_revoked(&send(submit(url, path, token.as_str(), "revoked")).await);
    }
    let look = submit(url, "/remembered/orders", token.as_str(), "revoked").header("onceward-look", "true");
    assert_revoked(&send(look).await);
    assert_eq!(guard.revoke(token.as_str()).await.unwrap(), Revocation::Gone, "the token was revoked before");
    assert_revoked(&order(url, token.as_str(), "revoked").await);
    assert_eq!(shop.ledger.runs(), [""; 0]);

    // A token that was used before its revocation stays used.
    let used = guard.issue(MINUTE, Binding::none()).await.unwrap();
    assert_eq!(order(url, used.as_str(), "used").await.said(), "200 executed");
    assert_eq!(guard.revoke(used.as_str()).await.unwrap(), Revocation::Gone);
    assert_eq!(order(url, used.as_str(), "used").await.said(), "409 token_used");
    assert_eq!(shop.ledger.runs(), ["used"]);
}

async fn revoked_token_is_rejected_on_every_store_and_route<F: WebFramework>() {
    assert_is_rejected::<F>(Guard::new(Memory::new())).await;
    let redis = RedisServer::start();
    assert_is_rejected::<F>(Guard::new(Redis::open(&redis.url()).unwrap().timeout(LATE))).await;
    let folder = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", folder.path().join("store.db").display());
    Sql::migrate(&address).await.unwrap();
    assert_is_rejected::<F>(Guard::new(Sql::open_within(&address, LATE).await.unwrap())).await;
}

/// Revokes with the command line and redeems at the service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_revoked_by_command_line_is_rejected_by_the_service() {
    let redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url(), "--store-timeout", "5s"]);
    let [revoked, used] = [token(&service.url).await, token(&service.url).await];
    let redeem = async |token: &str, attempt: Option<&str>| {
        post(&service.url, "/token/redeem", &json!({"token": token, "attempt": attempt})).await
    };
    assert_eq!(redeem(&used, Some("one")).await.said(), "200 redeemed");
    let command = |verb: &str, token: &str| {
        run(&["token", verb, token, "--json", "--store-timeout", "5s", "--store", &redis.url()])
    };
    assert_eq!(parsed(&command("revoke", &revoked))["result"], "revoked");
    assert_eq!(parsed(&command("revoke", &used))["result"], "used");
    for attempt in [None, Some("one"), None] {
        assert_revoked(&redeem(&revoked, attempt).await);
    }
    assert_eq!(redeem(&used, Some("two")).await.said(), "409 token_used", "it was used before");
    assert_revoked(&post(&service.url, "/outcome", &json!({ "token": revoked })).await);
    let asked = http().get(format!("{}/forward-auth", service.url)).header("onceward-token", &revoked);
    let asked = send(asked.header("x-original-method", "POST").header("x-original-uri", "/orders")).await;
    assert_revoked(&asked);
    let inspected = command("inspect", &revoked);
    assert_eq!((inspected.status.code(), &parsed(&inspected)["state"]), (Some(1), &Value::from("revoked")));
    let ticket = parsed(&inspected)["ticket"].as_str().unwrap().to_owned();
    let (_, look) = said(&run(&["key", "look", &ticket, "--store-timeout", "5s", "--store", &redis.url()]));
    assert!(look.contains("revoked"), "{look}");
    let named = json!({"token": revoked, "attempt": "one", "run_id": uuid::Uuid::new_v4().to_string()});
    let release = post(&service.url, "/token/release", &named).await;
    assert_eq!(release.said(), "409 claim_lost");
    assert_revoked(&redeem(&revoked, None).await);
}

/// Issues tokens that are already revoked.
async fn issue_revoked(guard: web::Data<Guard>) -> HttpResponse {
    let token = guard.issue(MINUTE, Binding::none()).await.unwrap();
    assert_eq!(guard.revoke(token.as_str()).await.unwrap(), Revocation::Now);
    HttpResponse::Created()
        .json(json!({"token": token.as_str(), "expires_at": "2126-01-01T00:00:00Z", "expires_in": 60}))
}

/// The SDK does not fetch a new token to bypass the revocation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sdk_does_not_replace_a_revoked_token() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = serve(&ledger, move |config| {
        let protect = Protect::token(&guard, SubjectFrom::anonymous());
        config
            .app_data(web::Data::new(guard.clone()))
            .route("/token", web::post().to(issue_revoked))
            .service(web::resource("/orders").wrap(protect).route(web::post().to(actix_handlers::order)));
    });
    let way = FaultyHttpProxy::to(&served.url, smooth).await;
    let ended = onceward_tests::sdk_client::client().post(format!("{}/orders", way.url)).send().await;
    let error = ended.expect_err("the token is revoked");
    assert_eq!(error.problem().map(|problem| problem.code.as_str()), Some("token_revoked"), "{error:?}");
    assert!(error.ran_nothing() && !error.is_duplicate() && !error.is_unknown(), "{error:?}");
    assert_eq!((way.submissions().len(), ledger.runs().len()), (1, 0), "the submission is sent once");
}

/// A full Redis cannot store the mark of a revocation, and the token is still revoked.
async fn token_is_revoked_on_a_full_redis_too<F: WebFramework>() {
    let redis = RedisServer::start();
    let guard = Guard::new(Redis::open(&redis.url()).unwrap().timeout(LATE));
    let [token, other] = [(); 2].map(|()| guard.issue(MINUTE, Binding::none()));
    let (token, other) = (token.await.unwrap(), other.await.unwrap());
    redis.ask::<()>("CONFIG SET maxmemory 1");
    assert_eq!(guard.revoke(token.as_str()).await.unwrap(), Revocation::Now);
    redis.ask::<()>("CONFIG SET maxmemory 0");
    let shop = F::shop_with(guard.clone());
    assert_eq!(order(shop.url(), token.as_str(), "full").await.said(), "410 token_revoked");
    assert_eq!(order(shop.url(), other.as_str(), "other").await.said(), "200 executed");
}
