//! A panic or an internal error becomes a problem without details, and is logged once, with its location.
//!
//! The log and the panic hook are global to a process, so this is a program of its own: it runs itself again as a process with the same
//! middleware as the service, which fails in every way, and checks all of its output.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::process::{Command, Output};
use std::sync::Arc;

use actix_web::body::{MessageBody, to_bytes};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::HeaderMap;
use actix_web::middleware::{Next, from_fn};
use actix_web::test::{TestRequest, init_service, try_call_service};
use actix_web::web::{self, Data};
use actix_web::{Error, HttpResponse, error};
use onceward::Guard;
use onceward::store::Memory;
use onceward_api::{Code, Problem, header};
use onceward_server::app::{app, prepare};
use onceward_server::config::Config;
use onceward_server::context::Context;
use onceward_server::http::access::Access;
use onceward_server::http::cors::CorsOrigins;
use onceward_server::http::rate_limit::RateLimiter;

/// Must appear neither in a response nor in the log.
const CANARY: &str = "canary";
/// Makes this program fail while it handles requests.
const ANSWERING: &str = "fail-while-handling";
/// Makes this program fail while it reads its settings.
const STARTING: &str = "fail-while-starting";
/// The paths of requests that fail, each in its own way.
const BROKEN: [&str; 5] = ["panics", "fails", "errs", "on-the-way", "at-fault"];

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some(ANSWERING) => fail_while_handling(),
        Some(STARTING) => drop(prepare(|| panic!("{CANARY}"))),
        _ => {
            failures_are_logged_once_without_their_message();
            panic_before_the_log_starts_hides_its_message();
            println!("Failures are reported without their messages.");
        }
    }
}

fn failures_are_logged_once_without_their_message() {
    let (run, said) = run(ANSWERING);
    assert!(run.status.success(), "{said}");
    let errors: Vec<_> = said.lines().filter(|line| line.contains("\"ERROR\"")).collect();
    for id in BROKEN {
        let own = errors.iter().filter(|line| line.contains(&format!("\"id\":\"{id}\"")));
        assert_eq!(own.count(), 1, "{id}: {said}");
    }
    assert_eq!(errors.len(), BROKEN.len(), "{said}");
    assert!(errors.iter().any(|line| line.contains("panicked") && line.contains("tests/panic_handler.rs:")), "{said}");
    assert_eq!(said.matches("\"answered\"").count(), BROKEN.len() + 1, "{said}");
}

fn panic_before_the_log_starts_hides_its_message() {
    let (run, said) = run(STARTING);
    assert!(
        !run.status.success() && said.contains("panicked at") && said.contains("tests/panic_handler.rs:"),
        "{said}"
    );
}

/// Runs this program again and returns its output, after asserting that the canary is not in it.
fn run(how: &str) -> (Output, String) {
    let program = std::env::current_exe().expect("this program has a path");
    let run = Command::new(program).arg(how).output().expect("the program runs");
    let said = [&run.stdout, &run.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
    assert!(!said.contains(CANARY), "{said}");
    (run, said)
}

#[actix_web::main]
async fn fail_while_handling() {
    let arguments = ["onceward", "--log", "json", "--log-level", "trace"].map(OsString::from);
    prepare(|| Config::from(arguments, [])).expect("the settings are valid");
    for name in BROKEN {
        let (status, headers, body) = ask(name).await;
        assert_eq!(status, 500, "{name}");
        for (header, value) in [
            ("content-type", Problem::CONTENT_TYPE),
            ("cache-control", "no-store"),
            (header::OUTCOME, Code::Internal.as_str()),
            (header::REQUEST_ID, name),
        ] {
            assert_eq!(headers.get(header).expect("the header is present"), value, "{name}");
        }
        assert!(body.contains("\"code\":\"internal\"") && body.contains(&format!("\"/{name}\"")), "{name}");
        assert!(!body.contains(CANARY), "{name}");
    }
    let (status, _, body) = ask("refused").await;
    assert_eq!((status.as_u16(), body.as_str()), (503, "as it is"));
}

/// Sends a request to an application with failing routes, and returns the response.
async fn ask(name: &str) -> (StatusCode, HeaderMap, String) {
    let guard = Guard::new(Memory::new());
    let context = Context::new(guard, Access::new(None, Vec::new()), RateLimiter::new(None, NonZeroU32::MIN, None));
    let on_the_way = web::resource("/on-the-way").wrap(from_fn(fails_in_middleware)).to(rejects);
    let app = app(Data::new(context), Arc::new(CorsOrigins::new(Vec::new())), None)
        .route("/panics", web::post().to(panics))
        .route("/fails", web::post().to(fails))
        .route("/errs", web::post().to(errs))
        .route("/refused", web::post().to(rejects))
        .route("/at-fault", web::post().to(responds_with_internal))
        .service(on_the_way);
    let app = init_service(app).await;
    let request = TestRequest::post().uri(&format!("/{name}")).insert_header((header::REQUEST_ID, name));
    let answer = match try_call_service(&app, request.set_payload(CANARY).to_request()).await {
        Ok(answer) => answer.into_parts().1.map_into_boxed_body(),
        Err(error) => error.error_response(),
    };
    let (status, headers) = (answer.status(), answer.headers().clone());
    let Ok(body) = to_bytes(answer.into_body()).await else { panic!("a body") };
    (status, headers, String::from_utf8_lossy(&body).into_owned())
}

async fn panics(body: String) -> HttpResponse {
    panic!("{CANARY} {body}")
}

async fn fails() -> HttpResponse {
    HttpResponse::BadGateway().body(CANARY)
}

async fn errs() -> Result<HttpResponse, Error> {
    Err(error::ErrorInternalServerError(CANARY))
}

async fn fails_in_middleware<B: MessageBody>(_: ServiceRequest, _: Next<B>) -> Result<ServiceResponse<B>, Error> {
    Err(error::ErrorServiceUnavailable(CANARY))
}

async fn rejects() -> HttpResponse {
    HttpResponse::ServiceUnavailable().insert_header((header::OUTCOME, "overloaded")).body("as it is")
}

/// Responds with a problem, which is passed on unchanged and logged.
async fn responds_with_internal() -> HttpResponse {
    let problem = Problem::new(Code::Internal).instance("/at-fault");
    HttpResponse::InternalServerError()
        .insert_header((header::OUTCOME, Code::Internal.as_str()))
        .insert_header(("cache-control", "no-store"))
        .insert_header(("content-type", Problem::CONTENT_TYPE))
        .json(problem)
}
