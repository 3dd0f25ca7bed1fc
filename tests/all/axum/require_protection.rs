//! Routes without a guard on axum.

use axum::Router;
use axum::response::Redirect;
use axum::routing::{get, post};
use onceward::axum::{Exempt, Protect, RequireProtection, SubjectFrom, entered, token_route};
use onceward::store::Memory;
use onceward::{Guard, KeyRules, Mode};
use onceward_tests::axum_server::AxumServer;
use onceward_tests::client::{http, send, token};
use onceward_tests::key_routes::buy;

fn serve(guard: &Guard) -> (AxumServer, RequireProtection) {
    let require = RequireProtection::new(guard);
    let protect = Protect::key(guard, SubjectFrom::anonymous(), KeyRules::at_most_once());
    let app = Router::new()
        .merge(token_route(guard, SubjectFrom::anonymous()))
        .route("/orders/{id}", post(entered(async || "ordered")).layer(protect))
        .route("/search", post(async || "found").layer(Exempt))
        .route("/bare/{id}", post(async || "bare").get(async || "page"))
        .route("/login", post(async || Redirect::to("/")))
        .nest("/api", Router::new().route("/bare", get(async || "page").post(async || "bare")))
        .layer(require.clone());
    (AxumServer::serve(app), require)
}

#[tokio::test]
async fn unprotected_route_is_rejected_and_named_by_its_pattern() {
    let guard = Guard::new(Memory::new());
    let (served, require) = serve(&guard);
    assert_eq!(buy(&served.url, "/orders/1", "k", "").await.said(), "200 executed");
    assert_eq!(buy(&served.url, "/search", "k", "").await.status, 200);
    assert!(!token(&served.url).await.is_empty());
    assert_eq!(send(http().get(format!("{}/bare/1", served.url))).await.status, 200);
    assert!(require.unprotected().is_empty(), "{require:?}");
    for path in ["/bare/1", "/bare/2", "/api/bare"] {
        let answer = buy(&served.url, path, "k", "").await;
        assert_eq!((answer.status, answer.problem().code.as_str()), (500, "internal"), "{path}");
    }
    assert_eq!(buy(&served.url, "/login", "k", "").await.status, 404, "the client follows the redirect");
    assert_eq!(require.unprotected(), ["POST /api/bare", "POST /bare/{id}", "POST /login"]);
}

#[tokio::test]
async fn found_routes_are_listed_and_not_rejected_while_observing() {
    let guard = Guard::builder(Memory::new()).mode(Mode::Observe).build();
    let (served, require) = serve(&guard);
    assert_eq!(buy(&served.url, "/bare/1", "k", "").await.status, 200);
    assert_eq!(buy(&served.url, "/api/bare", "k", "").await.status, 200);
    assert_eq!(require.unprotected(), ["POST /api/bare", "POST /bare/{id}"]);
}
