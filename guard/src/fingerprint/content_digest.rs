//! The input of a digest, encoded without ambiguity.

use sha2::{Digest as _, Sha256};

use super::Fingerprint;

/// The kind of data that follows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tag {
    /// Nothing: the data is absent.
    Absent,
    /// Bytes as they were sent.
    Raw,
    /// The canonical form of data that has several spellings.
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

/// Digests content. Data of variable length follows its length, and every alternative follows its tag, so that two different contents are
/// never the same bytes.
pub(super) struct ContentDigest {
    digest: Sha256,
    /// A buffer: most writes are small, and are digested together.
    pieces: [u8; PIECES],
    length: usize,
}

/// Size of the buffer: four blocks of SHA-256.
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
