//! The bodies that pass through the proxy.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use tokio::time::{Instant, Sleep};

/// The error of a body.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Any body.
pub(super) type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// Erases the type of a body.
pub(super) fn any<B>(body: B) -> AnyBody
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Creates a body of these bytes.
pub(super) fn whole(bytes: impl Into<Bytes>) -> AnyBody {
    any(Full::new(bytes.into()))
}

/// A body that breaks off if no data arrives for a time.
#[derive(Debug)]
pub(super) struct TimedBody<B> {
    body: B,
    patience: Duration,
    /// The timer, and whether it runs.
    timer: Option<(Pin<Box<Sleep>>, bool)>,
}

impl<B> TimedBody<B> {
    pub(super) fn new(body: B, patience: Duration) -> Self {
        Self { body, patience, timer: None }
    }

    /// Waits until the time is over. The timer starts with the first poll after data has arrived.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (timer, is_running) = self.timer.get_or_insert_with(|| (Box::pin(tokio::time::sleep(self.patience)), true));
        if !*is_running {
            timer.as_mut().reset(Instant::now() + self.patience);
            *is_running = true;
        }
        timer.as_mut().poll(context)
    }
}

impl<B> Body for TimedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            if let Some((_, is_running)) = &mut self.timer {
                *is_running = false;
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(self.poll_timeout(context));
        Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns whether a body broke off because no data arrived in time.
pub(super) fn is_timeout(error: &BoxError) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

/// The progress of a request body: the time at which its last part was sent, and whether it broke off.
#[derive(Debug)]
pub(super) struct Progress {
    begun: Instant,
    /// Milliseconds since `begun`.
    last: AtomicU64,
    is_broken: AtomicBool,
}

impl Progress {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { begun: Instant::now(), last: AtomicU64::new(0), is_broken: AtomicBool::new(false) })
    }

    /// Returns the time of the last progress.
    pub(super) fn last(&self) -> Instant {
        self.begun + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    /// Returns whether the body broke off: the client closed its connection, or was too slow.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    fn note(&self, is_broken: bool) {
        self.last.store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
        self.is_broken.store(is_broken, Ordering::Relaxed);
    }
}

/// A body that notes its progress.
#[derive(Debug)]
pub(super) struct WatchedBody<B> {
    body: B,
    progress: Arc<Progress>,
}

impl<B> WatchedBody<B> {
    pub(super) fn new(body: B, progress: Arc<Progress>) -> Self {
        Self { body, progress }
    }
}

impl<B: Body + Unpin> Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.progress.note(matches!(frame, Some(Err(_))));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body whose beginning was read.
#[derive(Debug)]
struct ResumedBody<B> {
    front: Option<Bytes>,
    rest: B,
}

impl<B: Body<Data = Bytes> + Unpin> Body for ResumedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.front.take() {
            Some(front) => Poll::Ready(Some(Ok(Frame::data(front)))),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }
}

/// Reads a body to its end. One of more than `limit` bytes is passed on, with an unknown length.
///
/// # Errors
/// If the body breaks off.
pub(super) async fn collect(mut body: AnyBody, limit: usize) -> Result<AnyBody, BoxError> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if read.is_empty() && body.is_end_stream() && data.len() <= limit {
            return Ok(whole(data));
        }
        read.extend_from_slice(&data);
        if read.len() > limit {
            return Ok(any(ResumedBody { front: Some(read.freeze()), rest: body }));
        }
    }
    Ok(whole(read))
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream};
    use http_body_util::StreamBody;

    use super::*;

    fn streamed(chunks: &[&'static str]) -> AnyBody {
        let frames: Vec<_> = chunks.iter().map(|chunk| Ok::<_, BoxError>(Frame::data(Bytes::from(*chunk)))).collect();
        any(StreamBody::new(stream::iter(frames)))
    }

    async fn text(body: AnyBody) -> String {
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn body_within_the_limit_has_a_known_length() {
        for chunks in [&[][..], &["abc"], &["a", "b", "c"]] {
            let body = collect(streamed(chunks), 3).await.unwrap();
            assert_eq!(body.size_hint().exact(), Some(chunks.concat().len() as u64));
            assert_eq!(text(body).await, chunks.concat());
        }
    }

    #[tokio::test]
    async fn body_over_the_limit_is_passed_on_unchanged() {
        for chunks in [&["abcd"][..], &["ab", "cd"], &["ab", "cd", "ef"]] {
            let body = collect(streamed(chunks), 3).await.unwrap();
            assert_eq!(body.size_hint().exact(), None);
            assert_eq!(text(body).await, chunks.concat());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_body_breaks_off() {
        let chunks = stream::iter(["a", "b"]).chain(stream::pending());
        let chunks = chunks.map(|chunk| Ok::<_, BoxError>(Frame::data(Bytes::from(chunk))));
        let mut body = any(TimedBody::new(StreamBody::new(Box::pin(chunks)), Duration::from_secs(9)));
        let begun = Instant::now();
        assert!(body.frame().await.unwrap().is_ok() && body.frame().await.unwrap().is_ok());
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.downcast::<io::Error>().unwrap().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), Duration::from_secs(9));
    }
}
