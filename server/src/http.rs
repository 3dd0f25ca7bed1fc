//! Request handling that all routes share: access control, limits, and error responses.

pub mod access;
pub mod admission;
pub mod cors;
pub(crate) mod forwarded_request;
pub(crate) mod gateway_options;
pub mod head_requests;
pub(crate) mod json_body;
pub mod panic_handler;
pub mod rate_limit;
pub mod request_log;
pub(crate) mod wire_reply;

use std::borrow::Cow;

use onceward::{Language, Rejection};
use onceward_api::Code;

/// Rejects a request that is not valid. The detail names what is wrong with it, in English and in Simplified Chinese.
pub(crate) fn bad_request(detail: impl Into<Cow<'static, str>>, chinese: impl Into<Cow<'static, str>>) -> Rejection {
    Rejection::new(Code::BadRequest).detail(detail).detail_in(Language::SIMPLIFIED_CHINESE, chinese)
}
