//! One try at redeeming, named by a caller we trust: the same try asked twice is accepted twice.
//!
//! A gateway or a backend may ask twice for one request, because it lost the answer or because it is built that way. With
//! a name for the try, the second question finds its own mark on the token and gets the first answer again.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::digest;

/// The most characters of an attempt.
const LONGEST: usize = 255;

/// The name of one try, which fits into a log and into a header. Whoever knows it may release what it has redeemed, so
/// it does not show itself.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Attempt(String);

impl Attempt {
    /// A try of this name.
    ///
    /// # Errors
    /// Unless it is 1 to 255 visible ASCII characters.
    pub fn new(text: impl Into<String>) -> Result<Self, BadAttempt> {
        let text = text.into();
        let is_name = (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_name { Ok(Self(text)) } else { Err(BadAttempt) }
    }

    /// What a claim says of it under a key. With other content it is another attempt.
    pub(crate) fn under(&self, ticket: &[u8; 32], fingerprint: Option<[u8; 16]>) -> [u8; 16] {
        let fingerprint = fingerprint.as_ref().map_or(&[][..], |fingerprint| &fingerprint[..]);
        digest::half(digest::of([&ticket[..], fingerprint, self.0.as_bytes()]))
    }

    /// What the store records of it: the name itself is the caller's.
    pub(crate) fn digest(&self) -> [u8; 16] {
        digest::half(Sha256::digest(self.0.as_bytes()).into())
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attempt(…)")
    }
}

/// What is wrong with an attempt. It says what is allowed, and never what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an attempt has 1 to {LONGEST} visible ASCII characters")]
pub struct BadAttempt;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_one_to_255_visible_ascii_characters_and_does_not_show_itself() {
        for good in ["4711", "!", "~", "a/b?c#d", &"a".repeat(255)] {
            assert_eq!(format!("{:?}", Attempt::new(good)), "Ok(Attempt(…))", "{good}");
        }
        for bad in ["", " ", "a b", "a\nb", "a\n", "\u{7f}", "é", "a\u{0}", &"a".repeat(256)] {
            assert_eq!(Attempt::new(bad), Err(BadAttempt), "{bad:?}");
        }
    }
}
