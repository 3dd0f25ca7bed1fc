//! The code around a handler with `#[once]`. Not part of the public API.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;

use axum::body::Body;
use axum::extract::{FromRef, Request};
pub use axum::extract::{FromRequest, FromRequestParts};
use axum::handler::Handler;
use axum::response::Response;
use tower_service::Service as _;

use super::{MarkedHandler, Protect, Protection, entered};
use crate::tower::Protected;

/// A request before the handler's own extractors have read it, and the state of the router.
pub struct AnnotatedRequest<S> {
    request: Request,
    state: S,
}

/// The future of a handler with `#[once]`.
pub type AnnotatedCall = Pin<Box<dyn Future<Output = Response> + Send>>;

/// The state of a router, if handlers with `#[once]` find their guard in it.
#[diagnostic::on_unimplemented(
    message = "a handler with `#[once]` finds no guard in the state `{Self}` of the router",
    note = "add `.with_state(onceward::axum::Protection::new(&guard, subject))` to the router, or make a `Protection` a part of your \
            state: `#[derive(Clone, axum::extract::FromRef)]`"
)]
pub trait HasProtection: Clone + Send + Sync + 'static {
    /// Returns the guard and the subject of the handlers.
    fn protection(&self) -> Protection;
}

#[diagnostic::do_not_recommend]
impl<S: Clone + Send + Sync + 'static> HasProtection for S
where
    Protection: FromRef<S>,
{
    fn protection(&self) -> Protection {
        Protection::from_ref(self)
    }
}

impl<S: Clone + Send + Sync> FromRequest<S> for AnnotatedRequest<S> {
    type Rejection = Infallible;

    async fn from_request(request: Request, state: &S) -> Result<Self, Infallible> {
        Ok(Self { request, state: state.clone() })
    }
}

impl<S> fmt::Debug for AnnotatedRequest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnnotatedRequest").field("request", &self.request).finish_non_exhaustive()
    }
}

/// Runs a handler by the rule that `build` returns, with the guard in the state of the router.
pub fn run<S, H, T>(request: AnnotatedRequest<S>, build: fn(Protection) -> Protect, handler: H) -> AnnotatedCall
where
    S: HasProtection,
    H: 'static,
    T: 'static,
    MarkedHandler<H>: Handler<T, S>,
{
    let AnnotatedRequest { request, state } = request;
    let rules = state.protection().rules_of::<H>(build);
    let handler = entered(handler).with_state(state);
    Box::pin(async move {
        let Ok(response) = Protected::new(rules, handler).call(request).await;
        response.map(Body::new)
    })
}
