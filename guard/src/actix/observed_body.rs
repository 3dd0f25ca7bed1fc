//! A body that the handler reads as it arrives, while the guard reads only the part that has already arrived.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use actix_web::web::Bytes;
use futures_util::Stream;

/// A body that is still arriving. The guard and the handler each read it from the beginning.
pub(super) struct ObservedBody(Rc<Body>);

struct Body {
    rest: RefCell<Payload>,
    /// The chunks that have arrived, as long as they are within the guard's limit.
    seen: RefCell<Vec<Bytes>>,
    size: Cell<usize>,
    limit: usize,
    end: Cell<Option<End>>,
    /// The guard tried to read a part that had not arrived yet.
    ran_out: Cell<bool>,
}

#[derive(Clone, Copy)]
enum End {
    Whole,
    Broken,
}

impl ObservedBody {
    /// Wraps a body, of which the guard reads up to `limit` bytes.
    pub(super) fn new(payload: Payload, limit: usize) -> Self {
        Self(Rc::new(Body {
            rest: RefCell::new(payload),
            seen: RefCell::default(),
            size: Cell::new(0),
            limit,
            end: Cell::new(None),
            ran_out: Cell::new(false),
        }))
    }

    /// Returns the body for the guard. It breaks off where the client has not sent more yet.
    pub(super) fn so_far(&self) -> Payload {
        self.0.ran_out.set(false);
        self.reader(Patience::None)
    }

    /// Returns the body for the handler, which waits for the rest.
    pub(super) fn to_its_end(&self) -> Payload {
        if matches!(self.0.end.get(), Some(End::Whole)) && self.0.size.get() == 0 {
            return Payload::None;
        }
        self.reader(Patience::Endless)
    }

    /// Returns whether the guard has reached the point where the client has not sent more yet.
    pub(super) fn ran_out(&self) -> bool {
        self.0.ran_out.get()
    }

    fn reader(&self, patience: Patience) -> Payload {
        let reader = BodyTap { body: Rc::clone(&self.0), at: 0, patience, has_yielded: false, is_over: false };
        Payload::Stream { payload: Box::pin(reader) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    None,
    Endless,
}

struct BodyTap {
    body: Rc<Body>,
    at: usize,
    patience: Patience,
    has_yielded: bool,
    is_over: bool,
}

impl BodyTap {
    /// Polls the next chunk from the client.
    fn receive(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, PayloadError>>> {
        let received = Pin::new(&mut *self.body.rest.borrow_mut()).poll_next(context);
        match &received {
            Poll::Ready(Some(Ok(chunk))) if self.body.size.get() <= self.body.limit => {
                self.body.size.set(self.body.size.get() + chunk.len());
                self.body.seen.borrow_mut().push(chunk.clone());
                self.at += 1;
            }
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
            Poll::Ready(Some(Err(_))) => self.body.end.set(Some(End::Broken)),
            Poll::Ready(None) => self.body.end.set(Some(End::Whole)),
        }
        received
    }

    /// Breaks off the guard's body instead of waiting. Yields once first: the server delivers a body that arrived together with its
    /// head only on the second poll.
    fn run_out(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, PayloadError>>> {
        if !self.has_yielded {
            self.has_yielded = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.body.ran_out.set(true);
        self.break_off()
    }

    fn break_off(&mut self) -> Poll<Option<Result<Bytes, PayloadError>>> {
        self.is_over = true;
        Poll::Ready(Some(Err(PayloadError::Incomplete(None))))
    }
}

impl Stream for BodyTap {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Some(chunk) = this.body.seen.borrow().get(this.at) {
            this.at += 1;
            return Poll::Ready(Some(Ok(chunk.clone())));
        }
        match this.body.end.get() {
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

    /// Creates a body that sends these chunks, and then stalls, ends or breaks off.
    fn body(pieces: &[&'static str], end: Option<Result<(), PayloadError>>) -> Payload {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect();
        let sent = stream::iter(pieces);
        let payload: Pin<Box<dyn Stream<Item = Result<Bytes, PayloadError>>>> = match end {
            None => Box::pin(sent.chain(stream::pending())),
            Some(Ok(())) => Box::pin(sent),
            Some(Err(error)) => Box::pin(sent.chain(stream::iter([Err(error)]))),
        };
        Payload::Stream { payload }
    }

    /// Reads the body. Returns its text, and true if it broke off.
    async fn read(mut payload: Payload) -> (String, bool) {
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
        let body = ObservedBody::new(body(&["a"], Some(Err(PayloadError::Overflow))), 10);
        assert_eq!((read(body.so_far()).await, body.ran_out()), (("a".into(), true), false));
        assert_eq!(read(body.to_its_end()).await, ("a".into(), true));
    }

    #[tokio::test]
    async fn large_body_is_buffered_up_to_the_limit() {
        let body = ObservedBody::new(body(&["aa", "bb", "cc", "dd"], Some(Ok(()))), 3);
        assert_eq!(read(body.to_its_end()).await, ("aabbccdd".into(), false));
        assert_eq!(body.0.seen.borrow().concat(), b"aabb");
    }

    #[tokio::test]
    async fn request_without_a_body_stays_one() {
        let body = ObservedBody::new(Payload::None, 10);
        assert_eq!((read(body.so_far()).await, body.ran_out()), ((String::new(), false), false));
        assert!(matches!(body.to_its_end(), Payload::None));
    }
}
