//! The bodies of requests and responses, as a guard passes them on.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::LengthLimitError;
use pin_project_lite::pin_project;

use super::BoxError;
use crate::http::{BodyEnd, BodyTap, GuardResponse, RequestBody};

/// The body of a request behind a guard: what the guard has read of it, and the rest.
pub struct GuardedBody<B> {
    front: Bytes,
    source: Source<B>,
    trailers: Option<HeaderMap>,
}

enum Source<B> {
    Open(B),
    Tapped(Box<BodyTap<GuardedBody<B>>>),
    Ended,
    Broken(BoxError),
}

/// Stands for the error of a length limit, which has no constructor.
#[derive(Debug)]
struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body exceeds a limit of the application")
    }
}

impl Error for TooLarge {}

impl<B> GuardedBody<B> {
    pub(crate) fn new(body: B) -> Self {
        Self::of(Source::Open(body))
    }

    fn of(source: Source<B>) -> Self {
        Self { front: Bytes::new(), source, trailers: None }
    }
}

impl<B> Stream for GuardedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Item = Result<Bytes, BoxError>;

    /// Returns the next data. Trailers are kept for the end.
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if !this.front.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut this.front))));
        }
        loop {
            let received = match &mut this.source {
                Source::Open(body) => ready!(Pin::new(body).poll_frame(context)),
                Source::Tapped(tap) => return Pin::new(tap).poll_next(context),
                Source::Ended => return Poll::Ready(None),
                Source::Broken(_) => match std::mem::replace(&mut this.source, Source::Ended) {
                    Source::Broken(error) => return Poll::Ready(Some(Err(error))),
                    _ => return Poll::Ready(None),
                },
            };
            let received = match received {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => Some(Ok(data)),
                    Err(frame) => {
                        this.trailers = frame.into_trailers().ok();
                        continue;
                    }
                },
                Some(Err(error)) => Some(Err(error.into())),
                None => None,
            };
            if !matches!(received, Some(Ok(_))) {
                this.source = Source::Ended;
            }
            return Poll::Ready(received);
        }
    }
}

impl<B> RequestBody for GuardedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Error = BoxError;

    fn empty() -> Self {
        Self::of(Source::Ended)
    }

    fn tapped(tap: BodyTap<Self>) -> Self {
        Self::of(Source::Tapped(Box::new(tap)))
    }

    fn incomplete() -> BoxError {
        "the body ended early".into()
    }

    fn is_too_large(error: &BoxError) -> bool {
        let mut causes = std::iter::successors(Some(&**error as &(dyn Error + 'static)), |&error| error.source());
        causes.any(|error| error.is::<LengthLimitError>() || error.is::<TooLarge>())
    }

    fn like(error: &BoxError) -> BoxError {
        if Self::is_too_large(error) { Box::new(TooLarge) } else { Self::incomplete() }
    }

    fn put_back(&mut self, read: Bytes, end: BodyEnd<BoxError>) {
        self.front = read;
        match end {
            BodyEnd::Open => {}
            BodyEnd::Whole => self.source = Source::Ended,
            BodyEnd::Broken(error) => self.source = Source::Broken(error),
        }
    }
}

impl<B> Body for GuardedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(data) = ready!(self.as_mut().poll_next(context)) {
            return Poll::Ready(Some(data.map(Frame::data)));
        }
        let trailers = match &self.source {
            Source::Tapped(tap) => tap.with_rest(|rest| rest.trailers.take()),
            _ => self.trailers.take(),
        };
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let has_ended = match &self.source {
            Source::Open(body) => body.is_end_stream(),
            Source::Ended => true,
            Source::Tapped(_) | Source::Broken(_) => false,
        };
        has_ended && self.front.is_empty() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let front = self.front.len() as u64;
        match &self.source {
            Source::Open(body) => {
                let rest = body.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower() + front);
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper + front);
                }
                hint
            }
            Source::Ended => SizeHint::with_exact(front),
            Source::Tapped(_) | Source::Broken(_) => SizeHint::default(),
        }
    }
}

impl<B> fmt::Debug for GuardedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedBody").finish_non_exhaustive()
    }
}

pin_project! {
    /// The body of a response of a guarded service: the handler's, or the guard's.
    pub struct ProtectedBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<B> {
        Handler { #[pin] body: B },
        Whole { body: Bytes, trailers: Option<HeaderMap> },
        Broken { error: Option<BoxError> },
    }
}

impl<B> ProtectedBody<B> {
    /// Passes on the handler's body.
    pub(super) fn handler(body: B) -> Self {
        Self { kind: Kind::Handler { body } }
    }

    /// Sends these bytes.
    pub(crate) fn whole(body: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { kind: Kind::Whole { body, trailers } }
    }

    /// Sends a response of the guard.
    pub(super) fn response(response: GuardResponse) -> Response<Self> {
        Response::from(response).map(|body| Self::whole(body, None))
    }

    /// Breaks off, as the handler's body did.
    pub(super) fn broken(error: BoxError) -> Self {
        Self { kind: Kind::Broken { error: Some(error) } }
    }
}

/// An empty body, as layers outside of the guard send it in place of a response.
impl<B> Default for ProtectedBody<B> {
    fn default() -> Self {
        Self::whole(Bytes::new(), None)
    }
}

impl<B> Body for ProtectedBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            KindProjection::Handler { body } => body.poll_frame(context).map_err(Into::into),
            KindProjection::Whole { body, .. } if !body.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(body)))))
            }
            KindProjection::Whole { trailers, .. } => Poll::Ready(trailers.take().map(Frame::trailers).map(Ok)),
            KindProjection::Broken { error } => Poll::Ready(error.take().map(Err)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Handler { body } => body.is_end_stream(),
            Kind::Whole { body, trailers } => body.is_empty() && trailers.is_none(),
            Kind::Broken { error } => error.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Handler { body } => body.size_hint(),
            Kind::Whole { body, .. } => SizeHint::with_exact(body.len() as u64),
            Kind::Broken { .. } => SizeHint::default(),
        }
    }
}

impl<B> fmt::Debug for ProtectedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectedBody").finish_non_exhaustive()
    }
}
