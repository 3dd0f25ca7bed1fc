//! Names of tables and columns: the one thing in a statement that cannot be bound.

use std::fmt;

use super::PatternError;

/// PostgreSQL silently cuts a longer name off, and then means another column.
const LONGEST: usize = 63;

/// A name that may stand in a statement: checked, and always shown in quotes, so that `order` is a name too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Name(String);

impl Name {
    /// Letters, digits and underscores of ASCII, no digit first. Whatever else it is, it is refused by its own name.
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let first = |c: char| c.is_ascii_alphabetic() || c == '_';
        let rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if text.len() <= LONGEST && text.starts_with(first) && text.chars().all(rest) {
            return Ok(Self(text.to_owned()));
        }
        Err(PatternError::Name(text.to_owned()))
    }

    /// A table's name, which may say its schema, as in `shop.orders`.
    pub(super) fn of_table(text: &str) -> Result<Self, PatternError> {
        let Some((schema, table)) = text.split_once('.') else { return Self::parse(text) };
        match (Self::parse(schema), Self::parse(table)) {
            (Ok(_), Ok(_)) => Ok(Self(text.to_owned())),
            _ => Err(PatternError::Name(text.to_owned())),
        }
    }

    /// Without quotes, for people.
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
    fn a_plain_name_is_quoted() {
        for name in ["orders", "order", "_id", "Seq2", "a"] {
            assert_eq!(Name::parse(name).unwrap().to_string(), format!("\"{name}\""));
        }
        assert_eq!(Name::of_table("shop.orders").unwrap().to_string(), "\"shop\".\"orders\"");
        assert!(Name::parse(&"a".repeat(LONGEST)).is_ok());
    }

    #[test]
    fn whatever_could_end_a_name_is_refused_and_named() {
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
            let refused = Name::parse(odd).unwrap_err();
            assert!(matches!(&refused, PatternError::Name(name) if name == odd), "{odd:?}: {refused}");
        }
        for odd in ["a.b.c", ".a", "a.", ".", "a.\"b\"", "a .b"] {
            let refused = Name::of_table(odd).unwrap_err();
            assert!(matches!(&refused, PatternError::Name(name) if name == odd), "{odd:?}: {refused}");
        }
    }
}
