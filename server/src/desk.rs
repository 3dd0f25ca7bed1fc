//! The desk at which every request is handled, and how it answers.

use std::num::NonZeroU32;

use actix_web::http::header::{ACCEPT, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse};
use onceward::http::GuardResponse;
use onceward::{Guard, Rejection};
use onceward_api::{Code, header};

use crate::access::Access;
use crate::limits::Limits;
use crate::meters::COUNTED;
use crate::quota::{Fields, OverQuota, Quota};
use crate::readiness::{Readiness, Unready};

/// What every handler works with: the guard, whom it lets in, and how many tokens each may have.
#[derive(Debug)]
pub struct Desk {
    guard: Guard,
    access: Access,
    quota: Quota,
    limits: Limits,
    readiness: Readiness,
}

/// What a handler answers, or why not.
pub(crate) type Answer = Result<HttpResponse, Rejected>;

/// A rejection, with what a client is told of its quota.
pub(crate) struct Rejected {
    rejection: Rejection,
    fields: Option<Fields>,
}

impl From<Rejection> for Rejected {
    fn from(rejection: Rejection) -> Self {
        Self { rejection, fields: None }
    }
}

impl From<OverQuota> for Rejected {
    fn from(over: OverQuota) -> Self {
        Self { rejection: over.rejection, fields: over.fields }
    }
}

impl Desk {
    /// With this guard, for these callers, within this quota.
    pub fn new(guard: Guard, access: Access, quota: Quota) -> Self {
        Self { guard, access, quota, limits: Limits::default(), readiness: Readiness::default() }
    }

    /// Takes on no more than this.
    #[must_use]
    pub fn within(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How much is taken on.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The guard.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Whether the store answers, or why not.
    pub(crate) async fn is_ready(&self) -> Result<(), Unready> {
        self.readiness.of(&self.guard).await
    }

    /// Who is calling.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Takes tokens out of the caller's quota; backends have none.
    pub(crate) fn take_quota(&self, request: &HttpRequest, count: NonZeroU32) -> Result<Option<Fields>, Rejected> {
        if self.access.is_backend(request) {
            return Ok(None);
        }
        let taken = self.quota.take(self.access.client(request), count);
        Ok(taken.inspect_err(|over| match (over.rejection.code(), over.is_of_all) {
            (Code::RateLimited, false) => COUNTED.limited_client.increment(1),
            (Code::RateLimited, true) => COUNTED.limited_all.increment(1),
            _ => {}
        })?)
    }

    /// The answer to a request, whatever became of it.
    pub(crate) fn answer(&self, request: &HttpRequest, answer: Answer) -> HttpResponse {
        self.answer_at(request, request.uri().path(), answer)
    }

    /// The same, where it is about another path.
    pub(crate) fn answer_at(&self, request: &HttpRequest, path: &str, answer: Answer) -> HttpResponse {
        answer.unwrap_or_else(|Rejected { rejection, fields }| {
            let accept = request.headers().get(ACCEPT).map(HeaderValue::as_bytes);
            let mut answer = HttpResponse::from(GuardResponse::rejection(&self.guard, &rejection, path, accept));
            if rejection.code() == Code::Unauthorized {
                answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            with_fields(answer, fields)
        })
    }
}

/// Says what is left of the quota.
pub(crate) fn with_fields(mut answer: HttpResponse, fields: Option<Fields>) -> HttpResponse {
    if let Some(Fields { policy, left }) = fields {
        for (name, value) in [(header::RATE_LIMIT_POLICY, policy), (header::RATE_LIMIT, left)] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                answer.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
    }
    answer
}
