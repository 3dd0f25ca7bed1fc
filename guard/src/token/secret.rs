//! The secret that tokens are signed with.

use std::fmt;

use crate::random::random;

/// At least 16 bytes that only the guards of one application know.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// The shortest secret that is accepted.
    pub const SHORTEST: usize = 16;

    /// How long a secret is that guards make for themselves.
    pub(crate) const SHARED: usize = 32;

    /// Takes a secret as it stands.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, WeakSecret> {
        let bytes = bytes.as_ref();
        if bytes.len() < Self::SHORTEST { Err(WeakSecret { length: bytes.len() }) } else { Ok(Self(bytes.into())) }
    }

    /// Makes one that nobody can guess.
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

/// A secret that is too short to be one.
#[derive(Debug, thiserror::Error)]
#[error(
    "the secret has {length} bytes and needs at least {}; `openssl rand -base64 32` makes a good one",
    Secret::SHORTEST
)]
pub struct WeakSecret {
    length: usize,
}
