//! A key: the caller's own name for one submission, the same in every try.

mod generate;

use std::fmt;
use std::str::FromStr;

use reqwest::header::HeaderValue;

pub use self::generate::generate_key;

/// The most characters of a key.
const LONGEST: usize = 255;

/// A key that the caller made. It is shown by [`as_str`](Self::as_str) only.
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
    /// A key as it stands, such as an order's number.
    ///
    /// # Errors
    /// Unless it has 1 to 255 characters of visible ASCII.
    pub fn new(text: impl Into<String>) -> Result<Self, BadKey> {
        let text = text.into();
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadKey::Invisible);
        }
        if (1..=LONGEST).contains(&text.len()) { Ok(Self(text)) } else { Err(BadKey::Length) }
    }

    /// The key itself, to be saved.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key that a header names, quoted or bare.
    ///
    /// # Errors
    /// If it names none.
    #[cfg(feature = "middleware")]
    pub(crate) fn from_header(value: &HeaderValue) -> Result<Self, BadKey> {
        let text = value.to_str().map_err(|_| BadKey::Invisible)?.trim();
        match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            Some(quoted) => Self::new(unquoted(quoted)),
            None => Self::new(text),
        }
    }

    /// As it stands in a header: bare, as most servers know it, unless only a quoted one can be told from two of them.
    pub(crate) fn header(&self) -> Result<HeaderValue, BadKey> {
        let is_bare = !self.0.contains(['"', ',', ';']);
        let text = if is_bare { self.0.clone() } else { quoted(&self.0) };
        let mut value = HeaderValue::try_from(text).map_err(|_| BadKey::Invisible)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// The quoted string of RFC 9651.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// What stands between its quotation marks.
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

/// What is wrong with a key. It says what is allowed, and never what was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadKey {
    /// It is empty or too long.
    #[error("a key has 1 to {LONGEST} characters")]
    Length,
    /// It has a character that no header can carry, or that nobody can see.
    #[error("a key has visible ASCII characters only: no blanks, no control characters, no accents")]
    Invisible,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_visible_ascii_of_some_length() {
        assert_eq!(Key::new("").unwrap_err(), BadKey::Length);
        assert_eq!(Key::new("k".repeat(256)).unwrap_err(), BadKey::Length);
        assert!(Key::new("k".repeat(255)).is_ok());
        for wrong in ["a b", "a\n", "é", "a\u{7f}"] {
            assert_eq!(Key::new(wrong).unwrap_err(), BadKey::Invisible);
        }
    }

    #[test]
    fn a_key_is_quoted_only_where_it_has_to_be() {
        let sent = |key: &str| Key::new(key).unwrap().header().unwrap().to_str().unwrap().to_owned();
        assert_eq!(sent("order-4711"), "order-4711");
        assert_eq!(sent("a,b"), "\"a,b\"");
        assert_eq!(sent("a\"b\\;"), "\"a\\\"b\\\\;\"");
    }

    #[cfg(feature = "middleware")]
    #[test]
    fn a_key_is_read_from_a_header_as_it_was_written() {
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
    fn a_key_shows_itself_to_nobody_who_has_not_asked() {
        let key = Key::new("secret").unwrap();
        assert!(!format!("{key:?} {:?}", key.header()).contains("secret"));
    }
}
