//! The service behind [`Protect`](super::Protect).

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use tokio::runtime::Handle;
use tower_layer::Layer;
use tower_service::Service;

use super::exchange::TowerExchange;
use super::request::mark_seen;
use super::{BoxError, GuardedBody, ProtectedBody, Tower};
use crate::http::{
    Audience, Exchange as _, Idle, Protect, ProtectedCall, RouteRules, RunToCompletion, Treatment, UncheckedRoute, run,
};

impl<P, S> Layer<S> for Protect<Tower, P> {
    type Service = Protected<S>;

    fn layer(&self, service: S) -> Protected<S> {
        Protected { rules: self.shared_rules(), service }
    }
}

/// A service behind [`Protect`](super::Protect).
#[derive(Clone)]
pub struct Protected<S> {
    rules: Arc<RouteRules<Tower>>,
    service: S,
}

impl<S> fmt::Debug for Protected<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protected").field("policy", &self.rules.route.policy).finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for Protected<S>
where
    S: Service<Request<GuardedBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ProtectedBody<R>>;
    type Error = S::Error;
    type Future = ProtectedCall<Tower, BoxFuture<'static, Result<Self::Response, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut exchange = TowerExchange::new(self.take_ready(), request);
        let rules = &self.rules;
        mark_seen(exchange.head());
        let treatment = rules.treatment(exchange.head().method.as_str());
        if treatment != Treatment::Guarded {
            if treatment == Treatment::Unchecked {
                exchange.attach(UncheckedRoute::new(rules));
            }
            return ProtectedCall::untouched(Box::pin(exchange.pass_on()));
        }
        let (audience, idle) = (Audience::of_route(exchange.head(), rules), Idle::new(rules.route.waits()));
        let run: BoxFuture<'static, _> = Box::pin(run(Arc::clone(rules), exchange, idle.clone()));
        let run = RunToCompletion::new(run, idle, Arc::clone(rules), |rest| match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(rest)),
            // A future that is dropped outside of its runtime: the handler is dropped too, and its outcome is unknown.
            Err(_) => drop(rest),
        });
        ProtectedCall::guarded(run, audience, |response| Ok(ProtectedBody::response(response)))
    }
}

#[cfg(all(feature = "axum", feature = "macros"))]
impl<S> Protected<S> {
    /// Puts a service behind these rules.
    pub(crate) fn new(rules: Arc<RouteRules<Tower>>, service: S) -> Self {
        Self { rules, service }
    }
}

impl<S: Clone> Protected<S> {
    /// Returns the service that was polled ready. A clone, which has not been polled, takes its place.
    fn take_ready(&mut self) -> S {
        let next = self.service.clone();
        std::mem::replace(&mut self.service, next)
    }
}
