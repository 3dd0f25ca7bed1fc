//! The handler's response, as the guard judges, stores and sends it.

use std::future::poll_fn;
use std::pin::pin;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_ENCODING};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, request, response};
use http_body::Body;
use onceward_api::Outcome;

use super::{BoxError, ProtectedBody, Tower};
use crate::effect::Effect;
use crate::http::{BodyLength, ErrorSource, HandlerResponse, InnerOutcome, Pieces, Signature};
use crate::reply::NoReply;

/// A captured response, or the error of a service.
#[expect(clippy::large_enum_variant, reason = "a box would cost an allocation per request")]
pub(super) enum CapturedResponse<B, E> {
    Answer(Answer<B>),
    /// The service failed without a response: it may have dropped its handler, so its effect is unknown.
    Failed(E),
}

/// A response, and its body if it was read.
pub(super) struct Answer<B> {
    head: response::Parts,
    body: ProtectedBody<B>,
    read: Result<Bytes, NoReply>,
    /// The version of the request.
    version: Version,
    /// The path by which the handler was found, if it is not the end of the one that the client sent.
    rewritten: Option<Box<str>>,
    /// The head of the request, if it was kept.
    request: Option<Box<request::Parts>>,
}

impl<B, E> CapturedResponse<B, E>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    /// Captures a response, and reads its body if there is a limit, and its length is known and within that limit.
    pub(super) async fn take(
        response: Result<Response<B>, E>,
        limit: Option<usize>,
        version: Version,
        rewritten: Option<Box<str>>,
        request: Option<Box<request::Parts>>,
    ) -> Self {
        let (head, body) = match response {
            Ok(response) => response.into_parts(),
            Err(error) => return Self::Failed(error),
        };
        let unread = match limit {
            None => Some(NoReply::Unrecorded),
            Some(limit) => length(&body, &head.headers).unread(limit),
        };
        let (body, read) = match unread {
            Some(reason) => (ProtectedBody::handler(body), Err(reason)),
            None => match read(body).await {
                Ok((body, trailers)) => (ProtectedBody::whole(body.clone(), trailers), Ok(body)),
                Err(error) => (ProtectedBody::broken(error), Err(NoReply::BrokeOff)),
            },
        };
        Self::Answer(Answer { head, body, read, version, rewritten, request })
    }
}

impl<B, E> CapturedResponse<B, E> {
    fn answer(&self) -> Option<&Answer<B>> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::Failed(_) => None,
        }
    }
}

fn length(body: &impl Body, headers: &HeaderMap) -> BodyLength {
    match body.size_hint().exact() {
        Some(length) => BodyLength::Known(length),
        None => BodyLength::Streamed { has_content_encoding: headers.contains_key(CONTENT_ENCODING) },
    }
}

async fn read<B>(body: B) -> Result<(Bytes, Option<HeaderMap>), BoxError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    let (mut read, mut trailers) = (Pieces::default(), None);
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        match frame.map_err(Into::into)?.into_data() {
            Ok(data) => read = read.and(data),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok((read.together(), trailers))
}

impl<B, E> HandlerResponse<Tower> for CapturedResponse<B, E> {
    type Sent = Result<Response<ProtectedBody<B>>, E>;

    fn status(&self) -> u16 {
        self.answer().map_or(StatusCode::INTERNAL_SERVER_ERROR, |answer| answer.head.status).as_u16()
    }

    fn head(&self) -> Option<&response::Parts> {
        self.answer().map(|answer| &answer.head)
    }

    fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let headers = self.answer().into_iter().flat_map(|answer| &answer.head.headers);
        headers.map(|(name, value)| (name.as_str(), value.as_bytes()))
    }

    fn body(&self) -> Result<&Bytes, NoReply> {
        self.answer().map_or(Err(NoReply::Unrecorded), |answer| answer.read.as_ref().map_err(|reason| *reason))
    }

    fn request(&self) -> Option<&request::Parts> {
        self.answer()?.request.as_deref()
    }

    fn path(&self) -> Option<&str> {
        self.answer()?.rewritten.as_deref()
    }

    fn effect(&self) -> Option<Effect> {
        match self {
            Self::Answer(answer) => answer.head.extensions.get().copied(),
            Self::Failed(_) => Some(Effect::Unknown),
        }
    }

    fn outcome(&self) -> Option<Outcome> {
        self.answer()?.head.extensions.get::<InnerOutcome>().map(|reported| reported.0)
    }

    /// A 408 is the usual response of `TimeoutLayer`, which drops the handler.
    fn source(&self) -> ErrorSource {
        match self.answer() {
            Some(answer) if answer.head.status == StatusCode::REQUEST_TIMEOUT => ErrorSource::Timeout,
            _ => ErrorSource::Other,
        }
    }

    fn send(self, signature: Signature) -> Self::Sent {
        match self {
            Self::Answer(Answer { mut head, body, version, .. }) => {
                signature.apply(&mut head.headers);
                // Later versions have no such header: the server sends GOAWAY.
                if signature.is_last && version <= Version::HTTP_11 {
                    head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok(Response::from_parts(head, body))
            }
            Self::Failed(error) => Err(error),
        }
    }
}
