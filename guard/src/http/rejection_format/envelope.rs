//! A JSON object with a code, a message and no data, as many APIs send for every response.

use std::borrow::Cow;

use http::StatusCode;
use onceward_api::Code;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::{RejectedRequest, RejectionFormat, RejectionResponse};

/// A format for APIs that wrap every response in an object: `{"code": …, "message": …, "data": null}`.
///
/// A client that prefers HTML receives the page, as by default.
///
/// ```
/// use onceward::api::Code;
/// use onceward::http::Envelope;
///
/// // Duplicates have the code 20001, other rejections 20000, and every response the HTTP status 200.
/// let envelope = Envelope::new().default_code(20000).code(Code::TokenUsed, 20001).code(Code::TooSoon, 20001).status_ok();
/// # let _ = envelope;
/// ```
#[derive(Debug, Clone)]
pub struct Envelope {
    codes: Vec<(Code, Value)>,
    default_code: Option<Value>,
    message_field: Cow<'static, str>,
    is_ok: bool,
}

impl Envelope {
    /// Creates an envelope with our codes as strings, and the HTTP status of each code.
    pub fn new() -> Self {
        Self { codes: Vec::new(), default_code: None, message_field: "message".into(), is_ok: false }
    }

    /// Sets the API's own code for one of ours: a number or a string.
    #[must_use]
    pub fn code(mut self, code: Code, own: impl Into<Value>) -> Self {
        self.codes.retain(|(other, _)| *other != code);
        self.codes.push((code, own.into()));
        self
    }

    /// Sets the API's code for every rejection without one of its own. Default: the name of our code.
    #[must_use]
    pub fn default_code(mut self, own: impl Into<Value>) -> Self {
        self.default_code = Some(own.into());
        self
    }

    /// Names the field of the message. Default: `message`.
    #[must_use]
    pub fn message_field(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.message_field = name.into();
        self
    }

    /// Sends every rejection with the HTTP status 200. The SDKs recognize it by its headers; a generic client or proxy takes it for a
    /// success.
    #[must_use]
    pub fn status_ok(mut self) -> Self {
        self.is_ok = true;
        self
    }

    fn write(&self, rejected: &RejectedRequest<'_>) -> Option<RejectionResponse> {
        if rejected.prefers_html() {
            return None;
        }
        let status = if self.is_ok { StatusCode::OK } else { rejected.status() };
        Some(RejectionResponse::new(status).json(&Wrapped { envelope: self, rejected }))
    }
}

impl Default for Envelope {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Envelope> for RejectionFormat {
    fn from(envelope: Envelope) -> Self {
        Self::new(move |rejected| envelope.write(rejected)).named("envelope")
    }
}

/// A rejection in its envelope.
struct Wrapped<'a> {
    envelope: &'a Envelope,
    rejected: &'a RejectedRequest<'a>,
}

impl Serialize for Wrapped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (envelope, code) = (self.envelope, self.rejected.code());
        let own = envelope.codes.iter().find(|(other, _)| *other == code).map(|(_, own)| own);
        let mut object = serializer.serialize_map(Some(3))?;
        match own.or(envelope.default_code.as_ref()) {
            Some(own) => object.serialize_entry("code", own)?,
            None => object.serialize_entry("code", code.as_str())?,
        }
        object.serialize_entry(&*envelope.message_field, self.rejected.title())?;
        object.serialize_entry("data", &())?;
        object.end()
    }
}
