//! The place of the tag: after `<head>`, or before the first element or text of a document without it.
//!
//! Only the start of a document is read: byte order mark, white space, comments, doctype and `<html>`. It passes as it arrives. A chunk
//! that ends within an opening such as `<he` keeps these few bytes until the next one.

use super::attributes::{Attributes, is_space, value_of};
use super::comment::Comment;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// Maximum number of bytes of the attributes of `<html>` that are searched for the language.
const MAX_ATTRIBUTES: usize = 1024;

/// The search for the place, over the chunks of a body.
#[derive(Debug)]
pub(super) struct Insertion {
    state: State,
    /// True once a doctype or `<html>` was seen: a fragment has neither, and stays unchanged.
    is_document: bool,
    /// The start of the attributes of `<html>`.
    attributes: Vec<u8>,
}

/// The treatment of a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Insert the tag before this byte of the chunk. The search is over.
    At(usize),
    /// Insert nothing. The search is over.
    Nowhere,
    /// Pass the chunk up to this byte, and scan the rest again with the bytes that follow.
    Later(usize),
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// At the first byte.
    Start,
    /// Between two constructs.
    Between,
    /// In a doctype or a bogus comment, up to the next `>`.
    Declaration,
    Comment(Comment),
    Html(Attributes),
    Head(Attributes),
}

impl Insertion {
    /// Starts the search at the first byte of a body.
    pub(super) fn new() -> Self {
        Self { state: State::Start, is_document: false, attributes: Vec::new() }
    }

    /// Returns whether `<html lang>` is Chinese, as far as it was read.
    pub(super) fn is_chinese(&self) -> bool {
        let language = value_of(&self.attributes, b"lang").unwrap_or_default();
        let primary = language.split(|byte| *byte == b'-').next().unwrap_or_default();
        primary.eq_ignore_ascii_case(b"zh")
    }

    /// Continues the search in the next bytes: those that the last call returned as `Later`, and those after them.
    pub(super) fn scan(&mut self, chunk: &[u8]) -> Place {
        let mut at = 0;
        while let Some(&byte) = chunk.get(at) {
            match self.state {
                State::Start => match step_over_mark(&chunk[at..]) {
                    Some(length) => (self.state, at) = (State::Between, at + length),
                    None => return Place::Later(at),
                },
                State::Between if is_space(byte) => at += 1,
                State::Between => match Opening::of(&chunk[at..]) {
                    None => return Place::Later(at),
                    Some(Opening::Other) => return if self.is_document { Place::At(at) } else { Place::Nowhere },
                    Some(opening) => at += self.enter(opening),
                },
                State::Head(attributes) if attributes.next(byte).is_none() => return Place::At(at + 1),
                inside => {
                    if matches!(inside, State::Html(_)) && self.attributes.len() < MAX_ATTRIBUTES {
                        self.attributes.push(byte);
                    }
                    (self.state, at) = (inside.after(byte), at + 1);
                }
            }
        }
        Place::Later(at)
    }

    /// Enters a construct, and returns the length of its opening.
    fn enter(&mut self, opening: Opening) -> usize {
        self.is_document |= matches!(opening, Opening::Doctype | Opening::Html);
        let (state, length) = match opening {
            Opening::Comment => (State::Comment(Comment::Start), "<!--".len()),
            Opening::Doctype => (State::Declaration, "<!doctype".len()),
            Opening::Bogus => (State::Declaration, "<!".len()),
            Opening::Html => (State::Html(Attributes::BeforeName), "<html".len()),
            Opening::Head => (State::Head(Attributes::BeforeName), "<head".len()),
            Opening::Other => (State::Between, 0),
        };
        self.state = state;
        length
    }
}

impl State {
    /// Returns the state after a byte within a construct.
    fn after(self, byte: u8) -> Self {
        match self {
            Self::Declaration if byte != b'>' => self,
            Self::Comment(position) => position.next(byte).map_or(Self::Between, Self::Comment),
            Self::Html(position) => position.next(byte).map_or(Self::Between, Self::Html),
            Self::Head(position) => position.next(byte).map_or(Self::Between, Self::Head),
            Self::Start | Self::Between | Self::Declaration => Self::Between,
        }
    }
}

/// The start of a construct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    Comment,
    Doctype,
    /// `<!` or `<?` before anything else: a browser takes it for a comment that ends with `>`.
    Bogus,
    Html,
    Head,
    /// Another element, an end tag or text.
    Other,
}

impl Opening {
    /// Returns the construct at the start of these bytes, or `None` if they end too early to tell.
    fn of(bytes: &[u8]) -> Option<Self> {
        const OPENINGS: [(&[u8], Opening); 4] = [
            (b"<!--", Opening::Comment),
            (b"<!doctype", Opening::Doctype),
            (b"<html", Opening::Html),
            (b"<head", Opening::Head),
        ];
        for (text, opening) in OPENINGS {
            let length = text.len().min(bytes.len());
            if !bytes[..length].eq_ignore_ascii_case(&text[..length]) {
                continue;
            }
            return if length < text.len() { None } else { opening.if_complete(&bytes[length..]) };
        }
        let is_bogus = matches!(bytes, [b'<', b'!' | b'?', ..]);
        Some(if is_bogus { Self::Bogus } else { Self::Other })
    }

    /// Returns the construct if the name of its tag ends before these bytes: `<header>` is another element.
    fn if_complete(self, rest: &[u8]) -> Option<Self> {
        if matches!(self, Self::Comment | Self::Doctype) {
            return Some(self);
        }
        let &byte = rest.first()?;
        Some(if is_space(byte) || matches!(byte, b'/' | b'>') { self } else { Self::Other })
    }
}

/// Returns the length of the byte order mark at the start of a body, or `None` if the bytes end too early to tell.
fn step_over_mark(bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(BYTE_ORDER_MARK) {
        return Some(BYTE_ORDER_MARK.len());
    }
    if BYTE_ORDER_MARK.starts_with(bytes) { None } else { Some(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the place in a body that arrives in these chunks, as a number of bytes from its start.
    fn place(chunks: &[&[u8]]) -> Option<usize> {
        let (mut search, mut passed, mut held) = (Insertion::new(), 0, Vec::new());
        for chunk in chunks {
            held.extend_from_slice(chunk);
            match search.scan(&held) {
                Place::At(at) => return Some(passed + at),
                Place::Nowhere => return None,
                Place::Later(at) => passed += held.drain(..at).count(),
            }
            assert!(held.len() < "<!doctype".len(), "at most an opening is held: {held:?}");
        }
        None
    }

    /// Asserts the place of the tag, which the page shows as `|`, for every split of the page into two chunks, and byte by byte.
    fn assert_place(page: &str) {
        let expected = page.find('|');
        let body = page.replacen('|', "", 1).into_bytes();
        for split in 0..=body.len() {
            assert_eq!(place(&[&body[..split], &body[split..]]), expected, "{page}, split at {split}");
        }
        assert_eq!(place(&body.chunks(1).collect::<Vec<_>>()), expected, "{page}, byte by byte");
    }

    #[test]
    fn tag_follows_the_head_of_a_document() {
        for page in [
            "<!doctype html><html><head>|<title>a</title></head><body></body></html>",
            "<!DOCTYPE html>\r\n<HTML LANG=en>\r\n<HEAD>|\r\n<TITLE>a</TITLE>",
            "\u{feff}<!doctype html>\n<html lang=\"a>b\" data-x='<head>'>\n<head class=\"c>d\" x=y>|<meta charset=utf-8>",
            "<!-- made <head> by a > tool --><!doctype html><!----><head>|",
            "<?xml version=\"1.0\"?><!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0\" \"x.dtd\"><html xmlns='x'><head >|",
            "<!--[if IE]> <html class=\"ie\"> <![endif]--><!--[if !IE]><!--><html><!--<![endif]--><head/>|<title>",
            "  \t<head>|",
            "<html/><head\n>|x",
        ] {
            assert_place(page);
        }
    }

    #[test]
    fn tag_precedes_the_first_element_without_a_head() {
        for page in [
            "<!doctype html>|<title>a</title><p>b",
            "<!doctype html> |<header>a</header>",
            "<!doctype html>|<htmlx>",
            "<html>\n |<body><head></head></body>",
            "<html>|</html>",
            "<!doctype html>|hello <b>world</b>",
            "<!doctype html>|< head>",
            "<!doctype html>|<3",
            "<!doctype html><!-- a --> |<h1>a</h1>",
            "<html><!head>|<hr>",
        ] {
            assert_place(page);
        }
    }

    #[test]
    fn fragment_has_no_place() {
        for page in [
            "",
            "   \n",
            "hello",
            "<tr><td>a</td></tr>",
            "<!-- partial --><div><html><head></head></html></div>",
            "<header>a</header>",
            "<body>a</body>",
            "</head>",
            "<",
            "text <!doctype html><html><head>",
            "{\"html\": \"<head>\"}",
        ] {
            assert_place(page);
        }
    }

    #[test]
    fn document_that_ends_before_its_content_has_no_place() {
        for page in
            ["<!doctype html>", "<!doctype html><html", "<html lang=\"<head>", "<html><!-- <head>", "<html><hea"]
        {
            assert_place(page);
        }
    }

    #[test]
    fn other_byte_order_marks_have_no_place() {
        for body in [b"\xFF\xFE<\0h\0e\0a\0d\0>\0".as_slice(), b"\xFE\xFF\0<\0h", b"\xEF<head>", b"\xEF\xBB<head>"] {
            assert_eq!(place(&[body]), None, "{body:?}");
        }
    }
}
