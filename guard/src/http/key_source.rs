//! Where the key of a request is read from.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use onceward_api::{Code, header};
use serde::de::IgnoredAny;

use super::body::BufferedBody;
use super::request::{RequestHead, content_type};
use crate::fingerprint::BadPointer;
use crate::fingerprint::fields::Pointer;
use crate::fingerprint::json::{self, Field};
use crate::key::{BadKey, Key};
use crate::policy::SettingError;
use crate::rejection::Rejection;

type Choose<R> = Arc<dyn Fn(&R) -> Option<Result<Key, BadKey>> + Send + Sync>;

/// Where the key of a submission is read from, in a request of type `R`: a header, or data of the submission itself.
///
/// The adapter for actix-web calls it `KeyFrom`.
pub struct KeySource<R>(Source<R>);

enum Source<R> {
    Header(HeaderName),
    Path(String),
    Query(String),
    Body(Pointer),
    Chosen(Choose<R>),
    Parts(Vec<KeySource<R>>),
}

impl<R: RequestHead> KeySource<R> {
    /// A header: `Idempotency-Key`, unless the callers know it by another name.
    ///
    /// # Errors
    /// If this cannot be the name of a header.
    pub fn header(name: &str) -> Result<Self, SettingError> {
        let parsed = HeaderName::try_from(name.to_ascii_lowercase());
        parsed.map(|name| Self(Source::Header(name))).map_err(|_| SettingError::HeaderName(name.to_owned()))
    }

    /// A part of the path, by the name it has in the route that is protected: `order` in `/orders/{order}/pay`. It is decoded as
    /// the handler sees it; one that is not UTF-8 is refused, since the handler would see all such parts alike. An action
    /// without a name has the path in it, and is logged; if the key is not for everybody's eyes, name the action.
    pub fn path(name: impl Into<String>) -> Self {
        Self(Source::Path(name.into()))
    }

    /// A parameter of the query. One that is not UTF-8 once it is decoded is refused.
    pub fn query(name: impl Into<String>) -> Self {
        Self(Source::Query(name.into()))
    }

    /// A field of a JSON body, named by a JSON pointer, or of an urlencoded form, by `/` and its name. It has to be a text or a
    /// whole number. A body with a `Content-Encoding` is refused with 415, also where the key is optional.
    ///
    /// # Errors
    /// If this is not a JSON pointer.
    pub fn body(pointer: &str) -> Result<Self, BadPointer> {
        Pointer::parse(pointer).map(|pointer| Self(Source::Body(pointer)))
    }

    /// What the application makes of the request; `None` if there is no key in it.
    pub fn chosen(choose: impl Fn(&R) -> Option<Result<Key, BadKey>> + Send + Sync + 'static) -> Self {
        Self(Source::Chosen(Arc::new(choose)))
    }

    /// All of these together. If one is missing, there is no key.
    pub fn parts(parts: impl IntoIterator<Item = Self>) -> Self {
        let flat = parts.into_iter().flat_map(|part| match part.0 {
            Source::Parts(parts) => parts,
            one => vec![Self(one)],
        });
        Self(Source::Parts(flat.collect()))
    }

    /// Whether the body has to be read for it.
    pub(super) fn needs_body(&self) -> bool {
        match &self.0 {
            Source::Body(_) => true,
            Source::Parts(parts) => parts.iter().any(Self::needs_body),
            _ => false,
        }
    }

    /// The key of this request, if there is one.
    pub(super) fn find(&self, request: &R, body: &BufferedBody) -> Result<Option<Key>, Rejection> {
        match &self.0 {
            Source::Header(name) => from_header(request, name),
            Source::Chosen(choose) => choose(request).transpose().map_err(|bad| malformed(&bad)),
            Source::Parts(parts) => {
                let texts = parts.iter().map(|part| part.text(request, body)).collect::<Result<Option<Vec<_>>, _>>()?;
                texts.map(Key::of_parts).transpose().map_err(|bad| malformed(&bad))
            }
            _ => self.text(request, body)?.map(Key::new).transpose().map_err(|bad| malformed(&bad)),
        }
    }

    /// What stands there, if anything does.
    fn text(&self, request: &R, body: &BufferedBody) -> Result<Option<String>, Rejection> {
        Ok(match &self.0 {
            Source::Path(name) => request.path_parameter(name).map(|part| from_path(part, name)).transpose()?,
            Source::Query(name) => one_of(form_urlencoded::parse(request.query().as_bytes()), name)?,
            Source::Body(pointer) => {
                reject_encoded(request)?;
                from_body(request, body.body(), pointer)?
            }
            Source::Header(_) | Source::Chosen(_) | Source::Parts(_) => {
                self.find(request, body)?.map(|key| key.as_str().to_owned())
            }
        })
    }
}

impl<R> Default for KeySource<R> {
    fn default() -> Self {
        Self(Source::Header(HeaderName::from_static(header::IDEMPOTENCY_KEY)))
    }
}

impl<R> Clone for KeySource<R> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Source::Header(name) => Source::Header(name.clone()),
            Source::Path(name) => Source::Path(name.clone()),
            Source::Query(name) => Source::Query(name.clone()),
            Source::Body(pointer) => Source::Body(pointer.clone()),
            Source::Chosen(choose) => Source::Chosen(Arc::clone(choose)),
            Source::Parts(parts) => Source::Parts(parts.clone()),
        })
    }
}

impl<R> fmt::Debug for KeySource<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Header(name) => write!(f, "header {name}"),
            Source::Path(name) => write!(f, "path {name}"),
            Source::Query(name) => write!(f, "query {name}"),
            Source::Body(pointer) => write!(f, "body /{}", pointer.names().join("/")),
            Source::Chosen(_) => f.write_str("chosen"),
            Source::Parts(parts) => f.debug_list().entries(parts).finish(),
        }
    }
}

fn from_header(request: &impl RequestHead, name: &HeaderName) -> Result<Option<Key>, Rejection> {
    let mut values = request.header(name.as_str());
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => Key::from_header(value).map(Some).map_err(|bad| malformed(&bad)),
        (Some(_), Some(_)) => Err(Rejection::new(Code::KeyMalformed).detail("The key was sent twice. Send it once.")),
    }
}

fn from_path(decoded: Cow<'_, str>, name: &str) -> Result<String, Rejection> {
    text_of(decoded.into_owned(), &format!("`{name}` in the path"))
}

/// Rejects a key that is not UTF-8: decoding replaces its bytes, so that different keys would become one.
fn text_of(decoded: String, what: &str) -> Result<String, Rejection> {
    match decoded.contains(char::REPLACEMENT_CHARACTER) {
        true => Err(Rejection::new(Code::KeyMalformed)
            .detail(format!("{what}, which is the key, is not UTF-8 once it is decoded."))),
        false => Ok(decoded),
    }
}

/// The one value of this name. Two of them would be two keys.
fn one_of<'a, I>(pairs: I, name: &str) -> Result<Option<String>, Rejection>
where
    I: Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
{
    let mut values = pairs.filter(|(found, _)| found == name).map(|(_, value)| value.into_owned());
    match (values.next(), values.next()) {
        (Some(_), Some(_)) => {
            Err(Rejection::new(Code::KeyMalformed).detail(format!("`{name}`, which is the key, was sent twice.")))
        }
        (value, _) => {
            value.filter(|value| !value.is_empty()).map(|value| text_of(value, &format!("`{name}`"))).transpose()
        }
    }
}

/// Rejects a body with a content encoding. The guard does not decode it, and would find no key where the handler finds one.
fn reject_encoded(request: &impl RequestHead) -> Result<(), Rejection> {
    match request.header("content-encoding").all(|encoding| encoding.eq_ignore_ascii_case(b"identity")) {
        true => Ok(()),
        false => Err(Rejection::new(Code::UnsupportedMediaType)
            .detail("The key is in the body, which has a Content-Encoding and is not read. Send it without one.")),
    }
}

fn from_body(request: &impl RequestHead, body: &[u8], pointer: &Pointer) -> Result<Option<String>, Rejection> {
    if is_form(request) {
        return match pointer.names() {
            [name] => one_of(form_urlencoded::parse(body), name),
            _ => Ok(None),
        };
    }
    let reject = |why: &str| {
        let name = pointer.names().join("/");
        Err(Rejection::new(Code::KeyMalformed).detail(format!("`/{name}`, which is the key, {why}.")))
    };
    match json::field(body, pointer) {
        Some(Field::Absent) => Ok(None),
        Some(Field::Value(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
        Some(Field::Other) => reject("has to be a text or a whole number"),
        None if serde_json::from_slice::<IgnoredAny>(body).is_ok() => reject("is in a body that has a name twice"),
        None => Ok(None),
    }
}

/// Whether the body is an urlencoded form.
fn is_form(request: &impl RequestHead) -> bool {
    let essence = content_type(request).and_then(|text| text.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

fn malformed(bad: &BadKey) -> Rejection {
    Rejection::new(Code::KeyMalformed).detail(format!("{bad}."))
}
