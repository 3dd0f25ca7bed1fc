//! The state that all handlers share, and their responses.

use std::net::IpAddr;
use std::num::NonZeroU32;

use actix_web::http::header::{HeaderName, HeaderValue, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse};
use onceward::http::{GuardResponse, Preferences, RequestHead};
use onceward::{Guard, Rejection};
use onceward_api::{Code, header};

use crate::http::access::Access;
use crate::http::admission::AdmissionLimits;
use crate::http::rate_limit::{LimitError, LimitScope, RateLimitHeaders, RateLimiter};
use crate::http::request_log::RequestLog;
use crate::metrics::COUNTERS;
use crate::store_health::{StoreFailure, StoreHealth};

/// The shared state of all handlers: the guard, access control, the rate limiter and the admission limits.
#[derive(Debug)]
pub struct Context {
    guard: Guard,
    access: Access,
    rate_limiter: RateLimiter,
    limits: AdmissionLimits,
    request_log: RequestLog,
    store_health: StoreHealth,
}

/// The response of a handler, or the rejection that becomes one.
pub(crate) type HandlerResult = Result<HttpResponse, HandlerError>;

/// A rejection, and the `RateLimit` headers that the response carries.
pub(crate) struct HandlerError {
    pub(crate) rejection: Rejection,
    pub(crate) rate_limit: Option<RateLimitHeaders>,
}

impl From<Rejection> for HandlerError {
    fn from(rejection: Rejection) -> Self {
        Self { rejection, rate_limit: None }
    }
}

impl From<LimitError> for HandlerError {
    fn from(over: LimitError) -> Self {
        Self { rejection: *over.rejection, rate_limit: over.headers }
    }
}

impl Context {
    /// Combines a guard, access control and a rate limiter.
    pub fn new(guard: Guard, access: Access, rate_limiter: RateLimiter) -> Self {
        let (limits, request_log, store_health) = Default::default();
        Self { guard, access, rate_limiter, limits, request_log, store_health }
    }

    /// Sets the admission limits. Default: none.
    #[must_use]
    pub fn within(mut self, limits: AdmissionLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets which responses are logged. Default: all.
    #[must_use]
    pub fn logging(mut self, requests: RequestLog) -> Self {
        self.request_log = requests;
        self
    }

    /// Returns which responses are logged.
    pub(crate) fn request_log(&self) -> RequestLog {
        self.request_log
    }

    /// Returns the admission limits.
    pub(crate) fn limits(&self) -> &AdmissionLimits {
        &self.limits
    }

    /// Returns the guard.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Checks that the store is reachable and writable.
    pub(crate) async fn is_ready(&self) -> Result<(), StoreFailure> {
        self.store_health.check(&self.guard).await
    }

    /// Returns access control.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Counts tokens against the rate limit. Backends are exempt.
    pub(crate) fn take_tokens(
        &self,
        request: &impl RequestHead,
        count: NonZeroU32,
    ) -> Result<Option<RateLimitHeaders>, HandlerError> {
        if self.access.is_backend(request) {
            return Ok(None);
        }
        self.take_tokens_for(self.access.client(request), count)
    }

    /// Counts tokens for this client against the rate limit.
    pub(crate) fn take_tokens_for(
        &self,
        client: IpAddr,
        count: NonZeroU32,
    ) -> Result<Option<RateLimitHeaders>, HandlerError> {
        let taken = self.rate_limiter.take(client, count);
        Ok(taken.inspect_err(|over| match (over.rejection.code(), over.scope) {
            (Code::RateLimited, LimitScope::Client) => COUNTERS.limited_client.increment(1),
            (Code::RateLimited, LimitScope::Total) => COUNTERS.limited_all.increment(1),
            _ => {}
        })?)
    }

    /// Turns the result of a handler into a response.
    pub(crate) fn respond(&self, request: &HttpRequest, result: HandlerResult) -> HttpResponse {
        self.respond_at(request, request.uri().path(), result)
    }

    /// Like [`Context::respond`], for a problem about another path.
    pub(crate) fn respond_at(&self, request: &HttpRequest, path: &str, result: HandlerResult) -> HttpResponse {
        result.unwrap_or_else(|HandlerError { rejection, rate_limit }| {
            let id = request.headers().get(header::REQUEST_ID).map(HeaderValue::as_bytes);
            let preferences = Preferences::of(request);
            let answer = GuardResponse::rejection(&self.guard, &rejection, path, preferences).with_request_id(id);
            let mut answer = HttpResponse::from(answer);
            if rejection.code() == Code::Unauthorized {
                answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            with_rate_limit(answer, rate_limit)
        })
    }
}

/// Adds the `RateLimit` headers.
pub(crate) fn with_rate_limit(mut answer: HttpResponse, headers: Option<RateLimitHeaders>) -> HttpResponse {
    if let Some(RateLimitHeaders { policy, left }) = headers {
        for (name, value) in [(header::RATE_LIMIT_POLICY, policy), (header::RATE_LIMIT, left)] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                answer.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
    }
    answer
}
