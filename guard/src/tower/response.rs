//! Responses of the guard, as `http` types.

use std::borrow::Cow;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Body;

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

/// Creates the response to a rejection, in the format of the route. If a handler returns it, it means that nothing took effect, so the
/// response is not stored; with `outcome_unknown` the effect is unknown, and `internal` counts as a 500, whatever status the format sends.
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
            sent.headers_mut().add(name.clone(), value.clone());
        }
        response.effect().map(|effect| sent.extensions_mut().insert(effect));
        response.outcome().map(|outcome| sent.extensions_mut().insert(InnerOutcome(outcome)));
        sent
    }
}

impl SignedHeaders for HeaderMap {
    fn has(&self, name: &'static str) -> bool {
        self.contains_key(name)
    }

    fn remove(&mut self, name: &'static str) {
        HeaderMap::remove(self, name);
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
        Cow::Borrowed(name) => HeaderName::from_static(name),
        Cow::Owned(name) => HeaderName::try_from(name).ok()?,
    };
    Some((name, HeaderValue::from_maybe_shared(value).ok()?))
}
