//! The headers of a page: which responses are pages, and what changes with their content.

use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName,
};
use http::{HeaderMap, HeaderValue, StatusCode};

/// Headers that describe the exact bytes of the upstream's body.
const DESCRIPTIONS: [HeaderName; 6] = [
    CONTENT_LENGTH,
    ACCEPT_RANGES,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

/// Starts of the names of charsets whose tags are not ASCII.
const WIDE_CHARSETS: [&str; 7] = ["utf-16", "utf-32", "ucs-2", "ucs-4", "unicode", "csunicode", "iso-10646-ucs"];

/// Returns whether a response is an HTML page whose body can be changed.
pub(super) fn is_page(status: StatusCode, headers: &HeaderMap) -> bool {
    has_whole_body(status) && is_html(headers) && is_unencoded(headers) && !is_download(headers)
}

/// Removes or weakens the headers that do not describe the changed body.
pub(super) fn describe_change(headers: &mut HeaderMap) {
    for name in &DESCRIPTIONS {
        headers.remove(name);
    }
    if let Some(weak) = headers.get(ETAG).and_then(weaken) {
        headers.insert(ETAG, weak);
    }
}

/// A part (206) cannot be changed: its offsets belong to the page of the upstream.
fn has_whole_body(status: StatusCode) -> bool {
    const WITHOUT: [StatusCode; 4] =
        [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::PARTIAL_CONTENT, StatusCode::NOT_MODIFIED];
    !status.is_informational() && !WITHOUT.contains(&status)
}

/// Of several lines, browsers differ in the one that they take, so every one has to say HTML.
fn is_html(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter().peekable();
    types.peek().is_some() && types.all(|value| value.to_str().is_ok_and(is_narrow_html))
}

fn is_narrow_html(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let is_html = parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("text/html"));
    is_html && !parts.filter_map(charset).any(|name| WIDE_CHARSETS.iter().any(|wide| starts_with(name, wide)))
}

/// Returns the charset in a parameter of a content type.
fn charset(parameter: &str) -> Option<&str> {
    let (name, value) = parameter.split_once('=')?;
    name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').trim())
}

fn starts_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
}

fn is_unencoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().all(|value| value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// A downloaded file is not shown as a page, and has to stay as it is.
fn is_download(headers: &HeaderMap) -> bool {
    let is_inline = |value: &HeaderValue| value.to_str().is_ok_and(|text| starts_with(text.trim(), "inline"));
    headers.get(CONTENT_DISPOSITION).is_some_and(|value| !is_inline(value))
}

/// Returns a strong entity tag as a weak one: a strong one promises the same bytes.
fn weaken(tag: &HeaderValue) -> Option<HeaderValue> {
    let is_strong = !tag.as_bytes().starts_with(b"W/");
    let weak = || HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok();
    is_strong.then(weak).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn is_page_with(lines: &[(&'static str, &'static str)]) -> bool {
        is_page(StatusCode::OK, &headers(lines))
    }

    #[test]
    fn response_of_type_html_is_a_page() {
        for kind in ["text/html", "Text/HTML; Charset=UTF-8", "text/html;charset=\"iso-8859-1\"", "text/html ; a=b"] {
            assert!(is_page_with(&[("content-type", kind)]), "{kind}");
        }
    }

    #[test]
    fn response_of_another_type_is_no_page() {
        for kind in
            ["", "text/plain", "application/xhtml+xml", "text/html+x", "text/htmlx", "text/vnd.turbo-stream.html"]
        {
            assert!(!is_page_with(&[("content-type", kind)]), "{kind}");
        }
        assert!(!is_page_with(&[]));
        assert!(!is_page_with(&[("content-type", "text/html"), ("content-type", "text/plain")]));
    }

    #[test]
    fn page_in_a_wide_charset_is_left_alone() {
        for charset in
            ["utf-16", "UTF-16LE", "\"utf-16be\"", "utf-32", "ucs-2", "unicode", "csUnicode", "ISO-10646-UCS-2"]
        {
            let kind = HeaderValue::from_str(&format!("text/html; charset={charset}")).unwrap();
            assert!(!is_page(StatusCode::OK, &HeaderMap::from_iter([(CONTENT_TYPE, kind)])), "{charset}");
        }
    }

    #[test]
    fn encoded_page_is_left_alone() {
        let html = ("content-type", "text/html");
        assert!(is_page_with(&[html, ("content-encoding", "Identity")]));
        for encoding in ["gzip", "br", "identity, gzip"] {
            assert!(!is_page_with(&[html, ("content-encoding", encoding)]), "{encoding}");
        }
    }

    #[test]
    fn downloaded_page_is_left_alone() {
        let html = ("content-type", "text/html");
        assert!(is_page_with(&[html, ("content-disposition", "inline; filename=a.html")]));
        assert!(!is_page_with(&[html, ("content-disposition", "Attachment; filename=a.html")]));
    }

    #[test]
    fn status_without_a_whole_body_is_no_page() {
        let html = headers(&[("content-type", "text/html")]);
        for status in [101, 204, 205, 206, 304] {
            assert!(!is_page(StatusCode::from_u16(status).unwrap(), &html), "{status}");
        }
        for status in [200, 201, 404, 422, 500, 503] {
            assert!(is_page(StatusCode::from_u16(status).unwrap(), &html), "{status}");
        }
    }

    #[test]
    fn change_removes_what_describes_the_old_bytes() {
        let mut page = headers(&[
            ("content-type", "text/html"),
            ("content-length", "7"),
            ("accept-ranges", "bytes"),
            ("content-md5", "a"),
            ("digest", "a"),
            ("content-digest", "a"),
            ("repr-digest", "a"),
            ("cache-control", "no-cache"),
            ("etag", "\"a\""),
        ]);
        describe_change(&mut page);
        assert_eq!(page, headers(&[("content-type", "text/html"), ("cache-control", "no-cache"), ("etag", "W/\"a\"")]));
    }

    #[test]
    fn weak_etag_stays_as_it_is() {
        let mut page = headers(&[("etag", "W/\"a\"")]);
        describe_change(&mut page);
        assert_eq!(page, headers(&[("etag", "W/\"a\"")]));
    }
}
