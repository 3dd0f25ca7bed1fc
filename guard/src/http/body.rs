//! The body of a request: read up to a limit, and put back for the handler.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use onceward_api::Code;

use super::body_defect::BodyDefect;
use super::observed_body::BodyTap;
use super::request::{RequestHead, content_length, content_type};
use crate::fingerprint::{Content, Fields, Fingerprint};
use crate::language::Language;
use crate::rejection::Rejection;

/// The maximum size of a body that is read to its end before a rejection, so that the connection can be reused.
const DRAINED: usize = 64 * 1024;
/// The timeout of reading it.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// The body of a request, as the chunks in which it arrives.
pub(crate) trait RequestBody: Stream<Item = Result<Bytes, Self::Error>> + Unpin + Sized {
    /// The error of a body that ends early.
    type Error;

    /// Creates an empty body.
    fn empty() -> Self;

    /// Creates a body that is read through a tap.
    fn tapped(tap: BodyTap<Self>) -> Self;

    /// Creates the error of a body that ended early.
    fn incomplete() -> Self::Error;

    /// Returns whether the body broke off because it exceeds a limit of the application.
    fn is_too_large(_: &Self::Error) -> bool {
        false
    }

    /// Creates an error that [`is_too_large`](Self::is_too_large) judges like this one, for a second reader of the body.
    fn like(_: &Self::Error) -> Self::Error {
        Self::incomplete()
    }

    /// Puts back the data that was read, so that the handler reads the same body from its beginning.
    fn put_back(&mut self, read: Bytes, end: BodyEnd<Self::Error>);
}

/// The state of a body after reading.
#[derive(Debug)]
pub(crate) enum BodyEnd<E> {
    /// The body may continue.
    Open,
    /// The body was read to its end.
    Whole,
    /// The body broke off.
    Broken(E),
}

/// The part of a body that was read.
pub(crate) struct BufferedBody {
    body: Bytes,
    is_whole: bool,
}

impl BufferedBody {
    /// Reads a body up to a limit, and puts it back for the handler.
    ///
    /// # Errors
    /// If the body breaks off.
    pub(super) async fn read<B: RequestBody>(from: &mut B, limit: usize) -> Result<Self, Rejection> {
        let mut read = Pieces::None;
        let mut is_whole = false;
        while read.len() <= limit && !is_whole {
            match from.next().await.transpose() {
                Ok(Some(chunk)) => read = read.and(chunk),
                Ok(None) => is_whole = true,
                Err(error) => {
                    let rejection = broken_off::<B>(&error);
                    from.put_back(read.together(), BodyEnd::Broken(error));
                    return Err(rejection);
                }
            }
        }
        let body = read.together();
        from.put_back(body.clone(), if is_whole { BodyEnd::Whole } else { BodyEnd::Open });
        Ok(Self { body, is_whole })
    }

    /// Creates a body of which nothing was read.
    pub(super) fn unread() -> Self {
        Self { body: Bytes::new(), is_whole: false }
    }

    /// Returns whether the body was read to its end.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the digest of the request's content. A body that was not read to its end counts only as present.
    pub(super) fn fingerprint(&self, request: &impl RequestHead, fields: &Fields) -> Fingerprint {
        let content = Content {
            method: request.method(),
            path: request.path(),
            query: request.query(),
            content_type: content_type(request),
            body: &self.body,
        };
        if self.is_whole { content.fingerprint(fields) } else { content.fingerprint_of_head() }
    }
}

/// The chunks that were read. Most bodies arrive in one chunk, and then nothing is copied.
#[derive(Default)]
pub(crate) enum Pieces {
    #[default]
    None,
    One(Bytes),
    More(BytesMut),
}

impl Pieces {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(one) => one.len(),
            Self::More(more) => more.len(),
        }
    }

    pub(crate) fn and(self, next: Bytes) -> Self {
        let mut more = match self {
            Self::None => return Self::One(next),
            Self::One(one) => BytesMut::from(&one[..]),
            Self::More(more) => more,
        };
        more.extend_from_slice(&next);
        Self::More(more)
    }

    pub(crate) fn together(self) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::One(one) => one,
            Self::More(more) => more.freeze(),
        }
    }
}

/// Creates the rejection of a body that broke off.
pub(super) fn broken_off<B: RequestBody>(error: &B::Error) -> Rejection {
    if B::is_too_large(error) { Code::BodyTooLarge.into() } else { BodyDefect::EndedEarly.rejection() }
}

/// Creates the rejection of a body that is larger than the limit.
pub(super) fn too_large(limit: usize) -> Rejection {
    Rejection::new(Code::BodyTooLarge)
        .detail(format!("The body is larger than {limit} bytes, the limit of this route."))
        .detail_in(Language::SIMPLIFIED_CHINESE, format!("请求体超过 {limit} 字节，这是该路由的上限。"))
}

/// Reads a small body to its end. A large, slow or broken one is not read, and its connection is closed.
pub(crate) async fn drain<B: RequestBody>(request: &impl RequestHead, body: &mut B) {
    if content_length(request).is_some_and(|length| length > DRAINED as u64) {
        return;
    }
    let _ = tokio::time::timeout(DRAIN_TIME, async {
        let mut left = DRAINED;
        while let Some(Ok(chunk)) = body.next().await {
            match left.checked_sub(chunk.len()) {
                Some(less) => left = less,
                None => break,
            }
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;

    /// Chunks that arrive one after the other; `None` breaks off.
    struct Chunks(VecDeque<Option<&'static str>>);

    impl Stream for Chunks {
        type Item = Result<Bytes, ()>;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(self.0.pop_front().map(|chunk| chunk.map(Bytes::from).ok_or(())))
        }
    }

    impl RequestBody for Chunks {
        type Error = ();

        fn empty() -> Self {
            Self(VecDeque::new())
        }

        fn tapped(_: BodyTap<Self>) -> Self {
            unreachable!("these bodies are not observed")
        }

        fn incomplete() {}

        fn put_back(&mut self, read: Bytes, end: BodyEnd<()>) {
            if let BodyEnd::Broken(()) = end {
                self.0 = [None].into();
            }
            let read: &'static str = String::from_utf8(read.to_vec()).unwrap().leak();
            self.0.push_front(Some(read));
        }
    }

    async fn read(chunks: &[Option<&'static str>], limit: usize) -> (Result<(String, bool), Code>, String) {
        let mut chunks = Chunks(chunks.iter().copied().collect());
        let read = BufferedBody::read(&mut chunks, limit).await;
        let read = read.map(|read| (String::from_utf8_lossy(read.body()).into_owned(), read.is_whole()));
        let left: Vec<_> = chunks.0.iter().map(|chunk| chunk.unwrap_or("!")).collect();
        (read.map_err(|rejection| rejection.code()), left.concat())
    }

    #[tokio::test]
    async fn handler_reads_the_same_body_after_the_guard() {
        let chunks = [Some("ab"), Some("cd"), Some("ef")];
        assert_eq!(read(&chunks, 10).await, (Ok(("abcdef".into(), true)), "abcdef".into()));
        assert_eq!(read(&chunks, 3).await, (Ok(("abcd".into(), false)), "abcdef".into()), "the rest is not read");
        assert_eq!(read(&[], 3).await, (Ok((String::new(), true)), String::new()));
        assert_eq!(read(&[Some("ab"), None], 10).await, (Err(Code::BadRequest), "ab!".into()));
    }
}
