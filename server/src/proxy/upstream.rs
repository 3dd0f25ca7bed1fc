//! The application behind the proxy: sends a request to it, and knows of each failure whether the application may have received it.

mod connector;
mod error;
mod expect;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use onceward::{Guard, RunId};
use tokio::time::{Instant, sleep_until, timeout_at};
use tower_service::Service;
use uuid::Uuid;

use self::connector::Connector;
use self::error::{ErrorReport, UpstreamError};
use super::audience::Audience;
use super::body::{AnyBody, BoxError, Progress, TimedBody, WatchedBody, any, collect, whole};
use super::forward::{self, Origin};
use super::in_flight::InFlight;
use super::inject::Injector;
use super::normal_path::sent_target;
use super::rule::PlainToken;
use super::settings::{ProxySettings, UpstreamAddress, UpstreamHost};
use super::tunnel::{self, UpgradeRequest};

/// Maximum size of a response that is stored.
pub(super) const REPLY_LIMIT: usize = 1024 * 1024;

/// Content types of responses that go on for as long as the client listens.
const STREAMS: [&str; 4] =
    ["text/event-stream", "multipart/x-mixed-replace", "application/x-ndjson", "application/grpc"];

/// The application behind the proxy. Each worker has its own pool of connections to it.
#[derive(Clone)]
pub(super) struct Upstream(Arc<UpstreamState>);

struct UpstreamState {
    client: Client<Connector, AnyBody>,
    address: UpstreamAddress,
    /// The `Host` of the upstream.
    host: HeaderValue,
    /// True if it replaces the client's; otherwise only a request of HTTP/1.0 without one receives it.
    is_host_replaced: bool,
    read_timeout: Duration,
    timeout: Duration,
    injector: Option<Injector>,
    /// Headers from which routes read their subject.
    subjects: Vec<HeaderName>,
    guard: Guard,
    report: ErrorReport,
}

impl Upstream {
    /// Creates the pool of a worker.
    ///
    /// # Errors
    /// If the certificates cannot be read.
    pub(super) fn new(settings: &ProxySettings, address: &UpstreamAddress, guard: &Guard) -> io::Result<Self> {
        Ok(Self(Arc::new(UpstreamState {
            client: connector::client(settings, address)?,
            address: address.clone(),
            host: HeaderValue::from_str(address.authority.as_str()).map_err(io::Error::other)?,
            is_host_replaced: settings.upstream_host == UpstreamHost::Upstream,
            read_timeout: settings.upstream_read_timeout,
            timeout: settings.upstream_timeout,
            injector: settings.inject.then(|| Injector::new(&settings.proxy_path)),
            subjects: settings.routes.iter().filter_map(|route| route.subject.header().cloned()).collect(),
            guard: guard.clone(),
            report: ErrorReport::new(address),
        })))
    }

    /// Forwards a request, and responds for the application if that fails.
    pub(super) async fn forward<B>(self, request: Request<B>) -> Response<AnyBody>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let audience = Audience::of(&parts);
        match self.0.exchange(parts, body).await {
            Ok(response) => response,
            Err(error) => {
                self.0.report.log(&error);
                error.response(&self.0.guard, &audience)
            }
        }
    }
}

impl<B> Service<Request<B>> for Upstream
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnyBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<AnyBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.clone().forward(request).map(Ok).boxed()
    }
}

/// The parts of a request that its response depends on.
struct ResponseTerms {
    upgrade: Option<UpgradeRequest>,
    /// The time at which a protected request ends; `None` for one that passes.
    deadline: Option<Instant>,
}

impl UpstreamState {
    async fn exchange<B>(&self, mut parts: Parts, body: B) -> Result<Response<AnyBody>, UpstreamError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        // A run continues after its client has disconnected, and still counts as in flight.
        let place = parts.extensions.remove::<Arc<InFlight>>();
        let run = run_of(&parts.extensions);
        if let Some(place) = place.as_ref().filter(|_| run.is_none()) {
            place.pass_body();
        }
        let deadline = run.as_ref().map(|_| Instant::now() + self.timeout);
        let upgrade = if run.is_none() { UpgradeRequest::of(&mut parts) } else { None };
        let expects = parts.headers.remove(EXPECT).is_some() && run.is_none();
        let has_body = !body.is_end_stream();
        self.prepare(&mut parts, run.as_deref(), upgrade.as_ref().map(|upgrade| &upgrade.protocol))?;
        // The upstream needs none of the values that the proxy has attached.
        parts.extensions.clear();
        let progress = has_body.then(Progress::new);
        let body = match &progress {
            Some(progress) => any(WatchedBody::new(body, Arc::clone(progress))),
            None => whole(Bytes::new()),
        };
        // Without it, hyper sends a GET or HEAD without a body whose length is unknown.
        if has_body && body.size_hint().exact().is_none() && !parts.headers.contains_key(CONTENT_LENGTH) {
            parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let mut request = Request::from_parts(parts, body);
        if expects && has_body {
            expect::hold_body(&mut request);
        }
        let response = self.send(request, progress.as_deref(), deadline).await.map_err(|error| match progress {
            Some(progress) if progress.is_broken() => UpstreamError::BodyBroken,
            _ => error,
        })?;
        self.reply(response, ResponseTerms { upgrade, deadline }).await
    }

    /// Prepares the head of the request to the upstream.
    fn prepare(
        &self,
        parts: &mut Parts,
        run: Option<&str>,
        protocol: Option<&HeaderValue>,
    ) -> Result<(), UpstreamError> {
        let headers = &mut parts.headers;
        forward::remove_hop_by_hop(headers);
        if let Some(origin) = parts.extensions.get::<Origin>() {
            forward::remove_spoofed(headers, origin, &self.subjects);
            forward::add_forwarding(headers, origin);
        }
        if let Some(injector) = &self.injector {
            injector.prepare(&parts.method, headers);
        }
        if let Some(run) = run {
            forward::mark_run(headers, run);
        }
        if let Some(protocol) = protocol {
            forward::set_upgrade(headers, protocol.clone());
        }
        if self.is_host_replaced || !headers.contains_key(HOST) {
            headers.insert(HOST, self.host.clone());
        }
        parts.version = Version::HTTP_11;
        parts.uri = self
            .target(sent_target(parts).path_and_query())
            .map_err(|error| UpstreamError::Unavailable(error.into()))?;
        Ok(())
    }

    fn target(&self, path: Option<&PathAndQuery>) -> Result<Uri, http::Error> {
        let path = path.cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let builder = Uri::builder().scheme(self.address.scheme.clone());
        builder.authority(self.address.authority.clone()).path_and_query(path).build()
    }

    /// Sends a request, and waits for the head of its response. hyper sends a request a second time only if it has not begun to send it:
    /// if a connection of the pool turns out to be closed.
    async fn send(
        &self,
        request: Request<AnyBody>,
        progress: Option<&Progress>,
        deadline: Option<Instant>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let begun = Instant::now();
        let mut response = self.client.request(request);
        let latest = |from: Instant| deadline.into_iter().fold(from + self.read_timeout, Instant::min);
        let mut wait = latest(begun);
        loop {
            tokio::select! {
                // On a busy machine, both may be due at once: if connecting has timed out, nothing was sent.
                biased;
                response = &mut response => return response.map_err(UpstreamError::of),
                () = sleep_until(wait) => {}
            }
            // An upload may take longer, as long as it makes progress.
            let next = latest(progress.map_or(begun, Progress::last));
            if next <= Instant::now() {
                return Err(UpstreamError::TimedOut);
            }
            wait = next;
        }
    }

    /// Turns the response of the upstream into the one for the client. The response to a protected request is read to its end, so that
    /// its outcome is known before it is stored.
    async fn reply(
        &self,
        mut response: Response<Incoming>,
        terms: ResponseTerms,
    ) -> Result<Response<AnyBody>, UpstreamError> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return tunnel::open(response, terms.upgrade).ok_or(UpstreamError::Failed("an unexpected 101".into()));
        }
        forward::remove_hop_by_hop(response.headers_mut());
        forward::unify_length(response.headers_mut());
        // The version of one connection: an upstream of HTTP/1.0 does not end the connection of the client.
        *response.version_mut() = Version::HTTP_11;
        let is_stream = is_stream(response.headers());
        let response = response.map(|body| TimedBody::new(body, self.read_timeout));
        let response = match &self.injector {
            Some(injector) => injector.apply(response).map(any),
            None => response.map(any),
        };
        // A stream, or a body over the limit, is sent on as it arrives, and not stored.
        let is_passed_on = is_stream || response.body().size_hint().lower() > REPLY_LIMIT as u64;
        let Some(deadline) = terms.deadline.filter(|_| !is_passed_on) else { return Ok(response) };
        let (parts, body) = response.into_parts();
        match timeout_at(deadline, collect(body, REPLY_LIMIT)).await {
            Ok(Ok(body)) => Ok(Response::from_parts(parts, body)),
            Ok(Err(error)) => Err(UpstreamError::of_body(error)),
            Err(_) => Err(UpstreamError::TimedOut),
        }
    }
}

/// Returns the id of the run, if a guard protects the request. A plain token has no record to name, so its run gets an id here.
fn run_of(extensions: &Extensions) -> Option<String> {
    let named = extensions.get::<RunId>().map(RunId::to_string);
    named.or_else(|| extensions.get::<PlainToken>().map(|_| Uuid::new_v4().to_string()))
}

/// Returns whether a response goes on for as long as the client listens.
fn is_stream(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = media_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    let is_listed = STREAMS.iter().any(|stream| essence.eq_ignore_ascii_case(stream));
    let is_unbuffered =
        headers.get("x-accel-buffering").is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"no"));
    !headers.contains_key(CONTENT_LENGTH) && (is_listed || is_unbuffered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_without_an_end_is_a_stream() {
        let is_stream = |lines: &[(&'static str, &'static str)]| {
            is_stream(&lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect())
        };
        assert!(is_stream(&[("content-type", "text/event-stream; charset=utf-8")]));
        assert!(is_stream(&[("content-type", "Text/Event-Stream")]));
        assert!(is_stream(&[("content-type", "text/html"), ("x-accel-buffering", "no")]));
        assert!(!is_stream(&[]) && !is_stream(&[("content-type", "text/html")]));
        assert!(!is_stream(&[("content-type", "text/event-stream"), ("content-length", "3")]));
    }
}
