//! Names of tables and columns: the only part of a statement that cannot be bound as a parameter.

use std::fmt;

use super::PatternError;

/// Maximum length of a name. PostgreSQL silently truncates longer names, which then refer to another column.
const LONGEST: usize = 63;

/// A checked name. It is always written in quotes, so that `order` is a valid name too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Name(String);

impl Name {
    /// Parses a name of ASCII letters, digits and underscores, without a digit first.
    ///
    /// # Errors
    /// If it contains anything else, or is longer than 63 characters.
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let first = |c: char| c.is_ascii_alphabetic() || c == '_';
        let rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if text.len() <= LONGEST && text.starts_with(first) && text.chars().all(rest) {
            return Ok(Self(text.to_owned()));
        }
        Err(PatternError::Name(text.to_owned()))
    }

    /// Parses the name of a table, which may include a schema, as in `shop.orders`.
    pub(super) fn of_table(text: &str) -> Result<Self, PatternError> {
        let Some((schema, table)) = text.split_once('.') else { return Self::parse(text) };
        match (Self::parse(schema), Self::parse(table)) {
            (Ok(_), Ok(_)) => Ok(Self(text.to_owned())),
            _ => Err(PatternError::Name(text.to_owned())),
        }
    }

    /// The name without quotes, for error messages.
    pub(super) fn plain(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "\"{}\"", self.0.replace('.', "\".\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_name_is_quoted() {
        for name in ["orders", "order", "_id", "Seq2", "a"] {
            assert_eq!(Name::parse(name).unwrap().to_string(), format!("\"{name}\""));
        }
        assert_eq!(Name::of_table("shop.orders").unwrap().to_string(), "\"shop\".\"orders\"");
        assert!(Name::parse(&"a".repeat(LONGEST)).is_ok());
    }

    #[test]
    fn name_with_special_characters_is_rejected_by_name() {
        let long = "a".repeat(LONGEST + 1);
        for odd in [
            "",
            " ",
            "1st",
            "a b",
            "a-b",
            "a\"",
            "\"a\"",
            "a'",
            "a`",
            "[a]",
            "a\0",
            "a\n",
            "größe",
            "a;--",
            "a.b",
            "*",
            "orders; DROP TABLE orders",
            "id = 1 OR 1 = 1",
            long.as_str(),
        ] {
            let error = Name::parse(odd).unwrap_err();
            assert!(matches!(&error, PatternError::Name(name) if name == odd), "{odd:?}: {error}");
        }
        for odd in ["a.b.c", ".a", "a.", ".", "a.\"b\"", "a .b"] {
            let error = Name::of_table(odd).unwrap_err();
            assert!(matches!(&error, PatternError::Name(name) if name == odd), "{odd:?}: {error}");
        }
    }
}
