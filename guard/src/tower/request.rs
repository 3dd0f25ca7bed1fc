//! The head of a request, as the framework-independent part reads it.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::Uri;
use http::request::Parts;

use crate::http::{RequestHead, SeenMark};

impl RequestHead for Parts {
    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn path(&self) -> &str {
        uri(self).path()
    }

    fn query(&self) -> &str {
        self.uri.query().unwrap_or_default()
    }

    fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.get_all(name).iter().map(http::HeaderValue::as_bytes)
    }

    fn path_parameter(&self, name: &str) -> Option<Cow<'_, str>> {
        router::parameter(self, name).map(Cow::Owned)
    }

    fn client_address(&self) -> Option<IpAddr> {
        let address = router::address(self).or_else(|| self.extensions.get::<SocketAddr>().copied());
        address.map(|address| address.ip())
    }
}

/// Returns the target of a request as the client sent it. A nested router of axum shortens the path.
pub(super) fn uri(parts: &Parts) -> &Uri {
    router::original_uri(parts).unwrap_or(&parts.uri)
}

/// Returns the path that a router matches, if a layer between the outermost router and this one has rewritten it. A nested router only
/// removes the beginning.
pub(super) fn rewritten_path(parts: &Parts) -> Option<&str> {
    let path = parts.uri.path();
    router::original_uri(parts).filter(|original| !original.path().ends_with(path)).map(|_| path)
}

/// Returns the pattern of the route that the request has reached, if a router has matched it.
pub(crate) fn matched_route(parts: &Parts) -> Option<&str> {
    router::matched_route(parts)
}

/// Records that a guard has seen the request.
pub(crate) fn mark_seen(parts: &Parts) {
    if let Some(seen) = parts.extensions.get::<SeenMark>() {
        seen.set();
    }
}

/// The data that axum's router attaches to a request.
#[cfg(feature = "axum")]
mod router {
    use std::net::SocketAddr;

    use axum::extract::rejection::RawPathParamsRejection;
    use axum::extract::{ConnectInfo, FromRequestParts as _, MatchedPath, OriginalUri, RawPathParams};
    use futures_util::FutureExt as _;
    use http::request::Parts;
    use http::{Request, Uri};

    pub(super) fn original_uri(parts: &Parts) -> Option<&Uri> {
        parts.extensions.get::<OriginalUri>().map(|original| &original.0)
    }

    pub(super) fn matched_route(parts: &Parts) -> Option<&str> {
        parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str)
    }

    pub(super) fn address(parts: &Parts) -> Option<SocketAddr> {
        parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0)
    }

    /// Returns a path parameter. The extractor of the router wants to change a request, so it receives a copy.
    pub(super) fn parameter(parts: &Parts, name: &str) -> Option<String> {
        let (mut copy, ()) = Request::new(()).into_parts();
        copy.extensions = parts.extensions.clone();
        match RawPathParams::from_request_parts(&mut copy, &()).now_or_never()? {
            Ok(all) => all.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_owned()),
            Err(RawPathParamsRejection::InvalidUtf8InPathParam(_)) => Some(char::REPLACEMENT_CHARACTER.into()),
            Err(_) => None,
        }
    }
}

/// Without a router there is no such data.
#[cfg(not(feature = "axum"))]
mod router {
    use std::net::SocketAddr;

    use http::Uri;
    use http::request::Parts;

    pub(super) fn original_uri(_: &Parts) -> Option<&Uri> {
        None
    }

    pub(super) fn matched_route(_: &Parts) -> Option<&str> {
        None
    }

    pub(super) fn address(_: &Parts) -> Option<SocketAddr> {
        None
    }

    pub(super) fn parameter(_: &Parts, _: &str) -> Option<String> {
        None
    }
}

#[cfg(all(test, feature = "axum"))]
mod tests {
    use axum::extract::OriginalUri;

    use super::*;

    #[test]
    fn nested_path_is_not_a_rewritten_one() {
        let parts = |original: Option<&'static str>, path: &'static str| {
            let (mut parts, ()) = http::Request::post(path).body(()).unwrap().into_parts();
            let original = original.map(|uri| OriginalUri(Uri::from_static(uri)));
            original.map(|uri| parts.extensions.insert(uri));
            parts
        };
        assert_eq!(rewritten_path(&parts(None, "/pay")), None);
        assert_eq!(rewritten_path(&parts(Some("/pay"), "/pay")), None);
        let nested = parts(Some("/shop/pay"), "/pay");
        assert_eq!((nested.path(), rewritten_path(&nested)), ("/shop/pay", None));
        let trimmed = parts(Some("/shop/pay/"), "/pay");
        assert_eq!((trimmed.path(), rewritten_path(&trimmed)), ("/shop/pay/", Some("/pay")));
    }
}
