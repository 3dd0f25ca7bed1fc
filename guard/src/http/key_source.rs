//! The source of a request's key.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use onceward_api::{Code, KeyPlace, header};
use serde::de::IgnoredAny;

use super::body::BufferedBody;
use super::request::{RequestHead, content_type};
use crate::fingerprint::BadPointer;
use crate::fingerprint::fields::Pointer;
use crate::fingerprint::json::{self, Field};
use crate::key::{BadKey, Key};
use crate::language::Language;
use crate::policy::SettingError;
use crate::rejection::Rejection;

type Choose<R> = Arc<dyn Fn(&R) -> Option<Result<Key, BadKey>> + Send + Sync>;

/// The source of a submission's key, in a request of type `R`: a header, or data of the submission itself.
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
    /// Reads the key from a header. The default is `Idempotency-Key`.
    ///
    /// # Errors
    /// If `name` is not a valid header name.
    pub fn header(name: &str) -> Result<Self, SettingError> {
        let parsed = HeaderName::try_from(name.to_ascii_lowercase());
        parsed.map(|name| Self(Source::Header(name))).map_err(|_| SettingError::HeaderName(name.to_owned()))
    }

    /// Reads the key from a path parameter, by its name in the protected route: `order` in `/orders/{order}/pay`. It is decoded as the
    /// handler sees it. A value that is not UTF-8 is rejected, since all such values would look the same to the handler. An unnamed
    /// action contains the path and is logged; if the key is confidential, name the action.
    pub fn path(name: impl Into<String>) -> Self {
        Self(Source::Path(name.into()))
    }

    /// Reads the key from a query parameter. A value that is not UTF-8 after decoding is rejected.
    pub fn query(name: impl Into<String>) -> Self {
        Self(Source::Query(name.into()))
    }

    /// Reads the key from a field of a JSON body, named by a JSON pointer, or of an urlencoded form, named by `/` and the field name.
    /// The value has to be a string or an integer. A body with a `Content-Encoding` is rejected with 415, even if the key is optional.
    ///
    /// # Errors
    /// If `pointer` is not a JSON pointer.
    pub fn body(pointer: &str) -> Result<Self, BadPointer> {
        Pointer::parse(pointer).map(|pointer| Self(Source::Body(pointer)))
    }

    /// Reads the key with a function of the application; `None` means that the request has no key.
    pub fn chosen(choose: impl Fn(&R) -> Option<Result<Key, BadKey>> + Send + Sync + 'static) -> Self {
        Self(Source::Chosen(Arc::new(choose)))
    }

    /// Combines several sources. If one value is missing, the request has no key.
    pub fn parts(parts: impl IntoIterator<Item = Self>) -> Self {
        let flat = parts.into_iter().flat_map(|part| match part.0 {
            Source::Parts(parts) => parts,
            one => vec![Self(one)],
        });
        Self(Source::Parts(flat.collect()))
    }

    /// Returns where the key is; `None` if a function of the application reads it.
    pub(super) fn place(&self) -> Option<KeyPlace> {
        Some(match &self.0 {
            Source::Header(name) => KeyPlace::Header(name.as_str().to_owned()),
            Source::Path(name) => KeyPlace::Path(name.clone()),
            Source::Query(name) => KeyPlace::Query(name.clone()),
            Source::Body(pointer) => KeyPlace::Body(pointer.text()),
            Source::Chosen(_) => return None,
            Source::Parts(parts) => KeyPlace::Parts(parts.iter().map(Self::place).collect::<Option<_>>()?),
        })
    }

    /// Returns whether the body has to be read to find the key.
    pub(super) fn needs_body(&self) -> bool {
        match &self.0 {
            Source::Body(_) => true,
            Source::Parts(parts) => parts.iter().any(Self::needs_body),
            _ => false,
        }
    }

    /// Returns the key of this request, if it has one.
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

    /// Returns the value as text, if there is one.
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
        (Some(_), Some(_)) => Err(Rejection::new(Code::KeyMalformed)
            .detail("The key was sent twice. Send it once.")
            .detail_in(Language::SIMPLIFIED_CHINESE, "请求中有多个幂等键，请只保留一个。")),
    }
}

fn from_path(decoded: Cow<'_, str>, name: &str) -> Result<String, Rejection> {
    text_of(decoded.into_owned(), &format!("`{name}` in the path"), &format!("路径中的 `{name}`"))
}

/// Rejects a key that is not UTF-8: decoding replaces the invalid bytes, so that different keys would become the same.
fn text_of(decoded: String, what: &str, chinese: &str) -> Result<String, Rejection> {
    match decoded.contains(char::REPLACEMENT_CHARACTER) {
        true => Err(Rejection::new(Code::KeyMalformed)
            .detail(format!("The key, {what}, is not valid UTF-8 after decoding."))
            .detail_in(Language::SIMPLIFIED_CHINESE, format!("幂等键（{chinese}）解码后不是有效的 UTF-8。"))),
        false => Ok(decoded),
    }
}

/// Returns the only value with this name. Two values would be two keys.
fn one_of<'a, I>(pairs: I, name: &str) -> Result<Option<String>, Rejection>
where
    I: Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
{
    let mut values = pairs.filter(|(found, _)| found == name).map(|(_, value)| value.into_owned());
    match (values.next(), values.next()) {
        (Some(_), Some(_)) => Err(Rejection::new(Code::KeyMalformed)
            .detail(format!("The key, `{name}`, was sent twice. Send it once."))
            .detail_in(Language::SIMPLIFIED_CHINESE, format!("请求中有多个幂等键（`{name}`），请只保留一个。"))),
        (value, _) => {
            let what = format!("`{name}`");
            value.filter(|value| !value.is_empty()).map(|value| text_of(value, &what, &what)).transpose()
        }
    }
}

/// Rejects a body with a content encoding. The guard does not decode the body, and would find no key where the handler finds one.
fn reject_encoded(request: &impl RequestHead) -> Result<(), Rejection> {
    match request.header("content-encoding").all(|encoding| encoding.eq_ignore_ascii_case(b"identity")) {
        true => Ok(()),
        false => Err(Rejection::new(Code::UnsupportedMediaType)
            .detail("The key is in the body, which is not decoded. Send the body without a Content-Encoding.")
            .detail_in(
                Language::SIMPLIFIED_CHINESE,
                "幂等键在请求体中，但请求体不会被解码。请发送不带 Content-Encoding 的请求体。",
            )),
    }
}

fn from_body(request: &impl RequestHead, body: &[u8], pointer: &Pointer) -> Result<Option<String>, Rejection> {
    if is_form(request) {
        return match pointer.names() {
            [name] => one_of(form_urlencoded::parse(body), name),
            _ => Ok(None),
        };
    }
    let reject = |why: &str, chinese: &str| {
        let name = pointer.names().join("/");
        Err(Rejection::new(Code::KeyMalformed)
            .detail(format!("The key, `/{name}`, {why}."))
            .detail_in(Language::SIMPLIFIED_CHINESE, format!("幂等键（`/{name}`）{chinese}。")))
    };
    match json::field(body, pointer) {
        Some(Field::Absent) => Ok(None),
        Some(Field::Value(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
        Some(Field::Other) => reject("has to be a string or an integer", "必须是字符串或整数"),
        None if serde_json::from_slice::<IgnoredAny>(body).is_ok() => {
            reject("is in a JSON body that repeats a name", "所在的 JSON 请求体中有重复的字段名")
        }
        None => Ok(None),
    }
}

/// Returns whether the body is an urlencoded form.
fn is_form(request: &impl RequestHead) -> bool {
    let essence = content_type(request).and_then(|text| text.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

fn malformed(bad: &BadKey) -> Rejection {
    Rejection::new(Code::KeyMalformed).detail(format!("{bad}.")).detail_in(Language::SIMPLIFIED_CHINESE, bad.chinese())
}
