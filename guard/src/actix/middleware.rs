//! The service behind [`Protect`](super::Protect).

use std::fmt;
use std::future::{Ready, ready};
use std::rc::Rc;
use std::sync::Arc;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready};
use actix_web::{Error, HttpResponse, rt};
use futures_util::future::LocalBoxFuture;

use super::Actix;
use super::exchange::ActixExchange;
use super::require_protection::mark_seen;
use crate::http::{
    Audience, Exchange, GuardResponse, Idle, Protect, ProtectedCall, RouteRules, RunToCompletion, Treatment,
    UncheckedRoute, run,
};

impl<P, S, B> Transform<S, ServiceRequest> for Protect<Actix, P>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = Protected<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(Protected { rules: self.shared_rules(), service: Rc::new(service) }))
    }
}

/// A service behind [`Protect`](super::Protect).
pub struct Protected<S> {
    rules: Arc<RouteRules<Actix>>,
    service: Rc<S>,
}

impl<S> fmt::Debug for Protected<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protected").field("policy", &self.rules.route.policy).finish_non_exhaustive()
    }
}

impl<S, B> Service<ServiceRequest> for Protected<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = ProtectedCall<Actix, LocalBoxFuture<'static, Result<Self::Response, Error>>>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let exchange = ActixExchange { service: Rc::clone(&self.service), request };
        protect(&self.rules, exchange, |exchange| Box::pin(exchange.pass_on()))
    }
}

/// The response to a request behind a guard.
type Sent<B> = Result<ServiceResponse<EitherBody<B>>, Error>;

/// Handles a request by these rules. `pass_on` calls the handler without a guard.
pub(super) fn protect<E, B>(
    rules: &Arc<RouteRules<Actix>>,
    mut exchange: E,
    pass_on: fn(E) -> LocalBoxFuture<'static, Sent<B>>,
) -> ProtectedCall<Actix, LocalBoxFuture<'static, Sent<B>>>
where
    E: Exchange<Framework = Actix, Sent = Sent<B>> + 'static,
    B: 'static,
{
    mark_seen(exchange.head());
    let treatment = rules.treatment(exchange.head().method().as_str());
    if treatment != Treatment::Guarded {
        if treatment == Treatment::Unchecked {
            exchange.attach(UncheckedRoute::new(rules));
        }
        return ProtectedCall::untouched(pass_on(exchange));
    }
    let (audience, idle) = (Audience::of_route(exchange.head(), rules), Idle::new(rules.route.waits()));
    let run: LocalBoxFuture<'static, _> = Box::pin(run(Arc::clone(rules), exchange, idle.clone()));
    let run = RunToCompletion::new(run, idle, Arc::clone(rules), |rest| drop(rt::spawn(rest)));
    ProtectedCall::guarded(run, audience, |response| Err(broke_off(response)))
}

/// Creates the error for a handler that panicked or was aborted.
fn broke_off(response: GuardResponse) -> Error {
    let mut error = actix_web::error::ErrorInternalServerError("the handler panicked or was aborted");
    error.add_response_mapper(move |_| HttpResponse::from(response.clone()));
    error
}
