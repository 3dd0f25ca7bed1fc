//! What the service answers. Each handler reads, asks the guard, and says what it was told.

pub mod health;
pub mod pages;
pub mod token;

use std::num::NonZeroU32;

use actix_web::http::header::{ALLOW, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse, web};
use onceward::actix::refuse;
use onceward::{Guard, Refusal};
use onceward_api::{Code, header};
use utoipa_actix_web::service_config::ServiceConfig;

use crate::access::Access;
use crate::quota::{Fields, OverQuota, Quota};

/// What every handler needs.
#[derive(Debug)]
pub struct Service {
    guard: Guard,
    access: Access,
    quota: Quota,
}

/// What a handler answers, or why not.
type Answer = Result<HttpResponse, Refused>;

/// A refusal, with what a client is told of its quota.
struct Refused {
    refusal: Refusal,
    fields: Option<Fields>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, fields: None }
    }
}

impl From<OverQuota> for Refused {
    fn from(over: OverQuota) -> Self {
        Self { refusal: over.refusal, fields: over.fields }
    }
}

impl Service {
    /// With this guard, for these callers, within this quota.
    pub fn new(guard: Guard, access: Access, quota: Quota) -> Self {
        Self { guard, access, quota }
    }

    /// The guard.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Takes tokens out of the caller's quota; backends have none.
    fn take_quota(&self, request: &HttpRequest, count: NonZeroU32) -> Result<Option<Fields>, Refused> {
        if self.access.is_backend(request) {
            return Ok(None);
        }
        Ok(self.quota.take(self.access.client(request), count)?)
    }

    /// The answer to a request, whatever became of it.
    fn answer(&self, request: &HttpRequest, answer: Answer) -> HttpResponse {
        answer.unwrap_or_else(|Refused { refusal, fields }| {
            let mut answer = refuse(request, &self.guard, &refusal);
            if refusal.code() == Code::Unauthorized {
                answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            with_fields(answer, fields)
        })
    }
}

/// Says what is left of the quota.
fn with_fields(mut answer: HttpResponse, fields: Option<Fields>) -> HttpResponse {
    if let Some(Fields { policy, left }) = fields {
        for (name, value) in [(header::RATE_LIMIT_POLICY, policy), (header::RATE_LIMIT, left)] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                answer.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
    }
    answer
}

/// The routes that are part of the specification.
pub fn specified(config: &mut ServiceConfig<'_>) {
    config
        .service(token::issue)
        .service(token::issue_many)
        .service(token::redeem)
        .service(token::release)
        .service(health::alive)
        .service(health::ready);
}

/// The rest: pages for people, and what nobody else answers.
pub fn others(config: &mut web::ServiceConfig) {
    let only = |allowed: &'static str| {
        move |request: HttpRequest, service: web::Data<Service>| async move {
            let mut answer = service.answer(&request, Err(Refusal::new(Code::MethodNotAllowed).into()));
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            answer
        }
    };
    config
        .service(pages::start)
        .service(pages::problem)
        .service(pages::docs)
        // Load balancers ask with HEAD.
        .route("/healthz", web::head().to(health::lives))
        .route("/readyz", web::head().to(health::is_ready))
        .service(web::resource(["/token", "/tokens", "/token/redeem", "/token/release"]).to(only("POST")))
        .service(
            web::resource(["/healthz", "/readyz", "/", "/openapi.json", "/docs", "/problems/{code}"]).to(only("GET")),
        )
        .default_service(web::to(|request: HttpRequest, service: web::Data<Service>| async move {
            let refusal = Refusal::new(Code::NotFound).detail("There is nothing at this address.");
            service.answer(&request, Err(refusal.into()))
        }));
}
