//! CORS: the allowed origins, and the rejection of others.

use std::collections::HashSet;
use std::sync::Mutex;

use actix_cors::{Cors, CorsError};
use actix_web::Error;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, ORIGIN};
use actix_web::middleware::Next;
use actix_web::web::Data;
use onceward::Rejection;
use onceward::actix::reject;
use onceward_api::header;

use super::bad_request;
use crate::config::is_origin;
use crate::context::Context;

/// Maximum number of rejected origins to remember, so that each is logged once.
const MOST: usize = 100;

/// The allowed origins, and the rejected ones that were logged.
#[derive(Debug)]
pub struct CorsOrigins {
    allowed: Vec<String>,
    refused: Mutex<HashSet<String>>,
}

impl CorsOrigins {
    /// Allows these origins.
    pub fn new(allowed: Vec<String>) -> Self {
        Self { allowed, refused: Mutex::default() }
    }

    /// Returns true if no origin is allowed.
    pub fn is_empty(&self) -> bool {
        self.allowed.is_empty()
    }

    /// Returns the CORS middleware, with which pages of these origins may call and read every response.
    pub fn cors(&self) -> Cors {
        let cors = Cors::default()
            .allowed_methods([Method::GET, Method::POST])
            .allowed_headers(allowed_headers())
            .expose_headers(header::EXPOSED.map(HeaderName::from_static))
            .expose_headers([header::RATE_LIMIT, header::RATE_LIMIT_POLICY, header::REQUEST_ID])
            .max_age(3600);
        self.allowed.iter().fold(cors, |cors, origin| cors.allowed_origin(origin))
    }

    /// Logs an origin that is not allowed, once, with the line that would allow it.
    fn note(&self, origin: &str) {
        if !is_origin(origin) || self.allowed.iter().any(|allowed| allowed == origin) {
            return;
        }
        let Ok(mut refused) = self.refused.lock() else { return };
        if refused.len() < MOST && refused.insert(origin.to_owned()) {
            let origins = self.allowed.iter().map(String::as_str).chain([origin]).collect::<Vec<_>>().join(",");
            tracing::warn!(
                "pages of {origin} cannot read the responses; to allow this origin, set cors_origins = \"{origins}\""
            );
        }
    }
}

/// Logs requests from an origin that is not allowed. Same-origin requests need no permission.
pub async fn log_origin<B: MessageBody>(
    origins: Data<CorsOrigins>,
    context: Data<Context>,
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    if let Some(origin) = request.headers().get(ORIGIN).and_then(|origin| origin.to_str().ok())
        && origin.split_once("://").is_none_or(|(_, host)| host != context.access().host(request.request()))
    {
        origins.note(origin);
    }
    next.call(request).await
}

/// Replaces the response to a rejected preflight request with a problem that lists what is allowed.
pub async fn explain_preflight<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let answer = next.call(request).await?;
    let refused = answer.response().error().and_then(Error::as_error).map(explained);
    let context = answer.request().app_data::<Data<Context>>();
    let (Some(detail), Some(context)) = (refused, context) else { return Ok(answer.map_into_left_body()) };
    let problem = reject(answer.request(), context.guard(), &detail);
    Ok(answer.into_response(problem).map_into_right_body())
}

fn explained(error: &CorsError) -> Rejection {
    match error {
        CorsError::MethodNotAllowed => bad_request(
            "Pages of the origins in `cors_origins` may use only GET and POST.",
            "`cors_origins` 中来源的页面只能使用 GET 和 POST。",
        ),
        CorsError::HeadersNotAllowed | CorsError::BadRequestHeaders => {
            let names = allowed_headers().map(|name| name.to_string()).collect::<Vec<_>>().join(", ");
            bad_request(
                format!("Pages of the origins in `cors_origins` may send only these headers: {names}."),
                format!("`cors_origins` 中来源的页面只能发送以下请求头：{names}。"),
            )
        }
        _ => bad_request(
            "This origin is not allowed. The operator of the service can allow it with `cors_origins`.",
            "不允许此来源。服务的运维人员可以通过 `cors_origins` 允许它。",
        ),
    }
}

/// Returns the headers that pages may send in addition to the CORS-safelisted ones.
fn allowed_headers() -> impl Iterator<Item = HeaderName> {
    [CONTENT_TYPE, AUTHORIZATION].into_iter().chain(header::ALLOWED.map(HeaderName::from_static))
}
