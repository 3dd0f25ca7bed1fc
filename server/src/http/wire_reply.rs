//! Replies as they cross the wire.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward::{Rejection, Reply};
use onceward_api::{Code, KeptReply};

/// As a backend is given it. A header's value that is no text is told as well as it can be.
pub(crate) fn kept(reply: &Reply) -> KeptReply {
    let headers = reply.headers().map(|(name, value)| [name.to_owned(), String::from_utf8_lossy(value).into_owned()]);
    KeptReply { status: reply.status(), headers: headers.collect(), body: STANDARD.encode(reply.body()) }
}

/// As it is kept.
pub(crate) fn reply(kept: &KeptReply) -> Result<Reply, Rejection> {
    let bad = |detail: &str| Rejection::new(Code::BadRequest).detail(detail.to_owned());
    if !(200..=599).contains(&kept.status) {
        return Err(bad("`reply`: `status` has to be from 200 to 599."));
    }
    let body = STANDARD.decode(&kept.body).map_err(|_| bad("`reply`: `body` has to be in base64."))?;
    let mut reply = Reply::new(kept.status, body);
    for [name, value] in &kept.headers {
        use actix_web::http::header::{HeaderName, HeaderValue};
        if HeaderName::try_from(name.as_str()).is_err() || HeaderValue::from_str(value).is_err() {
            return Err(bad("`reply`: `headers` has a name or a value that no header can have."));
        }
        reply = reply.header(name, value.clone());
    }
    Ok(reply)
}
