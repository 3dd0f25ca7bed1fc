//! A request as a handler of the acceptance suite receives it, whatever the web framework.

use std::collections::HashMap;
use std::io;
use std::pin::pin;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{BoxStream, Stream, StreamExt as _};
use reqwest::Method;
use reqwest::header::HeaderMap;

use crate::ledger::Ledger;

/// A request, without the part of it that the handler [takes](crate::handler::Handler) as a second argument.
pub struct Call {
    /// The method.
    pub method: Method,
    /// The path and the query, as they were sent.
    pub target: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The decoded path parameters.
    pub parameters: HashMap<String, String>,
    /// The whole body; empty if the handler does not take it as a whole.
    pub body: Bytes,
    /// The ledger of the server.
    pub ledger: Ledger,
}

impl Call {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the value of a header that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.header(name)?.parse().ok()
    }

    /// Returns the query, if there is one.
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }
}

/// The body of a request, as it arrives.
pub struct BodyStream(BoxStream<'static, io::Result<Bytes>>);

impl BodyStream {
    /// Creates the body from its pieces.
    pub fn new(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self(pieces.boxed())
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// If the body is truncated, or longer than `limit`.
    pub async fn read(self, limit: usize) -> io::Result<Bytes> {
        let (mut whole, mut pieces) = (BytesMut::new(), pin!(self.0));
        while let Some(piece) = pieces.next().await {
            whole.extend_from_slice(&piece?);
            if whole.len() > limit {
                return Err(io::Error::other("the body is too long"));
            }
        }
        Ok(whole.freeze())
    }

    /// Returns the pieces of the body.
    pub fn into_pieces(self) -> BoxStream<'static, io::Result<Bytes>> {
        self.0
    }
}
