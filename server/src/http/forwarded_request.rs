//! The original request, which a gateway describes in one of three forms.

use actix_web::HttpRequest;
use actix_web::http::Method;
use onceward::Rejection;
use onceward_api::path::canonical;

use super::bad_request;

/// The path for gateways.
pub(crate) const PATH: &str = "/forward-auth";
/// The headers with method and path: nginx sends the first pair, Caddy and Traefik the second.
const HEADER_PAIRS: [[&str; 2]; 2] =
    [["x-original-method", "x-original-uri"], ["x-forwarded-method", "x-forwarded-uri"]];

/// The request that the gateway holds back until it has a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForwardedRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
}

impl ForwardedRequest {
    /// Reads the original request. If several forms are present, they must be equal: one of them may come from the client, and only the
    /// gateway knows which.
    ///
    /// # Errors
    /// If no form is present, if one is malformed, or if two differ.
    pub(crate) fn of(request: &HttpRequest) -> Result<Self, Rejection> {
        let mut found: Option<Self> = None;
        for form in forms(request)? {
            match &found {
                Some(first) if *first != form => {
                    return Err(bad_request(
                        "The headers that describe the original request differ. The gateway must overwrite or remove X-Original-Method, \
                         X-Original-URI, X-Forwarded-Method and X-Forwarded-Uri.",
                        "描述原始请求的请求头不一致。网关必须覆盖或移除 X-Original-Method、X-Original-URI、X-Forwarded-Method 和 \
                         X-Forwarded-Uri。",
                    ));
                }
                _ => found = Some(form),
            }
        }
        found.ok_or_else(|| {
            bad_request(
                "The original request is missing. The gateway must send its method and URI in X-Original-Method and X-Original-URI, or in \
                 X-Forwarded-Method and X-Forwarded-Uri, or append the URI to /forward-auth.",
                "缺少原始请求。网关必须在 X-Original-Method 和 X-Original-URI（或 X-Forwarded-Method 和 X-Forwarded-Uri）中发送其方法和 URI，\
                 或将 URI 附加在 /forward-auth 之后。",
            )
        })
    }

    /// Returns true if the method is safe, so that the request needs no token.
    pub(crate) fn is_safe(&self) -> bool {
        [Method::GET, Method::HEAD, Method::OPTIONS].contains(&self.method)
    }

    fn read(method: &str, uri: &str) -> Option<Self> {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let method = Method::from_bytes(method.as_bytes()).ok()?;
        path.starts_with('/').then(|| Self { method, path: path.to_owned(), query: query.to_owned() })
    }
}

/// Returns true if this is the path for gateways.
pub(crate) fn is_gateway_path(path: &str) -> bool {
    canonical(path).strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reads each form that the request contains.
fn forms(request: &HttpRequest) -> Result<Vec<ForwardedRequest>, Rejection> {
    let uri = request.uri().path_and_query().map_or("", |uri| uri.as_str());
    let behind = uri.strip_prefix(PATH).filter(|rest| rest.starts_with('/'));
    let mut forms: Vec<_> =
        behind.and_then(|rest| ForwardedRequest::read(request.method().as_str(), rest)).into_iter().collect();
    for names in HEADER_PAIRS {
        let [methods, uris] = names.map(|name| request.headers().get_all(name).collect::<Vec<_>>());
        if methods.is_empty() && uris.is_empty() {
            continue;
        }
        let [method_name, uri_name] = names;
        if methods.len() != uris.len() {
            return Err(bad_request(
                format!("`{method_name}` and `{uri_name}` must be sent together, once each."),
                format!("`{method_name}` 和 `{uri_name}` 必须同时发送，且各发送一次。"),
            ));
        }
        for (method, uri) in methods.into_iter().zip(uris) {
            let read = Option::zip(method.to_str().ok(), uri.to_str().ok())
                .and_then(|(method, uri)| ForwardedRequest::read(method, uri));
            forms.push(read.ok_or_else(|| {
                bad_request(
                    format!("`{method_name}` must be a method, and `{uri_name}` a path that begins with a slash."),
                    format!("`{method_name}` 必须是请求方法，`{uri_name}` 必须是以斜杠开头的路径。"),
                )
            })?);
        }
    }
    Ok(forms)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn parsed(method: Method, uri: &str, headers: &[(&str, &str)]) -> Result<(String, String, String), String> {
        let request = TestRequest::with_uri(uri).method(method);
        let request = headers.iter().fold(request, |request, header| request.append_header(*header)).to_http_request();
        let original = ForwardedRequest::of(&request).map_err(|rejection| rejection.problem().detail)?;
        Ok((original.method.to_string(), original.path, original.query))
    }

    fn is(method: &str, path: &str, query: &str) -> Result<(String, String, String), String> {
        Ok((method.into(), path.into(), query.into()))
    }

    const ORIGINAL: [(&str, &str); 2] = [("x-original-method", "POST"), ("x-original-uri", "/orders?a=1&_onceward=t")];
    const FORWARDED: [(&str, &str); 2] =
        [("x-forwarded-method", "POST"), ("x-forwarded-uri", "/orders?a=1&_onceward=t")];

    #[test]
    fn request_is_read_from_each_of_three_sources() {
        assert_eq!(
            parsed(Method::GET, "/forward-auth?style=nginx", &ORIGINAL),
            is("POST", "/orders", "a=1&_onceward=t")
        );
        assert_eq!(parsed(Method::GET, "/forward-auth", &FORWARDED), is("POST", "/orders", "a=1&_onceward=t"));
        assert_eq!(parsed(Method::PUT, "/forward-auth/orders/1?a=%20", &[]), is("PUT", "/orders/1", "a=%20"));
        assert_eq!(parsed(Method::POST, "/forward-auth/", &[]), is("POST", "/", ""));
        assert_eq!(parsed(Method::POST, "/forward-auth//a//b", &[]), is("POST", "//a//b", ""), "as it was sent");
    }

    #[test]
    fn differing_sources_are_rejected() {
        assert!(parsed(Method::GET, "/forward-auth", &[ORIGINAL, FORWARDED].concat()).is_ok());
        let differing = [
            [("x-original-method", "GET"), ("x-original-uri", "/orders?a=1&_onceward=t")],
            [("x-original-method", "POST"), ("x-original-uri", "/elsewhere")],
        ];
        for client in differing {
            for both in [[client, FORWARDED].concat(), [FORWARDED, client].concat(), [ORIGINAL, client].concat()] {
                assert!(parsed(Method::GET, "/forward-auth", &both).unwrap_err().contains("differ"), "{both:?}");
            }
            assert!(parsed(Method::POST, "/forward-auth/orders", &client).unwrap_err().contains("differ"));
        }
    }

    #[test]
    fn missing_or_malformed_source_is_named() {
        assert!(parsed(Method::POST, "/forward-auth", &[]).unwrap_err().contains("X-Original-Method"));
        assert!(parsed(Method::GET, "/forward-auth", &ORIGINAL[1..]).unwrap_err().contains("`x-original-method`"));
        assert!(parsed(Method::GET, "/forward-auth", &FORWARDED[..1]).unwrap_err().contains("`x-forwarded-uri`"));
        for wrong in
            [("PO ST", "/orders"), ("", "/orders"), ("POST", "orders"), ("POST", ""), ("POST", "http://x/orders")]
        {
            let headers = [("x-original-method", wrong.0), ("x-original-uri", wrong.1)];
            assert!(
                parsed(Method::GET, "/forward-auth", &headers).unwrap_err().contains("`x-original-uri`"),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn gateway_path_matches_only_itself_and_subpaths() {
        assert!(
            is_gateway_path("/forward-auth") && is_gateway_path("/forward-auth/") && is_gateway_path("/forward-auth/a")
        );
        assert!(is_gateway_path("/%66orward-auth") && is_gateway_path("/forward%2Dauth/a"), "as the router decodes it");
        assert!(
            !is_gateway_path("/forward-authority") && !is_gateway_path("/token") && !is_gateway_path("/a/forward-auth")
        );
    }
}
