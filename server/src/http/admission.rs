//! Admission: the number of requests in flight, and the time a request body may take to arrive.
//!
//! A request counts as in flight once it can be handled: it has the API key where one is needed, and its body has arrived. A client
//! that sends slowly or has no key uses a connection only.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::PayloadError;
use actix_web::http::ConnectionType;
use actix_web::middleware::Next;
use actix_web::web::{Bytes, BytesMut, Data};
use actix_web::{Error, HttpMessage as _};
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use onceward::{Language, Rejection};
use onceward_api::Code;
use tokio::time::{Instant, timeout, timeout_at};

use super::bad_request;
use crate::context::Context;
use crate::http::forwarded_request::is_gateway_path;
use crate::metrics::COUNTERS;
use crate::routes::{claim, is_for_backends};

/// Bytes of a body to wait for: as many as a handler reads. A handler rejects a larger body with 413 immediately.
const AHEAD: usize = 16 * 1024;
/// The request of a gateway needs no body. A body that is sent anyway is read up to this size and time, so that the connection can be reused.
const DISCARDED: (usize, Duration) = (64 * 1024, Duration::from_secs(1));

/// The limits on requests in flight, on the arrival of bodies and on the memory for them.
#[derive(Debug)]
pub struct AdmissionLimits {
    most: usize,
    arrival: Duration,
    in_flight: AtomicUsize,
    buffer: usize,
    buffered: AtomicUsize,
}

impl AdmissionLimits {
    /// Allows at most `most` requests in flight, and `arrival` for each body to arrive.
    pub fn new(most: usize, arrival: Duration) -> Self {
        Self { most, arrival, in_flight: AtomicUsize::new(0), buffer: usize::MAX, buffered: AtomicUsize::new(0) }
    }

    /// Sets the maximum number of bytes of request bodies in memory, in a server that counts them. Default: none.
    #[must_use]
    pub fn buffering(mut self, buffer: usize) -> Self {
        self.buffer = buffer;
        self
    }

    /// Counts these bytes of a body, unless the limit would be exceeded.
    pub(crate) fn try_buffer(&self, bytes: usize) -> bool {
        let is_admitted = self.buffered.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= self.buffer;
        if !is_admitted {
            self.unbuffer(bytes);
        }
        is_admitted
    }

    /// Counts these bytes no longer.
    pub(crate) fn unbuffer(&self, bytes: usize) {
        self.buffered.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Admits a request, unless the limit is reached.
    pub(crate) fn enter(&self) -> Option<InFlightSlot<'_>> {
        self.try_add().then(|| InFlightSlot(self))
    }

    /// Counts a request, unless the limit is reached.
    pub(crate) fn try_add(&self) -> bool {
        let is_admitted = self.in_flight.fetch_add(1, Ordering::Relaxed) < self.most;
        if !is_admitted {
            self.remove();
        }
        is_admitted
    }

    /// Counts a request.
    pub(crate) fn add(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request no longer.
    pub(crate) fn remove(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self::new(usize::MAX, Duration::from_secs(10))
    }
}

/// One request in flight, until this is dropped.
pub(crate) struct InFlightSlot<'a>(&'a AdmissionLimits);

impl Drop for InFlightSlot<'_> {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Admits a request once its body has arrived, unless too many are in flight.
pub async fn admit<B: MessageBody>(
    context: Data<Context>,
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    // The path as the router sees it.
    let path = request.match_info().as_str();
    // Without the key, the handler rejects the request before it reads the body.
    let is_unauthorized = is_for_backends(path) && context.access().require_backend(request.request()).is_err();
    if is_exempt(path) || is_unauthorized {
        return Ok(next.call(request).await?.map_into_left_body());
    }
    match longest_body(path) {
        None => discard(&mut request).await,
        Some(longest) => {
            if receive(&mut request, longest, context.limits().arrival).await.is_err() {
                return Ok(late(&context, request).map_into_right_body());
            }
        }
    }
    let Some(_slot) = context.limits().enter() else {
        COUNTERS.shed.increment(1);
        let rejection = Rejection::new(Code::Overloaded)
            .detail("Too many requests are in flight. Nothing ran. Send the same request again in a moment.")
            .detail_in(Language::SIMPLIFIED_CHINESE, "正在处理的请求过多。请求没有执行。请稍后重新发送同一请求。");
        let answer = context.respond(request.request(), Err(rejection.into()));
        return Ok(request.into_response(answer).map_into_right_body());
    };
    Ok(next.call(request).await?.map_into_left_body())
}

fn late(context: &Context, request: ServiceRequest) -> ServiceResponse {
    COUNTERS.slow_bodies.increment(1);
    let within = onceward_api::duration::text(context.limits().arrival);
    let rejection = bad_request(
        format!("The body did not arrive within {within}. Nothing ran."),
        format!("请求体没有在 {within} 内到达。请求没有执行。"),
    );
    let mut answer = context.respond(request.request(), Err(rejection.into()));
    answer.head_mut().set_connection_type(ConnectionType::Close);
    request.into_response(answer)
}

/// Returns the size of the largest body that the handler reads; `None` if it reads none.
fn longest_body(path: &str) -> Option<usize> {
    match path {
        claim::COMPLETE => Some(claim::LIMIT),
        path if is_gateway_path(path) => None,
        _ => Some(AHEAD),
    }
}

/// Returns true for the paths of operators and health checks, which have no limit on requests in flight.
fn is_exempt(path: &str) -> bool {
    ["/healthz", "/readyz", "/metrics"].contains(&path) || path.starts_with("/dashboard")
}

/// The request body did not arrive in time.
struct BodyTimeout;

/// Waits for the body, or for more of it than a handler reads, and passes it on unchanged, also if it is incomplete.
async fn receive(request: &mut ServiceRequest, longest: usize, within: Duration) -> Result<(), BodyTimeout> {
    let mut payload = request.take_payload();
    if matches!(payload, Payload::None) {
        return Ok(());
    }
    let deadline = Instant::now() + within;
    let mut read = BytesMut::new();
    let end = loop {
        match timeout_at(deadline, payload.next()).await.map_err(|_| BodyTimeout)? {
            None => break None,
            Some(Err(error)) => break Some(Err(error)),
            Some(Ok(chunk)) => read.extend_from_slice(&chunk),
        }
        if read.len() > longest {
            let read = stream::iter([Ok(read.freeze())]);
            request.set_payload(boxed(read.chain(until(payload, deadline))));
            return Ok(());
        }
    };
    let read = (!read.is_empty()).then(|| Ok(read.freeze()));
    request.set_payload(boxed(stream::iter(read.into_iter().chain(end))));
    Ok(())
}

/// Reads and discards a body. After a large or slow one, the server closes the connection.
async fn discard(request: &mut ServiceRequest) {
    let mut payload = request.take_payload();
    let (mut left, within) = DISCARDED;
    let reading = async {
        while let Some(Ok(chunk)) = payload.next().await {
            match left.checked_sub(chunk.len()) {
                Some(less) => left = less,
                None => break,
            }
        }
    };
    let _ = timeout(within, reading).await;
}

/// Returns the rest of a body, which fails at the deadline.
fn until(payload: Payload, deadline: Instant) -> impl Stream<Item = Result<Bytes, PayloadError>> {
    stream::unfold(payload, move |mut payload| async move {
        match timeout_at(deadline, payload.next()).await {
            Ok(chunk) => chunk.map(|chunk| (chunk, payload)),
            Err(_) => Some((Err(PayloadError::Io(io::ErrorKind::TimedOut.into())), payload)),
        }
    })
}

fn boxed(stream: impl Stream<Item = Result<Bytes, PayloadError>> + 'static) -> Payload {
    Payload::Stream { payload: Box::pin(stream) }
}
