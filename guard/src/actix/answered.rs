//! The answer of a handler, on its way through the guard.

use std::cell::Cell;

use actix_web::body::{BodySize, BodyStream, BoxBody, EitherBody, MessageBody, to_bytes};
use actix_web::dev::{ResponseHead, ServiceResponse};
use actix_web::error::{
    ContentTypeError, InternalError, JsonPayloadError, ParseError, PathError, PayloadError, QueryPayloadError,
    ReadlinesError, UrlencodedError,
};
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use actix_web::web::Bytes;
use actix_web::{Error, HttpResponse, ResponseError};
use futures_util::stream;
use onceward_api::Code;

use super::answer::Refused;
use super::not_entered::NotEntered;
use crate::policy::Effect;
use crate::reply::Reply;

/// An answer. An error may have its answer in it and give it out once, so what is judged here is what is sent.
pub(super) enum Answered<B> {
    Answer(ServiceResponse<EitherBody<B>>, Option<Bytes>),
    Failed(Error, HttpResponse, Option<Bytes>),
}

impl<B: MessageBody + 'static> Answered<B> {
    /// Takes an answer as it is.
    pub(super) fn new(answer: Result<ServiceResponse<B>, Error>) -> Self {
        match answer {
            Ok(answer) => Self::Answer(answer.map_into_left_body(), None),
            Err(error) => {
                let said = error.error_response();
                Self::Failed(error, said, None)
            }
        }
    }

    /// Takes an answer and looks into its body, if it has one that is known to be no longer than this.
    pub(super) async fn read(answer: Result<ServiceResponse<B>, Error>, limit: usize) -> Self {
        let is_small = |size: BodySize| match size {
            BodySize::None | BodySize::Sized(0) => true,
            BodySize::Sized(length) => length <= limit as u64,
            BodySize::Stream => false,
        };
        match answer {
            Ok(answer) if is_small(answer.response().body().size()) => {
                let (request, answer) = answer.into_parts();
                let (answer, body) = read(answer).await;
                Self::Answer(ServiceResponse::new(request, answer.map_body(|_, body| EitherBody::right(body))), body)
            }
            Err(error) => {
                let said = error.error_response();
                if !is_small(said.body().size()) {
                    return Self::Failed(error, said, None);
                }
                let (said, body) = read(said).await;
                Self::Failed(error, said, body)
            }
            answer => Self::new(answer),
        }
    }

    /// The body, if it was looked into.
    pub(super) fn body(&self) -> Option<&Bytes> {
        match self {
            Self::Answer(_, body) | Self::Failed(_, _, body) => body.as_ref(),
        }
    }

    pub(super) fn head(&self) -> &ResponseHead {
        match self {
            Self::Answer(answer, _) => answer.response().head(),
            Self::Failed(_, said, _) => said.head(),
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.head().status
    }

    /// The path that was asked for in the end, if an answer tells.
    pub(super) fn path(&self) -> Option<&str> {
        match self {
            Self::Answer(answer, _) => Some(answer.request().uri().path()),
            Self::Failed(..) => None,
        }
    }

    /// What the handler has said of the effect itself.
    pub(super) fn said(&self) -> Option<Effect> {
        match self {
            Self::Answer(answer, _) => answer.response().extensions().get::<Effect>().copied(),
            Self::Failed(_, said, _) => said.extensions().get::<Effect>().copied(),
        }
    }

    /// Why the handler itself has refused, if it has.
    pub(super) fn refused(&self) -> Option<Code> {
        match self {
            Self::Answer(answer, _) => answer.response().extensions().get::<Refused>().map(|refused| refused.0),
            Self::Failed(_, said, _) => said.extensions().get::<Refused>().map(|refused| refused.0),
        }
    }

    /// Whether it is a refusal that was made before the handler was entered: by an extractor, or because no route matched. What
    /// an application marks counts whatever its status.
    pub(super) fn is_before_the_handler(&self) -> bool {
        let error = match self {
            Self::Answer(answer, _) => answer.response().error(),
            Self::Failed(error, ..) => Some(error),
        };
        match error {
            Some(error) if error.as_error::<NotEntered>().is_some() => true,
            _ if !self.status().is_client_error() => false,
            Some(error) => is_of_an_extractor(error),
            None => self.is_unrouted(),
        }
    }

    /// No route matched: the path of none, or no method of the route that has the path. For the latter actix gives no sign but
    /// an answer without a word in it.
    fn is_unrouted(&self) -> bool {
        let Self::Answer(answer, _) = self else { return false };
        match self.status() {
            StatusCode::NOT_FOUND => answer.request().match_pattern().is_none(),
            StatusCode::METHOD_NOT_ALLOWED => {
                let is_empty = matches!(answer.response().body().size(), BodySize::None | BodySize::Sized(0));
                is_empty && !answer.headers().contains_key(CONTENT_TYPE)
            }
            _ => false,
        }
    }

    /// What is kept of it: nothing, if its body was not looked into.
    pub(super) fn reply(&self, also: &[HeaderName]) -> Option<Reply> {
        let reply = Reply::new(self.status().as_u16(), self.body()?.clone());
        let kept = self.head().headers().iter().filter(|(name, _)| Reply::keeps(name.as_str()) || also.contains(name));
        Some(
            kept.fold(reply, |reply, (name, value)| {
                reply.header(name.as_str(), Bytes::copy_from_slice(value.as_bytes()))
            }),
        )
    }

    /// Sends it, with what is to be added to its headers.
    pub(super) fn send(
        self,
        sign: impl Fn(&mut HeaderMap) + 'static,
        is_last: bool,
    ) -> Result<ServiceResponse<EitherBody<B>>, Error> {
        match self {
            Self::Answer(mut answer, _) => {
                sign(answer.headers_mut());
                if is_last {
                    answer.response_mut().head_mut().set_connection_type(actix_http::ConnectionType::Close);
                }
                Ok(answer)
            }
            Self::Failed(mut error, said, _) => {
                let said = Cell::new(Some(said));
                error.add_response_mapper(move |answer| {
                    let mut answer = said.take().unwrap_or(answer);
                    sign(answer.headers_mut());
                    answer
                });
                Err(error)
            }
        }
    }
}

/// Reads a body and puts it back. One that breaks off does so for the client too.
async fn read<B: MessageBody>(answer: HttpResponse<B>) -> (HttpResponse<BoxBody>, Option<Bytes>) {
    let (answer, body) = answer.into_parts();
    // Most bodies are there already, and need not be copied.
    let read = match body.try_into_bytes() {
        Ok(body) => Ok(body),
        Err(body) => to_bytes(body).await,
    };
    match read {
        Ok(body) => (answer.set_body(BoxBody::new(body.clone())), Some(body)),
        Err(error) => {
            let error: Box<dyn std::error::Error> = error.into();
            let broken = stream::iter([Err::<Bytes, _>(error)]);
            (answer.set_body(BoxBody::new(BodyStream::new(broken))), None)
        }
    }
}

/// An extractor's error, as it is or with an answer of the application's own (`error_handler`).
fn is<E: ResponseError + 'static>(error: &Error) -> bool {
    error.as_error::<E>().is_some() || error.as_error::<InternalError<E>>().is_some()
}

fn is_of_an_extractor(error: &Error) -> bool {
    is::<JsonPayloadError>(error)
        || is::<UrlencodedError>(error)
        || is::<QueryPayloadError>(error)
        || is::<PathError>(error)
        // What `Path` gives unless the application has an error of its own for it.
        || error.as_error::<InternalError<serde::de::value::Error>>().is_some()
        || error.as_error::<ParseError>().is_some()
        || error.as_error::<PayloadError>().is_some()
        || error.as_error::<ReadlinesError>().is_some()
        || error.as_error::<ContentTypeError>().is_some()
}
