//! The layers of a route, as one middleware of actix-web.

use std::future::ready;

use actix_service::boxed::{self, BoxService};
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform};
use actix_web::middleware::Compress;
use actix_web::web::Bytes;
use actix_web::{Error, HttpResponse};
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use onceward::actix::{Actix, Exempt};

use super::messages::{call_of, response_of};
use crate::ledger::Ledger;
use crate::routes::{Answer, Layer, TimeLimit};

type Boxed = BoxService<ServiceRequest, ServiceResponse<BoxBody>, Error>;

/// The layers of a route, the innermost first.
pub(super) struct Layers {
    layers: Vec<Layer<Actix>>,
    ledger: Ledger,
}

impl Layers {
    pub(super) fn new(layers: &[Layer<Actix>], ledger: &Ledger) -> Self {
        Self { layers: layers.to_vec(), ledger: ledger.clone() }
    }
}

impl<S, B> Transform<S, ServiceRequest> for Layers
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type Transform = Boxed;
    type InitError = ();
    type Future = LocalBoxFuture<'static, Result<Boxed, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        let (layers, ledger) = (self.layers.clone(), self.ledger.clone());
        Box::pin(async move {
            let mut service = boxed::service(Unified { service });
            for layer in layers {
                service = match layer {
                    Layer::Protect(protect) => {
                        boxed::service(Unified { service: protect.new_transform(service).await? })
                    }
                    Layer::Require(require) => {
                        boxed::service(Unified { service: require.new_transform(service).await? })
                    }
                    Layer::Exempt => boxed::service(Unified { service: Exempt.new_transform(service).await? }),
                    Layer::Compress => {
                        boxed::service(Unified { service: Compress::default().new_transform(service).await? })
                    }
                    Layer::Answer(answer) => boxed::service(Answering { service, answer, ledger: ledger.clone() }),
                    Layer::Timeout(limit) => boxed::service(Limited { service, limit, ledger: ledger.clone() }),
                };
            }
            Ok(service)
        })
    }
}

/// A service whose response has a boxed body.
struct Unified<S> {
    service: S,
}

impl<S, B> Service<ServiceRequest> for Unified<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    S::Future: 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Error>>;

    actix_service::forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        self.service.call(request).map(|response| response.map(ServiceResponse::map_into_boxed_body)).boxed_local()
    }
}

/// Responds in place of the inner service, if the layer has a response.
struct Answering {
    service: Boxed,
    answer: Answer,
    ledger: Ledger,
}

impl Service<ServiceRequest> for Answering {
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Error>>;

    actix_service::forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        match (self.answer)(&call_of(request.request(), &self.ledger, Bytes::new())) {
            Some(reply) => {
                let response = response_of(reply, request.request());
                ready(Ok(request.into_response(response))).boxed_local()
            }
            None => self.service.call(request),
        }
    }
}

/// Drops the inner service after the time that the layer sets for a request, if it sets one.
struct Limited {
    service: Boxed,
    limit: TimeLimit,
    ledger: Ledger,
}

impl Service<ServiceRequest> for Limited {
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Error>>;

    actix_service::forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let head = request.request().clone();
        let Some(time) = (self.limit)(&call_of(&head, &self.ledger, Bytes::new())) else {
            drop(head);
            return self.service.call(request);
        };
        let run = self.service.call(request);
        async move {
            match tokio::time::timeout(time, run).await {
                Ok(response) => response,
                Err(_) => Ok(ServiceResponse::new(head, HttpResponse::ServiceUnavailable().finish())),
            }
        }
        .boxed_local()
    }
}
