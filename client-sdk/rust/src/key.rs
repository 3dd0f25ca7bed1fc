//! An idempotency key: the client's identifier of one submission, the same in every attempt.

mod generate;

use std::fmt;
use std::str::FromStr;

use reqwest::header::HeaderValue;

pub use self::generate::{generate_key, generate_ordered_key};

/// Maximum number of characters in a key.
const LONGEST: usize = 255;

/// An idempotency key. Only [`as_str`](Self::as_str) shows it; `Debug` does not.
///
/// ```
/// use onceward_client::Key;
///
/// let key: Key = "order-4711".parse()?;
/// assert_eq!(key.as_str(), "order-4711");
/// assert_eq!(format!("{key:?}"), "Key(…)");
/// # Ok::<(), onceward_client::BadKey>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(String);

impl Key {
    /// Creates a key from text such as an order number.
    ///
    /// # Errors
    /// If the text is not 1 to 255 characters of visible ASCII.
    pub fn new(text: impl Into<String>) -> Result<Self, BadKey> {
        let text = text.into();
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadKey::Invisible);
        }
        if (1..=LONGEST).contains(&text.len()) { Ok(Self(text)) } else { Err(BadKey::Length) }
    }

    /// The text of the key, for example to save it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses a key from a header value, quoted or bare.
    ///
    /// # Errors
    /// If the value is not a valid key.
    #[cfg(feature = "middleware")]
    pub(crate) fn from_header(value: &HeaderValue) -> Result<Self, BadKey> {
        let text = value.to_str().map_err(|_| BadKey::Invisible)?.trim();
        match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            Some(quoted) => Self::new(unquoted(quoted)),
            None => Self::new(text),
        }
    }

    /// The header value: bare, as most servers expect it, or quoted if the key contains a separator.
    pub(crate) fn header(&self) -> Result<HeaderValue, BadKey> {
        let is_bare = !self.0.contains(['"', ',', ';']);
        let text = if is_bare { self.0.clone() } else { quoted(&self.0) };
        let mut value = HeaderValue::try_from(text).map_err(|_| BadKey::Invisible)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Quotes text as an RFC 9651 string.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Removes the escapes of a quoted string.
#[cfg(feature = "middleware")]
fn unquoted(text: &str) -> String {
    let mut characters = text.chars();
    std::iter::from_fn(|| match characters.next()? {
        '\\' => characters.next(),
        other => Some(other),
    })
    .collect()
}

impl FromStr for Key {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        Self::new(text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// The reason why a key is invalid. Its text names the allowed characters, and never contains the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadKey {
    /// The key is empty or too long.
    #[error("a key has 1 to {LONGEST} characters")]
    Length,
    /// The key contains a character that is not visible ASCII.
    #[error("a key has visible ASCII characters only: no blanks, no control characters, no accents")]
    Invisible,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_nonempty_visible_ascii() {
        assert_eq!(Key::new("").unwrap_err(), BadKey::Length);
        assert_eq!(Key::new("k".repeat(256)).unwrap_err(), BadKey::Length);
        assert!(Key::new("k".repeat(255)).is_ok());
        for wrong in ["a b", "a\n", "é", "a\u{7f}"] {
            assert_eq!(Key::new(wrong).unwrap_err(), BadKey::Invisible);
        }
    }

    #[test]
    fn key_is_quoted_only_where_needed() {
        let sent = |key: &str| Key::new(key).unwrap().header().unwrap().to_str().unwrap().to_owned();
        assert_eq!(sent("order-4711"), "order-4711");
        assert_eq!(sent("a,b"), "\"a,b\"");
        assert_eq!(sent("a\"b\\;"), "\"a\\\"b\\\\;\"");
    }

    #[cfg(feature = "middleware")]
    #[test]
    fn key_round_trips_through_a_header() {
        for text in ["order-4711", "a,b", "a\"b\\;", "\"", "a\\b"] {
            let key = Key::new(text).unwrap();
            assert_eq!(Key::from_header(&key.header().unwrap()), Ok(key));
        }
        let quoted = HeaderValue::from_static("\"order-4711\"");
        assert_eq!(Key::from_header(&quoted), Key::new("order-4711"));
        for wrong in ["", "\"\"", "a b", "\"a b\""] {
            assert!(Key::from_header(&HeaderValue::from_static(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn debug_of_key_hides_it() {
        let key = Key::new("secret").unwrap();
        assert!(!format!("{key:?} {:?}", key.header()).contains("secret"));
    }
}
