//! Rejections in the form of Stripe's API: an `error` with `type`, `code` and `message`.

use http::StatusCode;
use onceward_api::{Code, Retry};
use serde::Serialize;

use crate::http::rejection_format::{RejectedRequest, RejectionResponse};

#[derive(Serialize)]
struct Body<'a> {
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    r#type: &'static str,
    code: &'static str,
    message: &'a str,
}

pub(super) fn write(rejected: &RejectedRequest<'_>) -> RejectionResponse {
    let (status, kind, code) = match rejected.code() {
        Code::KeyReused => (StatusCode::BAD_REQUEST, "idempotency_error", Code::KeyReused.as_str()),
        Code::InProgress => (rejected.status(), "invalid_request_error", "idempotency_key_in_use"),
        other if rejected.status().is_server_error() => (rejected.status(), "api_error", other.as_str()),
        other => (rejected.status(), "invalid_request_error", other.as_str()),
    };
    // Stripe's clients retry with the same key; a new token is not theirs to fetch.
    let should_retry = if rejected.retry() == Retry::Same { "true" } else { "false" };
    let error = ErrorObject { r#type: kind, code, message: rejected.title() };
    RejectionResponse::new(status).header("stripe-should-retry", should_retry).json(&Body { error })
}
