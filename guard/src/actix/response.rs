//! Responses of the guard, as actix-web sends them.

use std::borrow::Cow;

use actix_web::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use actix_web::http::{StatusCode, Uri};
use actix_web::{HttpRequest, HttpResponse};
use onceward_api::{Outcome, header};

use crate::effect::Effect;
use crate::guard::Guard;
use crate::http::{GuardResponse, OutcomeHeaders};
use crate::rejection::Rejection;

/// Lets a handler state whether its response means that the submission took effect, if the status does not show it.
///
/// ```
/// use actix_web::HttpResponse;
/// use onceward::Effect;
/// use onceward::actix::MarkEffect as _;
///
/// let response = HttpResponse::Ok().body("sold out").effect(Effect::NotApplied);
/// # let _ = response;
/// ```
pub trait MarkEffect {
    /// States whether the submission took effect.
    #[must_use]
    fn effect(self, effect: Effect) -> Self;
}

impl<B> MarkEffect for HttpResponse<B> {
    fn effect(mut self, effect: Effect) -> Self {
        self.extensions_mut().insert(effect);
        self
    }
}

/// The outcome of an inner guard, in the extensions of its response. An outer guard reports the same outcome instead of judging by the
/// status.
#[derive(Clone, Copy)]
pub(super) struct InnerOutcome(pub(super) Outcome);

/// Creates the response to a rejection: problem JSON for programs, a short page for people. If a handler returns it, it means that
/// nothing took effect, so the response is not stored; with `outcome_unknown` the effect is unknown, and `internal` makes no statement
/// about it.
pub fn reject(request: &HttpRequest, guard: &Guard, rejection: &Rejection) -> HttpResponse {
    rejection_of(request, guard, rejection).into()
}

/// Creates the response to a rejection, as plain data.
pub(super) fn rejection_of(request: &HttpRequest, guard: &Guard, rejection: &Rejection) -> GuardResponse {
    let value = |name| request.headers().get(name).map(HeaderValue::as_bytes);
    GuardResponse::rejection(guard, rejection, request.uri().path(), value(&ACCEPT)).with_request_id(value(&REQUEST_ID))
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

/// The parts of a request that a later rejection needs. They are copied from every request and rarely used, so nothing is computed
/// here.
pub(super) struct Audience {
    accept: Option<HeaderValue>,
    request_id: Option<HeaderValue>,
    uri: Uri,
}

impl Audience {
    pub(super) fn of(request: &HttpRequest) -> Self {
        let copy = |name| request.headers().get(name).cloned();
        let (accept, request_id) = (copy(&ACCEPT), copy(&REQUEST_ID));
        Self { accept, request_id, uri: request.uri().clone() }
    }

    pub(super) fn path(&self) -> &str {
        self.uri.path()
    }

    pub(super) fn reject(&self, guard: &Guard, rejection: &Rejection) -> GuardResponse {
        let accept = self.accept.as_ref().map(HeaderValue::as_bytes);
        let request_id = self.request_id.as_ref().map(HeaderValue::as_bytes);
        GuardResponse::rejection(guard, rejection, self.path(), accept).with_request_id(request_id)
    }
}

static OUTCOME: HeaderName = HeaderName::from_static(header::OUTCOME);
static SERVER_TIMING: HeaderName = HeaderName::from_static(header::SERVER_TIMING);
static REPLAYED: HeaderName = HeaderName::from_static(header::IDEMPOTENT_REPLAYED);
static REQUEST_ID: HeaderName = HeaderName::from_static(header::REQUEST_ID);

/// Reports the outcome in the headers of a response.
pub(super) fn mark(headers: &mut HeaderMap, outcome: Outcome) {
    let reported = OutcomeHeaders::of(outcome, headers.contains_key(&SERVER_TIMING));
    headers.insert(OUTCOME.clone(), HeaderValue::from_static(reported.outcome));
    if let Some(Ok(value)) = reported.server_timing.map(HeaderValue::try_from) {
        headers.append(SERVER_TIMING.clone(), value);
    }
}
