//! Parsing of a request's head and body into its intent.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use onceward_api::path::{canonical, canonical_action};
use onceward_api::{Code, header};

use super::body::{BufferedBody, RequestBody, too_large};
use super::key_source::KeySource;
use super::token_source::{UnparsedForm, find_token};
use crate::fingerprint::{Fields, Fingerprint};
use crate::intent::Intent;
use crate::key::Key;
use crate::language::Language;
use crate::policy::{Policy, TokenRules};
use crate::rejection::Rejection;
use crate::subject::Subject;
use crate::token::Credential;

/// The head of a request. Each adapter implements it for the requests of its framework, so that no header is copied.
pub trait RequestHead {
    /// Returns the method, such as `POST`.
    fn method(&self) -> &str;

    /// Returns the path as it was sent, percent-encoded.
    fn path(&self) -> &str;

    /// Returns the query without its question mark; empty if there is none.
    fn query(&self) -> &str;

    /// Returns the values of a header, in order. `name` is in lower case.
    fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]>;

    /// Returns a path parameter by its name in the route, decoded as the handler sees it, with U+FFFD for bytes that are not UTF-8.
    fn path_parameter(&self, name: &str) -> Option<Cow<'_, str>>;

    /// Returns the address of the client at the other end of the connection, if it is known.
    fn client_address(&self) -> Option<IpAddr> {
        None
    }
}

/// Returns the action of a route without a name: the method and the [canonical path](canonical), as in `POST /orders`.
pub fn action_of(method: &str, path: &str) -> String {
    [method, " ", &canonical(path)].concat()
}

/// Returns the content type, if it is visible ASCII.
pub(super) fn content_type(request: &impl RequestHead) -> Option<&str> {
    request.header("content-type").next().and_then(visible)
}

/// Returns the length of the body, if the request states it.
pub(super) fn content_length(request: &impl RequestHead) -> Option<u64> {
    request.header("content-length").next().and_then(visible)?.parse().ok()
}

/// Returns a header value as text, if it is visible ASCII.
pub(super) fn visible(value: &[u8]) -> Option<&str> {
    // Without an early exit, so that the compiler checks many bytes at once.
    let is_visible = value.iter().fold(true, |so_far, byte| so_far & matches!(byte, b' '..=b'~' | b'\t'));
    is_visible.then(|| std::str::from_utf8(value).ok()).flatten()
}

/// A parsed request.
pub(crate) struct ParsedRequest {
    action: String,
    subject: Subject<'static>,
    token: Credential,
    key: Option<Key>,
    fingerprint: Option<Fingerprint>,
    has_whole_body: bool,
    only_looks: bool,
}

impl ParsedRequest {
    /// Creates a request without token, key and fingerprint. `only_looks` means that the handler must not run.
    fn new(action: String, subject: Subject<'static>, only_looks: bool) -> Self {
        Self {
            action,
            subject,
            token: Credential::Missing,
            key: None,
            fingerprint: None,
            has_whole_body: false,
            only_looks,
        }
    }

    /// Returns whether the body was read to its end before the handler was called, so that no extractor can find it incomplete.
    pub(crate) fn has_whole_body(&self) -> bool {
        self.has_whole_body
    }

    pub(crate) fn action(&self) -> &str {
        &self.action
    }

    /// Returns whether the request only queries the record, and the handler must not run.
    pub(crate) fn only_looks(&self) -> bool {
        self.only_looks
    }

    pub(crate) fn subject(&self) -> &Subject<'static> {
        &self.subject
    }

    pub(crate) fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }

    pub(crate) fn intent(&self) -> Intent<'_> {
        Intent {
            credential: self.token,
            key: self.key.as_ref(),
            fingerprint: self.fingerprint,
            ..Intent::of_canonical(self.action.as_str(), self.subject.borrowed())
        }
    }
}

/// A function of the application that returns bytes to include in a fingerprint.
type FingerprintPart<R> = Arc<dyn Fn(&R) -> Option<Vec<u8>> + Send + Sync>;

/// The rules by which a route parses its requests.
pub(crate) struct RequestReader<R> {
    pub(crate) action: Option<Arc<str>>,
    /// The source of the key; a route with a key policy has a default.
    pub(crate) key: Option<KeySource<R>>,
    pub(crate) is_optional: bool,
    pub(crate) fields: Fields,
    pub(crate) fingerprint_with: Option<FingerprintPart<R>>,
    pub(crate) skips_large: bool,
    /// True if every body is read to its end before the handler is called.
    pub(crate) needs_whole_body: bool,
    /// Maximum number of bytes that are read of a body.
    pub(crate) limit: usize,
}

impl<R> Default for RequestReader<R> {
    fn default() -> Self {
        Self {
            action: None,
            key: None,
            is_optional: false,
            fields: Fields::all(),
            fingerprint_with: None,
            skips_large: false,
            needs_whole_body: false,
            limit: 256 * 1024,
        }
    }
}

impl<R> Clone for RequestReader<R> {
    fn clone(&self) -> Self {
        Self {
            action: self.action.clone(),
            key: self.key.clone(),
            fields: self.fields.clone(),
            fingerprint_with: self.fingerprint_with.clone(),
            ..*self
        }
    }
}

impl<R> fmt::Debug for RequestReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestReader")
            .field("action", &self.action)
            .field("key", &self.key)
            .field("is_optional", &self.is_optional)
            .field("fields", &self.fields)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl<R: RequestHead> RequestReader<R> {
    /// Parses the request; `None` if it has no token or key, and that is optional. The body is put back for the handler.
    pub(crate) async fn read<B: RequestBody>(
        &self,
        request: &R,
        body: &mut B,
        policy: &Policy,
        subject: Subject<'static>,
    ) -> Result<Option<ParsedRequest>, Rejection> {
        let mut asked = ParsedRequest::new(self.action(request), subject, only_looks(request)?);
        let asked = match policy {
            Policy::Token(TokenRules { remember: None, .. }) => {
                asked.token = self.find_token(request, body).await?;
                Some(asked).filter(|asked| !self.lets_pass(asked))
            }
            // Boxed separately, so that the future of a plain token stays small.
            _ => Box::pin(self.read_content(request, body, policy, asked)).await?,
        };
        match asked {
            Some(asked) if self.needs_whole_body && !asked.only_looks => {
                Box::pin(self.read_whole(request, body, asked)).await.map(Some)
            }
            asked => Ok(asked),
        }
    }

    /// Reads the rest of the body.
    async fn read_whole<B: RequestBody>(
        &self,
        request: &R,
        body: &mut B,
        asked: ParsedRequest,
    ) -> Result<ParsedRequest, Rejection> {
        self.check_length(request)?;
        if !BufferedBody::read(body, self.limit).await?.is_whole() {
            return Err(too_large(self.limit));
        }
        Ok(ParsedRequest { has_whole_body: true, ..asked })
    }

    /// Rejects a body that has to be read to its end, and is over the limit by its `Content-Length`.
    fn check_length(&self, request: &R) -> Result<(), Rejection> {
        let is_over = |length: u64| length > self.limit as u64;
        match self.needs_whole_body && content_length(request).is_some_and(is_over) {
            true => Err(too_large(self.limit)),
            false => Ok(()),
        }
    }

    async fn read_content<B: RequestBody>(
        &self,
        request: &R,
        body: &mut B,
        policy: &Policy,
        mut asked: ParsedRequest,
    ) -> Result<Option<ParsedRequest>, Rejection> {
        match (policy, &self.key) {
            (Policy::Token(_), _) => {
                asked.token = self.find_token(request, body).await?;
                if self.lets_pass(&asked) {
                    return Ok(None);
                }
                if !self.compares(&asked) {
                    return Ok(Some(asked));
                }
                self.read_fingerprint(request, body, asked, self.skips_large).await.map(Some)
            }
            (Policy::Interval(_), None) => {
                // All bodies over the limit would be one request, and receive the response to the first.
                let skips_large = self.skips_large && !policy.keeps_replies();
                self.read_fingerprint(request, body, asked, skips_large).await.map(Some)
            }
            // A named interval that stores no replies does not compare content, so the body need not be read.
            (Policy::Interval(_), Some(from)) if !from.needs_body() && !policy.keeps_replies() => {
                match from.find(request, &BufferedBody::unread())? {
                    Some(name) => Ok(Some(ParsedRequest { key: Some(name), ..asked })),
                    None => self.without_key(asked.only_looks),
                }
            }
            (Policy::Interval(_) | Policy::Key(_), Some(from)) => self.read_key(request, body, from, asked).await,
            (Policy::Key(_), None) => self.read_key(request, body, &KeySource::default(), asked).await,
        }
    }

    async fn read_key<B: RequestBody>(
        &self,
        request: &R,
        body: &mut B,
        from: &KeySource<R>,
        asked: ParsedRequest,
    ) -> Result<Option<ParsedRequest>, Rejection> {
        // A missing or malformed key is rejected before the body is read, if possible.
        let needs_body = from.needs_body();
        let early = if needs_body { None } else { from.find(request, &BufferedBody::unread())? };
        if early.is_none() && !needs_body {
            return self.without_key(asked.only_looks);
        }
        self.check_length(request)?;
        let body = BufferedBody::read(body, self.limit).await?;
        if !body.is_whole() && (needs_body || !(self.skips_large || asked.only_looks)) {
            return Err(too_large(self.limit));
        }
        let key = if needs_body { from.find(request, &body)? } else { early };
        let Some(key) = key else { return self.without_key(asked.only_looks) };
        let fingerprint = self.compares(&asked).then(|| self.fingerprint(request, &body));
        Ok(Some(ParsedRequest { key: Some(key), fingerprint, has_whole_body: body.is_whole(), ..asked }))
    }

    /// Reads the content and computes its fingerprint. All bodies over the limit that are let through (`skips_large`) count as equal, and
    /// differ from every body within the limit.
    async fn read_fingerprint<B: RequestBody>(
        &self,
        request: &R,
        body: &mut B,
        asked: ParsedRequest,
        skips_large: bool,
    ) -> Result<ParsedRequest, Rejection> {
        self.check_length(request)?;
        let body = BufferedBody::read(body, self.limit).await?;
        if !body.is_whole() && !skips_large {
            return Err(too_large(self.limit));
        }
        Ok(ParsedRequest { fingerprint: Some(self.fingerprint(request, &body)), ..asked })
    }

    /// Returns whether the content of the request is compared with that of the first one. A lookup does not have to repeat the content,
    /// unless the application says what else the content consists of: that may be who the client is.
    fn compares(&self, asked: &ParsedRequest) -> bool {
        !asked.only_looks || self.fingerprint_with.is_some()
    }

    fn fingerprint(&self, request: &R, body: &BufferedBody) -> Fingerprint {
        let content = body.fingerprint(request, &self.fields);
        match self.fingerprint_with.as_ref().and_then(|bytes| bytes(request)) {
            Some(bytes) => content.with(&bytes),
            None => content,
        }
    }

    /// Finds the token. If it is optional, a form that cannot be parsed has none.
    async fn find_token<B: RequestBody>(&self, request: &R, body: &mut B) -> Result<Credential, Rejection> {
        let unparsed = if self.is_optional { UnparsedForm::HasNoToken } else { UnparsedForm::Rejected };
        find_token(request, body, self.limit, unparsed).await
    }

    /// Returns whether a request runs without a token. A request that only looks never runs, not even unprotected.
    fn lets_pass(&self, asked: &ParsedRequest) -> bool {
        self.is_optional && !asked.only_looks && asked.token == Credential::Missing
    }

    /// Returns the action of the request: the one that the route names, or method and path. It is canonical.
    pub(crate) fn action(&self, request: &R) -> String {
        match &self.action {
            Some(action) => canonical_action(action).into_owned(),
            None => action_of(request.method(), request.path()),
        }
    }

    /// Decides about a request without a key. A request that only looks never runs, not even unprotected.
    fn without_key(&self, only_looks: bool) -> Result<Option<ParsedRequest>, Rejection> {
        if self.is_optional && !only_looks { Ok(None) } else { Err(Code::KeyMissing.into()) }
    }
}

/// Returns whether a request only queries the record: `Onceward-Look: true`.
///
/// # Errors
/// If the header is neither `true` nor `false`, or both. A client that sends it wants to control whether the handler runs, so an
/// invalid value is rejected: the request neither looks nor runs.
fn only_looks(request: &impl RequestHead) -> Result<bool, Rejection> {
    let mut said = None;
    for value in request.header(header::LOOK) {
        let looks = match value {
            b"true" => true,
            b"false" => false,
            _ => return Err(unreadable()),
        };
        if said.is_some_and(|other| other != looks) {
            return Err(unreadable());
        }
        said = Some(looks);
    }
    Ok(said.unwrap_or(false))
}

fn unreadable() -> Rejection {
    Rejection::new(Code::BadRequest)
        .detail("`Onceward-Look` has to be `true` or `false`. Nothing was looked up, and the handler did not run.")
        .detail_in(
            Language::SIMPLIFIED_CHINESE,
            "`Onceward-Look` 必须是 `true` 或 `false`。没有进行查询，处理函数也没有执行。",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request with these headers and nothing else.
    struct Headers<'h>(&'h [(&'h str, &'h [u8])]);

    impl RequestHead for Headers<'_> {
        fn method(&self) -> &str {
            "POST"
        }

        fn path(&self) -> &str {
            "/%6frders"
        }

        fn query(&self) -> &str {
            ""
        }

        fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
            self.0.iter().filter(move |(other, _)| *other == name).map(|(_, value)| *value)
        }

        fn path_parameter(&self, _: &str) -> Option<Cow<'_, str>> {
            None
        }
    }

    #[test]
    fn action_without_a_name_is_method_and_canonical_path() {
        assert_eq!(RequestReader::default().action(&Headers(&[])), "POST /orders");
        let named = RequestReader { action: Some("order".into()), ..RequestReader::default() };
        assert_eq!(named.action(&Headers(&[])), "order");
    }

    #[test]
    fn content_type_is_the_first_one_if_it_is_text() {
        assert_eq!(content_type(&Headers(&[])), None);
        assert_eq!(content_type(&Headers(&[("content-type", b"a/b"), ("content-type", b"c/d")])), Some("a/b"));
        assert_eq!(content_type(&Headers(&[("content-type", "é/b".as_bytes())])), None);
    }

    #[test]
    fn look_header_is_true_or_false_only() {
        let looks = |values: &[&'static [u8]]| {
            let headers: Vec<_> = values.iter().map(|value| (header::LOOK, *value)).collect();
            only_looks(&Headers(&headers)).map_err(|rejection| rejection.code())
        };
        assert_eq!(looks(&[]), Ok(false));
        assert_eq!((looks(&[b"true"]), looks(&[b"true", b"true"])), (Ok(true), Ok(true)));
        assert_eq!((looks(&[b"false"]), looks(&[b"false", b"false"])), (Ok(false), Ok(false)));
        for values in [
            &[&b""[..]][..],
            &[b"True"],
            &[b"1"],
            &[b"0"],
            &[b"no"],
            &[b"?0"],
            &[b"maybe"],
            &[b"true, true"],
            &[b"\xff"],
            &[b"true", b"false"],
            &[b"false", b"true"],
            &[b"false", b""],
        ] {
            assert_eq!(looks(values), Err(Code::BadRequest), "{values:?}");
        }
    }
}
