//! A request of actix-web on its way to its handler.

use std::rc::Rc;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Payload, ResponseHead, Service, ServiceRequest, ServiceResponse};
use actix_web::http::Uri;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::{Error, HttpMessage as _, HttpRequest, HttpResponse};

use super::Actix;
use super::captured::CapturedResponse;
use super::peer::Peer;
use super::request::known;
use super::worker_stores::assert_shared;
use crate::guard::Guard;
use crate::http::sealed::Sealed;
use crate::http::{Exchange, Framework, GuardResponse};

impl Sealed for Actix {}

impl Framework for Actix {
    type Request = HttpRequest;
    type ResponseHead = ResponseHead;
    type HeaderName = HeaderName;
    type HeaderValue = HeaderValue;
    type Uri = Uri;

    fn header_value(request: &HttpRequest, name: &'static str) -> Option<HeaderValue> {
        match known(name) {
            // A lookup by text parses the name each time.
            Some(name) => request.headers().get(name).cloned(),
            None => request.headers().get(name).cloned(),
        }
    }

    fn uri(request: &HttpRequest) -> Uri {
        request.uri().clone()
    }

    fn path(uri: &Uri) -> &str {
        uri.path()
    }

    /// actix-web keeps the request of a client that has closed its connection.
    async fn client_closed(request: &HttpRequest) {
        Peer::closed_by(request).await;
    }

    #[track_caller]
    fn assert_shared(guard: &Guard) {
        assert_shared(guard);
    }
}

/// A request, and the service that handles it.
pub(super) struct ActixExchange<S> {
    pub(super) service: Rc<S>,
    pub(super) request: ServiceRequest,
}

impl<S, B> ActixExchange<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
{
    /// Calls the service without a guard.
    pub(super) async fn pass_on(self) -> Result<ServiceResponse<EitherBody<B>>, Error> {
        Ok(self.service.call(self.request).await?.map_into_left_body())
    }
}

impl<S, B> Exchange for ActixExchange<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody + 'static,
{
    type Framework = Actix;
    type Body = Payload;
    type Captured = CapturedResponse<B>;
    type Sent = Result<ServiceResponse<EitherBody<B>>, Error>;

    fn head(&self) -> &HttpRequest {
        self.request.request()
    }

    fn parts_mut(&mut self) -> (&HttpRequest, &mut Payload) {
        let (head, body) = self.request.parts_mut();
        (head, body)
    }

    fn attach<T: Clone + Send + Sync + 'static>(&mut self, value: T) {
        self.request.extensions_mut().insert(value);
    }

    fn attached<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.request.extensions().get::<T>().cloned()
    }

    /// The response of actix-web contains the request.
    fn keep_head(&mut self) {}

    async fn call(self, limit: Option<usize>) -> CapturedResponse<B> {
        CapturedResponse::take(self.service.call(self.request).await, limit).await
    }

    fn respond(self, response: GuardResponse) -> Self::Sent {
        Ok(self.request.into_response(HttpResponse::from(response)).map_into_right_body())
    }
}
