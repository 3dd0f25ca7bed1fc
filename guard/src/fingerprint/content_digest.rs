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
pub(super) struct ContentDigest {
    digest: Sha256,
    /// Most of it comes in small pieces, which are digested together.
    pieces: [u8; PIECES],
    length: usize,
}

/// Four blocks of the digest.
const PIECES: usize = 256;

impl ContentDigest {
    pub(super) fn new() -> Self {
        Self { digest: Sha256::new(), pieces: [0; PIECES], length: 0 }
    }

    pub(super) fn tag(&mut self, tag: Tag) {
        self.write(&[tag as u8]);
    }

    pub(super) fn count(&mut self, count: usize) {
        self.write(&(count as u64).to_be_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.write(bytes);
    }

    pub(super) fn finish(mut self) -> Fingerprint {
        self.flush();
        Fingerprint(self.digest.finalize().into())
    }

    fn write(&mut self, bytes: &[u8]) {
        if bytes.len() > PIECES - self.length {
            self.flush();
        }
        match self.pieces[self.length..].get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.digest.update(bytes),
        }
    }

    fn flush(&mut self) {
        self.digest.update(&self.pieces[..self.length]);
        self.length = 0;
    }
}
