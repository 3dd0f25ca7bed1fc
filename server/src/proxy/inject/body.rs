//! The body of a response that may receive the tag.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

use super::insertion::{Insertion, Place};

/// A body that passes unchanged, except for the tag in a page.
///
/// Nothing is buffered but the few bytes of an unfinished opening (see [`Insertion`]). Once the tag is inserted, or it is known that
/// there is no place for it, every frame of the upstream passes as it is.
#[derive(Debug)]
pub(crate) struct MaybeInjected<B> {
    body: B,
    /// The search for the place of the tag; `None` if it is over, or was never begun.
    search: Option<Search>,
    /// Frames to send before the next one of the body.
    ready: VecDeque<Frame<Bytes>>,
    has_ended: bool,
}

/// The tags for a page.
#[derive(Debug, Clone, Default)]
pub(super) struct Tags {
    /// The script.
    pub(super) script: Bytes,
    /// Its messages in Simplified Chinese, which only a page in Chinese receives.
    pub(super) chinese: Bytes,
}

impl Tags {
    /// Returns the maximum number of bytes that a page receives.
    fn len(&self) -> usize {
        self.script.len() + self.chinese.len()
    }
}

#[derive(Debug)]
struct Search {
    insertion: Insertion,
    tags: Tags,
    /// The last bytes of the body so far, which decide only together with the next ones.
    held: Bytes,
}

impl<B> MaybeInjected<B> {
    /// Wraps a body that passes unchanged.
    pub(super) fn unchanged(body: B) -> Self {
        Self { body, search: None, ready: VecDeque::new(), has_ended: false }
    }

    /// Wraps the body of a page, which receives the tag.
    pub(super) fn with_tags(body: B, tags: Tags) -> Self {
        let search = Search { insertion: Insertion::new(), tags, held: Bytes::new() };
        Self { search: Some(search), ..Self::unchanged(body) }
    }

    /// Prepares the frames for a frame of the body.
    fn receive(&mut self, frame: Frame<Bytes>) {
        let Some(search) = &mut self.search else { return self.ready.push_back(frame) };
        match frame.into_data() {
            Ok(data) => {
                let data = search.join(data);
                let place = search.insertion.scan(&data);
                self.place(place, data);
            }
            Err(trailers) => {
                self.finish();
                self.ready.push_back(trailers);
            }
        }
    }

    /// Prepares the frames for bytes with this place for the tag.
    fn place(&mut self, place: Place, mut data: Bytes) {
        match (place, &mut self.search) {
            (Place::Later(at), Some(search)) => {
                search.held = data.split_off(at);
                self.push(data);
            }
            (Place::At(at), Some(search)) => {
                let (Tags { script, chinese }, rest) = (std::mem::take(&mut search.tags), data.split_off(at));
                let chinese = if search.insertion.is_chinese() { chinese } else { Bytes::new() };
                self.search = None;
                [data, script, chinese, rest].into_iter().for_each(|bytes| self.push(bytes));
            }
            _ => {
                self.search = None;
                self.push(data);
            }
        }
    }

    /// Ends the search. What is held passes as it is.
    fn finish(&mut self) {
        if let Some(search) = self.search.take() {
            self.push(search.held);
        }
    }

    fn push(&mut self, data: Bytes) {
        if !data.is_empty() {
            self.ready.push_back(Frame::data(data));
        }
    }

    /// Returns the number of bytes that were received and not sent yet.
    fn waiting(&self) -> usize {
        let ready = self.ready.iter().filter_map(Frame::data_ref).map(Bytes::len).sum::<usize>();
        ready + self.search.as_ref().map_or(0, |search| search.held.len())
    }
}

impl Search {
    /// Returns the bytes with those that were held before them.
    fn join(&mut self, data: Bytes) -> Bytes {
        if self.held.is_empty() {
            return data;
        }
        let mut joined = BytesMut::with_capacity(self.held.len() + data.len());
        joined.extend_from_slice(&std::mem::take(&mut self.held));
        joined.extend_from_slice(&data);
        joined.freeze()
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for MaybeInjected<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if self.has_ended {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) if self.search.is_none() => return Poll::Ready(Some(Ok(frame))),
                Some(Ok(frame)) => self.receive(frame),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.has_ended = true;
                    self.finish();
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.waiting() == 0 && self.ready.is_empty() && (self.has_ended || self.body.is_end_stream())
    }

    /// While the place of the tag is unknown, so is the exact size.
    fn size_hint(&self) -> SizeHint {
        let (inner, waiting) = (self.body.size_hint(), self.waiting() as u64);
        let tags = self.search.as_ref().map_or(0, |search| search.tags.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(waiting));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(waiting).saturating_add(tags));
        }
        hint
    }
}
