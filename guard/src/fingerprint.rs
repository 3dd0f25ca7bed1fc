//! Fingerprints: digests that show whether two requests with the same key have the same content.
//!
//! Two requests have the same content if they differ only in details that a client may change in a retry, such as the order of the members
//! of a JSON object, the spelling of a JSON number (`1`, `1.0` and `1e0`), or the boundary of a multipart form. Every other difference
//! counts. A body that cannot be parsed as its content type is compared byte by byte, which never equates two different bodies.

mod content_digest;
pub(crate) mod fields;
pub(crate) mod header_value;
pub(crate) mod json;
mod multimap;
mod multipart;
mod urlencoded;

use std::fmt;

use onceward_api::path::canonical;
use sha2::{Digest as _, Sha256};

use self::content_digest::{ContentDigest, Tag};
pub use self::fields::{BadPointer, Fields};
use self::header_value::HeaderValue;
use crate::digest;

/// A digest of the content of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of any bytes, for intents outside of HTTP: a message, the arguments of a function.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the fingerprint of this content together with these bytes.
    pub(crate) fn with(&self, bytes: &[u8]) -> Self {
        // The digest of the content has a fixed length, so the input is unambiguous.
        Self(Sha256::new().chain_update(self.0).chain_update(bytes).finalize().into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the digest that the store holds. Most bodies are easy to guess, but without the key a reader of the store cannot test a
    /// guess against the digest. The digest also does not show that two clients sent the same content.
    pub(crate) fn keyed(&self, key: &[u8], ticket: &[u8; 32]) -> [u8; 16] {
        // The input after the key has a fixed length and the digest is truncated, so a length extension attack is not possible.
        digest::half(Sha256::new().chain_update(key).chain_update(ticket).chain_update(self.0).finalize().into())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "Fingerprint({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

/// The content of a request.
#[derive(Clone, Copy)]
pub struct Content<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The path, as sent: percent-encoded, without the query. All spellings of one path have the same fingerprint.
    pub path: &'a str,
    /// The query, as sent, without the question mark; empty if there is none.
    pub query: &'a str,
    /// The content type, as sent.
    pub content_type: Option<&'a str>,
    /// The whole body.
    pub body: &'a [u8],
}

impl Content<'_> {
    /// Returns the fingerprint. It always includes the method, path, query and content type; `fields` selects what it includes of a body
    /// that has fields. The field that carries a token, in the query or in a form, is never included.
    pub fn fingerprint(&self, fields: &Fields) -> Fingerprint {
        let media_type = self.content_type.and_then(|text| HeaderValue::parse(text.as_bytes()));
        let mut to = self.write_head(media_type.as_ref());
        if fields.is_raw || self.write_fields(media_type.as_ref(), fields, &mut to).is_none() {
            to.tag(Tag::Raw);
            to.bytes(self.body);
        }
        to.finish()
    }

    /// Returns the fingerprint of everything except the body, when the whole body is not available.
    pub(crate) fn fingerprint_of_head(&self) -> Fingerprint {
        let media_type = self.content_type.and_then(|text| HeaderValue::parse(text.as_bytes()));
        let mut to = self.write_head(media_type.as_ref());
        to.tag(Tag::Absent);
        to.finish()
    }

    fn write_head(&self, media_type: Option<&HeaderValue<'_>>) -> ContentDigest {
        let mut to = ContentDigest::new();
        to.bytes(self.method.as_bytes());
        to.bytes(canonical(self.path).as_bytes());
        urlencoded::write(self.query.as_bytes(), &Fields::all(), &mut to);
        self.write_content_type(media_type, &mut to);
        to
    }

    fn write_content_type(&self, media_type: Option<&HeaderValue<'_>>, to: &mut ContentDigest) {
        match (media_type, self.content_type) {
            (Some(media_type), _) => {
                to.tag(Tag::Canonical);
                // Each retry has its own boundary. In other content types, `boundary` is an ordinary parameter.
                let left_out = if media_type.value().starts_with(b"multipart/") { "boundary" } else { "" };
                media_type.write_without(left_out, to);
            }
            (None, Some(text)) => {
                to.tag(Tag::Raw);
                to.bytes(text.as_bytes());
            }
            (None, None) => to.tag(Tag::Absent),
        }
    }

    /// Writes the selected fields of the body. Writes nothing and returns `None` if the body has no fields, or cannot be parsed as its
    /// content type.
    fn write_fields(
        &self,
        media_type: Option<&HeaderValue<'_>>,
        fields: &Fields,
        to: &mut ContentDigest,
    ) -> Option<()> {
        let media_type = media_type?;
        match media_type.value() {
            b"application/x-www-form-urlencoded" => urlencoded::write(self.body, fields, to),
            b"multipart/form-data" => multipart::write(self.body, media_type.parameter("boundary")?, fields, to)?,
            json if json == b"application/json" || json.ends_with(b"+json") => json::write(self.body, fields, to)?,
            _ => return None,
        }
        Some(())
    }
}

impl fmt::Debug for Content<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").field("method", &self.method).field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
