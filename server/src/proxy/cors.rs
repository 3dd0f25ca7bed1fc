//! CORS of the proxy: pages of the allowed origins can fetch tokens, and read the proxy's own responses. The application answers its own
//! preflights, and decides which pages read its responses.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD,
    HeaderMap, HeaderName, HeaderValue, ORIGIN, VARY,
};
use http::{Method, Response, StatusCode};
use onceward::Effect;
use onceward_api::header;

use super::body::{AnyBody, whole};

const RETRY: HeaderName = HeaderName::from_static(header::RETRY);

/// The origins whose pages may read the proxy's responses.
pub(super) struct AllowedOrigins(Vec<HeaderValue>);

impl AllowedOrigins {
    pub(super) fn new(origins: &[String]) -> Self {
        Self(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect())
    }

    /// Returns whether no origin is allowed.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the origin of a request, if it is allowed.
    pub(super) fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        self.0.contains(origin).then(|| origin.clone())
    }
}

/// Returns true if a request asks for permission to send another one.
pub(super) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Permits a request to one of the proxy's own routes.
pub(super) fn permission() -> Response<AnyBody> {
    let mut response = Response::new(whole(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    headers.insert(
        ACCESS_CONTROL_ALLOW_HEADERS,
        list(["content-type", "authorization"].into_iter().chain(header::ALLOWED)),
    );
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
    response
}

/// Lets the page of an allowed origin read a response, if it is the proxy's own: of one of its routes, or a rejection. Of a response that the
/// application has allowed it to read, it can also read the outcome.
pub(super) fn allow(origin: Option<HeaderValue>, is_own_route: bool, response: &mut Response<AnyBody>) {
    let is_own = is_own_route || is_rejection(response);
    let headers = response.headers_mut();
    if is_own {
        // Also without an allowed origin: a cache must not send that copy to a page of one.
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    let Some(origin) = origin else { return };
    if is_own {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    }
    if headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, list(header::EXPOSED.into_iter().chain([header::REQUEST_ID])));
    }
}

/// Returns whether the proxy rejects the request: such a response names the next step, and has an effect, which no upstream can state.
fn is_rejection(response: &Response<AnyBody>) -> bool {
    response.headers().contains_key(RETRY) && response.extensions().get::<Effect>().is_some()
}

fn list(names: impl Iterator<Item = &'static str>) -> HeaderValue {
    HeaderValue::from_str(&names.collect::<Vec<_>>().join(", ")).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    /// Returns the headers that a page of an allowed origin receives. `effect` marks a response of a guard.
    fn allowed(is_own_route: bool, effect: Option<Effect>, lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut response = Response::new(whole(""));
        *response.headers_mut() = headers(lines);
        effect.map(|effect| response.extensions_mut().insert(effect));
        allow(Some(HeaderValue::from_static("https://shop.example")), is_own_route, &mut response);
        response.headers().clone()
    }

    #[test]
    fn origin_is_allowed_only_if_it_is_in_the_list() {
        let origins = AllowedOrigins::new(&["https://shop.example".to_owned()]);
        let origin = |origin| origins.origin(&headers(&[("origin", origin)]));
        assert_eq!(origin("https://shop.example").unwrap(), "https://shop.example");
        assert_eq!(
            [origin("https://evil.example"), origin("null"), origins.origin(&HeaderMap::new())],
            [None, None, None]
        );
        assert_eq!(AllowedOrigins::new(&[]).origin(&headers(&[("origin", "https://shop.example")])), None);
    }

    #[test]
    fn own_responses_and_rejections_are_readable_and_those_of_the_application_as_it_says() {
        let retry = ("onceward-retry", "no");
        for own in [allowed(true, None, &[]), allowed(false, Some(Effect::NotApplied), &[retry])] {
            assert_eq!(own[ACCESS_CONTROL_ALLOW_ORIGIN], "https://shop.example");
            assert_eq!(
                (&own[VARY], &own[ACCESS_CONTROL_ALLOW_CREDENTIALS]),
                (&"Origin".parse().unwrap(), &"true".parse().unwrap())
            );
        }
        for theirs in [allowed(false, None, &[retry]), allowed(false, Some(Effect::Applied), &[("x-shop", "1")])] {
            assert_eq!((theirs.len(), theirs.get(ACCESS_CONTROL_ALLOW_ORIGIN)), (1, None), "{theirs:?}");
        }
        let open = allowed(false, None, &[("access-control-allow-origin", "*"), retry]);
        assert_eq!((&open[ACCESS_CONTROL_ALLOW_ORIGIN], open.get(VARY)), (&"*".parse().unwrap(), None));
        assert!(open[ACCESS_CONTROL_EXPOSE_HEADERS].to_str().unwrap().contains("onceward-outcome"));
    }

    #[test]
    fn own_response_to_any_origin_varies_by_it() {
        let mut response = Response::new(whole(""));
        allow(None, true, &mut response);
        assert_eq!((response.headers().len(), &response.headers()[VARY]), (1, &"Origin".parse().unwrap()));
    }
}
