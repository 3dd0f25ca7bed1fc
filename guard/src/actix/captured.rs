//! The handler's response, as the guard judges, stores and sends it.

use std::cell::Cell;
use std::ops::ControlFlow;

use actix_web::body::{BodySize, BodyStream, BoxBody, EitherBody, MessageBody, to_bytes};
use actix_web::dev::{ResponseHead, ServiceResponse};
use actix_web::error::{JsonPayloadError, PathError, UrlencodedError};
use actix_web::http::header::{CONTENT_ENCODING, HeaderMap};
use actix_web::web::Bytes;
use actix_web::{Error, HttpRequest, HttpResponse};
use futures_util::stream;
use onceward_api::Outcome;

use super::Actix;
use super::extractors::ExtractorError;
use crate::effect::Effect;
use crate::http::{BodyLength, ErrorSource, HandlerResponse, InnerOutcome, Signature};
use crate::reply::NoReply;

/// A captured response. An error may hold its response and return it only once, so the response that is judged here is the one that is
/// sent.
pub(super) enum CapturedResponse<B> {
    Answer(ServiceResponse<EitherBody<B>>, Result<Bytes, NoReply>),
    Failed(Error, HttpResponse, Result<Bytes, NoReply>),
}

impl<B: MessageBody + 'static> CapturedResponse<B> {
    /// Captures a response, and reads its body if there is a limit.
    pub(super) async fn take(answer: Result<ServiceResponse<B>, Error>, limit: Option<usize>) -> Self {
        match limit {
            None => Self::new(answer),
            // Most bodies are complete already.
            Some(limit) => match Self::read_at_once(answer, limit) {
                ControlFlow::Break(captured) => captured,
                ControlFlow::Continue(answer) => Box::pin(Self::read(answer, limit)).await,
            },
        }
    }

    /// Captures a response without reading its body, so that none of it is stored.
    fn new(answer: Result<ServiceResponse<B>, Error>) -> Self {
        match answer {
            Ok(answer) => Self::Answer(answer.map_into_left_body(), Err(NoReply::Unrecorded)),
            Err(error) => {
                let said = error.error_response();
                Self::Failed(error, said, Err(NoReply::Unrecorded))
            }
        }
    }

    /// Like [`read`](Self::read), without a future. Continues with the response if reading its body may have to wait.
    fn read_at_once(
        answer: Result<ServiceResponse<B>, Error>,
        limit: usize,
    ) -> ControlFlow<Self, Result<ServiceResponse<B>, Error>> {
        let answer = match answer {
            Ok(answer) if unread(answer.response().body().size(), answer.headers(), limit).is_none() => answer,
            answer => return ControlFlow::Continue(answer),
        };
        let (request, answer) = answer.into_parts();
        let (answer, body) = answer.into_parts();
        match body.try_into_bytes() {
            Ok(body) => {
                let answer = answer.set_body(EitherBody::right(BoxBody::new(body.clone())));
                ControlFlow::Break(Self::Answer(ServiceResponse::new(request, answer), Ok(body)))
            }
            Err(body) => ControlFlow::Continue(Ok(ServiceResponse::new(request, answer.set_body(body)))),
        }
    }

    /// Captures a response and reads its body, if the body's length is known and within `limit`.
    async fn read(answer: Result<ServiceResponse<B>, Error>, limit: usize) -> Self {
        match answer {
            Ok(answer) => match unread(answer.response().body().size(), answer.headers(), limit) {
                Some(reason) => Self::Answer(answer.map_into_left_body(), Err(reason)),
                None => {
                    let (request, answer) = answer.into_parts();
                    let (answer, body) = read(answer).await;
                    let answer = answer.map_body(|_, body| EitherBody::right(body));
                    Self::Answer(ServiceResponse::new(request, answer), body)
                }
            },
            Err(error) => {
                let said = error.error_response();
                if let Some(reason) = unread(said.body().size(), said.headers(), limit) {
                    return Self::Failed(error, said, Err(reason));
                }
                let (said, body) = read(said).await;
                Self::Failed(error, said, body)
            }
        }
    }

    fn response_head(&self) -> &ResponseHead {
        match self {
            Self::Answer(answer, _) => answer.response().head(),
            Self::Failed(_, said, _) => said.head(),
        }
    }

    fn extension<T: Copy + 'static>(&self) -> Option<T> {
        match self {
            Self::Answer(answer, _) => answer.response().extensions().get::<T>().copied(),
            Self::Failed(_, said, _) => said.extensions().get::<T>().copied(),
        }
    }

    fn error(&self) -> Option<&Error> {
        match self {
            Self::Answer(answer, _) => answer.response().error(),
            Self::Failed(error, ..) => Some(error),
        }
    }
}

impl<B: MessageBody + 'static> HandlerResponse<Actix> for CapturedResponse<B> {
    type Sent = Result<ServiceResponse<EitherBody<B>>, Error>;

    fn status(&self) -> u16 {
        self.response_head().status.as_u16()
    }

    fn head(&self) -> Option<&ResponseHead> {
        Some(self.response_head())
    }

    fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.response_head().headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
    }

    fn body(&self) -> Result<&Bytes, NoReply> {
        match self {
            Self::Answer(_, body) | Self::Failed(_, _, body) => body.as_ref().map_err(|reason| *reason),
        }
    }

    fn request(&self) -> Option<&HttpRequest> {
        match self {
            Self::Answer(answer, _) => Some(answer.request()),
            Self::Failed(..) => None,
        }
    }

    fn path(&self) -> Option<&str> {
        self.request().map(|request| request.uri().path())
    }

    fn effect(&self) -> Option<Effect> {
        self.extension()
    }

    fn outcome(&self) -> Option<Outcome> {
        self.extension::<InnerOutcome>().map(|reported| reported.0)
    }

    fn source(&self) -> ErrorSource {
        match self.error() {
            Some(error) if error.as_error::<ExtractorError>().is_some() => ErrorSource::Declared,
            Some(error) if is_of_an_extractor(error) => ErrorSource::Extractor,
            _ => ErrorSource::Other,
        }
    }

    fn send(self, signature: Signature) -> Self::Sent {
        match self {
            Self::Answer(mut answer, _) => {
                signature.apply(answer.headers_mut());
                if signature.is_last {
                    answer.response_mut().head_mut().set_connection_type(actix_http::ConnectionType::Close);
                }
                Ok(answer)
            }
            Self::Failed(mut error, said, _) => {
                let said = Cell::new(Some(said));
                error.add_response_mapper(move |answer| {
                    let mut answer = said.take().unwrap_or(answer);
                    signature.apply(answer.headers_mut());
                    answer
                });
                Err(error)
            }
        }
    }
}

/// Returns the reason why a body is not read; `None` if it is.
fn unread(size: BodySize, headers: &HeaderMap, limit: usize) -> Option<NoReply> {
    let length = match size {
        BodySize::None => BodyLength::Known(0),
        BodySize::Sized(length) => BodyLength::Known(length),
        BodySize::Stream => BodyLength::Streamed { has_content_encoding: headers.contains_key(CONTENT_ENCODING) },
    };
    length.unread(limit)
}

/// Reads a body and puts it back. If the body breaks off, the client sees that too.
async fn read<B: MessageBody>(answer: HttpResponse<B>) -> (HttpResponse<BoxBody>, Result<Bytes, NoReply>) {
    let (answer, body) = answer.into_parts();
    let read = match body.try_into_bytes() {
        Ok(body) => Ok(body),
        Err(body) => to_bytes(body).await,
    };
    match read {
        Ok(body) => (answer.set_body(BoxBody::new(body.clone())), Ok(body)),
        Err(error) => {
            let error: Box<dyn std::error::Error> = error.into();
            let broken = stream::iter([Err::<Bytes, _>(error)]);
            (answer.set_body(BoxBody::new(BodyStream::new(broken))), Err(NoReply::BrokeOff))
        }
    }
}

/// Returns whether only `Json`, `Form` or `Path` creates this error, unless a handler constructs it explicitly. Errors that other
/// functions of actix-web create too do not count, since a handler may be passing on another party's error: `PayloadError`, errors of
/// `Query::from_query`, a form that cannot be parsed, and any `InternalError`.
fn is_of_an_extractor(error: &Error) -> bool {
    use JsonPayloadError as Json;
    use UrlencodedError as Form;
    let json = error.as_error::<Json>().is_some_and(|error| {
        matches!(
            error,
            Json::OverflowKnownLength { .. } | Json::Overflow { .. } | Json::ContentType | Json::Deserialize(_)
        )
    });
    let form = error.as_error::<Form>().is_some_and(|error| {
        matches!(error, Form::Overflow { .. } | Form::UnknownLength | Form::ContentType | Form::Encoding)
    });
    json || form || error.as_error::<PathError>().is_some()
}
