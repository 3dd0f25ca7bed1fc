//! Parses a document that was validated before, so that only the end of each value has to be found.

use std::borrow::Cow;

use super::super::header_value::split_quoted;
use super::Node;

/// Maximum nesting depth, as most parsers have; a deeper document is digested byte by byte. serde_json validates it without recursion, so
/// the limit is enforced here.
const DEEPEST: usize = 128;

/// The remaining text.
pub(super) struct Walker<'a> {
    rest: &'a str,
}

impl<'a> Walker<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// Parses the document. Returns `None` if it is nested too deep, if an object repeats a name, or if a string has a lone surrogate.
    pub(super) fn document(mut self) -> Option<Node<'a>> {
        self.value(DEEPEST)
    }

    fn value(&mut self, depth: usize) -> Option<Node<'a>> {
        self.skip_blanks();
        match self.rest.as_bytes().first()? {
            b'{' => self.object(depth.checked_sub(1)?),
            b'[' => self.list(depth.checked_sub(1)?),
            b'"' => self.text().map(Node::Text),
            _ => self.literal(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Node<'a>> {
        let mut members = Vec::new();
        self.skip(1)?;
        while !self.ends_with('}')? {
            let name = self.text()?;
            self.skip_blanks();
            self.skip(1)?;
            members.push((name, self.value(depth)?));
        }
        members.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        members.is_sorted_by(|(one, _), (next, _)| one < next).then_some(Node::Object(members))
    }

    fn list(&mut self, depth: usize) -> Option<Node<'a>> {
        let mut values = Vec::new();
        self.skip(1)?;
        while !self.ends_with(']')? {
            values.push(self.value(depth)?);
        }
        Some(Node::List(values))
    }

    /// Returns whether a list or an object ends here; if not, skips to its next member.
    fn ends_with(&mut self, mark: char) -> Option<bool> {
        self.skip_blanks();
        if self.rest.starts_with(',') {
            self.skip(1)?;
            self.skip_blanks();
        }
        let ends = self.rest.starts_with(mark);
        self.skip(usize::from(ends))?;
        Some(ends)
    }

    fn text(&mut self) -> Option<Cow<'a, str>> {
        let (inner, _) = split_quoted(self.rest.as_bytes().strip_prefix(b"\"")?)?;
        let text = self.skip(inner.len() + 2)?;
        if inner.contains(&b'\\') {
            // A lone surrogate is valid JSON but not valid text: serde_json rejects it, so the body is digested byte by byte.
            return serde_json::from_str(text).ok().map(Cow::Owned);
        }
        Some(Cow::Borrowed(&text[1..text.len() - 1]))
    }

    fn literal(&mut self) -> Option<Node<'a>> {
        let end = self.rest.find([',', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(self.rest.len());
        self.skip(end).filter(|text| !text.is_empty()).map(Node::Literal)
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }

    fn skip(&mut self, length: usize) -> Option<&'a str> {
        let (skipped, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(skipped)
    }
}
