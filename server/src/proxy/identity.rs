//! Compares more of a request than its content: the identity of a client that the proxy does not know, as a digest of its credentials,
//! and the site that it asks.

use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE, FORWARDED, HOST};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};

use super::forward::{Origin, X_FORWARDED_HOST};
use super::route::RouteSubject;
use super::settings::{ProxySettings, UpstreamHost};
use crate::http::access::forwarded_hosts;

/// The headers that are compared.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    /// Those with credentials, beside `Authorization` and `Cookie`.
    credentials: Arc<[HeaderName]>,
    /// True if the application receives the host that the client asks, and may serve several sites.
    has_sites: bool,
}

impl Identity {
    pub(super) fn new(settings: &ProxySettings) -> Self {
        Self {
            credentials: settings.credential_headers.as_slice().into(),
            has_sites: settings.upstream_host == UpstreamHost::Client,
        }
    }

    /// Returns what is compared on a route: the site, and all credentials if the route has no subject.
    pub(super) fn compared(
        &self,
        subject: &RouteSubject,
    ) -> impl Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + use<> + 'static {
        let (this, has_credentials) = (self.clone(), *subject == RouteSubject::Credentials);
        move |parts| {
            let credentials = this.credentials(&parts.headers).filter(|_| has_credentials);
            match site(parts).filter(|_| this.has_sites) {
                // A digest has a fixed length, so both parts are unambiguous.
                Some(site) => {
                    Some([&[u8::from(credentials.is_some())], &*credentials.unwrap_or_default(), &site].concat())
                }
                None => credentials,
            }
        }
    }

    /// Returns a digest of the credentials, with cookies in any order; `None` if the request has none.
    ///
    /// It becomes part of the content that is compared, and not of the subject. A retry with refreshed credentials is then a request with
    /// other content: it is rejected, and neither runs a second time nor receives the response of another client.
    pub(super) fn credentials(&self, headers: &HeaderMap) -> Option<Vec<u8>> {
        let mut cookies: Vec<&[u8]> = cookies(headers).collect();
        cookies.sort_unstable();
        let values = |name: &HeaderName| headers.get_all(name).iter().map(HeaderValue::as_bytes);
        let authorizations = values(&AUTHORIZATION).map(|value| ("a", value));
        let cookies = cookies.into_iter().map(|value| ("c", value));
        let others = self.credentials.iter().flat_map(|name| values(name).map(|value| (name.as_str(), value)));
        let mut digest = Sha256::new();
        let mut count: u64 = 0;
        for (kind, credential) in authorizations.chain(cookies).chain(others) {
            digest.update(kind);
            digest.update((credential.len() as u64).to_be_bytes());
            digest.update(credential);
            count += 1;
        }
        (count > 0).then(|| digest.finalize().to_vec())
    }
}

/// Returns the hosts by which the application may choose a site, in lower case: `Host`, and what a trusted proxy reports. A client may have
/// sent the one that the gateway does not set, so all of them count. A port is not part of it: a retry may reach another proxy of the same
/// machine.
fn site(parts: &Parts) -> Option<Vec<u8>> {
    let is_trusted = parts.extensions.get::<Origin>().is_some_and(|origin| origin.is_trusted);
    let lines = |name: HeaderName| {
        let lines = parts.headers.get_all(name).iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
        lines.collect::<Vec<_>>()
    };
    let mut hosts: Vec<_> = lines(HOST).iter().map(|host| without_port(host)).collect();
    if is_trusted {
        hosts.extend(lines(X_FORWARDED_HOST).iter().flat_map(|line| line.split(',')).map(without_port));
        hosts.extend(lines(FORWARDED).iter().flat_map(|line| forwarded_hosts(line)).map(|host| without_port(&host)));
    }
    // A gateway that reports the same host twice may report it once for the retry.
    hosts.dedup();
    (!hosts.is_empty()).then(|| hosts.join("\0").into_bytes())
}

/// Returns the host of `shop.example:8080`, in lower case.
fn without_port(text: &str) -> String {
    let text = text.trim();
    let authority = Authority::try_from(text);
    authority.as_ref().map_or(text, Authority::host).to_ascii_lowercase()
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
        let credentials = [HeaderName::from_static("x-api-key"), HeaderName::from_static("x-tenant")].into();
        Identity { credentials, has_sites: true }.credentials(&headers(lines))
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
            identity(&[("x-api-key", "a=1")]),
            identity(&[("x-api-key", "x")]),
            identity(&[("x-tenant", "x")]),
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
