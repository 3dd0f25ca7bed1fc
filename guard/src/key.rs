//! Keys: the client's own name for one submission, the same in every retry.

use std::fmt;

use sfv::{BareItem, Item, Parser};

/// Maximum number of characters in a key.
const LONGEST: usize = 255;
/// Maximum number of bytes in a key of several parts, including separators.
const LONGEST_OF_PARTS: usize = 1024;
/// Separates the parts, which cannot contain it.
const SEPARATOR: &str = "\u{1f}";

/// A key that the client chose. `Debug` does not reveal it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(String);

impl Key {
    /// Creates a key from a text, such as an order number.
    ///
    /// # Errors
    /// If the text does not have 1 to 255 characters, or contains a control character.
    pub fn new(text: impl Into<String>) -> Result<Self, BadKey> {
        let text = text.into();
        if !(1..=LONGEST).contains(&text.chars().count()) {
            return Err(BadKey::Length);
        }
        if text.contains(char::is_control) { Err(BadKey::Control) } else { Ok(Self(text)) }
    }

    /// Creates a key from several parts, such as source and sequence number, or user, operation and business id. `a` and `bc` differ from
    /// `ab` and `c`. A single part gives the same key as [`new`](Self::new).
    ///
    /// # Errors
    /// If there is no part, if a part is empty or contains a control character, or if the parts exceed 1024 bytes, with one byte between
    /// each two of them.
    pub fn of_parts(parts: impl IntoIterator<Item: AsRef<str>>) -> Result<Self, BadKey> {
        let mut text = String::new();
        for (at, part) in parts.into_iter().enumerate() {
            let part = part.as_ref();
            if part.is_empty() || part.contains(char::is_control) {
                return Err(BadKey::Part);
            }
            text.push_str(if at == 0 { "" } else { SEPARATOR });
            text.push_str(part);
            if text.len() > LONGEST_OF_PARTS {
                return Err(BadKey::Parts);
            }
        }
        if text.is_empty() { Err(BadKey::Parts) } else { Ok(Self(text)) }
    }

    /// Parses the value of an `Idempotency-Key` header. The standard requires a quoted string (RFC 9651), and most clients send the bare
    /// text: both give the same key. Parameters after a quoted key have no meaning, but must be well formed.
    ///
    /// # Errors
    /// If the key does not have 1 to 255 visible ASCII characters. A bare key cannot contain a quote, a comma or a semicolon: a proxy may
    /// merge two headers into `a, b`, and `a;b` might be a key with a parameter. A quoted key can contain them.
    pub fn from_header(value: &[u8]) -> Result<Self, BadKey> {
        let value = value.trim_ascii();
        let text = if value.starts_with(b"\"") { unquote(value)? } else { bare(value)? };
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadKey::Invisible);
        }
        // Visible ASCII has no control characters, and as many characters as bytes.
        if (1..=LONGEST).contains(&text.len()) { Ok(Self(text)) } else { Err(BadKey::Length) }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

fn unquote(value: &[u8]) -> Result<String, BadKey> {
    match Parser::new(value).parse::<Item>().map(|item| item.bare_item) {
        Ok(BareItem::String(text)) => Ok(text.into()),
        _ => Err(BadKey::Quoted),
    }
}

fn bare(value: &[u8]) -> Result<String, BadKey> {
    let text = std::str::from_utf8(value).map_err(|_| BadKey::Invisible)?;
    if text.contains(['"', ',', ';']) { Err(BadKey::Bare) } else { Ok(text.to_owned()) }
}

/// The error for an invalid key. It states what is allowed, and never what the client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadKey {
    /// The key is empty or too long.
    #[error("a key has 1 to {LONGEST} characters")]
    Length,
    /// The key contains a control character.
    #[error("a key has no control characters")]
    Control,
    /// A part is empty or contains a control character.
    #[error("each part of a key has at least one character, and no control characters")]
    Part,
    /// There is no part, or the parts together are too long.
    #[error("a key of several parts has at least one part, and at most {LONGEST_OF_PARTS} bytes, separators included")]
    Parts,
    /// A header contains characters other than visible ASCII.
    #[error("a key in a header has visible ASCII characters only, and no spaces")]
    Invisible,
    /// A bare value contains a character that is allowed only in quotes.
    #[error("a key with a quote, comma or semicolon must be quoted, as in \"a;b\", and a header has one key only")]
    Bare,
    /// A quoted value is not well formed.
    #[error("a quoted key ends with a quote, and has a backslash only before a quote or another backslash")]
    Quoted,
}

impl BadKey {
    /// Returns the reason as a sentence in Simplified Chinese.
    pub fn chinese(self) -> String {
        match self {
            Self::Length => format!("幂等键必须有 1 到 {LONGEST} 个字符。"),
            Self::Control => "幂等键不能包含控制字符。".to_owned(),
            Self::Part => "幂等键的每个部分至少有一个字符，且不能包含控制字符。".to_owned(),
            Self::Parts => format!("由多个部分组成的幂等键至少有一个部分，连同分隔符最多 {LONGEST_OF_PARTS} 字节。"),
            Self::Invisible => "请求头中的幂等键只能包含可见的 ASCII 字符，不能有空格。".to_owned(),
            Self::Bare => {
                "包含引号、逗号或分号的幂等键必须加引号，例如 \"a;b\"，并且一个请求头只能有一个幂等键。".to_owned()
            }
            Self::Quoted => "加引号的幂等键必须以引号结尾，反斜杠只能出现在引号或另一个反斜杠之前。".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn key_has_1_to_255_characters_and_no_control_characters() {
        for good in ["a", "order 42", "Bestellung-ä", &"é".repeat(255)] {
            assert_eq!(key(good).as_bytes(), good.as_bytes());
        }
        for (bad, why) in [
            ("", BadKey::Length),
            (&"é".repeat(256), BadKey::Length),
            ("a\nb", BadKey::Control),
            ("\0", BadKey::Control),
            ("a\u{85}", BadKey::Control),
        ] {
            assert_eq!(Key::new(bad), Err(why), "{bad:?}");
        }
    }

    #[test]
    fn moving_characters_between_parts_changes_the_key() {
        let parts = |parts: &[&str]| Key::of_parts(parts).unwrap();
        let all = [parts(&["a", "bc"]), parts(&["ab", "c"]), parts(&["a", "b", "c"]), parts(&["abc"]), key("a bc")];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| one != other), "{at}");
        }
        assert_eq!(parts(&["abc"]), key("abc"));
    }

    #[test]
    fn empty_or_too_long_parts_are_rejected() {
        let long = "x".repeat(1024);
        assert_eq!(Key::of_parts([""; 0]), Err(BadKey::Parts));
        assert_eq!(Key::of_parts(["a", ""]), Err(BadKey::Part));
        assert_eq!(Key::of_parts(["a", "b\u{1f}c"]), Err(BadKey::Part));
        assert!(Key::of_parts([&long]).is_ok());
        assert_eq!(Key::of_parts([long.as_str(), "x"]), Err(BadKey::Parts));
        assert_eq!(Key::of_parts([&long[..1023], "x"]), Err(BadKey::Parts));
        assert!(Key::of_parts([&long[..1022], "x"]).is_ok());
    }

    #[test]
    fn quoted_and_bare_header_give_the_same_key() {
        let uuid = "8e03978e-40d5-43e8-bc93-6894a57f9324";
        for same in [uuid, &format!("\"{uuid}\""), &format!(" \t{uuid} "), &format!("\t\"{uuid}\" ")] {
            assert_eq!(Key::from_header(same.as_bytes()), Ok(key(uuid)), "{same}");
        }
        for (value, text) in [
            (r#""a\"b\\c""#, r#"a"b\c"#),
            (r"a\b", r"a\b"),
            (r#""a;b,c""#, "a;b,c"),
            (":YWJj:", ":YWJj:"),
            ("?1", "?1"),
            (r#""k";a=1"#, "k"),
            (r#""k"; a;  b="; c";c=:YQ==:;d=?0;e=tok/en;f=1.5;g=@1;h=%"a""#, "k"),
        ] {
            assert_eq!(Key::from_header(value.as_bytes()), Ok(key(text)), "{value}");
        }
    }

    #[test]
    fn ambiguous_header_is_rejected() {
        for (value, why) in [
            ("", BadKey::Length),
            (" \t", BadKey::Length),
            (r#""""#, BadKey::Length),
            (&"x".repeat(256), BadKey::Length),
            (&format!("\"{}\"", "x".repeat(256)), BadKey::Length),
            ("a b", BadKey::Invisible),
            (r#""a b""#, BadKey::Invisible),
            ("é", BadKey::Invisible),
            ("a\tb", BadKey::Invisible),
            ("a,b", BadKey::Bare),
            ("a, b", BadKey::Bare),
            ("a;b", BadKey::Bare),
            ("a\"", BadKey::Bare),
            ("a\"b\"", BadKey::Bare),
            ("\"", BadKey::Quoted),
            ("\"a", BadKey::Quoted),
            (r#""a\""#, BadKey::Quoted),
            (r#""a\b""#, BadKey::Quoted),
            (r#""a"b"#, BadKey::Quoted),
            (r#""a", "b""#, BadKey::Quoted),
            (r#""é""#, BadKey::Quoted),
            (r#""k";"#, BadKey::Quoted),
            (r#""k";a="#, BadKey::Quoted),
            (r#""k";A=1"#, BadKey::Quoted),
            (r#""k";a=?2"#, BadKey::Quoted),
            (r#""k" ;a=1"#, BadKey::Quoted),
        ] {
            assert_eq!(Key::from_header(value.as_bytes()), Err(why), "{value}");
        }
        assert_eq!(Key::from_header(b"\xff"), Err(BadKey::Invisible));
    }

    #[test]
    fn key_and_its_error_hide_the_sent_text() {
        assert_eq!(format!("{:?}", key("s3cret")), "Key(…)");
        let error = Key::from_header(b"s3cret, s3cret").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cret"));
    }

    proptest! {
        #[test]
        fn quoted_key_equals_the_bare_key(text in "[!-~]{1,255}") {
            let quoted = format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""));
            prop_assert_eq!(Key::from_header(quoted.as_bytes()), Ok(key(&text)));
            if !text.contains(['"', ',', ';']) {
                prop_assert_eq!(Key::from_header(text.as_bytes()), Ok(key(&text)));
            }
        }

        #[test]
        fn no_header_value_panics(value in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(key) = Key::from_header(&value) {
                prop_assert!(key.as_bytes().iter().all(u8::is_ascii_graphic));
            }
        }
    }
}
