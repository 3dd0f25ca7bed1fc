//! The answer of a handler, on its way through the guard.

use std::cell::Cell;

use actix_web::body::{BodySize, BodyStream, BoxBody, EitherBody, MessageBody, to_bytes};
use actix_web::dev::{ResponseHead, ServiceResponse};
use actix_web::error::{JsonPayloadError, PathError, UrlencodedError};
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_ENCODING, HeaderMap, HeaderName};
use actix_web::web::Bytes;
use actix_web::{Error, HttpResponse};
use futures_util::stream;
use onceward_api::Outcome;

use super::answer::InnerOutcome;
use super::not_entered::ExtractorError;
use super::passage::Entry;
use crate::effect::Effect;
use crate::reply::NoReply;
use crate::reply::Reply;

/// An answer. An error may have its answer in it and give it out once, so what is judged here is what is sent.
pub(super) enum CapturedResponse<B> {
    Answer(ServiceResponse<EitherBody<B>>, Result<Bytes, NoReply>),
    Failed(Error, HttpResponse, Result<Bytes, NoReply>),
}

impl<B: MessageBody + 'static> CapturedResponse<B> {
    /// Takes an answer as it is: nothing of it is kept, however small it is.
    pub(super) fn new(answer: Result<ServiceResponse<B>, Error>) -> Self {
        match answer {
            Ok(answer) => Self::Answer(answer.map_into_left_body(), Err(NoReply::Unrecorded)),
            Err(error) => {
                let said = error.error_response();
                Self::Failed(error, said, Err(NoReply::Unrecorded))
            }
        }
    }

    /// Takes an answer and looks into its body, if it has one that is known to be no longer than this.
    pub(super) async fn read(answer: Result<ServiceResponse<B>, Error>, limit: usize) -> Self {
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

    /// The body, if it was looked into.
    pub(super) fn body(&self) -> Option<&Bytes> {
        match self {
            Self::Answer(_, body) | Self::Failed(_, _, body) => body.as_ref().ok(),
        }
    }

    /// The same, or why it was not.
    fn looked_into(&self) -> Result<&Bytes, NoReply> {
        match self {
            Self::Answer(_, body) | Self::Failed(_, _, body) => body.as_ref().map_err(|reason| *reason),
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

    /// The outcome that the handler or an inner guard reported itself: a rejection or a replay.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Answer(answer, _) => answer.response().extensions().get::<InnerOutcome>().map(|said| said.0),
            Self::Failed(_, said, _) => said.extensions().get::<InnerOutcome>().map(|said| said.0),
        }
    }

    /// Whether it was made before the handler was entered. The mark of the handler knows. Without one, an error counts that says so
    /// itself, and, if extractors are believed, one that only an extractor makes.
    pub(super) fn is_before_the_handler(&self, entry: Entry, believes_extractors: bool) -> bool {
        match entry {
            Entry::Extracting => true,
            Entry::Entered => false,
            Entry::Unmarked => self.error().is_some_and(|error| {
                error.as_error::<ExtractorError>().is_some() || (believes_extractors && is_of_an_extractor(error))
            }),
        }
    }

    fn error(&self) -> Option<&Error> {
        match self {
            Self::Answer(answer, _) => answer.response().error(),
            Self::Failed(error, ..) => Some(error),
        }
    }

    /// What is kept of it, or why nothing is: its body was not looked into.
    pub(super) fn reply(&self, also: &[HeaderName]) -> Result<Reply, NoReply> {
        let reply = Reply::new(self.status().as_u16(), self.looked_into()?.clone());
        let kept = self.head().headers().iter().filter(|(name, _)| Reply::keeps(name.as_str()) || also.contains(name));
        Ok(kept
            .fold(reply, |reply, (name, value)| reply.header(name.as_str(), Bytes::copy_from_slice(value.as_bytes()))))
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

/// Why a body is not looked into: nobody knows how long it is, or it is longer than this. A compression that comes before the guard
/// streams what it makes.
fn unread(size: BodySize, headers: &HeaderMap, limit: usize) -> Option<NoReply> {
    match size {
        BodySize::None | BodySize::Sized(0) => None,
        BodySize::Sized(length) => (length > limit as u64).then_some(NoReply::TooLarge),
        BodySize::Stream if headers.contains_key(CONTENT_ENCODING) => Some(NoReply::Compressed),
        BodySize::Stream => Some(NoReply::Streamed),
    }
}

/// Reads a body and puts it back. One that breaks off does so for the client too.
async fn read<B: MessageBody>(answer: HttpResponse<B>) -> (HttpResponse<BoxBody>, Result<Bytes, NoReply>) {
    let (answer, body) = answer.into_parts();
    // Most bodies are there already, and need not be copied.
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

/// Whether only `Json`, `Form` or `Path` makes this error, unless a handler constructs it by its name. What a conversion or another
/// function of actix-web makes as well may be a handler's that passes on an error of another party: `PayloadError`, what a
/// `Query::from_query` gives, a form that cannot be parsed, and whatever is wrapped in an `InternalError`.
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
