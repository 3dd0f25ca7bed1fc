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
use onceward::Rejection;
use onceward_api::Code;
use tokio::time::{Instant, timeout, timeout_at};

use super::bad_request;
use crate::context::Context;
use crate::http::forwarded_request::is_gateway_path;
use crate::metrics::COUNTERS;
use crate::routes::{claim, is_for_backends};

/// How much of a body is waited for: as much as a handler reads. A handler answers a larger one with 413 at once.
const AHEAD: usize = 16 * 1024;
/// A gateway's question needs no body. One that is sent all the same is read so far, so that the connection can be used again.
const DISCARDED: (usize, Duration) = (64 * 1024, Duration::from_secs(1));

/// The limits.
#[derive(Debug)]
pub struct AdmissionLimits {
    most: usize,
    arrival: Duration,
    in_flight: AtomicUsize,
}

impl AdmissionLimits {
    /// So many requests at once, whose bodies may take this long to arrive.
    pub fn new(most: usize, arrival: Duration) -> Self {
        Self { most, arrival, in_flight: AtomicUsize::new(0) }
    }

    /// How many requests are being answered.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Admits a request, unless the limit is reached.
    fn enter(&self) -> Option<InFlightSlot<'_>> {
        let place = InFlightSlot(&self.in_flight);
        (self.in_flight.fetch_add(1, Ordering::Relaxed) < self.most).then_some(place)
    }
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self::new(usize::MAX, Duration::from_secs(10))
    }
}

/// One request in flight, until this is dropped.
struct InFlightSlot<'a>(&'a AtomicUsize);

impl Drop for InFlightSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets a request in once its body has arrived, unless too many are being answered.
pub async fn admit<B: MessageBody>(
    context: Data<Context>,
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    // As the router reads it.
    let path = request.match_info().as_str();
    // Without the key, the handler refuses before it reads the body.
    let is_refused = is_for_backends(path) && context.access().require_backend(request.request()).is_err();
    if is_exempt(path) || is_refused {
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
    let Some(_place) = context.limits().enter() else {
        COUNTERS.shed.increment(1);
        let rejection =
            Rejection::new(Code::Overloaded).detail("Too many requests are being answered. Nothing was done.");
        let answer = context.respond(request.request(), Err(rejection.into()));
        return Ok(request.into_response(answer).map_into_right_body());
    };
    Ok(next.call(request).await?.map_into_left_body())
}

fn late(context: &Context, request: ServiceRequest) -> ServiceResponse {
    COUNTERS.slow_bodies.increment(1);
    let within = onceward_api::duration::text(context.limits().arrival);
    let detail = format!("The body did not arrive within {within}. Nothing was done.");
    let mut answer = context.respond(request.request(), Err(bad_request(detail).into()));
    answer.head_mut().set_connection_type(ConnectionType::Close);
    request.into_response(answer)
}

/// The longest body that the handler reads; `None` if it reads none.
fn longest_body(path: &str) -> Option<usize> {
    match path {
        claim::COMPLETE => Some(claim::LIMIT),
        path if is_gateway_path(path) => None,
        _ => Some(AHEAD),
    }
}

/// Whether this is asked for by those who look after the service: they are answered however much there is to do.
fn is_exempt(path: &str) -> bool {
    ["/healthz", "/readyz", "/metrics"].contains(&path) || path.starts_with("/dashboard")
}

/// The request body did not arrive in time.
struct BodyTimeout;

/// Waits for the body, or for more of it than a handler reads. It is handed on as it came, also if it broke off.
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

/// Reads a body and throws it away. After a large or a slow one the server closes the connection.
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

/// The rest of a body, which breaks off at the deadline.
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
