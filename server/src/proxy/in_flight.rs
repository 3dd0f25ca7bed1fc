//! The place of a request in `max_in_flight`. A request that waits for the body of its client is not counted: a client that sends slowly
//! uses a connection only, and cannot take the places of others.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll};

use http_body::{Body, Frame, SizeHint};

use super::body::{BoxError, is_timeout};
use crate::context::Context;
use crate::metrics::COUNTERS;

/// One request in flight, until this is dropped.
pub(super) struct InFlight {
    context: Arc<Context>,
    is_counted: AtomicBool,
}

impl InFlight {
    /// Admits a request, unless too many are in flight.
    pub(super) fn enter(context: &Arc<Context>) -> Option<Arc<Self>> {
        let place = || Self { context: Arc::clone(context), is_counted: AtomicBool::new(true) };
        context.limits().try_add().then(|| Arc::new(place()))
    }

    /// Counts the request, or no longer. One whose body has arrived is counted again even if others have taken all places: it was admitted.
    fn count(&self, is_counted: bool) {
        if self.is_counted.swap(is_counted, Ordering::Relaxed) != is_counted {
            if is_counted { self.context.limits().add() } else { self.context.limits().remove() }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.count(false);
    }
}

/// The body of a request, which is not counted while this is awaited.
pub(super) struct CountedBody<B> {
    body: B,
    /// `None` if the request is not counted at all.
    place: Option<Arc<InFlight>>,
}

impl<B> CountedBody<B> {
    pub(super) fn new(body: B, place: Option<Arc<InFlight>>) -> Self {
        Self { body, place }
    }
}

impl<B: Body<Error = BoxError> + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Some(place) = &self.place {
            place.count(frame.is_ready());
        }
        if let Poll::Ready(Some(Err(error))) = &frame
            && is_timeout(error)
        {
            COUNTERS.slow_bodies.increment(1);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
