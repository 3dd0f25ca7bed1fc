//! Requests and responses of axum, as the handlers of the suite see them.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequestParts as _, Path};
use axum::http::StatusCode;
pub(super) use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream::{BoxStream, StreamExt as _};
use http_body::{Frame, SizeHint};
use onceward::axum::{MarkEffect as _, reject};

use crate::call::{BodyStream, Call};
use crate::ledger::Ledger;
use crate::reply::{Reply, ReplyBody};

/// Returns the request as a handler of the suite receives it.
pub(super) fn call_of(head: &mut Parts, ledger: &Ledger, body: Bytes) -> Call {
    let parameters = Path::<HashMap<String, String>>::from_request_parts(head, &()).now_or_never();
    let parameters = parameters.and_then(Result::ok).map(|Path(parameters)| parameters).unwrap_or_default();
    let (method, target, headers) = (head.method.clone(), head.uri.to_string(), head.headers.clone());
    Call { method, target, headers, parameters, body, ledger: ledger.clone() }
}

/// Returns the body of a request.
pub(super) fn body_of(body: Body) -> BodyStream {
    BodyStream::new(body.into_data_stream().map(|piece| piece.map_err(io::Error::other)))
}

/// Returns the response of a handler of the suite.
pub(super) fn response_of(reply: Reply, head: &Parts) -> Response {
    let mut response = match reply.body {
        ReplyBody::Error(text) => text.into_response(),
        ReplyBody::Whole(body) => Response::new(Body::from(body)),
        ReplyBody::Streamed(pieces, None) => Response::new(Body::from_stream(pieces)),
        ReplyBody::Streamed(pieces, Some(length)) => Response::new(Body::new(SizedBody { pieces, length })),
        ReplyBody::Rejection(rejected) => return reject(head, &rejected.0, &rejected.1),
    };
    *response.status_mut() = StatusCode::from_u16(reply.status).expect("a status");
    response.headers_mut().extend(reply.headers);
    match reply.effect {
        Some(effect) => response.effect(effect),
        None => response,
    }
}

/// A body in pieces that declares its length.
struct SizedBody {
    pieces: BoxStream<'static, io::Result<Bytes>>,
    length: u64,
}

impl HttpBody for SizedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.pieces.poll_next_unpin(context).map_ok(Frame::data)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
