//! Routes on which a token is optional: a request without one runs unprotected.

use std::time::Duration;

use onceward::Guard;
use onceward::http::{Protect, SubjectSource as SubjectFrom};
use onceward::store::Memory;
use onceward_api::header::{LOOK, TOKEN};
use onceward_tests::client::{Answer, MULTIPART, URLENCODED, http, multipart, send, token};
use onceward_tests::handler::Handler;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::routes::Routes;
use onceward_tests::shop::{ORDER, TestServer};
use onceward_tests::shop_handlers::purchase;
use onceward_tests::web_framework::WebFramework;

on_every_framework! {
    request_without_an_optional_token_runs_unprotected,
    optional_token_runs_once_if_it_is_sent,
    form_that_cannot_be_parsed_has_no_optional_token,
    form_over_the_limit_may_have_a_token_and_is_rejected,
    lookup_without_an_optional_token_never_runs,
}

const LIMIT: usize = 100;

/// Serves a plain token at `/plain` and a remembered one at `/remembered`, both optional.
fn served<F: WebFramework>() -> (TestServer, Ledger) {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let plain = Protect::<F, _>::token(&guard, SubjectFrom::anonymous()).optional().body_limit(LIMIT);
    let remembered = Protect::<F, _>::token(&guard, SubjectFrom::anonymous()).remember(Duration::from_secs(60));
    let routes = Routes::new()
        .tokens(&guard, SubjectFrom::anonymous())
        .post("/plain", plain, Handler::of_body(purchase))
        .post("/remembered", remembered.optional().body_limit(LIMIT), Handler::of_body(purchase));
    (F::serve(&ledger, routes), ledger)
}

/// Posts a body of this content type.
async fn post(served: &TestServer, path: &str, kind: &str, body: impl Into<reqwest::Body>) -> Answer {
    let request = http().post(format!("{}{path}", served.url)).header(ORDER, "tea");
    send(request.header("content-type", kind).body(body)).await
}

async fn request_without_an_optional_token_runs_unprotected<F: WebFramework>() {
    let (served, ledger) = served::<F>();
    for path in ["/plain", "/remembered"] {
        let form = multipart(&[("item", b"tea"), ("_onceward", b"only the first part counts")]);
        assert_eq!(post(&served, path, "application/json", "{}").await.said(), "200 unprotected");
        assert_eq!(post(&served, path, URLENCODED, "item=tea&_onceward=").await.said(), "200 unprotected");
        assert_eq!(post(&served, path, MULTIPART, form).await.said(), "200 unprotected");
    }
    assert_eq!(ledger.runs().len(), 6);
}

async fn optional_token_runs_once_if_it_is_sent<F: WebFramework>() {
    let (served, ledger) = served::<F>();
    for (path, second) in [("/plain", "409 token_used"), ("/remembered", "200 replayed")] {
        let body = format!("_onceward={}", token(&served.url).await);
        assert_eq!(post(&served, path, URLENCODED, body.clone()).await.said(), "200 executed");
        assert_eq!(post(&served, path, URLENCODED, body).await.said(), second);
        let malformed = http().post(format!("{}{path}", served.url)).header(TOKEN, "none of ours");
        assert_eq!(send(malformed).await.said(), "400 token_malformed", "a token that is sent must be valid");
    }
    assert_eq!(ledger.runs().len(), 2);
}

async fn form_that_cannot_be_parsed_has_no_optional_token<F: WebFramework>() {
    let (served, ledger) = served::<F>();
    for path in ["/plain", "/remembered"] {
        for kind in ["multipart/form-data", "multipart/form-data; boundary=other"] {
            assert_eq!(post(&served, path, kind, "no boundary").await.said(), "200 unprotected", "{path} {kind}");
        }
    }
    assert_eq!(ledger.runs().len(), 4);
}

async fn form_over_the_limit_may_have_a_token_and_is_rejected<F: WebFramework>() {
    let (served, ledger) = served::<F>();
    for path in ["/plain", "/remembered"] {
        let long = format!("item={}", "x".repeat(2 * LIMIT));
        assert_eq!(post(&served, path, URLENCODED, long.clone()).await.said(), "413 body_too_large", "{path}");
        assert_eq!(post(&served, path, "text/plain", long).await.said(), "200 unprotected", "{path}");
    }
    assert_eq!(ledger.runs().len(), 2);
}

async fn lookup_without_an_optional_token_never_runs<F: WebFramework>() {
    let (served, ledger) = served::<F>();
    for path in ["/plain", "/remembered"] {
        let look = http().post(format!("{}{path}", served.url)).header(LOOK, "true");
        assert_eq!(send(look).await.said(), "400 token_missing", "{path}");
    }
    assert!(ledger.runs().is_empty());
}
