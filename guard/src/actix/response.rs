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

/// Creates the response to a rejection, in the format of the route. If a handler returns it, it means that nothing took effect, so the response is not stored; with `outcome_unknown` the effect is unknown, and `internal` makes no statement
/// about it.
pub fn reject(request: &HttpRequest, guard: &Guard, rejection: &Rejection) -> HttpResponse {
    let format = request.extensions().get::<RejectionFormat>().cloned().unwrap_or_default();
    GuardResponse::formatted_to(request, &format, guard, rejection).into()
}

impl From<GuardResponse> for HttpResponse {
    fn from(response: GuardResponse) -> Self {
        let status = StatusCode::from_u16(response.status().as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut sent = Self::build(status).body(response.body().clone());
        for (name, value) in response.headers() {
            let name = match name {
                Cow::Borrowed(name) => Ok(static_name(name)),
                Cow::Owned(name) => HeaderName::try_from(name),
            };
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_maybe_shared(value.clone())) {
                sent.headers_mut().append(name, value);
            }
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
        name => HeaderName::from_static(name),
    }
}

static OUTCOME: HeaderName = HeaderName::from_static(header::OUTCOME);
static SERVER_TIMING: HeaderName = HeaderName::from_static(header::SERVER_TIMING);
static REPLAYED: HeaderName = HeaderName::from_static(header::IDEMPOTENT_REPLAYED);
static NEXT_TOKEN: HeaderName = HeaderName::from_static(header::NEXT_TOKEN);

impl SignedHeaders for HeaderMap {
    fn has_server_timing(&self) -> bool {
        self.contains_key(&SERVER_TIMING)
    }

    fn set_outcome(&mut self, outcome: &'static str) {
        self.insert(OUTCOME.clone(), HeaderValue::from_static(outcome));
    }

    fn add_server_timing(&mut self, value: String) {
        if let Ok(value) = HeaderValue::try_from(value) {
            self.append(SERVER_TIMING.clone(), value);
        }
    }

    fn set_next_token(&mut self, token: &str) {
        if let Ok(value) = HeaderValue::from_str(token) {
            self.insert(NEXT_TOKEN.clone(), value);
        }
    }

    fn set_key(&mut self, key: &Bytes) {
        if let Ok(value) = HeaderValue::from_maybe_shared(key.clone()) {
            self.insert(HeaderName::from_static(header::IDEMPOTENCY_KEY), value);
        }
    }

    fn set_retention(&mut self, name: &str, value: &Bytes) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_maybe_shared(value.clone())) {
            self.insert(name, value);
        }
    }
}
