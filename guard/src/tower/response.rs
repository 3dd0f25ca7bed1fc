//! Responses of the guard, as `http` types.

use std::borrow::Cow;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Body;
use onceward_api::header;

use super::request::mark_seen;
use super::{BoxError, GuardedBody, SubjectFrom};
use crate::effect::Effect;
use crate::guard::Guard;
use crate::http::{GuardResponse, InnerOutcome, MarkEffect, RejectionFormat, SignedHeaders, answer_token_request};
use crate::rejection::Rejection;

impl<B> MarkEffect for Response<B> {
    fn effect(mut self, effect: Effect) -> Self {
        self.extensions_mut().insert(effect);
        self
    }
}

/// Creates the response to a rejection, in the format of the route. If a handler returns it, it means that nothing took effect, so the response is not stored; with `outcome_unknown` the effect is unknown, and `internal` makes no statement
/// about it.
pub fn reject<B: From<Bytes>>(request: &Parts, guard: &Guard, rejection: &Rejection) -> Response<B> {
    let format = request.extensions.get::<RejectionFormat>().cloned().unwrap_or_default();
    Response::from(GuardResponse::formatted_to(request, &format, guard, rejection)).map(B::from)
}

/// Responds to a token request, as `POST /token` of [`axum::token_route`](crate::axum::token_route) does, for a server without a router.
/// `subject` resolves the subject that the token is bound to.
pub async fn issue_token<B>(request: Request<B>, guard: &Guard, subject: &SubjectFrom) -> Response<Bytes>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let (head, body) = request.into_parts();
    mark_seen(&head);
    Response::from(answer_token_request(&head, &mut GuardedBody::new(body), guard, subject).await)
}

impl From<GuardResponse> for Response<Bytes> {
    fn from(response: GuardResponse) -> Self {
        let mut sent = Self::new(response.body().clone());
        *sent.status_mut() = response.status();
        for (name, value) in response.headers() {
            let name = match name {
                Cow::Borrowed(name) => Ok(HeaderName::from_static(name)),
                Cow::Owned(name) => HeaderName::try_from(name),
            };
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_maybe_shared(value.clone())) {
                sent.headers_mut().append(name, value);
            }
        }
        response.effect().map(|effect| sent.extensions_mut().insert(effect));
        response.outcome().map(|outcome| sent.extensions_mut().insert(InnerOutcome(outcome)));
        sent
    }
}

impl SignedHeaders for HeaderMap {
    fn has_server_timing(&self) -> bool {
        self.contains_key(header::SERVER_TIMING)
    }

    fn set_outcome(&mut self, outcome: &'static str) {
        self.insert(HeaderName::from_static(header::OUTCOME), HeaderValue::from_static(outcome));
    }

    fn add_server_timing(&mut self, value: String) {
        if let Ok(value) = HeaderValue::try_from(value) {
            self.append(HeaderName::from_static(header::SERVER_TIMING), value);
        }
    }

    fn set_next_token(&mut self, token: &str) {
        if let Ok(value) = HeaderValue::from_str(token) {
            self.insert(HeaderName::from_static(header::NEXT_TOKEN), value);
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
