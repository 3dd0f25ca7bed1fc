//! What is digested, written so that it can be read in one way only.

use sha2::{Digest as _, Sha256};

use super::Fingerprint;

/// What kind of thing follows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tag {
    /// Nothing: it is not there.
    Absent,
    /// Bytes as they were sent.
    Raw,
    /// The one way of writing what may be sent in several.
    Canonical,
    /// The fields of a query or a form.
    Pairs,
    /// The parts of a multipart form.
    Multipart,
    /// A JSON document.
    Json,
    /// A number, true, false or null.
    Literal,
    /// A string.
    Text,
    /// An array.
    List,
    /// An object.
    Object,
}

/// Digests what it is given. Everything of variable length stands behind its length and every choice behind its tag,
/// so two different contents are never the same bytes.
pub(super) struct Writer(Sha256);

impl Writer {
    pub(super) fn new() -> Self {
        Self(Sha256::new())
    }

    pub(super) fn tag(&mut self, tag: Tag) {
        self.0.update([tag as u8]);
    }

    pub(super) fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_be_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> Fingerprint {
        Fingerprint(self.0.finalize().into())
    }
}
