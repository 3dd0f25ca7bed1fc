//! The response of a handler of the acceptance suite, whatever the web framework.

use std::io;

use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt as _};
use onceward::{Effect, Guard, Rejection};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// A response.
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: ReplyBody,
    /// The effect that the handler marks.
    pub effect: Option<Effect>,
}

/// The body of a response.
pub enum ReplyBody {
    /// The whole body.
    Whole(Bytes),
    /// A body in pieces, and its length if that is declared.
    Streamed(BoxStream<'static, io::Result<Bytes>>, Option<u64>),
    /// An error with this text, where the framework distinguishes errors from responses.
    Error(&'static str),
    /// In place of the response: the rejection, as the adapter renders it.
    Rejection(Box<(Guard, Rejection)>),
}

impl Reply {
    /// A response with this status and without a body.
    pub fn new(status: u16) -> Self {
        Self { status, headers: HeaderMap::new(), body: ReplyBody::Whole(Bytes::new()), effect: None }
    }

    /// A rejection of the guard, as the adapter renders it.
    pub fn rejection(guard: &Guard, rejection: Rejection) -> Self {
        Self { body: ReplyBody::Rejection(Box::new((guard.clone(), rejection))), ..Self::new(500) }
    }

    /// An error of the framework.
    pub fn error(status: u16, text: &'static str) -> Self {
        Self { body: ReplyBody::Error(text), ..Self::new(status) }
    }

    /// Sets the whole body.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: ReplyBody::Whole(body.into()), ..self }
    }

    /// Sets a body that is sent in pieces. Its length is not declared.
    #[must_use]
    pub fn streamed(self, pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self { body: ReplyBody::Streamed(pieces.boxed(), None), ..self }
    }

    /// Like [`streamed`](Self::streamed), with a declared length.
    #[must_use]
    pub fn sized(self, length: u64, pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self { body: ReplyBody::Streamed(pieces.boxed(), Some(length)), ..self }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_str(value).expect("visible characters");
        self.headers.append(HeaderName::from_static(name), value);
        self
    }

    /// Marks the effect.
    #[must_use]
    pub fn effect(self, effect: Effect) -> Self {
        Self { effect: Some(effect), ..self }
    }
}
