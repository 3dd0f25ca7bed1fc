//! Checks of a request's head, before anything else looks at it: requests that two servers could read differently are rejected.

use http::header::{HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Method, Uri, Version};
use onceward::{Language, Rejection};
use onceward_api::Code;

/// The methods that clients use, for `Allow`.
pub(super) const FORWARDED_METHODS: &str = "GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE";

/// Checks a request, and brings it into origin form: the host is in `Host`, and the target is a path.
///
/// hyper has already rejected obsolete line folding, a `Transfer-Encoding` that does not end in `chunked`, and two different lengths; of
/// `Transfer-Encoding` and `Content-Length`, it has removed the second.
///
/// # Errors
/// If the request is ambiguous, or has a method that a reverse proxy does not forward.
pub(super) fn check(parts: &mut Parts) -> Result<(), Rejection> {
    if [Method::CONNECT, Method::TRACE].contains(&parts.method) {
        return Err(Rejection::new(Code::MethodNotAllowed)
            .detail("The proxy does not forward CONNECT and TRACE.")
            .detail_in(Language::SIMPLIFIED_CHINESE, "代理不转发 CONNECT 和 TRACE。"));
    }
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => return Err(bad("`Host` was sent twice.", "`Host` 发送了两次。")),
        (host, _) => host
            .map(|host| authority(host).ok_or_else(|| bad("`Host` is malformed.", "`Host` 格式错误。")))
            .transpose()?,
    };
    if parts.uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(bad("The target contains user info.", "请求目标中包含用户信息。"));
    }
    if parts.headers.get_all(TRANSFER_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
    {
        return Err(bad(
            "The proxy reads no `Transfer-Encoding` but `chunked`.",
            "代理只支持 `chunked` 这一种 `Transfer-Encoding`。",
        ));
    }
    match parts.uri.authority().map(Authority::as_str).map(HeaderValue::from_str) {
        // RFC 9112, section 3.2.2: a proxy ignores the `Host` beside an absolute form.
        Some(Ok(named)) => drop(parts.headers.insert(HOST, named)),
        Some(Err(_)) => return Err(bad("The target is malformed.", "请求目标格式错误。")),
        None if host.is_none() && parts.version >= Version::HTTP_11 => {
            return Err(bad("`Host` is missing.", "缺少 `Host`。"));
        }
        None => {}
    }
    if parts.uri.path() == "*" {
        return Err(bad("The proxy does not forward `OPTIONS *`.", "代理不转发 `OPTIONS *`。"));
    }
    parts.uri = origin_form(&parts.uri).ok_or_else(|| bad("The target is malformed.", "请求目标格式错误。"))?;
    Ok(())
}

/// Returns the host and port in a `Host` header.
fn authority(host: &HeaderValue) -> Option<Authority> {
    let authority = Authority::try_from(host.as_bytes()).ok()?;
    (!authority.as_str().contains('@')).then_some(authority)
}

/// Returns the path and query of a target.
fn origin_form(uri: &Uri) -> Option<Uri> {
    match uri.path_and_query() {
        _ if uri.authority().is_none() && uri.path().starts_with('/') => Some(uri.clone()),
        Some(path) if path.as_str().starts_with('/') => Some(Uri::from(path.clone())),
        // `http://shop.example?page=2`: the path is empty.
        Some(path) if path.as_str().starts_with('?') => {
            let query = path.query().unwrap_or_default();
            format!("/?{query}").parse().ok()
        }
        _ => None,
    }
}

fn bad(detail: &'static str, chinese: &'static str) -> Rejection {
    Rejection::new(Code::BadRequest).detail(detail).detail_in(Language::SIMPLIFIED_CHINESE, chinese)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn checked(target: &str, hosts: &[&str]) -> Result<(String, String), Code> {
        let mut request = Request::get(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        check(&mut parts).map_err(|rejection| rejection.code())?;
        let host = parts.headers.get(HOST).map_or("", |host| host.to_str().unwrap());
        Ok((parts.uri.to_string(), host.to_owned()))
    }

    fn ok(target: &str, host: &str) -> Result<(String, String), Code> {
        Ok((target.to_owned(), host.to_owned()))
    }

    #[test]
    fn origin_form_passes_unchanged() {
        for target in ["/", "/a/b?c=d", "//a/../b"] {
            assert_eq!(checked(target, &["shop.example:8080"]), ok(target, "shop.example:8080"));
        }
    }

    #[test]
    fn absolute_form_replaces_the_host() {
        assert_eq!(checked("http://shop.example/a?b", &["evil.example"]), ok("/a?b", "shop.example"));
        assert_eq!(checked("http://shop.example", &["evil.example"]), ok("/", "shop.example"));
        assert_eq!(checked("http://shop.example?b", &[]), ok("/?b", "shop.example"));
    }

    #[test]
    fn user_info_and_other_transfer_encodings_are_rejected() {
        assert_eq!(checked("http://u@shop.example/", &["shop.example"]), Err(Code::BadRequest));
        for (coding, expected) in [("chunked", Ok(())), ("Chunked", Ok(())), ("gzip, chunked", Err(Code::BadRequest))] {
            let request = Request::post("/").header(HOST, "a").header(TRANSFER_ENCODING, coding);
            let (mut parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(check(&mut parts).map_err(|rejection| rejection.code()), expected, "{coding}");
        }
    }

    #[test]
    fn asterisk_form_is_rejected() {
        assert_eq!(checked("*", &["shop.example"]), Err(Code::BadRequest));
    }

    #[test]
    fn ambiguous_host_is_rejected() {
        for hosts in
            [&[][..], &["a.example", "b.example"], &["a.example", "a.example"], &["a b"], &["u@a.example"], &[""]]
        {
            assert_eq!(checked("/", hosts), Err(Code::BadRequest), "{hosts:?}");
        }
    }
}
