//! Rejections and effects as responses of axum.

use axum::body::Body;
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use http::request::Parts;

use crate::effect::Effect;
use crate::guard::Guard;
use crate::http::GuardResponse;
use crate::rejection::Rejection;

/// Creates the response to a rejection, in the format of the route. If a handler returns it, it means that nothing took effect, so the
/// response is not stored; with `outcome_unknown` the effect is unknown, and `internal` counts as a 500, whatever status the format sends.
pub fn reject(request: &Parts, guard: &Guard, rejection: &Rejection) -> Response {
    crate::tower::reject(request, guard, rejection)
}

impl IntoResponse for GuardResponse {
    fn into_response(self) -> Response {
        Response::from(self).map(Body::from)
    }
}

/// Responds with problem JSON in English, whatever the format of the route. [`reject`] knows the request too, so it sends the format of the
/// route in the language of the client, names the path, and sends a page to people.
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        GuardResponse::without_request(&self).into_response()
    }
}

/// States whether the submission took effect, as a part of a response: `(Effect::NotApplied, "sold out")`.
impl IntoResponseParts for Effect {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Self::Error> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}
