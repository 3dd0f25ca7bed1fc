//! The handlers on axum.

use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use onceward::Guard;
use onceward::axum::{Protection, RequireProtection, SubjectFrom, once, token_route};
use onceward::tower::Tower;

use super::{Annotated, Submission, receipt, user};
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

#[once(key)]
async fn panics(State(ledger): State<Ledger>, Json(body): Json<Submission>) -> StatusCode {
    body.panic(&ledger)
}

#[once(token, remember = "10m")]
async fn panics_with_token(State(ledger): State<Ledger>, Json(body): Json<Submission>) -> StatusCode {
    body.panic(&ledger)
}

/// The status of the body is that of the error, if it is one.
#[once(key)]
async fn result(State(ledger): State<Ledger>, Json(body): Json<Submission>) -> Result<String, (StatusCode, String)> {
    match respond(body, &ledger).await {
        (status, receipt) if status.is_success() => Ok(receipt),
        error => Err(error),
    }
}

#[once(key)]
async fn responder(State(ledger): State<Ledger>, Json(body): Json<Submission>) -> impl IntoResponse {
    ([("x-shop", "open")], body.handle(&ledger).await.1)
}

#[once(key)]
async fn no_arguments() -> String {
    receipt()
}

/// Returns the router of the shop.
pub fn router(guard: &Guard, ledger: &Ledger) -> Router {
    protected(guard, ledger, Protection::new(guard, SubjectFrom::anonymous()))
}

fn protected(guard: &Guard, ledger: &Ledger, protection: Protection) -> Router {
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
        .route("/panics", post(panics))
        .route("/panics-with-token", post(panics_with_token))
        .route("/results", post(result))
        .route("/responders", post(responder))
        .route("/no-arguments", post(no_arguments))
        .route("/unprotected", post(async || receipt()))
        .with_state(ShopState { protection, ledger: ledger.clone() })
        .merge(token_route(guard, SubjectFrom::anonymous()))
}

impl Annotated for Tower {
    const ANNOTATED_PEER: &'static str = "axum-annotated";

    fn serve_protected(guard: &Guard, ledger: &Ledger, protection: Protection) -> TestServer {
        TestServer::run_router(protected(guard, ledger, protection))
    }

    fn serve_required(guard: &Guard, ledger: &Ledger) -> TestServer {
        TestServer::run_router(router(guard, ledger).layer(RequireProtection::new(guard)))
    }
}
