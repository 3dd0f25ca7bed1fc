//! From text to nodes, over a document that has been found valid: all there is to tell is where things end.

use std::borrow::Cow;

use super::super::header_value::split_quoted;
use super::Node;

/// How deep a document may be nested, as far as most readers go; a deeper one counts byte by byte. serde_json has found
/// it valid without going down, so the limit has to be kept here.
const DEEPEST: usize = 128;

/// What is left of the text.
pub(super) struct Walker<'a> {
    rest: &'a str,
}

impl<'a> Walker<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// `None` if it is nested too deep, or an object has the same name twice.
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

    /// Whether a list or an object ends here; if not, stands before its next member.
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
            // Half a surrogate pair is valid JSON and no text: serde_json will not have it, so it counts byte by byte.
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
