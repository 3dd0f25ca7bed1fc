//! What a route reads of its requests.

use std::sync::Arc;

use actix_web::dev::ServiceRequest;
use actix_web::http::header::{HeaderMap, HeaderName};
use onceward_api::{Code, header};

use super::asked::{ParsedRequest, action_of};
use super::key_from::KeyFrom;
use super::whole::{BufferedBody, too_large};
use crate::fingerprint::Fields;
use crate::intent::Subject;
use crate::policy::{Policy, TokenRules};
use crate::rejection::Rejection;

static LOOK: HeaderName = HeaderName::from_static(header::LOOK);

/// What a route reads.
#[derive(Debug, Clone)]
pub(super) struct RequestReader {
    pub(super) action: Option<Arc<str>>,
    /// Where the key stands; a route under a key has a place of its own for it.
    pub(super) key: Option<KeyFrom>,
    pub(super) is_optional: bool,
    pub(super) fields: Fields,
    pub(super) skips_large: bool,
    /// How much of a body is read.
    pub(super) limit: usize,
}

impl Default for RequestReader {
    fn default() -> Self {
        Self {
            action: None,
            key: None,
            is_optional: false,
            fields: Fields::all(),
            skips_large: false,
            limit: 256 * 1024,
        }
    }
}

impl RequestReader {
    /// What the request asks; `None` if it has no key and need not have one.
    pub(super) async fn read(
        &self,
        request: &mut ServiceRequest,
        policy: &Policy,
        subject: Subject<'static>,
    ) -> Result<Option<ParsedRequest>, Rejection> {
        let asked = ParsedRequest::new(self.action(request), subject, only_looks(request.headers())?);
        match policy {
            Policy::Token(TokenRules { remember: None, .. }) => asked.with_token(request, self.limit).await.map(Some),
            // Apart, so that a plain token does not carry room for it.
            _ => Box::pin(self.read_content(request, policy, asked)).await,
        }
    }

    async fn read_content(
        &self,
        request: &mut ServiceRequest,
        policy: &Policy,
        asked: ParsedRequest,
    ) -> Result<Option<ParsedRequest>, Rejection> {
        match (policy, &self.key) {
            (Policy::Token(_), _) => {
                let asked = asked.with_token(request, self.limit).await?;
                self.read_fingerprint(request, asked).await.map(Some)
            }
            (Policy::Interval(_), None) => self.read_fingerprint(request, asked).await.map(Some),
            // What goes by a name alone is not compared, and its body need not be read.
            (Policy::Interval(_), Some(from)) if !from.needs_body() => {
                match from.find(request.request(), &BufferedBody::unread())? {
                    Some(name) => Ok(Some(asked.with_key(name))),
                    None => self.without_key(asked.only_looks()),
                }
            }
            (Policy::Interval(_) | Policy::Key(_), Some(from)) => self.read_key(request, from, asked).await,
            (Policy::Key(_), None) => self.read_key(request, &KeyFrom::default(), asked).await,
        }
    }

    async fn read_key(
        &self,
        request: &mut ServiceRequest,
        from: &KeyFrom,
        asked: ParsedRequest,
    ) -> Result<Option<ParsedRequest>, Rejection> {
        let only_looks = asked.only_looks();
        // A key that is missing or malformed is told before the body is read, if it can be.
        let needs_body = from.needs_body();
        let early = if needs_body { None } else { from.find(request.request(), &BufferedBody::unread())? };
        if early.is_none() && !needs_body {
            return self.without_key(only_looks);
        }
        let whole = BufferedBody::read(request, self.limit).await?;
        if !whole.is_whole() && (needs_body || !(self.skips_large || only_looks)) {
            return Err(too_large(self.limit));
        }
        let key = if needs_body { from.find(request.request(), &whole)? } else { early };
        let Some(key) = key else { return self.without_key(only_looks) };
        let fingerprint = whole.fingerprint(request, &self.fields);
        let asked = asked.with_whole_body(whole.is_whole());
        Ok(Some(asked.with_key(key).with_fingerprint(Some(fingerprint))))
    }

    /// A body that is too large, and let through, is told from one that is not; from another such it is not.
    async fn read_fingerprint(
        &self,
        request: &mut ServiceRequest,
        asked: ParsedRequest,
    ) -> Result<ParsedRequest, Rejection> {
        let whole = BufferedBody::read(request, self.limit).await?;
        if !whole.is_whole() && !self.skips_large {
            return Err(too_large(self.limit));
        }
        Ok(asked.with_fingerprint(Some(whole.fingerprint(request, &self.fields))))
    }

    /// What the request is for: what the route says, or method and path.
    pub(super) fn action(&self, request: &ServiceRequest) -> String {
        match &self.action {
            Some(action) => action.as_ref().to_owned(),
            None => action_of(request.method().as_str(), request.uri().path()),
        }
    }

    /// Whoever only looks has nothing run, not even unprotected.
    fn without_key(&self, only_looks: bool) -> Result<Option<ParsedRequest>, Rejection> {
        if self.is_optional && !only_looks { Ok(None) } else { Err(Code::KeyMissing.into()) }
    }
}

/// Whether a request only asks what is on record: `Onceward-Look: true` does.
///
/// # Errors
/// If the header is neither `true` nor `false`, or both. A client that sends it wants to control whether the handler runs, so a
/// value that cannot be read is refused: it neither looks nor runs.
fn only_looks(headers: &HeaderMap) -> Result<bool, Rejection> {
    let mut said = None;
    for value in headers.get_all(&LOOK) {
        let looks = match value.as_bytes() {
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
        .detail("`Onceward-Look` has to be `true` or `false`. Nothing was looked up, and nothing ran.")
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    #[test]
    fn look_header_is_true_or_false_and_nothing_else() {
        let looks = |values: &[&'static [u8]]| {
            let mut headers = HeaderMap::new();
            values.iter().for_each(|value| headers.append(LOOK.clone(), HeaderValue::from_bytes(value).unwrap()));
            only_looks(&headers).map_err(|rejection| rejection.code())
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
