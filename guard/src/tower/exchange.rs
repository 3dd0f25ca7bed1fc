//! A request on its way to the service that handles it.

use std::future::pending;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, Uri, response};
use http_body::Body;
use tower_service::Service;

use super::captured::CapturedResponse;
use super::request::{rewritten_path, uri};
use super::{BoxError, GuardedBody, ProtectedBody, Tower};
use crate::guard::Guard;
use crate::http::sealed::Sealed;
use crate::http::{Exchange, Framework, GuardResponse};

impl Sealed for Tower {}

impl Framework for Tower {
    type Request = Parts;
    type ResponseHead = response::Parts;
    type HeaderName = HeaderName;
    type HeaderValue = HeaderValue;
    type Uri = Uri;

    fn header_value(request: &Parts, name: &'static str) -> Option<HeaderValue> {
        request.headers.get(name).cloned()
    }

    fn uri(request: &Parts) -> Uri {
        uri(request).clone()
    }

    fn path(uri: &Uri) -> &str {
        uri.path()
    }

    /// hyper drops the request of a client that has closed its connection.
    async fn client_closed(_: &Parts) {
        pending().await
    }

    /// All workers of a runtime share the services that are built once.
    fn assert_shared(_: &Guard) {}
}

/// A request, and the service that handles it, which is ready.
pub(super) struct TowerExchange<S, B> {
    service: S,
    head: Parts,
    body: GuardedBody<B>,
    keeps_head: bool,
}

impl<S, B> TowerExchange<S, B> {
    pub(super) fn new(service: S, request: Request<B>) -> Self {
        let (head, body) = request.into_parts();
        Self { service, head, body: GuardedBody::new(body), keeps_head: false }
    }

    /// Calls the service without a guard.
    pub(super) fn pass_on<R>(
        mut self,
    ) -> impl Future<Output = Result<Response<ProtectedBody<R>>, S::Error>> + use<S, B, R>
    where
        S: Service<Request<GuardedBody<B>>, Response = Response<R>>,
    {
        let call = self.service.call(Request::from_parts(self.head, self.body));
        async { Ok(call.await?.map(ProtectedBody::handler)) }
    }
}

impl<S, B, R> Exchange for TowerExchange<S, B>
where
    S: Service<Request<GuardedBody<B>>, Response = Response<R>>,
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    type Framework = Tower;
    type Body = GuardedBody<B>;
    type Captured = CapturedResponse<R, S::Error>;
    type Sent = Result<Response<ProtectedBody<R>>, S::Error>;

    fn head(&self) -> &Parts {
        &self.head
    }

    fn parts_mut(&mut self) -> (&Parts, &mut GuardedBody<B>) {
        (&self.head, &mut self.body)
    }

    fn attach<T: Clone + Send + Sync + 'static>(&mut self, value: T) {
        self.head.extensions.insert(value);
    }

    fn attached<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.head.extensions.get::<T>().cloned()
    }

    fn keep_head(&mut self) {
        self.keeps_head = true;
    }

    async fn call(mut self, limit: Option<usize>) -> Self::Captured {
        let (version, kept) = (self.head.version, self.keeps_head.then(|| Box::new(self.head.clone())));
        let rewritten = rewritten_path(&self.head).map(Box::from);
        let response = self.service.call(Request::from_parts(self.head, self.body)).await;
        CapturedResponse::take(response, limit, version, rewritten, kept).await
    }

    fn respond(self, response: GuardResponse) -> Self::Sent {
        Ok(ProtectedBody::response(response))
    }
}
