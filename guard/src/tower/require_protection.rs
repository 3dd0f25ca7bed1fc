//! The safety net for routes, as a layer.

use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::request::{mark_seen, matched_route};
use super::{BoxError, GuardedBody, ProtectedBody, Tower};
use crate::http::{Audience, Exempt, GuardResponse, Reached, RequireProtection, drain};

impl<S> Layer<S> for RequireProtection {
    type Service = Required<S>;

    fn layer(&self, service: S) -> Required<S> {
        Required { require: self.clone(), service }
    }
}

/// A service behind [`RequireProtection`].
#[derive(Clone)]
pub struct Required<S> {
    require: RequireProtection,
    service: S,
}

impl<S> fmt::Debug for Required<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.require.fmt(f)
    }
}

impl<S, B, R> Service<Request<B>> for Required<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ProtectedBody<R>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut head, body) = request.into_parts();
        let Some(submission) = self.require.watch(head.method.as_str()) else {
            let call = self.service.call(Request::from_parts(head, body));
            return Box::pin(async { Ok(call.await?.map(ProtectedBody::handler)) });
        };
        let route = matched_route(&head).map(str::to_owned);
        let require = self.require.clone();
        if let Some(rejection) = require.known(&submission, &reached(route.as_deref())) {
            let response = GuardResponse::formatted_to(&head, require.format(), require.guard(), &rejection);
            return Box::pin(async move {
                drain(&head, &mut GuardedBody::new(body)).await;
                Ok(ProtectedBody::response(response))
            });
        }
        let audience = Audience::<Tower>::of(&head);
        head.extensions.insert(submission.seen.clone());
        let call = self.service.call(Request::from_parts(head, body));
        Box::pin(async move {
            let response = call.await?;
            let noted = require.note(&submission, &reached(route.as_deref()), response.status().as_u16());
            let rejection = noted.map(|rejection| audience.reject(require.format(), require.guard(), &rejection));
            Ok(match rejection {
                None => response.map(ProtectedBody::handler),
                Some(rejection) => ProtectedBody::response(rejection),
            })
        })
    }
}

/// A layer of a router is called after a route has matched; a layer around a router, or around a service without one, before.
fn reached(route: Option<&str>) -> Reached<'_> {
    route.map_or(Reached::Unknown, Reached::Route)
}

impl<S> Layer<S> for Exempt {
    type Service = Exempted<S>;

    fn layer(&self, service: S) -> Exempted<S> {
        Exempted { service }
    }
}

/// A service behind [`Exempt`].
#[derive(Debug, Clone)]
pub struct Exempted<S> {
    service: S,
}

impl<S, B> Service<Request<B>> for Exempted<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let (head, body) = request.into_parts();
        mark_seen(&head);
        self.service.call(Request::from_parts(head, body))
    }
}
