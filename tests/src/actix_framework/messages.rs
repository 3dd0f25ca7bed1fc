//! Requests and responses of actix-web, as the handlers of the suite see them.

use std::io;
use std::pin::Pin;

use actix_web::body::SizedStream;
use actix_web::error::InternalError;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::{Bytes, Path, Payload};
use actix_web::{FromRequest as _, HttpRequest, HttpResponse, HttpResponseBuilder};
use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use onceward::actix::{MarkEffect as _, reject};
use reqwest::header as neutral;
use tokio::sync::mpsc;

use crate::call::{BodyStream, Call};
use crate::ledger::Ledger;
use crate::reply::{Reply, ReplyBody};

/// Returns the request as a handler of the suite receives it.
pub fn call_of(request: &HttpRequest, ledger: &Ledger, body: Bytes) -> Call {
    let mut headers = neutral::HeaderMap::new();
    for (name, value) in request.headers() {
        let name = neutral::HeaderName::from_bytes(name.as_str().as_bytes()).expect("the name of a header");
        headers.append(name, neutral::HeaderValue::from_bytes(value.as_bytes()).expect("the value of a header"));
    }
    let values = Path::<Vec<String>>::extract(request).now_or_never().and_then(Result::ok);
    let values = values.map(Path::into_inner).unwrap_or_default();
    let parameters = request.match_info().iter().map(|(name, _)| name.to_owned()).zip(values).collect();
    let method = reqwest::Method::from_bytes(request.method().as_str().as_bytes()).expect("the name of a method");
    Call { method, target: request.uri().to_string(), headers, parameters, body, ledger: ledger.clone() }
}

/// Returns the response of a handler of the suite.
pub fn response_of(reply: Reply, request: &HttpRequest) -> HttpResponse {
    let status = StatusCode::from_u16(reply.status).expect("a status");
    let mut response = HttpResponseBuilder::new(status);
    for (name, value) in &reply.headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).expect("the name of a header");
        response.append_header((name, HeaderValue::from_bytes(value.as_bytes()).expect("the value of a header")));
    }
    let response = match reply.body {
        ReplyBody::Whole(body) => response.body(body),
        ReplyBody::Streamed(pieces, None) => response.streaming(pieces),
        ReplyBody::Streamed(pieces, Some(length)) => response.body(SizedStream::new(length, pieces)),
        ReplyBody::Error(text) => return HttpResponse::from_error(InternalError::new(text, status)),
        ReplyBody::Rejection(rejected) => reject(request, &rejected.0, &rejected.1),
    };
    match reply.effect {
        Some(effect) => response.effect(effect),
        None => response,
    }
}

/// Splits a payload, which stays on its thread, into a body that may move to another, and the future that feeds it.
pub(super) fn piped(mut payload: Payload) -> (BodyStream, Pin<Box<dyn Future<Output = ()>>>) {
    let (send, mut receive) = mpsc::channel(1);
    let feed = async move {
        loop {
            let piece = tokio::select! {
                () = send.closed() => return,
                piece = payload.next() => piece,
            };
            let Some(piece) = piece else { return };
            if send.send(piece.map_err(io::Error::other)).await.is_err() {
                return;
            }
        }
    };
    let pieces = stream::poll_fn(move |context| receive.poll_recv(context));
    (BodyStream::new(pieces), Box::pin(feed))
}
