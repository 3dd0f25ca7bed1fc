//! The values that a handler extracts from a guarded request, and the mark that shows whether the handler was called.

mod entered;

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::error::InternalError;
use actix_web::http::StatusCode;
use actix_web::{Error, FromRequest, HttpMessage as _, HttpRequest, HttpResponse, ResponseError};
use futures_util::future::LocalBoxFuture;

pub use self::entered::entered;
use super::Actix;
use crate::http::{GuardResponse, GuardedRequest, RequestIntent, UncheckedRoute};
use crate::run_id::RunId;

/// Returns the data that the innermost guard so far has attached to a request.
fn guarded(request: &HttpRequest) -> Option<Arc<GuardedRequest>> {
    request.extensions().get::<Arc<GuardedRequest>>().cloned()
}

/// Extracts the id of the run, for the handler to store with its own data. A run without a claim, because its route has none or its
/// guard is off, receives a new id.
impl FromRequest for RunId {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let run = request.extensions().get::<RunId>().copied();
        ready(Ok(run.unwrap_or_else(RunId::new)))
    }
}

impl FromRequest for RequestIntent {
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let unchecked = request.extensions().get::<UncheckedRoute<Actix>>().cloned();
        let (guarded, request) = (guarded(request), request.clone());
        Box::pin(async move {
            let route = request.match_pattern().unwrap_or_default();
            Self::of(&request, guarded, unchecked.clone(), &route).await.map_err(|rejection| {
                let response = match unchecked {
                    Some(route) => route.reject(&request, &rejection),
                    None => GuardResponse::without_guard(&request, &rejection),
                };
                ExtractorError::new(InternalError::from_response("no intent", HttpResponse::from(response))).into()
            })
        })
    }
}

/// Marks an error that is created before the handler is entered, so that the guard knows that nothing took effect: the token or key is
/// valid again, whatever the status.
///
/// A handler that is marked with [`entered`](entered()) does not need this. Without that mark, use it for the errors of your own
/// extractors, in the `error_handler` of an actix-web extractor, in middleware between guard and handler, and in a `default_service`
/// that only responds with 404.
///
/// ```
/// use actix_web::HttpResponse;
/// use actix_web::error::{ErrorBadRequest, InternalError};
/// use actix_web::web::JsonConfig;
/// use onceward::actix::ExtractorError;
///
/// fn reject() -> actix_web::Error {
///     ExtractorError::new(ErrorBadRequest("the signature is missing")).into()
/// }
/// # assert_eq!(reject().as_response_error().status_code(), 400);
///
/// let json = JsonConfig::default().error_handler(|error, _| {
///     ExtractorError::new(InternalError::from_response(error, HttpResponse::BadRequest().body("not JSON"))).into()
/// });
/// # let _ = json;
/// ```
///
/// Never use it after something took effect: the next request with the same key would run.
#[derive(Debug)]
pub struct ExtractorError(Error);

impl ExtractorError {
    /// Marks an error. Its response is unchanged.
    pub fn new(error: impl Into<Error>) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for ExtractorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ResponseError for ExtractorError {
    fn status_code(&self) -> StatusCode {
        self.0.as_response_error().status_code()
    }

    fn error_response(&self) -> HttpResponse {
        self.0.error_response()
    }
}
