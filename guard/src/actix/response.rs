//! Responses of the guard, as actix-web sends them.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse};
use bytes::Bytes;
use onceward_api::header;

use crate::effect::Effect;
use crate::guard::Guard;
use crate::http::{GuardResponse, InnerOutcome, MarkEffect, RejectionFormat, SignedHeaders};
use crate::rejection::Rejection;

impl<B> MarkEffect for HttpResponse<B> {
    fn effect(mut self, effect: Effect) -> Self {
        self.extensions_mut().insert(effect);
        self
    }
}

/// Creates the response to a rejection, in the format of the route. If a handler returns it, it means that nothing took effect, so the
/// response is not stored; with `outcome_unknown` the effect is unknown, and `internal` counts as a 500, whatever status the format sends.
pub fn reject(request: &HttpRequest, guard: &Guard, rejection: &Rejection) -> HttpResponse {
    let format = request.extensions().get::<RejectionFormat>().cloned().unwrap_or_default();
    GuardResponse::formatted_to(request, &format, guard, rejection).into()
}

impl From<GuardResponse> for HttpResponse {
    fn from(response: GuardResponse) -> Self {
        let status = StatusCode::from_u16(response.status().as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut sent = Self::build(status).body(response.body().clone());
        for (name, value) in response.headers() {
            sent.headers_mut().add(name.clone(), value.clone());
        }
        let mut extensions = sent.extensions_mut();
        if let Some(effect) = response.effect() {
            extensions.insert(effect);
        }
        if let Some(outcome) = response.outcome() {
            extensions.insert(InnerOutcome(outcome));
        }
        drop(extensions);
        sent
    }
}

/// Returns the name of a header. Names that are in most responses of a guard need not be parsed.
fn static_name(name: &'static str) -> HeaderName {
    match name {
        "cache-control" => CACHE_CONTROL,
        "content-type" => CONTENT_TYPE,
        header::IDEMPOTENT_REPLAYED => REPLAYED.clone(),
        header::OUTCOME => OUTCOME.clone(),
        header::SERVER_TIMING => SERVER_TIMING.clone(),
        header::NEXT_TOKEN => NEXT_TOKEN.clone(),
        header::RETRY => RETRY.clone(),
        name => HeaderName::from_static(name),
    }
}

static OUTCOME: HeaderName = HeaderName::from_static(header::OUTCOME);
static SERVER_TIMING: HeaderName = HeaderName::from_static(header::SERVER_TIMING);
static REPLAYED: HeaderName = HeaderName::from_static(header::IDEMPOTENT_REPLAYED);
static NEXT_TOKEN: HeaderName = HeaderName::from_static(header::NEXT_TOKEN);
static RETRY: HeaderName = HeaderName::from_static(header::RETRY);

impl SignedHeaders for HeaderMap {
    fn has(&self, name: &'static str) -> bool {
        self.contains_key(static_name(name))
    }

    fn remove(&mut self, name: &'static str) {
        HeaderMap::remove(self, static_name(name));
    }

    fn set(&mut self, name: Cow<'static, str>, value: Bytes) {
        if let Some((name, value)) = valid(name, value) {
            self.insert(name, value);
        }
    }

    fn add(&mut self, name: Cow<'static, str>, value: Bytes) {
        if let Some((name, value)) = valid(name, value) {
            self.append(name, value);
        }
    }
}

/// Returns a header; `None` if its name or value is not valid.
fn valid(name: Cow<'static, str>, value: Bytes) -> Option<(HeaderName, HeaderValue)> {
    let name = match name {
        Cow::Borrowed(name) => static_name(name),
        Cow::Owned(name) => HeaderName::try_from(name).ok()?,
    };
    Some((name, HeaderValue::from_maybe_shared(value).ok()?))
}
