//! A one-time token, as a header value.

use std::fmt;

use bytes::Bytes;
use reqwest::header::HeaderValue;

/// Maximum number of characters in a token.
const MAX_LENGTH: usize = 1024;

/// A token. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(HeaderValue);

impl Token {
    /// Parses a token. Returns `None` if it is not a valid header value.
    pub(crate) fn new(text: Bytes) -> Option<Self> {
        let fits = (1..=MAX_LENGTH).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
        let mut value = HeaderValue::from_maybe_shared(text).ok().filter(|_| fits)?;
        value.set_sensitive(true);
        Some(Self(value))
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_unfit_for_a_header_is_rejected() {
        for wrong in ["", "a b", "a\r\nx: y", "é", &"x".repeat(1025)] {
            assert!(Token::new(Bytes::copy_from_slice(wrong.as_bytes())).is_none(), "{wrong}");
        }
        let token = Token::new(Bytes::from_static(b"ow1_secret")).unwrap();
        assert!(!format!("{token:?} {:?}", token.header()).contains("secret"));
    }
}
