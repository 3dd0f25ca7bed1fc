//! A body read as a whole, and given back as it was.

use actix_web::HttpMessage as _;
use actix_web::dev::{Payload, ServiceRequest};
use actix_web::http::header::{CONTENT_TYPE, HeaderValue};
use actix_web::web::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use onceward_api::Code;

use super::asked::chain;
use super::form::broken;
use crate::fingerprint::{Content, Fields, Fingerprint};
use crate::rejection::Rejection;

/// What was read of a body.
pub(super) struct BufferedBody {
    body: Bytes,
    content_type: Option<HeaderValue>,
    is_whole: bool,
}

impl BufferedBody {
    /// Reads a body up to a limit, and puts it back for the handler.
    pub(super) async fn read(request: &mut ServiceRequest, limit: usize) -> Result<Self, Rejection> {
        let mut payload = request.take_payload();
        let mut read = Pieces::None;
        let mut is_whole = false;
        while read.len() <= limit && !is_whole {
            match payload.next().await.transpose() {
                Ok(Some(chunk)) => read = read.and(chunk),
                Ok(None) => is_whole = true,
                Err(error) => {
                    request.set_payload(chain(read.together(), stream::iter([Err(error)])));
                    return Err(broken("it broke off"));
                }
            }
        }
        let read = read.together();
        request.set_payload(if is_whole { given_back(read.clone(), payload) } else { chain(read.clone(), payload) });
        let content_type = request.headers().get(CONTENT_TYPE).cloned();
        Ok(Self { body: read, content_type, is_whole })
    }

    /// Nothing was read.
    pub(super) fn unread() -> Self {
        Self { body: Bytes::new(), content_type: None, is_whole: false }
    }

    /// Whether the end was found.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether it is a form of pairs.
    pub(super) fn is_form(&self) -> bool {
        let essence = self.content_type().and_then(|text| text.split(';').next()).unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
    }

    fn content_type(&self) -> Option<&str> {
        self.content_type.as_ref()?.to_str().ok()
    }

    /// What the request says; of a body that is not whole, only that there is one.
    pub(super) fn fingerprint(&self, request: &ServiceRequest, fields: &Fields) -> Fingerprint {
        let content = Content {
            method: request.method().as_str(),
            path: request.uri().path(),
            query: request.query_string(),
            content_type: self.content_type(),
            body: &self.body,
        };
        if self.is_whole { content.fingerprint(fields) } else { content.fingerprint_of_head() }
    }
}

/// A payload that was read to its end, as if it had not been.
fn given_back(read: Bytes, payload: Payload) -> Payload {
    match payload {
        // It has the room already.
        Payload::H1 { mut payload } if !read.is_empty() => {
            payload.unread_data(read);
            Payload::H1 { payload }
        }
        _ => Payload::from(read),
    }
}

/// What has been read. Most bodies come in one piece, and then nothing is copied.
enum Pieces {
    None,
    One(Bytes),
    More(BytesMut),
}

impl Pieces {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(one) => one.len(),
            Self::More(more) => more.len(),
        }
    }

    fn and(self, next: Bytes) -> Self {
        let mut more = match self {
            Self::None => return Self::One(next),
            Self::One(one) => BytesMut::from(&one[..]),
            Self::More(more) => more,
        };
        more.extend_from_slice(&next);
        Self::More(more)
    }

    fn together(self) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::One(one) => one,
            Self::More(more) => more.freeze(),
        }
    }
}

/// Why a body that is too large is refused.
pub(super) fn too_large(limit: usize) -> Rejection {
    Rejection::new(Code::BodyTooLarge)
        .detail(format!("A submission may have {limit} bytes here, so that it can be compared with another."))
}
