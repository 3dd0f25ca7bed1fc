//! Rejections of the Agentic Commerce Protocol: a flat object with `type`, `code` and `message`.

use onceward_api::{Code, Retry};
use serde::Serialize;

use crate::http::rejection_format::{RejectedRequest, RejectionResponse};

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    code: &'static str,
    message: &'a str,
}

pub(super) fn write(rejected: &RejectedRequest<'_>) -> RejectionResponse {
    let code = match rejected.code() {
        Code::KeyMissing => "idempotency_key_required",
        Code::KeyReused => "idempotency_conflict",
        Code::InProgress => "idempotency_in_flight",
        other => other.as_str(),
    };
    // The three types of the protocol: the request is at fault, the server failed, or the server is unavailable for a while.
    let kind = match (rejected.status().is_server_error(), rejected.retry()) {
        (false, _) if rejected.code() == Code::OutcomeUnknown => "processing_error",
        (false, _) => "invalid_request",
        (true, Retry::No) => "processing_error",
        (true, Retry::Same | Retry::NewToken) => "service_unavailable",
    };
    RejectionResponse::new(rejected.status()).json(&Body { r#type: kind, code, message: rejected.title() })
}
