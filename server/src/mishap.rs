//! What is done when the service itself breaks: the caller is told that, and nothing of how; the log says where.

use std::panic::{AssertUnwindSafe, PanicHookInfo};

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::middleware::Next;
use actix_web::{Error, HttpResponse, ResponseError};
use futures_util::FutureExt as _;
use onceward_api::{Code, Outcome, Problem, header};

/// Has a panic logged by where it happened and never by what it says, which may be anything, also a secret.
pub fn hook() {
    std::panic::set_hook(Box::new(report));
}

fn report(panic: &PanicHookInfo<'_>) {
    let location = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    if tracing::dispatcher::has_been_set() {
        tracing::error!(location, "panicked; what it says is not shown, as it may hold a secret");
    } else {
        eprintln!("onceward: panicked at {location}");
    }
}

/// Answers a panic, and every failure that nobody has made a problem of, as `internal`. Each is logged once, a panic by the
/// [`hook`].
pub async fn contain<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let path = request.path().to_owned();
    match AssertUnwindSafe(async { next.call(request).await }).catch_unwind().await {
        Ok(Ok(answer)) => Ok(explained(path, answer)),
        Ok(Err(error)) if error.as_response_error().status_code().is_server_error() => {
            tracing::error!("a request failed by a fault of the service");
            Err(Mishap { path }.into())
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Mishap { path }.into()),
    }
}

/// The answer itself, unless it is a failure that says nothing a caller could go by, or too much.
fn explained<B: MessageBody>(path: String, answer: ServiceResponse<B>) -> ServiceResponse<EitherBody<B>> {
    let (status, is_problem) = (answer.status(), answer.headers().contains_key(header::OUTCOME));
    if !status.is_server_error() || (is_problem && status != StatusCode::INTERNAL_SERVER_ERROR) {
        return answer.map_into_left_body();
    }
    tracing::error!(status = status.as_u16(), "a request failed by a fault of the service");
    if is_problem {
        return answer.map_into_left_body();
    }
    answer.into_response(Mishap { path }.error_response()).map_into_right_body()
}

/// Something broke while this path was asked for.
#[derive(Debug, thiserror::Error)]
#[error("the service broke off")]
struct Mishap {
    path: String,
}

impl ResponseError for Mishap {
    fn status_code(&self) -> StatusCode {
        StatusCode::INTERNAL_SERVER_ERROR
    }

    fn error_response(&self) -> HttpResponse {
        let problem = Problem::new(Code::Internal).instance(&self.path);
        HttpResponse::InternalServerError()
            .insert_header((CACHE_CONTROL, "no-store"))
            .insert_header((header::OUTCOME, Outcome::Refused(Code::Internal).as_str()))
            .insert_header((CONTENT_TYPE, Problem::CONTENT_TYPE))
            .json(problem)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use actix_web::http::header::HeaderMap;
    use actix_web::middleware::from_fn;
    use actix_web::test::{TestRequest, init_service, try_call_service};
    use actix_web::{App, error, web};
    use tracing::level_filters::LevelFilter;

    use super::*;
    use crate::config::LogForm;
    use crate::telemetry;

    const CANARY: &str = "canary";

    async fn panics(body: String) -> HttpResponse {
        panic!("{CANARY} {body}")
    }

    async fn fails() -> HttpResponse {
        HttpResponse::BadGateway().body(CANARY)
    }

    async fn errs() -> Result<HttpResponse, Error> {
        Err(error::ErrorInternalServerError(CANARY))
    }

    async fn fails_on_the_way<B: MessageBody>(_: ServiceRequest, _: Next<B>) -> Result<ServiceResponse<B>, Error> {
        Err(error::ErrorServiceUnavailable(CANARY))
    }

    async fn is_refused() -> HttpResponse {
        HttpResponse::ServiceUnavailable().insert_header((header::OUTCOME, "overloaded")).body("as it is")
    }

    async fn is_at_fault() -> HttpResponse {
        Mishap { path: "/at-fault".to_owned() }.error_response()
    }

    /// What a client is told at a path of a service that breaks in every way.
    async fn ask(path: &str) -> (StatusCode, HeaderMap, String) {
        let on_the_way = web::resource("/on-the-way").wrap(from_fn(fails_on_the_way)).to(is_refused);
        let app = App::new()
            .route("/panics", web::post().to(panics))
            .route("/fails", web::post().to(fails))
            .route("/errs", web::post().to(errs))
            .route("/refused", web::post().to(is_refused))
            .route("/at-fault", web::post().to(is_at_fault))
            .service(on_the_way)
            .wrap(from_fn(contain))
            .wrap(from_fn(telemetry::observe));
        let app = init_service(app).await;
        let request = TestRequest::post().uri(path).insert_header(("x-request-id", path.trim_start_matches('/')));
        let answer = match try_call_service(&app, request.set_payload(CANARY).to_request()).await {
            Ok(answer) => answer.into_parts().1.map_into_boxed_body(),
            Err(error) => error.error_response(),
        };
        let (status, headers) = (answer.status(), answer.headers().clone());
        let Ok(body) = actix_web::body::to_bytes(answer.into_body()).await else { panic!("a body") };
        (status, headers, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Breaks in every way under the log of the binary. The test below runs it as a process of its own, and reads that.
    #[actix_web::test]
    #[ignore = "it takes over the log and the hook of its process, so another test runs it alone"]
    async fn whatever_breaks_is_answered_as_a_problem_that_says_nothing_of_it() {
        hook();
        telemetry::begin(LogForm::Json, LevelFilter::TRACE);
        for path in ["/panics", "/fails", "/errs", "/on-the-way", "/at-fault"] {
            let (status, headers, body) = ask(path).await;
            assert_eq!(status, 500, "{path}");
            assert_eq!(headers.get("content-type").unwrap(), Problem::CONTENT_TYPE, "{path}");
            assert_eq!(headers.get("cache-control").unwrap(), "no-store", "{path}");
            assert_eq!(headers.get(header::OUTCOME).unwrap(), "internal", "{path}");
            assert_eq!(headers.get("x-request-id").unwrap(), path.trim_start_matches('/'), "{path}");
            assert!(body.contains("\"code\":\"internal\"") && body.contains(path), "{path}");
            assert!(!body.contains(CANARY), "{path}");
        }
        let (status, _, body) = ask("/refused").await;
        assert_eq!((status.as_u16(), body.as_str()), (503, "as it is"));
    }

    #[test]
    fn what_breaks_is_logged_once_with_its_request_and_without_what_it_says() {
        let name = "mishap::tests::whatever_breaks_is_answered_as_a_problem_that_says_nothing_of_it";
        let program = std::env::current_exe().unwrap();
        let run = Command::new(program).args(["--exact", name, "--ignored", "--nocapture"]).output().unwrap();
        let said = [run.stdout, run.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert!(run.status.success() && said.contains("1 passed"), "{said}");
        assert!(!said.contains(CANARY), "{said}");
        let errors: Vec<_> = said.lines().filter(|line| line.contains("\"ERROR\"")).collect();
        for id in ["panics", "fails", "errs", "on-the-way", "at-fault"] {
            let own = errors.iter().filter(|line| line.contains(&format!("\"id\":\"{id}\"")));
            assert_eq!(own.count(), 1, "{id}: {said}");
        }
        assert_eq!(errors.len(), 5, "{said}");
        assert!(errors.iter().any(|line| line.contains("panicked") && line.contains("src/mishap.rs:")), "{said}");
        assert_eq!(said.matches("\"answered\"").count(), 6, "{said}");
    }
}
