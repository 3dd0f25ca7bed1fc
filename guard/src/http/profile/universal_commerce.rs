//! Rejections of the Universal Commerce Protocol: an object with `code` and `content`.

use http::StatusCode;
use onceward_api::Code;
use serde::Serialize;

use crate::http::rejection_format::{RejectedRequest, RejectionResponse};

#[derive(Serialize)]
struct Body<'a> {
    code: &'static str,
    content: &'a str,
}

pub(super) fn write(rejected: &RejectedRequest<'_>) -> RejectionResponse {
    // The protocol reserves 422 for discovery.
    let status = if rejected.code() == Code::KeyReused { StatusCode::CONFLICT } else { rejected.status() };
    RejectionResponse::new(status).json(&Body { code: rejected.code().as_str(), content: rejected.title() })
}
