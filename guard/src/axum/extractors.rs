//! The values that a handler extracts from a guarded request.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use onceward_api::Code;

use crate::binding::Binding;
use crate::effect::Effect;
use crate::guard::Guard;
use crate::http::{GuardResponse, GuardedRequest, HiddenToken, RequestIntent, UncheckedRoute};
use crate::rejection::Rejection;
use crate::run_id::RunId;
use crate::tower::{Tower, matched_route};

/// Extracts the id of the run, for the handler to store with its own data. A run without a claim, because its route has none or its
/// guard is off, receives a new id.
impl<S: Sync> FromRequestParts<S> for RunId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().copied().unwrap_or_else(Self::new))
    }
}

impl<S: Sync> FromRequestParts<S> for RequestIntent {
    type Rejection = ExtractRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ExtractRejection> {
        let guarded = parts.extensions.get::<Arc<GuardedRequest>>().cloned();
        let unchecked = parts.extensions.get::<UncheckedRoute<Tower>>().cloned();
        let route = matched_route(parts).unwrap_or_default();
        let intent = Self::of(parts, guarded, unchecked.clone(), route).await;
        intent.map_err(|rejection| match unchecked {
            Some(route) => ExtractRejection::of(route.reject(parts, &rejection), &rejection),
            None => ExtractRejection::new(parts, &rejection),
        })
    }
}

/// Issues an unbound token for a server-rendered page, by the [`Guard`] in the state of the router.
///
/// ```
/// use axum::Router;
/// use axum::response::Html;
/// use axum::routing::get;
/// use onceward::Guard;
/// use onceward::axum::HiddenToken;
/// use onceward::store::Memory;
///
/// async fn order_form(token: HiddenToken) -> ([(&'static str, &'static str); 1], Html<String>) {
///     let form = format!("<form method=\"post\" action=\"/orders\">{token}<button>Order</button></form>");
///     ([("cache-control", "no-store")], Html(form))
/// }
///
/// let app: Router = Router::new().route("/", get(order_form)).with_state(Guard::new(Memory::new()));
/// # let _ = app;
/// ```
///
/// A token for a route with [`bound`](crate::http::Protect::bound) is [issued](HiddenToken::issue) in the handler.
impl<S> FromRequestParts<S> for HiddenToken
where
    S: Sync,
    Guard: FromRef<S>,
{
    type Rejection = ExtractRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ExtractRejection> {
        let guard = Guard::from_ref(state);
        Self::issue(&guard, Binding::none()).await.map_err(|error| {
            tracing::debug!(%error, "could not issue a token for a page");
            let rejection = Rejection::new(Code::StoreUnavailable);
            ExtractRejection::of(GuardResponse::rejection_to(parts, &guard, &rejection), &rejection)
        })
    }
}

/// The rejection of an extractor, in the format of its route. It states that nothing took effect.
#[derive(Debug)]
pub struct ExtractRejection(Box<GuardResponse>);

impl ExtractRejection {
    fn of(response: GuardResponse, rejection: &Rejection) -> Self {
        Self(Box::new(response.with_effect(Effect::NotApplied, rejection.code())))
    }

    fn new(parts: &Parts, rejection: &Rejection) -> Self {
        let response = GuardResponse::without_guard(parts, rejection);
        Self::of(response, rejection)
    }
}

impl IntoResponse for ExtractRejection {
    fn into_response(self) -> Response {
        (*self.0).into_response()
    }
}
