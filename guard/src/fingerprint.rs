//! What a request says, as a digest: two requests with one key either say the same or they do not.
//!
//! The same is what a careful client may send when it tries again: members of a JSON object in another order, another
//! boundary between the parts of a form. Everything else is different, down to `1` and `1.0`. Whatever cannot be read
//! as what its content type says counts byte by byte, which never takes two different bodies for the same.

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

/// A digest of what a request says.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of any bytes, for whoever is not asked over HTTP: a message, the arguments of a function.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// What the store gets to see of it. Who reads the store but does not know the key cannot try bodies against it,
    /// although most bodies are easy to guess. Nor does it show that two callers have sent the same.
    pub(crate) fn keyed(&self, key: &[u8], ticket: &[u8; 32]) -> [u8; 16] {
        // What follows the key has one length, and half of the digest is left out, so nobody can go on from one to another.
        digest::half(Sha256::new().chain_update(key).chain_update(ticket).chain_update(self.0).finalize().into())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "Fingerprint({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

/// What a request says.
#[derive(Clone, Copy)]
pub struct Content<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The path, as sent: percent-encoded, without the query. All spellings of one path are the same.
    pub path: &'a str,
    /// The query, as sent, without the question mark; empty if there is none.
    pub query: &'a str,
    /// The content type, as sent.
    pub content_type: Option<&'a str>,
    /// The whole body.
    pub body: &'a [u8],
}

impl Content<'_> {
    /// The digest of all that counts. Method, path, query and content type always do; `fields` says what counts of a
    /// body that has fields. The field that carries a token, in the query or in a form, never counts.
    pub fn fingerprint(&self, fields: &Fields) -> Fingerprint {
        let media_type = self.content_type.and_then(|text| HeaderValue::parse(text.as_bytes()));
        let mut to = self.write_head(media_type.as_ref());
        if self.write_fields(media_type.as_ref(), fields, &mut to).is_none() {
            to.tag(Tag::Raw);
            to.bytes(self.body);
        }
        to.finish()
    }

    /// The same of all but the body, which is not there as a whole.
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
                // Each try has a boundary of its own. In other types it would be an ordinary parameter.
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

    /// Writes the body by its fields; if it has none, or cannot be read as what it is said to be, writes nothing and
    /// returns `None`.
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
