//! The canonical form of a JSON document.
//!
//! Numbers are compared by their decimal value. Parsed as floats, two account numbers of twenty digits could be equal.

mod decimal;
mod walker;

use std::borrow::Cow;

use serde::de::IgnoredAny;

use self::decimal::canonical;
use self::walker::Walker;
use super::content_digest::{ContentDigest, Tag};
use super::fields::{Chosen, Fields, Pointer};

enum Node<'a> {
    /// A number, true, false or null, as sent.
    Literal(&'a str),
    Text(Cow<'a, str>),
    List(Vec<Self>),
    /// Sorted by name, without duplicates.
    Object(Vec<(Cow<'a, str>, Self)>),
    /// Excluded from the fingerprint.
    LeftOut,
}

/// Writes the included fields of a document. Writes nothing and returns `None` if the body is not JSON, or if an object repeats a name,
/// which parsers interpret differently.
pub(super) fn write(body: &[u8], fields: &Fields, to: &mut ContentDigest) -> Option<()> {
    let mut document = read(body)?;
    to.tag(Tag::Json);
    match &fields.chosen {
        Chosen::All => document.write(to),
        Chosen::Only(pointers) => {
            for pointer in pointers {
                pointer.write(to);
                document.at(pointer).unwrap_or(&mut Node::LeftOut).write(to);
            }
        }
        Chosen::AllBut(pointers) => {
            for pointer in pointers {
                document.leave_out(pointer);
            }
            document.write(to);
        }
    }
    Some(())
}

/// The value at one position of a document.
pub(crate) enum Field {
    Absent,
    /// A string, or a whole number as sent.
    Value(String),
    /// Anything else.
    Other,
}

/// Returns the value at a pointer, or `None` if the body is not JSON or parsers interpret it differently.
pub(crate) fn field(body: &[u8], pointer: &Pointer) -> Option<Field> {
    let mut document = read(body)?;
    Some(match document.at(pointer) {
        None | Some(Node::Literal("null") | Node::LeftOut) => Field::Absent,
        Some(Node::Text(text)) => Field::Value(text.to_string()),
        Some(Node::Literal(number)) if is_whole(number) => Field::Value((*number).to_owned()),
        Some(_) => Field::Other,
    })
}

/// Returns whether the literal is a number without a fraction or an exponent, with any number of digits.
fn is_whole(literal: &str) -> bool {
    let digits = literal.strip_prefix('-').unwrap_or(literal);
    digits.bytes().all(|digit| digit.is_ascii_digit())
}

fn read(body: &[u8]) -> Option<Node<'_>> {
    let text = std::str::from_utf8(body).ok()?;
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    Walker::new(text).document()
}

impl Node<'_> {
    fn at(&mut self, pointer: &Pointer) -> Option<&mut Self> {
        pointer.names().iter().try_fold(self, |node, name| match node {
            Self::Object(members) => {
                let at = members.binary_search_by(|(other, _)| other.as_ref().cmp(name)).ok()?;
                Some(&mut members[at].1)
            }
            Self::List(values) => values.get_mut(index(name)?),
            _ => None,
        })
    }

    /// Excludes a field. The node stays in place until it is written, so that the indexes in other pointers stay valid.
    fn leave_out(&mut self, pointer: &Pointer) {
        if let Some(node) = self.at(pointer) {
            *node = Self::LeftOut;
        }
    }

    fn counts(&self) -> bool {
        !matches!(self, Self::LeftOut)
    }

    fn write(&self, to: &mut ContentDigest) {
        match self {
            Self::Literal(text) => write_text(Tag::Literal, &canonical(text), to),
            Self::Text(text) => write_text(Tag::Text, text, to),
            Self::List(values) => {
                let values = || values.iter().filter(|value| value.counts());
                to.tag(Tag::List);
                to.count(values().count());
                values().for_each(|value| value.write(to));
            }
            Self::Object(members) => {
                let members = || members.iter().filter(|(_, value)| value.counts());
                to.tag(Tag::Object);
                to.count(members().count());
                for (name, value) in members() {
                    to.bytes(name.as_bytes());
                    value.write(to);
                }
            }
            Self::LeftOut => to.tag(Tag::Absent),
        }
    }
}

fn write_text(tag: Tag, text: &str, to: &mut ContentDigest) {
    to.tag(tag);
    to.bytes(text.as_bytes());
}

/// Parses a list index as RFC 6901 defines it: digits without a leading zero.
fn index(name: &str) -> Option<usize> {
    let canonical = name == "0" || name.starts_with(|first: char| matches!(first, '1'..='9'));
    canonical.then(|| name.parse().ok())?
}
