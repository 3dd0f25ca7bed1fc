//! The place of a request in `max_in_flight`, and its share of `buffer_limit`. A request that waits for the body of its client is not
//! counted: a client that sends slowly uses a connection and the memory for what it has sent, but takes no place in `max_in_flight`.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};

use super::body::{BoxError, is_timeout};
use crate::context::Context;
use crate::metrics::COUNTERS;

/// One request in flight, until this is dropped.
pub(super) struct InFlight {
    context: Arc<Context>,
    is_counted: AtomicBool,
    /// One of the constants of [`InFlight`].
    body: AtomicU8,
    /// Number of bytes of the body that are in memory until the request ends.
    buffered: AtomicUsize,
}

impl InFlight {
    /// The body passes as it arrives.
    const PASSES: u8 = 0;
    /// The body is read to its end before it is forwarded.
    const BUFFERS: u8 = 1;
    /// The body was cut off, since there was no memory left for it.
    const CUT_OFF: u8 = 2;

    /// Admits a request, unless too many are in flight.
    pub(super) fn enter(context: &Arc<Context>) -> Option<Arc<Self>> {
        let place = || Self {
            context: Arc::clone(context),
            is_counted: AtomicBool::new(true),
            body: AtomicU8::new(Self::PASSES),
            buffered: AtomicUsize::new(0),
        };
        context.limits().try_add().then(|| Arc::new(place()))
    }

    /// Counts the request, or no longer. One whose body has arrived is counted again even if others have taken all places: it was admitted.
    fn count(&self, is_counted: bool) {
        if self.is_counted.swap(is_counted, Ordering::Relaxed) != is_counted {
            if is_counted { self.context.limits().add() } else { self.context.limits().remove() }
        }
    }

    /// Counts the bytes of the body from now on: a guard reads it.
    pub(super) fn buffer_body(&self) {
        self.body.store(Self::BUFFERS, Ordering::Relaxed);
    }

    /// Counts the bytes of the body no longer: the rest passes as it arrives.
    pub(super) fn pass_body(&self) {
        self.body.store(Self::PASSES, Ordering::Relaxed);
        self.context.limits().unbuffer(self.buffered.swap(0, Ordering::Relaxed));
    }

    /// Returns whether the body was cut off, since there was no memory left for it.
    pub(super) fn is_cut_off(&self) -> bool {
        self.body.load(Ordering::Relaxed) == Self::CUT_OFF
    }

    /// Counts these bytes of the body, if a guard reads it and there is memory left.
    fn take(&self, bytes: usize) -> Result<(), NoMemoryLeft> {
        if self.body.load(Ordering::Relaxed) != Self::BUFFERS {
            return Ok(());
        }
        if !self.context.limits().try_buffer(bytes) {
            self.body.store(Self::CUT_OFF, Ordering::Relaxed);
            return Err(NoMemoryLeft);
        }
        self.buffered.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.count(false);
        self.context.limits().unbuffer(*self.buffered.get_mut());
    }
}

/// A body was cut off, since all bodies together have reached `buffer_limit`.
#[derive(Debug, thiserror::Error)]
#[error("buffer_limit is reached")]
struct NoMemoryLeft;

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
            if let Poll::Ready(Some(Ok(frame))) = &frame
                && let Err(error) = place.take(frame.data_ref().map_or(0, Buf::remaining))
            {
                return Poll::Ready(Some(Err(error.into())));
            }
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
