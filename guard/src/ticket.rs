//! The name under which the store knows a token, a key or an interval.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// What a ticket is for. Each kind has its own names in the store, and its own share of a memory store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A token that we issued.
    Token,
    /// A key that the caller made.
    Key,
    /// An interval in which the same may not come twice.
    Interval,
    /// The signing secret that guards share.
    Secret,
}

impl Kind {
    /// Every kind there is.
    pub const ALL: [Self; 4] = [Self::Token, Self::Key, Self::Interval, Self::Secret];

    /// Its name in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Key => "key",
            Self::Interval => "interval",
            Self::Secret => "secret",
        }
    }
}

/// A digest: nothing a client sent can be read from it, and no client can choose it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    kind: Kind,
    digest: [u8; 32],
}

impl Ticket {
    /// A ticket of this kind for these bytes.
    pub fn of(kind: Kind, bytes: &[u8]) -> Self {
        Self { kind, digest: Sha256::digest(bytes).into() }
    }

    /// The ticket of a token: of its id alone.
    pub(crate) fn of_token(id: Uuid) -> Self {
        Self::of(Kind::Token, id.as_bytes())
    }

    /// The ticket of the signing secret.
    pub(crate) fn of_secret() -> Self {
        Self::of(Kind::Secret, b"signing")
    }

    /// What it is for.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The digest itself.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The key of a store that many may use: `<prefix>:<kind>:<digest>`.
    pub fn name(&self, prefix: &str) -> String {
        let mut name = format!("{prefix}:{}:", self.kind.as_str());
        URL_SAFE_NO_PAD.encode_string(self.digest, &mut name);
        name
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name("ticket"))
    }
}
