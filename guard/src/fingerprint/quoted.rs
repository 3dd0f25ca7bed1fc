//! Text in double quotes, in which a backslash makes the next character an ordinary one.

/// What stands before the quote that ends the text, and what stands behind it. The quote that begins it is already gone.
pub(super) fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut escaped = false;
    let end = text.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })?;
    Some((&text[..end], &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_quote_does_not_end_a_text() {
        for (text, inner, rest) in
            [(r#"a"b"#, "a", "b"), (r#""""#, "", r#"""#), (r#"a\"b"c"#, r#"a\"b"#, "c"), (r#"a\\"b"#, r"a\\", "b")]
        {
            assert_eq!(split(text.as_bytes()), Some((inner.as_bytes(), rest.as_bytes())), "{text}");
        }
        assert_eq!(split(br#"a\"b"#), None);
    }
}
