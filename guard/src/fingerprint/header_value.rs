//! A header value with parameters: `multipart/form-data; boundary=x`, `form-data; name="a"`.

use super::content_digest::ContentDigest;

/// A header value in lower case, and its parameters by name.
///
/// A quoted parameter is the raw text between its quotes, including escapes: browsers and standards disagree on the meaning of a backslash
/// there, and the raw text is the same in every retry.
pub(crate) struct HeaderValue<'a> {
    value: Vec<u8>,
    parameters: Vec<Parameter<'a>>,
}

/// The name in lower case, and the value.
type Parameter<'a> = (Vec<u8>, &'a [u8]);

impl<'a> HeaderValue<'a> {
    /// Parses a header value. Returns `None` if it has any other form, or repeats a parameter.
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        let (value, mut rest) = split_before(text, b";");
        let value = plain(value.trim_ascii())?.to_ascii_lowercase();
        let mut parameters = Vec::new();
        while let Some(after) = rest.strip_prefix(b";") {
            let (parameter, after) = split_parameter(after.trim_ascii_start())?;
            parameters.extend(parameter);
            rest = after;
        }
        parameters.sort();
        let unique = parameters.is_sorted_by(|(one, _), (next, _)| one < next);
        (rest.is_empty() && unique).then_some(Self { value, parameters })
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.value
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&'a [u8]> {
        let at = self.parameters.binary_search_by(|(other, _)| other.as_slice().cmp(name.as_bytes())).ok()?;
        Some(self.parameters[at].1)
    }

    /// Writes the value without one of its parameters.
    pub(super) fn write_without(&self, left_out: &str, to: &mut ContentDigest) {
        let parameters = || self.parameters.iter().filter(|(name, _)| name != left_out.as_bytes());
        to.bytes(&self.value);
        to.count(parameters().count());
        for (name, value) in parameters() {
            to.bytes(name);
            to.bytes(value);
        }
    }
}

/// Splits the text at the next semicolon. Returns the parameter before it, if there is one, and the rest.
fn split_parameter(text: &[u8]) -> Option<(Option<Parameter<'_>>, &[u8])> {
    if text.is_empty() || text.starts_with(b";") {
        return Some((None, text));
    }
    let (name, after) = split_before(text, b"=;");
    let name = plain(name)?.to_ascii_lowercase();
    let after = after.strip_prefix(b"=")?;
    let (value, rest) = match after.strip_prefix(b"\"") {
        Some(quoted) => split_quoted(quoted)?,
        None => {
            let (value, rest) = split_before(after, b";");
            (plain(value.trim_ascii_end())?, rest)
        }
    };
    Some((Some((name, value)), rest.trim_ascii_start()))
}

fn split_before<'a>(text: &'a [u8], marks: &[u8]) -> (&'a [u8], &'a [u8]) {
    text.split_at(text.iter().position(|byte| marks.contains(byte)).unwrap_or(text.len()))
}

/// Returns the word if it needs no quotes. Accepts more than the standard allows: boundaries with a colon are common.
pub(super) fn plain(word: &[u8]) -> Option<&[u8]> {
    let good = |byte: &u8| byte.is_ascii_graphic() && !b"\",;\\".contains(byte);
    (!word.is_empty() && word.iter().all(good)).then_some(word)
}

/// Splits a text at its closing quote. The opening quote is already removed.
pub(super) fn split_quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
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

    fn parse(text: &str) -> Option<(String, Vec<(String, String)>)> {
        let text_of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let parsed = HeaderValue::parse(text.as_bytes())?;
        let parameters = parsed.parameters.iter().map(|(name, value)| (text_of(name), text_of(value)));
        Some((text_of(&parsed.value), parameters.collect()))
    }

    #[test]
    fn parameters_are_read_with_and_without_quotes() {
        let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect::<Vec<_>>();
        for (text, parameters) in [
            ("a/b", pairs(&[])),
            (" A/B ", pairs(&[])),
            ("a/b;", pairs(&[])),
            ("a/b ; ;X=Y ", pairs(&[("x", "Y")])),
            ("a/b; y=1;x=\"; y=2\"", pairs(&[("x", "; y=2"), ("y", "1")])),
            (r#"a/b; x="a\"b""#, pairs(&[("x", r#"a\"b"#)])),
            ("a/b; x=\"\"", pairs(&[("x", "")])),
            ("a/b; boundary=----=_Part:1", pairs(&[("boundary", "----=_Part:1")])),
        ] {
            assert_eq!(parse(text), Some(("a/b".into(), parameters)), "{text}");
        }
    }

    #[test]
    fn ambiguous_header_value_is_not_parsed() {
        for text in
            ["", ";", "a/b, c/d", "a b", "a/b; x", "a/b; x=", "a/b; x=\"1", "a/b; x=\"1\"2", "a/b; x=1; X=2", "é/b"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn escaped_quote_does_not_end_a_string() {
        for (text, inner, rest) in
            [(r#"a"b"#, "a", "b"), (r#""""#, "", r#"""#), (r#"a\"b"c"#, r#"a\"b"#, "c"), (r#"a\\"b"#, r"a\\", "b")]
        {
            assert_eq!(split_quoted(text.as_bytes()), Some((inner.as_bytes(), rest.as_bytes())), "{text}");
        }
        assert_eq!(split_quoted(br#"a\"b"#), None);
    }
}
