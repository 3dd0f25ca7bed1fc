//! The service behind [`Protect`](super::Protect).

use std::fmt;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready};
use actix_web::{Error, HttpMessage as _, HttpResponse, rt};
use futures_util::future::LocalBoxFuture;

use super::Actix;
use super::exchange::ActixExchange;
use super::require_protection::mark_seen;
use crate::http::{
    Audience, HandlerPanic, Idle, Protect, RouteRules, RunToCompletion, Treatment, UncheckedRoute, after_panic, run,
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
    type Future = ProtectedCall<B>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let (rules, service) = (&self.rules, Rc::clone(&self.service));
        mark_seen(request.request());
        let treatment = rules.treatment(request.method().as_str());
        if treatment != Treatment::Guarded {
            if treatment == Treatment::Unchecked {
                request.extensions_mut().insert(UncheckedRoute::new(rules));
            }
            let call = async move { Ok(service.call(request).await?.map_into_left_body()) };
            return ProtectedCall(CallKind::Untouched(Box::pin(call)));
        }
        let (audience, idle) = (Audience::of(request.request()), Idle::new(rules.route.waits()));
        let run = Box::pin(run(Arc::clone(rules), ActixExchange { service, request }, idle.clone()));
        let run = RunToCompletion::new(run as _, idle, Arc::clone(rules), |rest| drop(rt::spawn(rest)));
        ProtectedCall(CallKind::Guarded(run, Some(audience)))
    }
}

/// The response of a protected service. A plain struct: a boxed future around the boxed run would cost another allocation per request.
pub struct ProtectedCall<B: 'static>(CallKind<B>);

type CallResult<B> = Result<ServiceResponse<EitherBody<B>>, Error>;

#[expect(clippy::large_enum_variant, reason = "a box would cost an allocation per request")]
enum CallKind<B: 'static> {
    Untouched(LocalBoxFuture<'static, CallResult<B>>),
    /// A run, and what the response to its panic needs.
    Guarded(RunToCompletion<Actix, LocalBoxFuture<'static, CallResult<B>>>, Option<Audience<Actix>>),
}

impl<B> Future for ProtectedCall<B> {
    type Output = CallResult<B>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            CallKind::Untouched(call) => call.as_mut().poll(context),
            CallKind::Guarded(run, audience) => Poll::Ready(match ready!(Pin::new(&mut *run).poll(context)) {
                Ok(result) => result,
                Err(panic) => Err(broke_off(panic, run.rules(), audience.take())),
            }),
        }
    }
}

impl<B> fmt::Debug for ProtectedCall<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectedCall").finish_non_exhaustive()
    }
}

/// Creates the error for a handler that panicked or was aborted.
fn broke_off(HandlerPanic(why): HandlerPanic, rules: &RouteRules<Actix>, audience: Option<Audience<Actix>>) -> Error {
    let mut error = actix_web::error::ErrorInternalServerError("the handler panicked or was aborted");
    if let Some(audience) = audience {
        let response = after_panic(why, rules, &audience);
        error.add_response_mapper(move |_| HttpResponse::from(response.clone()));
    }
    error
}
