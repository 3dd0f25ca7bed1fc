//! Conversion between a stored reply and its form on the wire.

use actix_web::http::header::{HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward::{Rejection, Reply};
use onceward_api::KeptReply;

use super::bad_request;

/// Converts a reply for a response. A header value that is not UTF-8 is converted lossily.
pub(crate) fn to_wire(reply: &Reply) -> KeptReply {
    let headers = reply.headers().map(|(name, value)| [name.to_owned(), String::from_utf8_lossy(value).into_owned()]);
    KeptReply { status: reply.status(), headers: headers.collect(), body: STANDARD.encode(reply.body()) }
}

/// Converts a reply from a request.
pub(crate) fn from_wire(wire: &KeptReply) -> Result<Reply, Rejection> {
    if !(200..=599).contains(&wire.status) {
        return Err(bad_request(
            "`reply`: `status` must be from 200 to 599.",
            "`reply`:`status` 必须在 200 到 599 之间。",
        ));
    }
    let body = STANDARD
        .decode(&wire.body)
        .map_err(|_| bad_request("`reply`: `body` must be base64.", "`reply`:`body` 必须是 base64。"))?;
    let mut reply = Reply::new(wire.status, body);
    for [name, value] in &wire.headers {
        if HeaderName::try_from(name.as_str()).is_err() || HeaderValue::from_str(value).is_err() {
            return Err(bad_request(
                "`reply`: `headers` contains an invalid name or value.",
                "`reply`:`headers` 中有无效的名称或值。",
            ));
        }
        reply = reply.header(name, value);
    }
    Ok(reply)
}
