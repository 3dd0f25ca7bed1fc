//! The states of a start tag after its name, up to the `>` that ends it.

/// A position among the attributes of a start tag, by the tokenizer of the HTML standard: a `>` in a quoted value does not end the
/// tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attributes {
    /// Before a name: after the name of the tag, a value or a slash.
    BeforeName,
    /// In a name.
    Name,
    /// After a name and white space.
    AfterName,
    /// After `=`.
    BeforeValue,
    /// In a value in these quotes.
    Quoted(u8),
    /// In a value without quotes.
    Unquoted,
}

impl Attributes {
    /// Returns the position after this byte, or `None` if the byte ends the tag.
    pub(super) fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Quoted(quote), _) if byte == quote => Self::BeforeName,
            (Self::Quoted(_), _) => self,
            (_, b'>') => return None,
            (Self::BeforeValue, b'"' | b'\'') => Self::Quoted(byte),
            (Self::Name, _) if is_space(byte) => Self::AfterName,
            (Self::Unquoted, _) if is_space(byte) => Self::BeforeName,
            (_, _) if is_space(byte) => self,
            (Self::BeforeValue | Self::Unquoted, _) => Self::Unquoted,
            (_, b'/') => Self::BeforeName,
            (Self::Name | Self::AfterName, b'=') => Self::BeforeValue,
            // Also `=` before any name, which the standard takes for the start of one.
            _ => Self::Name,
        })
    }
}

/// Returns the value of the attribute with this name, in lower case, in the text of a start tag after its name. A character reference is
/// not decoded.
pub(super) fn value_of(tag: &[u8], wanted: &[u8]) -> Option<Vec<u8>> {
    let (mut position, mut name, mut value) = (Attributes::BeforeName, Vec::new(), Vec::new());
    for &byte in tag {
        let next = position.next(byte);
        match (position, next) {
            (Attributes::Name, Some(Attributes::Name)) => name.push(byte.to_ascii_lowercase()),
            (_, Some(Attributes::Name)) => (name, value) = (vec![byte.to_ascii_lowercase()], Vec::new()),
            (Attributes::Quoted(_), Some(Attributes::Quoted(_))) | (_, Some(Attributes::Unquoted)) => value.push(byte),
            (Attributes::Quoted(_) | Attributes::Unquoted, _) if name == wanted => return Some(value),
            _ => {}
        }
        position = next?;
    }
    None
}

/// Returns whether a byte is white space in HTML.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\x0c' | b'\r' | b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rest of a text after the tag whose name it follows.
    fn rest(text: &str) -> Option<&str> {
        let mut position = Attributes::BeforeName;
        for (at, byte) in text.bytes().enumerate() {
            match position.next(byte) {
                Some(next) => position = next,
                None => return Some(&text[at + 1..]),
            }
        }
        None
    }

    #[test]
    fn tag_ends_where_a_browser_ends_it() {
        for text in [
            ">|",
            "/>|",
            " lang=en>|",
            " lang=\"a>b\">|",
            " lang='a>b\"'>|",
            "\n lang = \"a>b\" class>|",
            " a=\"1\"b='>'>|",
            " a=b/>|",
            " a=b\">|\">",
            " a\">|\">",
            " \"a>|\">",
            " =\"a>|\">",
            " / =\"a>|\">",
            " a==\">|\">",
            " a=>|",
            " a b = '>' c>|",
        ] {
            assert!(rest(text).is_some_and(|rest| rest.starts_with('|')), "{text}: {:?}", rest(text));
        }
    }

    #[test]
    fn value_is_the_one_that_a_browser_reads() {
        for (tag, value) in [
            (" lang=zh>", Some("zh")),
            ("\n LANG = \"zh-CN\" class=a>", Some("zh-CN")),
            (" class='lang=\"zh\"' lang='en'>", Some("en")),
            (" lang=zh lang=en>", Some("zh")),
            (" data-lang=zh>", None),
            (" xml:lang=zh>", None),
            (" lang>", None),
            (" lang class=zh>", None),
            (" lang=\"zh", None),
        ] {
            let found = value_of(tag.as_bytes(), b"lang").map(|value| String::from_utf8(value).unwrap());
            assert_eq!(found.as_deref(), value, "{tag}");
        }
    }

    #[test]
    fn unfinished_tag_has_no_end() {
        for text in ["", " lang", " lang=", " lang=\"a>", " lang='\">", "/"] {
            assert_eq!(rest(text), None, "{text}");
        }
    }
}
