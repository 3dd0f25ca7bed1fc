//! A body that the handler reads as it arrives, while the guard reads only the part that has already arrived.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;

use super::body::{BodyEnd, RequestBody};

/// A body that is still arriving. The guard and the handler each read it from the beginning.
pub(crate) struct ObservedBody<B>(Arc<SharedBody<B>>);

struct SharedBody<B> {
    arrival: Mutex<Arrival<B>>,
    limit: usize,
    /// The guard tried to read a part that had not arrived yet.
    ran_out: AtomicBool,
}

/// The part of a body that has arrived, and the rest.
struct Arrival<B> {
    rest: B,
    /// The chunks that have arrived, as long as they are within the guard's limit.
    seen: Vec<Bytes>,
    size: usize,
    end: Option<End>,
}

#[derive(Clone, Copy)]
enum End {
    Whole,
    Broken,
}

impl<B> SharedBody<B> {
    fn arrival(&self) -> MutexGuard<'_, Arrival<B>> {
        self.arrival.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: RequestBody> ObservedBody<B> {
    /// Wraps a body, of which the guard reads up to `limit` bytes.
    pub(crate) fn new(rest: B, limit: usize) -> Self {
        let arrival = Mutex::new(Arrival { rest, seen: Vec::new(), size: 0, end: None });
        Self(Arc::new(SharedBody { arrival, limit, ran_out: AtomicBool::new(false) }))
    }

    /// Returns the body for the guard. It breaks off where the client has not sent more yet.
    pub(crate) fn so_far(&self) -> B {
        self.0.ran_out.store(false, Ordering::Relaxed);
        self.reader(Patience::None)
    }

    /// Returns the body for the handler, which waits for the rest.
    pub(crate) fn to_its_end(&self) -> B {
        {
            let mut arrival = self.0.arrival();
            if matches!(arrival.end, Some(End::Whole)) && arrival.size == 0 {
                return std::mem::replace(&mut arrival.rest, B::empty());
            }
        }
        self.reader(Patience::Endless)
    }

    /// Returns whether the guard has reached the point where the client has not sent more yet.
    pub(crate) fn ran_out(&self) -> bool {
        self.0.ran_out.load(Ordering::Relaxed)
    }

    fn reader(&self, patience: Patience) -> B {
        B::tapped(BodyTap { body: Arc::clone(&self.0), at: 0, patience, has_yielded: false, is_over: false })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    None,
    Endless,
}

/// One of the two readers of an [`ObservedBody`].
pub(crate) struct BodyTap<B> {
    body: Arc<SharedBody<B>>,
    at: usize,
    patience: Patience,
    has_yielded: bool,
    is_over: bool,
}

impl<B: RequestBody> BodyTap<B> {
    /// Calls a function with the observed body itself, which has no chunks left once this reader has ended.
    pub(crate) fn with_rest<T>(&self, read: impl FnOnce(&mut B) -> T) -> T {
        read(&mut self.body.arrival().rest)
    }

    /// Polls the next chunk from the client.
    fn receive(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, B::Error>>> {
        let mut arrival = self.body.arrival();
        let received = Pin::new(&mut arrival.rest).poll_next(context);
        if let (Poll::Ready(Some(Err(_))), Patience::None) = (&received, self.patience) {
            self.is_over = true;
            return received.map_err(|error| {
                let own = B::like(&error);
                // The handler receives the error itself, as it does without a guard.
                arrival.rest.put_back(Bytes::new(), BodyEnd::Broken(error));
                own
            });
        }
        match &received {
            Poll::Ready(Some(Ok(chunk))) if arrival.size <= self.body.limit => {
                arrival.size += chunk.len();
                arrival.seen.push(chunk.clone());
                self.at += 1;
            }
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
            Poll::Ready(Some(Err(_))) => arrival.end = Some(End::Broken),
            Poll::Ready(None) => arrival.end = Some(End::Whole),
        }
        received
    }

    /// Breaks off the guard's body instead of waiting. Yields once first: the server delivers a body that arrived together with its
    /// head only on the second poll.
    fn run_out(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, B::Error>>> {
        if !self.has_yielded {
            self.has_yielded = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.body.ran_out.store(true, Ordering::Relaxed);
        self.break_off()
    }

    fn break_off(&mut self) -> Poll<Option<Result<Bytes, B::Error>>> {
        self.is_over = true;
        Poll::Ready(Some(Err(B::incomplete())))
    }
}

impl<B: RequestBody> Stream for BodyTap<B> {
    type Item = Result<Bytes, B::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.is_over {
            return Poll::Ready(None);
        }
        let (seen, end) = {
            let arrival = this.body.arrival();
            (arrival.seen.get(this.at).cloned(), arrival.end)
        };
        if let Some(chunk) = seen {
            this.at += 1;
            return Poll::Ready(Some(Ok(chunk)));
        }
        match end {
            Some(End::Whole) => return Poll::Ready(None),
            Some(End::Broken) => return this.break_off(),
            None => {}
        }
        match this.receive(context) {
            Poll::Pending if this.patience == Patience::None => this.run_out(context),
            received => received,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream::{self, StreamExt as _};

    use super::*;

    /// A body as a stream of chunks.
    struct Arriving(Pin<Box<dyn Stream<Item = Result<Bytes, &'static str>>>>);

    impl Stream for Arriving {
        type Item = Result<Bytes, &'static str>;

        fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            self.0.as_mut().poll_next(context)
        }
    }

    impl RequestBody for Arriving {
        type Error = &'static str;

        fn empty() -> Self {
            Self(Box::pin(stream::empty()))
        }

        fn tapped(tap: BodyTap<Self>) -> Self {
            Self(Box::pin(tap))
        }

        fn incomplete() -> &'static str {
            "incomplete"
        }

        fn put_back(&mut self, read: Bytes, end: BodyEnd<&'static str>) {
            let rest = std::mem::replace(self, Self::empty());
            let read = stream::iter((!read.is_empty()).then_some(Ok(read)));
            self.0 = match end {
                BodyEnd::Broken(error) => Box::pin(read.chain(stream::iter([Err(error)]))),
                BodyEnd::Open | BodyEnd::Whole => Box::pin(read.chain(rest)),
            };
        }
    }

    /// Creates a body that sends these chunks, and then stalls, ends or breaks off.
    fn body(pieces: &[&'static str], end: Option<Result<(), &'static str>>) -> Arriving {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect();
        let sent = stream::iter(pieces);
        Arriving(match end {
            None => Box::pin(sent.chain(stream::pending())),
            Some(Ok(())) => Box::pin(sent),
            Some(Err(error)) => Box::pin(sent.chain(stream::iter([Err(error)]))),
        })
    }

    /// Reads the body. Returns its text, and true if it broke off.
    async fn read(mut payload: Arriving) -> (String, bool) {
        let mut text = String::new();
        while let Some(chunk) = payload.next().await {
            let Ok(chunk) = chunk else { return (text, true) };
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        (text, false)
    }

    #[tokio::test]
    async fn whole_body_is_read_by_the_guard_and_then_by_the_handler() {
        let body = ObservedBody::new(body(&["a", "b", "c"], Some(Ok(()))), 10);
        assert_eq!(read(body.so_far()).await, ("abc".into(), false));
        assert!(!body.ran_out());
        assert_eq!(read(body.to_its_end()).await, ("abc".into(), false));
        assert_eq!(read(body.so_far()).await, ("abc".into(), false));
    }

    #[tokio::test]
    async fn guard_does_not_wait_for_the_rest_of_a_body() {
        let body = ObservedBody::new(body(&["a", "b"], None), 10);
        assert_eq!((read(body.so_far()).await, body.ran_out()), (("ab".into(), true), true));
        let mut handler = body.to_its_end();
        assert_eq!(handler.next().await.unwrap().unwrap(), "a");
        assert_eq!(handler.next().await.unwrap().unwrap(), "b");
        assert!(futures_util::FutureExt::now_or_never(handler.next()).is_none(), "the handler waits");
    }

    #[tokio::test]
    async fn guard_sees_the_part_that_the_handler_has_read() {
        let body = ObservedBody::new(body(&["a", "b", "c"], Some(Ok(()))), 10);
        assert_eq!(read(body.to_its_end()).await, ("abc".into(), false));
        assert_eq!((read(body.so_far()).await, body.ran_out()), (("abc".into(), false), false));
    }

    #[tokio::test]
    async fn truncated_body_fails_for_guard_and_handler() {
        let body = ObservedBody::new(body(&["a"], Some(Err("reset"))), 10);
        assert_eq!((read(body.so_far()).await, body.ran_out()), (("a".into(), true), false));
        let handler: Vec<_> = body.to_its_end().collect().await;
        assert_eq!(handler[..2], [Ok(Bytes::from_static(b"a")), Err("reset")], "the handler receives the error itself");
        assert_eq!(read(body.so_far()).await, ("a".into(), true));
    }

    #[tokio::test]
    async fn large_body_is_buffered_up_to_the_limit() {
        let body = ObservedBody::new(body(&["aa", "bb", "cc", "dd"], Some(Ok(()))), 3);
        assert_eq!(read(body.to_its_end()).await, ("aabbccdd".into(), false));
        assert_eq!(body.0.arrival().seen.concat(), b"aabb");
    }

    #[tokio::test]
    async fn request_without_a_body_stays_one() {
        let body = ObservedBody::new(Arriving::empty(), 10);
        assert_eq!((read(body.so_far()).await, body.ran_out()), ((String::new(), false), false));
        let handler = body.to_its_end();
        drop(body);
        assert_eq!(read(handler).await, (String::new(), false));
    }
}
