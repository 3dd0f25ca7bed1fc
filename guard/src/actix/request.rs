//! Adapters that let the framework-independent part read requests of actix-web.

use std::borrow::Cow;
use std::mem;
use std::net::IpAddr;

use actix_web::HttpRequest;
use actix_web::dev::{self, Payload};
use actix_web::error::PayloadError;
use actix_web::http::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use actix_web::web::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use onceward_api::header;
use percent_encoding::percent_decode_str;

use crate::http::{BodyEnd, BodyTap, RequestBody, RequestHead};

static TOKEN: HeaderName = HeaderName::from_static(header::TOKEN);
static LOOK: HeaderName = HeaderName::from_static(header::LOOK);
static REQUEST_ID: HeaderName = HeaderName::from_static(header::REQUEST_ID);
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static(header::IDEMPOTENCY_KEY);

impl RequestHead for HttpRequest {
    fn method(&self) -> &str {
        self.method().as_str()
    }

    fn path(&self) -> &str {
        self.uri().path()
    }

    fn query(&self) -> &str {
        self.query_string()
    }

    fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        values(self.headers(), name)
    }

    /// The router has decoded everything except `%`, `/` and `+`; this decodes the rest, as `web::Path` does.
    fn path_parameter(&self, name: &str) -> Option<Cow<'_, str>> {
        self.match_info().get(name).map(|part| percent_decode_str(part).decode_utf8_lossy())
    }

    fn client_address(&self) -> Option<IpAddr> {
        self.peer_addr().map(|address| address.ip())
    }
}

/// The head alone, as a routing guard sees it: no route has matched yet.
impl RequestHead for dev::RequestHead {
    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn path(&self) -> &str {
        self.uri.path()
    }

    fn query(&self) -> &str {
        self.uri.query().unwrap_or_default()
    }

    fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        values(self.headers(), name)
    }

    fn path_parameter(&self, _: &str) -> Option<Cow<'_, str>> {
        None
    }
}

fn values<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let known = known(name);
    let found = known.map(|name| headers.get_all(name)).into_iter().flatten();
    // A lookup by text parses and copies the name each time; comparing is faster.
    let others = known.is_none().then(|| headers.iter()).into_iter().flatten();
    let compared = others.filter(move |(other, _)| other.as_str() == name).map(|(_, value)| value);
    found.chain(compared).map(HeaderValue::as_bytes)
}

/// Returns the static name of a header that is read from every request.
pub(super) fn known(name: &str) -> Option<&'static HeaderName> {
    match name {
        header::TOKEN => Some(&TOKEN),
        header::LOOK => Some(&LOOK),
        header::IDEMPOTENCY_KEY => Some(&IDEMPOTENCY_KEY),
        header::REQUEST_ID => Some(&REQUEST_ID),
        "accept" => Some(&ACCEPT),
        "content-type" => Some(&CONTENT_TYPE),
        "content-encoding" => Some(&CONTENT_ENCODING),
        "content-length" => Some(&CONTENT_LENGTH),
        _ => None,
    }
}

impl RequestBody for Payload {
    type Error = PayloadError;

    fn empty() -> Self {
        Self::None
    }

    fn tapped(tap: BodyTap<Self>) -> Self {
        Self::Stream { payload: Box::pin(tap) }
    }

    fn incomplete() -> PayloadError {
        PayloadError::Incomplete(None)
    }

    fn put_back(&mut self, read: Bytes, end: BodyEnd<PayloadError>) {
        let rest = mem::replace(self, Self::None);
        *self = match (end, rest) {
            // This payload can take the data back without an allocation.
            (BodyEnd::Whole, Self::H1 { mut payload }) if !read.is_empty() => {
                payload.unread_data(read);
                Self::H1 { payload }
            }
            (BodyEnd::Whole, _) => Self::from(read),
            (BodyEnd::Open, rest) => chain(read, rest),
            (BodyEnd::Broken(error), _) => chain(read, stream::iter([Err(error)])),
        };
    }
}

/// Returns a payload that starts with the data that was read from it.
fn chain(read: Bytes, rest: impl Stream<Item = Result<Bytes, PayloadError>> + 'static) -> Payload {
    let read = stream::iter((!read.is_empty()).then_some(Ok::<_, PayloadError>(read)));
    Payload::Stream { payload: Box::pin(read.chain(rest)) }
}
