//! The part of a response body that was read ahead.

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use reqwest::{Body, Response, ResponseBuilderExt as _, Version};

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
        let first = next_chunk(response).await?.unwrap_or_default();
        if first.len() > limit {
            return Ok(Self { bytes: first, is_whole: false });
        }
        let Some(second) = next_chunk(response).await? else { return Ok(Self { bytes: first, is_whole: true }) };
        let mut bytes = BytesMut::from(first);
        bytes.extend_from_slice(&second);
        while bytes.len() <= limit {
            match next_chunk(response).await? {
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

/// Returns the next bytes of a body, or `None` at its end. The end of an HTTP/1 body of known length needs no further poll.
async fn next_chunk(response: &mut Response) -> reqwest::Result<Option<Bytes>> {
    let is_read = response.content_length() == Some(0) && response.version() <= Version::HTTP_11;
    if is_read { Ok(None) } else { response.chunk().await }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures_util::FutureExt as _;
    use http_body::{Frame, SizeHint};

    use super::*;

    /// A body of known length on a connection that stays open: its end never arrives.
    struct OpenEnd(&'static [u8]);

    impl http_body::Body for OpenEnd {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            match std::mem::take(&mut self.get_mut().0) {
                b"" => Poll::Pending,
                bytes => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(bytes))))),
            }
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0.len() as u64)
        }
    }

    #[test]
    fn end_of_known_length_is_awaited_only_over_http_2() {
        for (version, ends) in [(Version::HTTP_11, true), (Version::HTTP_2, false)] {
            for bytes in ["", "tea"] {
                let mut response = http::Response::new(Body::wrap(OpenEnd(bytes.as_bytes())));
                *response.version_mut() = version;
                let read = BufferedBody::read(&mut Response::from(response), 10).now_or_never();
                let whole = read.map(Result::unwrap).filter(BufferedBody::is_whole).map(BufferedBody::into_bytes);
                assert_eq!(whole, ends.then_some(Bytes::from_static(bytes.as_bytes())), "{version:?} {bytes}");
            }
        }
    }
}
