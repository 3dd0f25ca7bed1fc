//! The nonce of a content security policy.

/// The value of a `'nonce-…'` source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::proxy::inject) struct Nonce(String);

impl Nonce {
    const NAME: &str = "nonce-";

    /// Parses a source such as `'nonce-abc'`. The value is base64, as the standard requires, so that it needs no escaping.
    pub(super) fn parse(source: &str) -> Option<Self> {
        let quoted = source.strip_prefix('\'')?.strip_suffix('\'')?;
        let (name, value) = quoted.split_at_checked(Self::NAME.len())?;
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_=".contains(&byte);
        let is_nonce = name.eq_ignore_ascii_case(Self::NAME) && !value.is_empty() && value.bytes().all(is_base64);
        is_nonce.then(|| Self(value.to_owned()))
    }

    /// Returns the value.
    pub(in crate::proxy::inject) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonce_source_is_parsed_in_any_case() {
        for (source, value) in [("'nonce-aB3+/-_=='", "aB3+/-_=="), ("'NONCE-x'", "x")] {
            assert_eq!(Nonce::parse(source).unwrap().as_str(), value);
        }
    }

    #[test]
    fn other_source_has_no_nonce() {
        for source in ["'nonce-'", "nonce-abc", "'nonce-abc", "'nonce-a\"b'", "'self'", "'", "''", "'nonc\u{e9}-a'"] {
            assert_eq!(Nonce::parse(source), None, "{source}");
        }
    }
}
