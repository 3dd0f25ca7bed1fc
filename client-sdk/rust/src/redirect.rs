//! Redirects: where a response leads, and which headers may go there.

use reqwest::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HeaderValue,
    PROXY_AUTHORIZATION, TRANSFER_ENCODING,
};
use reqwest::header::{HeaderMap, HeaderName, LOCATION};
use reqwest::{Method, StatusCode, Url};

/// The most redirects followed in one attempt.
pub(crate) const MAX_REDIRECTS: usize = 10;

/// A redirect that a response asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) url: Url,
    /// Whether the submission is sent there, or its result fetched with a `GET`.
    pub(crate) keeps_submission: bool,
    /// Whether it leads to another origin.
    pub(crate) crosses_origin: bool,
}

impl Redirect {
    /// Reads the redirect of a response, if it is one.
    pub(crate) fn of(method: &Method, from: &Url, status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let keeps_submission = match status {
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method != Method::POST,
            StatusCode::SEE_OTHER => false,
            _ => return None,
        };
        let mut url = from.join(headers.get(LOCATION)?.to_str().ok()?).ok()?;
        if !matches!(url.scheme(), "http" | "https") {
            return None;
        }
        if url.fragment().is_none() {
            url.set_fragment(from.fragment());
        }
        let crosses_origin = !same_origin(from, &url);
        Some(Self { url, keeps_submission, crosses_origin })
    }
}

/// Whether two addresses have scheme, host and port in common.
pub(crate) fn same_origin(one: &Url, other: &Url) -> bool {
    one.origin() == other.origin()
}

/// Takes away what is meant for the origin that was left. What the HTTP client would add by itself is left empty instead, since
/// its default headers go everywhere.
pub(crate) fn drop_credentials(headers: &mut HeaderMap, identity: &[HeaderName]) {
    for name in identity.iter().chain([&PROXY_AUTHORIZATION]) {
        headers.remove(name);
    }
    for name in [AUTHORIZATION, COOKIE] {
        headers.insert(name, HeaderValue::from_static(""));
    }
}

/// Takes away what describes a body that is not sent.
pub(crate) fn drop_content(headers: &mut HeaderMap) {
    for name in [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_LANGUAGE, TRANSFER_ENCODING] {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(method: Method, status: u16, location: &str) -> Option<Redirect> {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, location.parse().unwrap());
        let from = "https://shop.example/orders?x=1".parse().unwrap();
        Redirect::of(&method, &from, StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn a_submission_stays_one_where_the_status_says_so() {
        for (status, post, put) in [(301, false, true), (302, false, true), (303, false, false)] {
            assert_eq!(leads(Method::POST, status, "/a").unwrap().keeps_submission, post, "{status}");
            assert_eq!(leads(Method::PUT, status, "/a").unwrap().keeps_submission, put, "{status}");
        }
        for status in [307, 308] {
            assert!(leads(Method::POST, status, "/a").unwrap().keeps_submission);
            assert!(leads(Method::DELETE, status, "/a").unwrap().keeps_submission);
        }
        assert_eq!(leads(Method::POST, 200, "/a"), None);
        assert_eq!(leads(Method::POST, 304, "/a"), None);
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let crosses = |location: &str| leads(Method::POST, 307, location).unwrap().crosses_origin;
        for here in ["/other", "?y", "https://shop.example:443/a", "https://SHOP.example/", "//shop.example/"] {
            assert!(!crosses(here), "{here}");
        }
        for elsewhere in [
            "http://shop.example/",
            "https://shop.example:444/",
            "https://a.shop.example/",
            "//shop.example.evil.test/",
        ] {
            assert!(crosses(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn an_answer_that_leads_nowhere_is_an_answer() {
        assert_eq!(leads(Method::POST, 307, "http://[::1"), None);
        assert_eq!(leads(Method::POST, 307, "file:///etc/passwd"), None);
        assert_eq!(leads(Method::POST, 307, "javascript:alert(1)"), None);
        let from = "https://shop.example/".parse().unwrap();
        assert_eq!(Redirect::of(&Method::POST, &from, StatusCode::FOUND, &HeaderMap::new()), None);
    }

    #[test]
    fn nothing_that_names_the_caller_crosses() {
        let mut headers = HeaderMap::new();
        let own = HeaderName::from_static("x-user");
        for name in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, own.clone(), CONTENT_TYPE] {
            headers.insert(name, HeaderValue::from_static("secret"));
        }
        drop_credentials(&mut headers, std::slice::from_ref(&own));
        let left: Vec<_> = headers.iter().filter(|(_, value)| *value == "secret").map(|(name, _)| name).collect();
        assert_eq!(left, [CONTENT_TYPE]);
    }
}
