//! `multipart/form-data` (RFC 7578), parsed as a whole.
//!
//! The parser is strict: servers disagree on text before the first boundary or after the last, on a part without a name, and on a header
//! that a part repeats. A body with any of these is digested byte by byte.

use memchr::memmem;

use super::content_digest::{ContentDigest, Tag};
use super::fields::Fields;
use super::header_value::{self, HeaderValue};
use super::multimap::{self, Named};

/// The headers of a part that are included (RFC 7578 has all others ignored).
const SAID: [&str; 3] = ["content-disposition", "content-type", "content-transfer-encoding"];

struct Part<'a> {
    name: &'a [u8],
    /// The value of each header in [`SAID`].
    head: [Option<HeaderValue<'a>>; SAID.len()],
    value: &'a [u8],
}

/// Writes the included parts. Writes nothing and returns `None` if the body cannot be parsed.
pub(super) fn write(body: &[u8], boundary: &[u8], fields: &Fields, to: &mut ContentDigest) -> Option<()> {
    let mut parts = read(body, boundary)?;
    parts.retain(|part| !(fields.without_files && part.is_file()));
    to.tag(Tag::Multipart);
    multimap::write(parts, &fields.chosen, to);
    Some(())
}

fn read<'a>(body: &'a [u8], boundary: &[u8]) -> Option<Vec<Part<'a>>> {
    let delimiter = [b"\r\n--", boundary].concat();
    let finder = memmem::Finder::new(&delimiter);
    let mut parts = Vec::new();
    // The first delimiter has no line break before it.
    let mut rest = body.strip_prefix(&delimiter[2..])?;
    loop {
        if let Some(after) = rest.strip_prefix(b"--") {
            return after.trim_ascii().is_empty().then_some(parts);
        }
        let part = skip_blanks(rest).strip_prefix(b"\r\n")?;
        let end = finder.find(part)?;
        parts.push(Part::read(&part[..end])?);
        rest = &part[end + delimiter.len()..];
    }
}

fn skip_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &text[blanks..]
}

impl<'a> Part<'a> {
    fn read(part: &'a [u8]) -> Option<Self> {
        let end = memmem::find(part, b"\r\n\r\n")?;
        let head = read_head(&part[..end])?;
        let name = head[0].as_ref()?.parameter("name")?;
        Some(Self { name, head, value: &part[end + 4..] })
    }

    fn is_file(&self) -> bool {
        let says = |name| self.head[0].as_ref().is_some_and(|disposition| disposition.parameter(name).is_some());
        says("filename") || says("filename*")
    }
}

fn read_head(head: &[u8]) -> Option<[Option<HeaderValue<'_>>; SAID.len()]> {
    let mut said = [const { None }; SAID.len()];
    for line in head.split(|byte| *byte == b'\n') {
        let colon = line.iter().position(|byte| *byte == b':')?;
        // Rejects a folded line, which would otherwise be ignored as an unknown header.
        let name = header_value::plain(&line[..colon])?;
        let at = SAID.iter().position(|said| name.eq_ignore_ascii_case(said.as_bytes()));
        let Some(at) = at else { continue };
        let value = HeaderValue::parse(line[colon + 1..].trim_ascii())?;
        if said[at].replace(value).is_some() {
            return None;
        }
    }
    Some(said)
}

impl Named for Part<'_> {
    fn name(&self) -> &[u8] {
        self.name
    }

    fn write(&self, to: &mut ContentDigest) {
        for value in &self.head {
            match value {
                Some(value) => {
                    to.tag(Tag::Canonical);
                    value.write_without("", to);
                }
                None => to.tag(Tag::Absent),
            }
        }
        to.bytes(self.value);
    }
}
