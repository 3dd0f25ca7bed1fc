//! The service behind [`Protect`](super::Protect).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

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
    Audience, Exchange as _, HandlerPanic, Idle, Protect, RouteRules, RunToCompletion, Treatment, UncheckedRoute,
    after_panic, run,
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
    type Future = ProtectedCall<R, S::Error>;

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
            return ProtectedCall(CallKind::Untouched(Box::pin(exchange.pass_on())));
        }
        let (audience, idle) = (Audience::of(exchange.head()), Idle::new(rules.route.waits()));
        let run = Box::pin(run(Arc::clone(rules), exchange, idle.clone()));
        // Without a runtime the process is about to end, and so is the run.
        let run = RunToCompletion::new(run as _, idle, Arc::clone(rules), |rest| match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(rest)),
            Err(_) => drop(rest),
        });
        ProtectedCall(CallKind::Guarded(run, Some(audience)))
    }
}

impl<S: Clone> Protected<S> {
    /// Returns the service that was polled ready. A clone, which has not been polled, takes its place.
    fn take_ready(&mut self) -> S {
        let next = self.service.clone();
        std::mem::replace(&mut self.service, next)
    }
}

/// The response of a protected service.
pub struct ProtectedCall<R, E>(CallKind<R, E>);

type CallResult<R, E> = Result<Response<ProtectedBody<R>>, E>;

#[expect(clippy::large_enum_variant, reason = "a box would cost an allocation per request")]
enum CallKind<R, E> {
    Untouched(BoxFuture<'static, CallResult<R, E>>),
    /// A run, and what the response to its panic needs.
    Guarded(RunToCompletion<Tower, BoxFuture<'static, CallResult<R, E>>>, Option<Audience<Tower>>),
}

impl<R, E> Future for ProtectedCall<R, E> {
    type Output = CallResult<R, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            CallKind::Untouched(call) => call.as_mut().poll(context),
            CallKind::Guarded(run, audience) => Poll::Ready(match ready!(Pin::new(&mut *run).poll(context)) {
                Ok(result) => result,
                Err(HandlerPanic(why)) => {
                    let response = audience.take().map(|audience| after_panic(why, run.rules(), &audience));
                    let response = response.map(Response::from).unwrap_or_default();
                    Ok(response.map(|body| ProtectedBody::whole(body, None)))
                }
            }),
        }
    }
}

impl<R, E> fmt::Debug for ProtectedCall<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectedCall").finish_non_exhaustive()
    }
}
