//! What a request asks, read from the request, with its body left as it was.

use std::time::Duration;

use actix_web::HttpMessage as _;
use actix_web::dev::{Payload, ServiceRequest};
use actix_web::error::PayloadError;
use actix_web::http::header::CONTENT_LENGTH;
use actix_web::web::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use onceward_api::Code;
use onceward_api::path::canonical;

use super::carrier::TokenSources;
use super::form::{Form, Scan, broken};
#[cfg(feature = "sql")]
use super::request_intent::RequestIntent;
use crate::fingerprint::Fingerprint;
use crate::intent::{Intent, Subject};
use crate::key::Key;
use crate::rejection::Rejection;

/// A body up to this size is read to its end before a rejection, so that the connection can be used again.
const DRAINED: usize = 64 * 1024;
/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// What a request asks.
pub(super) struct ParsedRequest {
    action: String,
    subject: Subject<'static>,
    token: Option<String>,
    key: Option<Key>,
    fingerprint: Option<Fingerprint>,
    has_whole_body: bool,
    only_looks: bool,
}

impl ParsedRequest {
    /// What is asked, and by whom, and whether nothing is to run.
    pub(super) fn new(action: String, subject: Subject<'static>, only_looks: bool) -> Self {
        Self { action, subject, token: None, key: None, fingerprint: None, has_whole_body: false, only_looks }
    }

    /// With the token that the request carries. The body is looked into only if it is a form, and handed on as it came.
    pub(super) async fn with_token(
        mut self,
        request: &mut ServiceRequest,
        body_limit: usize,
    ) -> Result<Self, Rejection> {
        let mut carried = TokenSources::default();
        carried.and_headers(request.headers())?;
        carried.and_query(request.query_string())?;
        let mime = request.mime_type().ok().flatten();
        if let Some(form) = Form::of(request.headers(), mime.as_ref()) {
            Box::pin(read_form(request, form?, &mut carried, body_limit)).await?;
        }
        self.token = carried.into_token();
        Ok(self)
    }

    pub(super) fn with_key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    pub(super) fn with_fingerprint(mut self, fingerprint: Option<Fingerprint>) -> Self {
        self.fingerprint = fingerprint;
        self
    }

    /// With whether the body was read to its end.
    pub(super) fn with_whole_body(mut self, is_whole: bool) -> Self {
        self.has_whole_body = is_whole;
        self
    }

    /// Whether the body was read to its end before the handler was called, so that no extractor finds it broken.
    pub(super) fn has_whole_body(&self) -> bool {
        self.has_whole_body
    }

    pub(super) fn action(&self) -> &str {
        &self.action
    }

    /// Whether nothing is to run.
    pub(super) fn only_looks(&self) -> bool {
        self.only_looks
    }

    /// The same for the handler.
    #[cfg(feature = "sql")]
    pub(super) fn for_the_handler(&self) -> RequestIntent {
        RequestIntent::new(&self.action, &self.subject, self.key.as_ref(), self.fingerprint)
    }

    pub(super) fn intent(&self) -> Intent<'_> {
        let mut intent = Intent::new(&self.action, self.subject.borrowed());
        if let Some(token) = &self.token {
            intent = intent.credential(token);
        }
        if let Some(key) = &self.key {
            intent = intent.key(key);
        }
        if let Some(fingerprint) = self.fingerprint {
            intent = intent.fingerprint(fingerprint);
        }
        intent
    }
}

/// The action of a route without a name: the method and the [canonical path](canonical), as in `POST /orders`.
pub fn action_of(method: &str, path: &str) -> String {
    [method, " ", &canonical(path)].concat()
}

/// Reads a form until its token is found, and puts back what was read.
async fn read_form(
    request: &mut ServiceRequest,
    mut form: Form,
    carried: &mut TokenSources,
    limit: usize,
) -> Result<(), Rejection> {
    let mut payload = request.take_payload();
    let mut read = BytesMut::new();
    let scan = loop {
        let chunk = payload.next().await;
        let ended = chunk.is_none();
        match chunk.transpose() {
            Ok(chunk) => read.extend_from_slice(&chunk.unwrap_or_default()),
            Err(error) => {
                request.set_payload(chain(read.freeze(), stream::iter([Err(error)])));
                return Err(broken("it broke off"));
            }
        }
        match form.scan(&read, ended) {
            Scan::More if read.len() <= limit => {}
            scan => break scan,
        }
    };
    request.set_payload(chain(read.freeze(), payload));
    match scan {
        Scan::Found(token) => carried.and_body(&token),
        Scan::Absent => Ok(()),
        Scan::More if carried.is_some() => Ok(()),
        Scan::More => Err(Rejection::new(Code::BodyTooLarge).detail(format!(
            "No token was found in the first {limit} bytes of the form. Send it as the first field, or in the Onceward-Token header."
        ))),
        Scan::Broken(how) => Err(broken(how)),
    }
}

/// A payload that begins with what was read of it. One that broke off does so for whoever reads it next.
pub(super) fn chain(read: Bytes, rest: impl Stream<Item = Result<Bytes, PayloadError>> + 'static) -> Payload {
    let read = stream::iter((!read.is_empty()).then_some(Ok::<_, PayloadError>(read)));
    Payload::Stream { payload: Box::pin(read.chain(rest)) }
}

/// Reads a small body to its end. What is large, slow or broken is left, and the connection is closed then.
pub(super) async fn drain(request: &mut ServiceRequest) {
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > DRAINED) {
        return;
    }
    let mut payload = request.take_payload();
    let _ = actix_web::rt::time::timeout(DRAIN_TIME, async {
        let mut left = DRAINED;
        while let Some(Ok(chunk)) = payload.next().await {
            match left.checked_sub(chunk.len()) {
                Some(less) => left = less,
                None => break,
            }
        }
    })
    .await;
}
