//! The handlers on axum.

use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use onceward::Guard;
use onceward::axum::{Protection, SubjectFrom, once, token_route};
use onceward::tower::Tower;

use super::{Annotated, Submission, user};
use crate::ledger::Ledger;
use crate::test_server::TestServer;

/// The state of the application.
#[derive(Clone)]
struct ShopState {
    protection: Protection,
    ledger: Ledger,
}

impl FromRef<ShopState> for Protection {
    fn from_ref(state: &ShopState) -> Self {
        state.protection.clone()
    }
}

impl FromRef<ShopState> for Ledger {
    fn from_ref(state: &ShopState) -> Self {
        state.ledger.clone()
    }
}

async fn respond(submission: Submission, ledger: &Ledger) -> (StatusCode, String) {
    let (status, receipt) = submission.handle(ledger).await;
    (StatusCode::from_u16(status).expect("a status"), receipt)
}

#[once(token)]
async fn order(State(ledger): State<Ledger>, Json(body): Json<Submission>) -> (StatusCode, String) {
    respond(body, &ledger).await
}

#[once(token, remember = "10m")]
async fn remembered(State(ledger): State<Ledger>, Json(body): Json<Submission>) -> (StatusCode, String) {
    respond(body, &ledger).await
}

#[once(token, bound, next_token)]
async fn bound(State(ledger): State<Ledger>, Json(body): Json<Submission>) -> (StatusCode, String) {
    respond(body, &ledger).await
}

#[once(key)]
async fn pay(State(ledger): State<Ledger>, Json(body): Json<Submission>) -> (StatusCode, String) {
    respond(body, &ledger).await
}

#[once(key, retryable, retain = "1h", wait = "10s", optional)]
async fn retry(State(ledger): State<Ledger>, Json(body): Json<Submission>) -> (StatusCode, String) {
    respond(body, &ledger).await
}

#[once(key = "/order/id")]
async fn by_order(State(ledger): State<Ledger>, Json(body): Json<Submission>) -> (StatusCode, String) {
    respond(body, &ledger).await
}

#[once(interval = "1500ms", message = "We have received this message already.")]
async fn message(State(ledger): State<Ledger>, Json(body): Json<Submission>) -> (StatusCode, String) {
    respond(body, &ledger).await
}

#[once(interval = "1h", remember)]
async fn remembered_message(State(ledger): State<Ledger>, Json(body): Json<Submission>) -> (StatusCode, String) {
    respond(body, &ledger).await
}

#[once(key, subject = user::<Tower>())]
async fn mine(State(ledger): State<Ledger>, Json(body): Json<Submission>) -> (StatusCode, String) {
    respond(body, &ledger).await
}

/// Returns the router of the shop.
pub fn router(guard: &Guard, ledger: &Ledger) -> Router {
    let protection = Protection::new(guard, SubjectFrom::anonymous());
    Router::new()
        .route("/orders", post(order))
        .route("/remembered", post(remembered))
        .route("/bound", post(bound))
        .route("/payments", post(pay))
        .route("/retryable", post(retry))
        .route("/by-order", post(by_order))
        .route("/messages", post(message))
        .route("/remembered-messages", post(remembered_message))
        .route("/mine", post(mine))
        .with_state(ShopState { protection, ledger: ledger.clone() })
        .merge(token_route(guard, SubjectFrom::anonymous()))
}

impl Annotated for Tower {
    const ANNOTATED_PEER: &'static str = "axum-annotated";

    fn serve_annotated(guard: &Guard, ledger: &Ledger) -> TestServer {
        TestServer::run_router(router(guard, ledger))
    }
}
