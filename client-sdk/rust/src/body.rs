//! The body of a submission. Some bodies can be sent again, others only once.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Body as _;
use reqwest::multipart::Form;
use reqwest::{Client, Request, RequestBuilder};

type BodyFactory<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// The body of a submission.
#[derive(Default)]
pub(crate) enum Body {
    #[default]
    None,
    Bytes(Bytes),
    /// Built for each attempt.
    Stream(BodyFactory<reqwest::Body>),
    Form(BodyFactory<Form>),
    /// For one attempt only.
    SingleUse(SingleUseBody),
}

/// A body that can be sent once.
pub(crate) enum SingleUseBody {
    Stream(reqwest::Body),
    Form(Form),
    Sent,
}

impl Body {
    /// True if the body can be sent more than once.
    pub(crate) fn is_repeatable(&self) -> bool {
        !matches!(self, Self::SingleUse(_))
    }

    /// Puts the body into a request. Returns `None` if it was already sent and cannot be sent again.
    ///
    /// # Errors
    /// If a part of a form is invalid.
    pub(crate) fn put_into(&mut self, mut request: Request, http: &Client) -> reqwest::Result<Option<Request>> {
        let form = |form, request| RequestBuilder::from_parts(http.clone(), request).multipart(form).build().map(Some);
        *request.body_mut() = match self {
            Self::None => None,
            Self::Bytes(bytes) => Some(bytes.clone().into()),
            Self::Stream(make) => Some(make()),
            Self::Form(make) => return form(make(), request),
            Self::SingleUse(once) => match std::mem::replace(once, SingleUseBody::Sent) {
                SingleUseBody::Stream(body) => Some(body),
                SingleUseBody::Form(made) => return form(made, request),
                SingleUseBody::Sent => return Ok(None),
            },
        };
        Ok(Some(request))
    }
}

impl From<reqwest::Body> for Body {
    /// A body whose bytes are in memory can be sent again.
    fn from(mut body: reqwest::Body) -> Self {
        let Some(length) = body.as_bytes().map(<[u8]>::len) else {
            return Self::SingleUse(SingleUseBody::Stream(body));
        };
        match take_bytes(&mut body) {
            bytes if bytes.len() == length => Self::Bytes(bytes),
            // If reqwest ever splits its bytes: an error is better than half a body.
            _ => Self::SingleUse(SingleUseBody::Sent),
        }
    }
}

/// Takes the bytes out of a body in memory, without a copy: it is ready at once, and has one frame.
fn take_bytes(body: &mut reqwest::Body) -> Bytes {
    match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        Poll::Ready(Some(Err(_)) | None) | Poll::Pending => Bytes::new(),
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Bytes(_) => "Bytes",
            Self::Stream(_) => "Stream",
            Self::Form(_) => "Form",
            Self::SingleUse(_) => "SingleUse",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_in_memory_is_taken_whole_and_not_copied() {
        let order = vec![b'x'; 1 << 20];
        let address = order.as_ptr();
        let Body::Bytes(bytes) = Body::from(reqwest::Body::from(order)) else { panic!("expected bytes") };
        assert_eq!((bytes.as_ptr(), bytes.len()), (address, 1 << 20));
        for short in ["", "tea"] {
            let body = Body::from(reqwest::Body::from(short));
            assert!(matches!(&body, Body::Bytes(bytes) if bytes == short), "{short}");
        }
    }

    #[test]
    fn streamed_body_is_not_repeatable() {
        let stream = futures_util::stream::iter([Ok::<_, std::io::Error>("tea")]);
        assert!(!Body::from(reqwest::Body::wrap_stream(stream)).is_repeatable());
    }
}
