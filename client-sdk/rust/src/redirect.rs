//! Redirects: the target of a response, and the headers that may be sent there.

use reqwest::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HeaderValue,
    PROXY_AUTHORIZATION, TRANSFER_ENCODING,
};
use reqwest::header::{HeaderMap, HeaderName, LOCATION};
use reqwest::{Method, StatusCode, Url};

/// Maximum number of redirects followed in one attempt.
pub(crate) const MAX_REDIRECTS: usize = 10;

/// The redirect in a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) url: Url,
    /// True if the submission is sent there, false if its result is fetched with a `GET`.
    pub(crate) keeps_submission: bool,
    /// True if the target is on another origin.
    pub(crate) crosses_origin: bool,
}

impl Redirect {
    /// Reads the redirect of a response, if there is one.
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

/// Returns true if two URLs have the same scheme, host and port.
pub(crate) fn same_origin(one: &Url, other: &Url) -> bool {
    one.origin() == other.origin()
}

/// Removes the headers that identify the client. `Authorization` and `Cookie` are set to an empty value instead, which overrides the
/// default headers of the HTTP client.
pub(crate) fn drop_credentials(headers: &mut HeaderMap, identity: &[HeaderName]) {
    for name in identity.iter().chain([&PROXY_AUTHORIZATION]) {
        headers.remove(name);
    }
    for name in [AUTHORIZATION, COOKIE] {
        headers.insert(name, HeaderValue::from_static(""));
    }
}

/// Removes the headers that describe a body.
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
    fn redirect_keeps_the_submission_by_status_and_method() {
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
    fn origin_is_scheme_host_and_port() {
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
    fn redirect_without_usable_location_is_the_response() {
        assert_eq!(leads(Method::POST, 307, "http://[::1"), None);
        assert_eq!(leads(Method::POST, 307, "file:///etc/passwd"), None);
        assert_eq!(leads(Method::POST, 307, "javascript:alert(1)"), None);
        let from = "https://shop.example/".parse().unwrap();
        assert_eq!(Redirect::of(&Method::POST, &from, StatusCode::FOUND, &HeaderMap::new()), None);
    }

    #[test]
    fn credentials_are_dropped_across_origins() {
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
