//! The address of the upstream: `http://127.0.0.1:3000`.

use std::net::SocketAddr;

use http::Uri;
use http::uri::Scheme;

use crate::proxy::settings::UpstreamAddress;

/// The form of the address, for errors.
const FORM: &str = "use scheme, host and port, as in `http://127.0.0.1:3000`";

/// Parses the address. The error quotes it only if it cannot contain a password.
pub(super) fn parse(text: &str) -> Result<UpstreamAddress, String> {
    if text.contains('@') {
        return Err(format!("the URL has a user name or password, which the proxy does not send; {FORM}"));
    }
    let wrong = |what: &str| format!("`{text}` {what}; {FORM}");
    if text.contains('#') {
        return Err(wrong("has a fragment"));
    }
    let uri: Uri = text.parse().map_err(|_| wrong("is not a URL"))?;
    let parts = uri.into_parts();
    let scheme = match parts.scheme {
        Some(scheme) if scheme == Scheme::HTTP || scheme == Scheme::HTTPS => scheme,
        Some(_) => return Err(wrong("is neither `http://` nor `https://`")),
        None => return Err(wrong("has no scheme")),
    };
    let authority = parts.authority.ok_or_else(|| wrong("has no host"))?;
    if authority.host().is_empty() {
        return Err(wrong("has no host"));
    }
    if authority.as_str().len() > authority.host().len() && matches!(authority.port_u16(), None | Some(0)) {
        return Err(wrong("has no valid port"));
    }
    match parts.path_and_query {
        Some(path) if path.query().is_some() => Err(wrong("has a query")),
        Some(path) if !matches!(path.path(), "" | "/") => Err(wrong("has a path, and the proxy adds none")),
        _ => Ok(UpstreamAddress { scheme, authority }),
    }
}

/// Returns true if the upstream is the address on which the proxy listens: each request would be forwarded without end.
pub(super) fn is_at(upstream: &UpstreamAddress, listen: SocketAddr) -> bool {
    let usual = if upstream.scheme == Scheme::HTTPS { 443 } else { 80 };
    let host = upstream.authority.host().trim_matches(['[', ']']);
    let is_here = match host.parse::<std::net::IpAddr>() {
        Ok(ip) => ip == listen.ip() || ip.is_unspecified() || (listen.ip().is_unspecified() && ip.is_loopback()),
        Err(_) => host.eq_ignore_ascii_case("localhost") && (listen.ip().is_loopback() || listen.ip().is_unspecified()),
    };
    is_here && upstream.authority.port_u16().unwrap_or(usual) == listen.port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_host_and_port_are_accepted() {
        for text in [
            "http://127.0.0.1:3000",
            "http://127.0.0.1:3000/",
            "https://shop.internal",
            "HTTP://shop",
            "http://[::1]:3000",
            "http://[::1]",
        ] {
            parse(text).unwrap_or_else(|error| panic!("{error}"));
        }
        assert_eq!(parse("https://shop:8443/").unwrap().authority.as_str(), "shop:8443");
    }

    #[test]
    fn other_urls_are_rejected_with_the_fix() {
        for (text, expected) in [
            ("", "is not a URL"),
            ("127.0.0.1:3000", "has no scheme"),
            ("/orders", "has no scheme"),
            ("ftp://shop", "is neither"),
            ("http://", "is not a URL"),
            ("http://:3000", "has no host"),
            ("http://shop:", "has no valid port"),
            ("http://shop:0", "has no valid port"),
            ("http://shop:99999", "has no valid port"),
            ("http://shop/api", "has a path"),
            ("http://shop?x=1", "has a query"),
            ("http://shop/?", "has a query"),
            ("http://shop#top", "has a fragment"),
            ("http://a b", "is not a URL"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("`{text}` {expected}")) && error.ends_with(FORM), "{text}: {error}");
        }
        let error = parse("http://user:canary@shop").unwrap_err();
        assert!(error.contains("user name or password") && !error.contains("canary"), "{error}");
    }

    #[test]
    fn upstream_at_the_own_address_is_found() {
        let is_own = |upstream: &str, listen: &str| is_at(&parse(upstream).unwrap(), listen.parse().unwrap());
        for (upstream, listen) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://localhost:8080", "0.0.0.0:8080"),
            ("http://[::1]:8080", "[::]:8080"),
            ("http://localhost", "127.0.0.1:80"),
            ("https://127.0.0.1", "127.0.0.1:443"),
        ] {
            assert!(is_own(upstream, listen), "{upstream} {listen}");
        }
        for (upstream, listen) in [
            ("http://127.0.0.1:3000", "127.0.0.1:8080"),
            ("http://10.0.0.7:8080", "127.0.0.1:8080"),
            ("http://shop:8080", "0.0.0.0:8080"),
            ("http://10.0.0.7:8080", "0.0.0.0:8080"),
        ] {
            assert!(!is_own(upstream, listen), "{upstream} {listen}");
        }
    }
}
