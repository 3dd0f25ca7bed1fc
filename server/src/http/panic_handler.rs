//! Panics and internal errors: the client receives `internal` without details, and the log has the location.

use std::panic::{AssertUnwindSafe, PanicHookInfo};

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_LANGUAGE, CONTENT_TYPE};
use actix_web::middleware::Next;
use actix_web::{Error, HttpResponse, ResponseError};
use futures_util::FutureExt as _;
use onceward_api::{Code, Outcome, Problem, header};

/// Installs a panic hook that logs the location of a panic and never its message, which may contain a secret.
pub fn install_hook() {
    std::panic::set_hook(Box::new(report));
}

fn report(panic: &PanicHookInfo<'_>) {
    let location = panic.location().map_or_else(|| "an unknown location".to_owned(), ToString::to_string);
    if tracing::dispatcher::has_been_set() {
        tracing::error!(location, "panicked; the message is omitted because it may contain a secret");
    } else {
        eprintln!("onceward: panicked at {location}");
    }
}

/// Turns a panic, and every 5xx response that is not a problem yet, into `internal`. Each is logged once, a panic by the hook of
/// [`install_hook`].
pub async fn catch_failures<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let path = request.path().to_owned();
    match AssertUnwindSafe(async { next.call(request).await }).catch_unwind().await {
        Ok(Ok(answer)) => Ok(explained(path, answer)),
        Ok(Err(error)) if error.as_response_error().status_code().is_server_error() => {
            tracing::error!("request failed with an internal error");
            Err(InternalError { path }.into())
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(InternalError { path }.into()),
    }
}

/// Returns the response unchanged, unless it is a 5xx that is not a problem: it may lack a code, or reveal details.
fn explained<B: MessageBody>(path: String, answer: ServiceResponse<B>) -> ServiceResponse<EitherBody<B>> {
    let (status, is_problem) = (answer.status(), answer.headers().contains_key(header::OUTCOME));
    if !status.is_server_error() || (is_problem && status != StatusCode::INTERNAL_SERVER_ERROR) {
        return answer.map_into_left_body();
    }
    tracing::error!(status = status.as_u16(), "request failed with an internal error");
    if is_problem {
        return answer.map_into_left_body();
    }
    answer.into_response(InternalError { path }.error_response()).map_into_right_body()
}

/// A request to this path failed.
#[derive(Debug, thiserror::Error)]
#[error("internal error")]
struct InternalError {
    path: String,
}

impl ResponseError for InternalError {
    fn status_code(&self) -> StatusCode {
        StatusCode::INTERNAL_SERVER_ERROR
    }

    fn error_response(&self) -> HttpResponse {
        let problem = Problem::new(Code::Internal).instance(&self.path);
        HttpResponse::InternalServerError()
            .insert_header((CACHE_CONTROL, "no-store"))
            .insert_header((header::OUTCOME, Outcome::Rejected(Code::Internal).as_str()))
            .insert_header((CONTENT_LANGUAGE, "en"))
            .insert_header((CONTENT_TYPE, Problem::CONTENT_TYPE))
            .json(problem)
    }
}
