//! The safety net for routes, as middleware of actix-web.

use std::fmt;
use std::future::{Ready, ready};
use std::rc::Rc;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready};
use actix_web::{Error, HttpMessage as _, HttpRequest, HttpResponse};
use futures_util::future::LocalBoxFuture;

use super::Actix;
use crate::http::{Audience, Exempt, GuardResponse, Reached, RequireProtection, SeenMark, drain};

/// Records that a guard has seen the request.
pub(super) fn mark_seen(request: &HttpRequest) {
    if let Some(seen) = request.extensions().get::<SeenMark>() {
        seen.set();
    }
}

/// Returns the pattern of the route that the request has reached. Before the request reaches a route, `match_pattern` would look up the
/// path as it was sent, not as the router decodes it.
fn pattern(request: &HttpRequest) -> Option<String> {
    let path = request.match_info();
    if path.unprocessed().is_empty() {
        request.match_pattern()
    } else {
        request.resource_map().match_pattern(path.as_str())
    }
}

fn reached(pattern: Option<&str>, is_there: bool) -> Reached<'_> {
    match pattern {
        None => Reached::NoRoute,
        Some(pattern) if is_there => Reached::Route(pattern),
        Some(pattern) => Reached::BeforeRoute(pattern),
    }
}

impl<S, B> Transform<S, ServiceRequest> for RequireProtection
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = Required<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(Required { require: self.clone(), service: Rc::new(service) }))
    }
}

/// A service behind [`RequireProtection`].
pub struct Required<S> {
    require: RequireProtection,
    service: Rc<S>,
}

impl<S> fmt::Debug for Required<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.require.fmt(f)
    }
}

impl<S, B> Service<ServiceRequest> for Required<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Error>>;

    forward_ready!(service);

    fn call(&self, mut request: ServiceRequest) -> Self::Future {
        let (require, service) = (self.require.clone(), Rc::clone(&self.service));
        Box::pin(async move {
            let Some(submission) = require.watch(request.method().as_str()) else {
                return Ok(service.call(request).await?.map_into_left_body());
            };
            if let Some(rejection) = require.known(&submission, &reached(pattern(request.request()).as_deref(), true)) {
                let (format, guard) = (require.format(), require.guard());
                let answer =
                    HttpResponse::from(GuardResponse::formatted_to(request.request(), format, guard, &rejection));
                let (head, body) = request.parts_mut();
                Box::pin(drain(head, body)).await;
                return Ok(request.into_response(answer).map_into_right_body());
            }
            let audience = Audience::<Actix>::of(request.request());
            request.extensions_mut().insert(submission.seen.clone());
            let answer = service.call(request).await?;
            let is_there = answer.request().match_info().unprocessed().is_empty();
            let pattern = pattern(answer.request());
            let status = answer.status().as_u16();
            match require.note(&submission, &reached(pattern.as_deref(), is_there), status) {
                None => Ok(answer.map_into_left_body()),
                Some(rejection) => {
                    let refused = HttpResponse::from(audience.reject(require.format(), require.guard(), &rejection));
                    Ok(answer.into_response(refused).map_into_right_body())
                }
            }
        })
    }
}

impl<S, B> Transform<S, ServiceRequest> for Exempt
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<B>;
    type Error = Error;
    type Transform = Exempted<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(Exempted { service }))
    }
}

/// A service behind [`Exempt`].
#[derive(Debug)]
pub struct Exempted<S> {
    service: S,
}

impl<S, B> Service<ServiceRequest> for Exempted<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<B>;
    type Error = Error;
    type Future = S::Future;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        mark_seen(request.request());
        self.service.call(request)
    }
}
