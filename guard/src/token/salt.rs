//! The salt of interval names. It is in the store and not in the settings, so that processes that sign with different secrets, as during a
//! rotation, still compute the same names.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::digest;
use crate::random::random;
use crate::subject::Subject;

/// Length in bytes.
const LENGTH: usize = 32;

/// The key of the digest that names an interval by its content. An attacker who sees the name in a log cannot recover the content by
/// guessing; an attacker who reads the store can.
#[derive(Clone)]
pub(crate) struct Salt {
    bytes: [u8; LENGTH],
    key: Hmac<Sha256>,
}

impl Salt {
    /// Generates a random salt.
    pub(crate) fn random() -> Self {
        Self::keyed(random())
    }

    /// Reads a salt as the store holds it, or returns `None` if it has the wrong length.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::keyed)
    }

    fn keyed(bytes: [u8; LENGTH]) -> Self {
        Self { bytes, key: Hmac::new_from_slice(&bytes).expect("HMAC takes a key of any length") }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the keyed digest of action, subject and content.
    pub(crate) fn interval(&self, action: &str, subject: &Subject<'_>, what: &[u8]) -> [u8; 32] {
        let mut mac = self.key.clone();
        digest::feed(&mut mac, [&b"interval"[..], action.as_bytes(), &subject.to_bytes(), what]);
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_name_depends_on_each_field_and_salt() {
        let (salt, other) = (Salt::random(), Salt::random());
        let alice = Subject::named("alice");
        let own = salt.interval("pay", &alice, b"10");
        assert_eq!(Salt::new(salt.as_bytes()).unwrap().interval("pay", &alice, b"10"), own);
        for another in [
            other.interval("pay", &alice, b"10"),
            salt.interval("pa", &alice, b"10"),
            salt.interval("pay", &Subject::named("bob"), b"10"),
            salt.interval("pay", &alice, b"1"),
            salt.interval("paya", &Subject::named("lice"), b"10"),
        ] {
            assert_ne!(another, own);
        }
        assert!(Salt::new(&[0; LENGTH - 1]).is_none() && Salt::new(&[0; LENGTH + 1]).is_none());
    }
}
