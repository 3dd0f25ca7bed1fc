//! `Expect: 100-continue`: the body waits for the upstream, which may reject the request by its head.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{EXPECT, HeaderValue};
use http::{Request, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;
use tokio::time::Sleep;

use crate::proxy::body::{AnyBody, BoxError, any, whole};

/// Time to wait for an upstream that ignores `Expect`.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time for the response to a rejected request, before its connection is closed: the upstream still expects the body on it.
const LINGER: Duration = Duration::from_secs(5);

/// Holds the body back until the upstream asks for it. The client receives its own `100 Continue` once its body is read.
pub(super) fn hold_body(request: &mut Request<AnyBody>) {
    let (ask, asked) = oneshot::channel();
    let body = std::mem::replace(request.body_mut(), whole(Bytes::new()));
    *request.body_mut() = any(HeldBody { body, hold: Hold::Waiting(asked, Box::pin(tokio::time::sleep(PATIENCE))) });
    request.headers_mut().insert(EXPECT, HeaderValue::from_static("100-continue"));
    let ask = std::sync::Mutex::new(Some(ask));
    hyper::ext::on_informational(request, move |response| {
        if response.status() == StatusCode::CONTINUE
            && let Some(ask) = ask.lock().ok().and_then(|mut ask| ask.take())
        {
            // The upstream may have rejected the request meanwhile.
            let _ = ask.send(());
        }
    });
}

/// A body that waits until the upstream asks for it.
struct HeldBody {
    body: AnyBody,
    hold: Hold,
}

enum Hold {
    /// The upstream has neither asked for the body nor responded, and may still ask for this time.
    Waiting(oneshot::Receiver<()>, Pin<Box<Sleep>>),
    /// The body is sent.
    Released,
    /// The upstream has responded without it. The client is not asked for it.
    Rejected(Pin<Box<Sleep>>),
}

impl HeldBody {
    fn reject(&mut self) {
        self.body = whole(Bytes::new());
        self.hold = Hold::Rejected(Box::pin(tokio::time::sleep(LINGER)));
    }
}

impl Body for HeldBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Hold::Waiting(asked, timer) = &mut self.hold {
            match Pin::new(asked).poll(context) {
                Poll::Ready(Ok(())) => self.hold = Hold::Released,
                // hyper drops the sender as soon as it has read a response.
                Poll::Ready(Err(_)) => self.reject(),
                Poll::Pending => {
                    ready!(timer.as_mut().poll(context));
                    self.hold = Hold::Released;
                }
            }
        }
        if let Hold::Rejected(timer) = &mut self.hold {
            ready!(timer.as_mut().poll(context));
            return Poll::Ready(Some(Err("the upstream responded without the body".into())));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.hold, Hold::Released) && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
