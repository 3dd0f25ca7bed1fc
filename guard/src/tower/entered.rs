//! The mark of a service that handles requests itself.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::Request;
use tower_layer::Layer;
use tower_service::Service;

use crate::http::{GuardedRequest, HandlerMark, MarkedRun};

/// A layer that marks a service as the handler, so that the guard knows whether it was called, and whether it has responded. If a timeout
/// or another layer between guard and handler drops a handler that was called, or catches its panic, the effect is unknown, whatever
/// status that layer answers.
///
/// It is the innermost layer:
///
/// ```
/// use std::time::Duration;
///
/// use http::{Request, Response};
/// use onceward::tower::{Entered, GuardedBody, Protect, SubjectFrom};
/// use onceward::{KeyRules, testing};
/// use tower::{BoxError, ServiceBuilder, service_fn};
///
/// # async fn place_order(_: Request<GuardedBody<String>>) -> Result<Response<String>, BoxError> { Ok(Response::default()) }
/// let (guard, _clock) = testing::guard();
/// let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once());
/// let orders = ServiceBuilder::new()
///     .layer(protect)
///     .timeout(Duration::from_secs(5))
///     .layer(Entered)
///     .service(service_fn(place_order));
/// # let _ = orders;
/// ```
///
/// A handler of axum is better marked with `onceward::axum::entered`, which also tells the handler from its extractors.
#[derive(Debug, Clone, Copy)]
pub struct Entered;

impl<S> Layer<S> for Entered {
    type Service = MarkedService<S>;

    fn layer(&self, service: S) -> MarkedService<S> {
        MarkedService(service)
    }
}

/// A service behind [`Entered`].
#[derive(Debug, Clone)]
pub struct MarkedService<S>(S);

impl<S, B> Service<Request<B>> for MarkedService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = MarkedRun<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let guarded = request.extensions().get::<Arc<GuardedRequest>>().cloned();
        HandlerMark::extracting(guarded).call(|| self.0.call(request))
    }
}
