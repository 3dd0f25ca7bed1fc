//! A form in the body, scanned for its token as it arrives.

use mime::Mime;
use onceward_api::header;

use crate::fingerprint::header_value::HeaderValue;
use crate::http::body_defect::BodyDefect;
use crate::http::request::{RequestHead, content_type};
use crate::rejection::Rejection;

/// A body that may carry a token, scanned as it arrives.
pub(super) enum Form {
    /// `application/x-www-form-urlencoded`; the field may be anywhere.
    Urlencoded {
        /// The start of the first pair that is not complete yet.
        pair: usize,
        /// The position up to which the end of that pair was searched.
        searched: usize,
    },
    /// `multipart/form-data`; the token is the first part, or there is none.
    Multipart {
        /// The delimiter between the parts, with the preceding line break.
        delimiter: Vec<u8>,
        /// The progress within the first part.
        reading: PartReader,
    },
}

/// The current stage within the first part, its start, and the position up to which its end was searched: a body may arrive in any
/// number of chunks, and no byte is searched twice.
#[derive(Default)]
pub(super) struct PartReader {
    stage: PartStage,
    begin: usize,
    searched: usize,
}

#[derive(Default, Clone, Copy)]
enum PartStage {
    #[default]
    Preamble,
    Boundary,
    Head,
    Value,
}

impl PartReader {
    fn go_on(&mut self, stage: PartStage, begin: usize) {
        *self = Self { stage, begin, searched: begin };
    }

    /// Returns the position of `mark`, which ends the current stage.
    fn find(&mut self, read: &[u8], mark: &[u8]) -> Option<usize> {
        let from = self.begin.max(self.searched.saturating_sub(mark.len() - 1));
        self.searched = read.len();
        read[from..].windows(mark.len()).position(|window| window == mark).map(|at| from + at)
    }
}

/// The result of a scan.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// More data is needed.
    More,
    /// The token.
    Found(String),
    /// The form has no token.
    Absent,
    /// The body does not match its content type.
    Broken(BodyDefect),
}

impl Form {
    /// Returns the form that the content type announces, if it may carry a token.
    pub(super) fn of(request: &impl RequestHead) -> Option<Result<Self, Rejection>> {
        let announced = content_type(request)?;
        // The most common content type of a program needs not be parsed.
        if announced == "application/json" {
            return None;
        }
        if request.header("content-encoding").next().is_some_and(|encoding| encoding != b"identity") {
            return None;
        }
        let mime: Mime = announced.parse().ok()?;
        match mime.essence_str() {
            "application/x-www-form-urlencoded" => Some(Ok(Self::Urlencoded { pair: 0, searched: 0 })),
            "multipart/form-data" => Some(match mime.get_param("boundary") {
                Some(boundary) => Ok(Self::multipart(boundary.as_str())),
                None => Err(BodyDefect::NamesNoBoundary.rejection()),
            }),
            _ => None,
        }
    }

    fn multipart(boundary: &str) -> Self {
        Self::Multipart { delimiter: format!("\r\n--{boundary}").into_bytes(), reading: PartReader::default() }
    }

    /// Scans everything that was read so far. `ended` means that the body is complete.
    pub(super) fn scan(&mut self, read: &[u8], ended: bool) -> Scan {
        match self {
            Self::Urlencoded { pair, searched } => scan_pairs(read, ended, pair, searched),
            Self::Multipart { delimiter, reading } => scan_first_part(read, ended, delimiter, reading),
        }
    }
}

fn scan_pairs(read: &[u8], ended: bool, pair: &mut usize, searched: &mut usize) -> Scan {
    loop {
        let end = match read[*searched..].iter().position(|byte| *byte == b'&') {
            Some(offset) => *searched + offset,
            None if ended => read.len(),
            None => {
                *searched = read.len();
                return Scan::More;
            }
        };
        let mut found = form_urlencoded::parse(&read[*pair..end]).filter(|(name, _)| name == header::FIELD);
        // An empty value is ignored, as in every source.
        if let Some((_, value)) = found.find(|(_, value)| !value.is_empty()) {
            return Scan::Found(value.into_owned());
        }
        if end == read.len() {
            return if ended { Scan::Absent } else { Scan::More };
        }
        (*pair, *searched) = (end + 1, end + 1);
    }
}

fn scan_first_part(read: &[u8], ended: bool, delimiter: &[u8], reading: &mut PartReader) -> Scan {
    loop {
        let (mark, missing): (&[u8], _) = match reading.stage {
            // At the start of the body, the delimiter has no preceding line break.
            PartStage::Preamble if read.starts_with(&delimiter[2..]) => {
                reading.go_on(PartStage::Boundary, delimiter.len() - 2);
                continue;
            }
            PartStage::Boundary if read[reading.begin..].starts_with(b"--") => return Scan::Absent,
            PartStage::Preamble => (delimiter, BodyDefect::LacksBoundary),
            PartStage::Boundary => (b"\r\n", BodyDefect::EndsInBoundary),
            PartStage::Head => (b"\r\n\r\n", BodyDefect::EndsInHead),
            PartStage::Value => (delimiter, BodyDefect::EndsInPart),
        };
        let Some(end) = reading.find(read, mark) else {
            return if ended { Scan::Broken(missing) } else { Scan::More };
        };
        let piece = &read[reading.begin..end];
        match reading.stage {
            PartStage::Preamble => reading.go_on(PartStage::Boundary, end + mark.len()),
            PartStage::Boundary if piece.iter().all(|byte| matches!(byte, b' ' | b'\t')) => {
                reading.go_on(PartStage::Head, end)
            }
            PartStage::Boundary => return Scan::Broken(BodyDefect::BoundaryNotAlone),
            PartStage::Head if names_field(piece) => reading.go_on(PartStage::Value, end + mark.len()),
            PartStage::Head => return Scan::Absent,
            PartStage::Value => {
                return match std::str::from_utf8(piece) {
                    Ok(token) => Scan::Found(token.to_owned()),
                    Err(_) => Scan::Broken(BodyDefect::NotText),
                };
            }
        }
    }
}

/// Returns whether the head of a part names the token field.
fn names_field(head: &[u8]) -> bool {
    let name = b"content-disposition:";
    let disposition = head
        .split(|byte| *byte == b'\n')
        .find_map(|line| {
            line.get(..name.len()).filter(|start| start.eq_ignore_ascii_case(name)).map(|_| &line[name.len()..])
        })
        .and_then(|value| HeaderValue::parse(value.trim_ascii()));
    disposition.is_some_and(|disposition| disposition.parameter("name") == Some(header::FIELD.as_bytes()))
}

/// Scans a body as either kind of form, as a whole and in chunks of `size` bytes; the results have to agree.
///
/// # Panics
/// If they do not agree.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn scan_in_pieces(body: &[u8], size: usize) {
    let forms: [fn() -> Form; 2] = [|| Form::Urlencoded { pair: 0, searched: 0 }, || Form::multipart("xy")];
    for form in forms {
        scanned_in_pieces(form, body, size);
    }
}

#[cfg(any(test, feature = "fuzzing"))]
fn scanned_in_pieces(form: fn() -> Form, body: &[u8], size: usize) -> Scan {
    let whole = form().scan(body, true);
    let mut slow = form();
    let ends = (size..=body.len()).step_by(size);
    let early = ends.map(|read| slow.scan(&body[..read], false)).find(|scan| *scan != Scan::More);
    let piecewise = early.unwrap_or_else(|| slow.scan(body, true));
    assert_eq!(piecewise, whole, "{}", String::from_utf8_lossy(body));
    whole
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn urlencoded() -> Form {
        Form::Urlencoded { pair: 0, searched: 0 }
    }

    fn multipart() -> Form {
        Form::multipart("xy")
    }

    /// Scans a body as a whole and byte by byte; the results have to agree.
    fn scan(form: fn() -> Form, body: &[u8]) -> Scan {
        scanned_in_pieces(form, body, 1)
    }

    fn part(head: &str, value: &str) -> Vec<u8> {
        format!(
            "--xy\r\n{head}\r\n\r\n{value}\r\n--xy\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\n2\r\n--xy--\r\n"
        )
        .into()
    }

    #[test]
    fn token_field_is_found_anywhere_in_a_form() {
        for body in ["_onceward=t%2Bt", "_onceward=t%2Bt&a=1", "a=1&_onceward=t%2Bt&b=2", "a&&%5Fonceward=t%2Bt"] {
            assert_eq!(scan(urlencoded, body.as_bytes()), Scan::Found("t+t".into()), "{body}");
        }
        for body in ["", "a=1", "a=_onceward", "_onceward2=t", "a=1&", "_onceward=", "_onceward"] {
            assert_eq!(scan(urlencoded, body.as_bytes()), Scan::Absent, "{body}");
        }
        assert_eq!(scan(urlencoded, b"_onceward=&_onceward=t"), Scan::Found("t".into()));
    }

    #[test]
    fn only_the_first_multipart_part_is_the_token() {
        let found = Scan::Found("t".into());
        for head in [
            "Content-Disposition: form-data; name=\"_onceward\"",
            "content-disposition:form-data; name=_onceward",
            "Content-Type: text/plain\r\nContent-Disposition: form-data; name=\"_onceward\"",
        ] {
            assert_eq!(scan(multipart, &part(head, "t")), found, "{head}");
        }
        let head = "Content-Disposition: form-data; name=\"_onceward\"";
        assert_eq!(scan(multipart, &[b"preamble\r\n", part(head, "t").as_slice()].concat()), found);
        for head in [
            "Content-Disposition: form-data; name=\"a\"",
            "Content-Disposition: form-data; name=\"f\"; filename=\"; name=_onceward\"",
            "Content-Type: text/plain",
        ] {
            assert_eq!(scan(multipart, &part(head, "t")), Scan::Absent, "{head}");
        }
        assert_eq!(scan(multipart, b"--xy--\r\n"), Scan::Absent);
    }

    #[test]
    fn broken_multipart_body_is_reported_as_broken() {
        let whole = part("Content-Disposition: form-data; name=\"_onceward\"", "t");
        for body in [
            &b""[..],
            b"a=1",
            b"--xy",
            b"--xz\r\n\r\n\r\n--xz--",
            b"--xyz\r\n\r\n1\r\n--xy--",
            &whole[..20],
            &whole[..60],
        ] {
            assert!(matches!(scan(multipart, body), Scan::Broken(_)), "{}", String::from_utf8_lossy(body));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bodies_do_not_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            scan(urlencoded, &body);
            scan(multipart, &body);
        }

        #[test]
        fn almost_multipart_bodies_do_not_panic(pieces in proptest::collection::vec(
            proptest::sample::select(vec!["--xy", "\r\n", "--", "Content-Disposition: form-data; name=\"_onceward\"", "t", " "]), 0..12)
        ) {
            scan(multipart, pieces.concat().as_bytes());
        }
    }
}
