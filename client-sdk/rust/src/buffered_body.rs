//! The part of a response body that was read ahead.

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use reqwest::{Body, Response, ResponseBuilderExt as _};

/// The bytes of a body that were read so far.
#[derive(Debug)]
pub(crate) struct BufferedBody {
    bytes: Bytes,
    is_whole: bool,
}

impl BufferedBody {
    /// Reads a body until it ends or exceeds the limit.
    ///
    /// # Errors
    /// If the connection fails before that.
    pub(crate) async fn read(response: &mut Response, limit: usize) -> reqwest::Result<Self> {
        // Most bodies arrive in one chunk, which is not copied.
        let first = response.chunk().await?.unwrap_or_default();
        if first.len() > limit {
            return Ok(Self { bytes: first, is_whole: false });
        }
        let Some(second) = response.chunk().await? else { return Ok(Self { bytes: first, is_whole: true }) };
        let mut bytes = BytesMut::from(first);
        bytes.extend_from_slice(&second);
        while bytes.len() <= limit {
            match response.chunk().await? {
                Some(chunk) => bytes.extend_from_slice(&chunk),
                None => return Ok(Self { bytes: bytes.freeze(), is_whole: true }),
            }
        }
        Ok(Self { bytes: bytes.freeze(), is_whole: false })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// Puts the bytes back, so that the response can be read from the start.
    pub(crate) fn put_back(self, response: Response) -> Response {
        let (url, bytes, is_whole) = (response.url().clone(), self.bytes, self.is_whole);
        let (parts, rest) = http::Response::<Body>::from(response).into_parts();
        let body = if is_whole {
            Body::from(bytes)
        } else {
            let rest = Response::from(http::Response::new(rest)).bytes_stream();
            Body::wrap_stream(stream::iter([Ok(bytes)]).chain(rest))
        };
        let mut rebuilt = http::Response::new(body);
        if let Ok(with_url) = http::response::Builder::new().url(url).body(()) {
            *rebuilt.extensions_mut() = with_url.into_parts().0.extensions;
        }
        (*rebuilt.status_mut(), *rebuilt.version_mut(), *rebuilt.headers_mut()) =
            (parts.status, parts.version, parts.headers);
        rebuilt.extensions_mut().extend(parts.extensions);
        Response::from(rebuilt)
    }
}
