//! The states of an HTML comment, from `<!--` to its end.

/// A position in a comment, by the tokenizer of the HTML standard.
///
/// A comment ends with `-->` or `--!>`; `<!-->` and `<!--->` are complete comments too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comment {
    /// After `<!--`.
    Start,
    /// After `<!---`.
    StartDash,
    /// In the text.
    Text,
    /// After `-`.
    Dash,
    /// After `--`.
    Dashes,
    /// After `--!`.
    Bang,
}

impl Comment {
    /// Returns the position after this byte, or `None` if the byte ends the comment.
    pub(super) fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Start | Self::StartDash | Self::Dashes | Self::Bang, b'>') => return None,
            (Self::Start, b'-') => Self::StartDash,
            (Self::StartDash | Self::Dash | Self::Dashes, b'-') => Self::Dashes,
            (Self::Text | Self::Bang, b'-') => Self::Dash,
            (Self::Dashes, b'!') => Self::Bang,
            _ => Self::Text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the length of the comment at the start of a text, which follows `<!--`.
    fn length(text: &str) -> Option<usize> {
        let mut position = Comment::Start;
        for (at, byte) in text.bytes().enumerate() {
            match position.next(byte) {
                Some(next) => position = next,
                None => return Some(at + 1),
            }
        }
        None
    }

    #[test]
    fn comment_ends_where_a_browser_ends_it() {
        for (text, rest) in [
            (">a", "a"),
            ("->a", "a"),
            ("-->a", "a"),
            (" text -->a", "a"),
            (" text --->a", "a"),
            (" text --!>a", "a"),
            ("--!>a", "a"),
            ("[if IE]> <html> <![endif]-->a", "a"),
            ("[if !IE]><!-->a", "a"),
            (" <!-- nested -->a-->", "a-->"),
            (" a > b -> c -- d --!e -->a", "a"),
        ] {
            assert_eq!(length(text), Some(text.len() - rest.len()), "<!--{text}");
        }
    }

    #[test]
    fn unfinished_comment_has_no_end() {
        for text in ["", "-", "--", "!>", "-!>", " text", " text --", " text --!", " text ->", " text -- >", " --!->"] {
            assert_eq!(length(text), None, "<!--{text}");
        }
    }
}
