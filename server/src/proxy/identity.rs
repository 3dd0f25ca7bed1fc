//! The identity of a client that the proxy does not know: a digest of its credentials.

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};
use sha2::{Digest as _, Sha256};

/// Returns a digest of `Authorization` and of all cookies, in any order; `None` if the request has neither.
///
/// It becomes part of the content that is compared, and not of the subject. A retry with refreshed credentials is then a request with other
/// content: it is rejected, and neither runs a second time nor receives the response of another client.
pub(super) fn of_credentials(headers: &HeaderMap) -> Option<Vec<u8>> {
    let mut cookies: Vec<&[u8]> = cookies(headers).collect();
    cookies.sort_unstable();
    let authorizations = headers.get_all(AUTHORIZATION).iter().map(|value| value.as_bytes());
    let mut digest = Sha256::new();
    let mut count: u64 = 0;
    for (kind, credential) in
        authorizations.map(|value| (b'a', value)).chain(cookies.into_iter().map(|value| (b'c', value)))
    {
        digest.update([kind]);
        digest.update((credential.len() as u64).to_be_bytes());
        digest.update(credential);
        count += 1;
    }
    (count > 0).then(|| digest.finalize().to_vec())
}

/// Returns the digest of a cookie, as text; `None` if the request does not have exactly one of this name.
pub(super) fn of_cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut values = cookies(headers).filter_map(|pair| value_of(pair, name));
    let value = values.next().filter(|_| values.next().is_none())?;
    Some(text(&Sha256::digest(value)))
}

/// Returns a digest as text.
pub(super) fn text(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(COOKIE).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    lines.map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty())
}

fn value_of<'a>(pair: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn identity(lines: &[(&'static str, &'static str)]) -> Option<Vec<u8>> {
        of_credentials(&headers(lines))
    }

    #[test]
    fn equal_credentials_are_one_identity_in_any_order() {
        let first = identity(&[("authorization", "Bearer x"), ("cookie", "a=1; b=2")]);
        assert!(first.is_some());
        assert_eq!(first, identity(&[("cookie", "b=2"), ("cookie", " a=1;"), ("authorization", "Bearer x")]));
    }

    #[test]
    fn different_credentials_are_different_identities() {
        let all = [
            identity(&[]),
            identity(&[("authorization", "Bearer x")]),
            identity(&[("authorization", "Bearer y")]),
            identity(&[("cookie", "a=1")]),
            identity(&[("cookie", "a=2")]),
            identity(&[("cookie", "a=1; a=1")]),
            identity(&[("cookie", "Bearer x")]),
            identity(&[("authorization", "Bearer x"), ("cookie", "a=1")]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other != one), "{at}");
        }
        assert_eq!((identity(&[("cookie", "")]), identity(&[("cookie", " ; ")])), (None, None));
    }

    #[test]
    fn cookie_subject_needs_exactly_one_cookie_of_that_name() {
        let of = |lines| of_cookie(&headers(lines), "session");
        assert_eq!(of(&[("cookie", "a=1; session=x")]), of(&[("cookie", "session=x; a=2")]));
        assert_ne!(of(&[("cookie", "session=x")]), of(&[("cookie", "session=y")]));
        for none in
            [&[][..], &[("cookie", "xsession=x")], &[("cookie", "session=")], &[("cookie", "session=x; session=y")]]
        {
            assert_eq!(of(none), None, "{none:?}");
        }
    }
}
