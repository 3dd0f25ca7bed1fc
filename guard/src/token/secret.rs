//! The secret that signs tokens and passes.

use std::{fmt, io};

use crate::random::random;

/// A signing secret: at least 16 bytes that only the guards of one application know.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Minimum length of a secret, in bytes.
    pub const SHORTEST: usize = 16;

    /// Length of a generated secret, in bytes.
    pub(crate) const SHARED: usize = 32;

    /// Creates a secret from these bytes, which are used as they are.
    ///
    /// # Errors
    /// If the secret is shorter than [`SHORTEST`](Self::SHORTEST).
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, WeakSecret> {
        let bytes = bytes.as_ref();
        if bytes.len() < Self::SHORTEST { Err(WeakSecret { length: bytes.len() }) } else { Ok(Self(bytes.into())) }
    }

    /// Generates a random secret.
    pub fn random() -> Self {
        Self(Box::new(random::<{ Self::SHARED }>()))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The error for a secret that is too short.
#[derive(Debug, thiserror::Error)]
#[error(
    "the secret has {length} bytes and needs at least {}; create one with `openssl rand -base64 32`",
    Secret::SHORTEST
)]
pub struct WeakSecret {
    length: usize,
}

/// For a `main` that returns [`io::Result`].
impl From<WeakSecret> for io::Error {
    fn from(error: WeakSecret) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}
