//! A request on its way to a handler with `#[once]`, without a service in between.

use std::marker::PhantomData;

use actix_web::body::{BoxBody, EitherBody};
use actix_web::dev::{Payload, ServiceResponse};
use actix_web::{Error, FromRequest, Handler, HttpMessage as _, HttpRequest, HttpResponse, Responder};

use super::super::Actix;
use super::super::captured::CapturedResponse;
use crate::http::{Exchange, GuardResponse};

/// A request, and the marked handler that its arguments are extracted for.
pub(super) struct HandlerExchange<H, Args> {
    head: HttpRequest,
    body: Payload,
    handler: H,
    args: PhantomData<Args>,
}

impl<H, Args> HandlerExchange<H, Args>
where
    H: Handler<Args, Output: Responder>,
    Args: FromRequest,
{
    pub(super) fn new(head: HttpRequest, body: Payload, handler: H) -> Self {
        Self { head, body, handler, args: PhantomData }
    }

    /// Calls the handler without a guard.
    pub(super) async fn pass_on(self) -> Result<ServiceResponse<EitherBody<BoxBody>>, Error> {
        Ok(self.handle().await.map_into_left_body())
    }

    /// Extracts the arguments and calls the handler, as a route of actix-web does.
    async fn handle(mut self) -> ServiceResponse<BoxBody> {
        let response = match Args::from_request(&self.head, &mut self.body).await {
            Ok(args) => self.handler.call(args).await.respond_to(&self.head).map_into_boxed_body(),
            Err(error) => HttpResponse::from_error(error),
        };
        ServiceResponse::new(self.head, response)
    }
}

impl<H, Args> Exchange for HandlerExchange<H, Args>
where
    H: Handler<Args, Output: Responder>,
    Args: FromRequest,
{
    type Framework = Actix;
    type Body = Payload;
    type Captured = CapturedResponse<BoxBody>;
    type Sent = Result<ServiceResponse<EitherBody<BoxBody>>, Error>;

    fn head(&self) -> &HttpRequest {
        &self.head
    }

    fn parts_mut(&mut self) -> (&HttpRequest, &mut Payload) {
        (&self.head, &mut self.body)
    }

    fn attach<T: Clone + Send + Sync + 'static>(&mut self, value: T) {
        self.head.extensions_mut().insert(value);
    }

    fn attached<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.head.extensions().get::<T>().cloned()
    }

    /// The response of actix-web contains the request.
    fn keep_head(&mut self) {}

    async fn call(self, limit: Option<usize>) -> Self::Captured {
        CapturedResponse::take(Ok(self.handle().await), limit).await
    }

    fn respond(self, response: GuardResponse) -> Self::Sent {
        Ok(ServiceResponse::new(self.head, HttpResponse::from(response)).map_into_right_body())
    }
}
