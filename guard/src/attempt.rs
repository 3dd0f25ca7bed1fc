//! Attempts: one try at redeeming a token or claiming a key, named by a trusted caller. A retry of the same attempt is accepted again.
//!
//! A gateway or a backend may check one request twice: because it lost the response, or by design. With an attempt, the second check finds
//! the record of the first and receives the same verdict.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::digest;

/// Maximum number of characters in an attempt.
const LONGEST: usize = 255;

/// The name of one try at redeeming a token or claiming a key.
///
/// It is short enough for a log or a header. A caller that knows the attempt may release the token that it redeemed, so `Debug` does not
/// reveal the name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Attempt(String);

impl Attempt {
    /// Creates an attempt with this name.
    ///
    /// # Errors
    /// If the name does not have 1 to 255 visible ASCII characters.
    pub fn new(text: impl Into<String>) -> Result<Self, BadAttempt> {
        let text = text.into();
        let is_name = (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_name { Ok(Self(text)) } else { Err(BadAttempt) }
    }

    /// Returns the digest that a claim holds. A request with other content is another attempt.
    pub(crate) fn under(&self, ticket: &[u8; 32], fingerprint: Option<[u8; 16]>) -> [u8; 16] {
        let fingerprint = fingerprint.as_ref().map_or(&[][..], |fingerprint| &fingerprint[..]);
        digest::half(digest::of([&ticket[..], fingerprint, self.0.as_bytes()]))
    }

    /// Returns the digest that the store holds, which does not reveal the name.
    pub(crate) fn digest(&self) -> [u8; 16] {
        digest::half(Sha256::digest(self.0.as_bytes()).into())
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attempt(…)")
    }
}

/// The error for an invalid attempt. It states what is allowed, and never what the caller sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an attempt has 1 to {LONGEST} visible ASCII characters")]
pub struct BadAttempt;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempt_has_1_to_255_visible_characters_and_hides_from_debug() {
        for good in ["4711", "!", "~", "a/b?c#d", &"a".repeat(255)] {
            assert_eq!(format!("{:?}", Attempt::new(good)), "Ok(Attempt(…))", "{good}");
        }
        for bad in ["", " ", "a b", "a\nb", "a\n", "\u{7f}", "é", "a\u{0}", &"a".repeat(256)] {
            assert_eq!(Attempt::new(bad), Err(BadAttempt), "{bad:?}");
        }
    }
}
