//! The headers of a forwarded request and of its response.

use std::net::IpAddr;

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, FORWARDED, HOST, HeaderMap, HeaderName,
    HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use onceward_api::header;

const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const RUN: HeaderName = HeaderName::from_static(header::RUN);

/// Headers that belong to one connection (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    HTTP2_SETTINGS,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The connection that a request arrived on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    /// The other end of the connection.
    pub(super) peer: IpAddr,
    /// The client, as trusted proxies report it.
    pub(super) client: IpAddr,
    /// True if the peer is a trusted proxy, whose forwarding headers are passed on.
    pub(super) is_trusted: bool,
}

/// Removes the headers that belong to one connection, and those that `Connection` names. Beside a `Transfer-Encoding`, `Content-Length` is
/// not the length of the body, and is removed too (RFC 9112, section 6.3).
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    if headers.contains_key(CONNECTION) {
        for name in connection_options(headers) {
            headers.remove(name);
        }
    }
    // A comparison costs less than a lookup, and most messages have none of these headers.
    if headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        for name in &HOP_BY_HOP {
            headers.remove(name);
        }
    }
}

fn connection_options(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let names = lines.flat_map(|line| line.split(',')).map(str::trim);
    // A client must not have the proxy remove what it relies on.
    let is_needed = |name: &HeaderName| {
        let prefixes = ["content-", "forwarded", "idempotency-key", "onceward-", "x-forwarded-", "x-real-ip"];
        [HOST, AUTHORIZATION, COOKIE].contains(name) || prefixes.iter().any(|prefix| name.as_str().starts_with(prefix))
    };
    // These two name no header, or one that is removed in any case. Almost every message has one of them.
    let is_common = |name: &str| ["close", "keep-alive"].iter().any(|common| name.eq_ignore_ascii_case(common));
    let names = names.filter(|name| !is_common(name));
    names.filter_map(|name| name.parse().ok()).filter(|name| !is_needed(name)).collect()
}

/// Reduces `Content-Length` to one line with one number. If its values differ, which hyper accepts of a message without a body, or are no
/// numbers, it is removed: another recipient could take another value for the length.
pub(super) fn unify_length(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lines.next() else { return };
    if lines.next().is_none() && is_number(first.as_bytes()) {
        return;
    }
    let lines = headers.get_all(CONTENT_LENGTH).iter();
    let mut lengths = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let first = lengths.next().filter(|first| is_number(first) && lengths.all(|other| other == *first));
    match first.map(HeaderValue::from_bytes) {
        Some(Ok(length)) => drop(headers.insert(CONTENT_LENGTH, length)),
        Some(Err(_)) | None => drop(headers.remove(CONTENT_LENGTH)),
    }
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// Returns the protocol that a message switches to, if `Connection` lists `upgrade`. A switch to another version of HTTP or to TLS is not
/// forwarded: later requests on that connection would pass the proxy unchecked.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut protocols = headers.get_all(UPGRADE).iter();
    let protocol = protocols.next().filter(|_| protocols.next().is_none())?;
    let is_hidden = |name: &str| {
        let name = name.trim().to_ascii_lowercase();
        name == "h2c" || name == "h2" || name.starts_with("http") || name.starts_with("tls")
    };
    let is_forwarded = !protocol.to_str().ok()?.split(',').any(is_hidden);
    (is_forwarded && connection_options(headers).contains(&UPGRADE)).then(|| protocol.clone())
}

/// Adds the headers of a message that switches to this protocol.
pub(super) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Removes the headers that the upstream must not believe: `Onceward-*` other than the token, and from a client that is no trusted proxy,
/// forwarding headers and those in `subjects`, from which routes read the subject. A name with underscores counts as the one with hyphens,
/// since CGI and WSGI do not distinguish them.
pub(super) fn remove_spoofed(headers: &mut HeaderMap, origin: &Origin, subjects: &[HeaderName]) {
    let is_spoofed = |name: &HeaderName| {
        let name = name.as_str();
        let is_subject = |subject: &HeaderName| {
            name.len() == subject.as_str().len()
                && starts_with(name, subject.as_str())
                && (!origin.is_trusted || name != subject.as_str())
        };
        if subjects.iter().any(is_subject) {
            return true;
        }
        let is_ours = starts_with(name, "onceward-") && name != header::TOKEN;
        let is_forwarding = ["x-forwarded-", "forwarded", "x-real-ip"].iter().any(|prefix| starts_with(name, prefix));
        is_ours || (is_forwarding && (!origin.is_trusted || name.contains('_')))
    };
    let spoofed: Vec<_> = headers.keys().filter(|name| is_spoofed(name)).cloned().collect();
    for name in spoofed {
        headers.remove(name);
    }
}

/// Returns whether a name starts with this prefix, if underscores count as hyphens.
fn starts_with(name: &str, prefix: &str) -> bool {
    let hyphenated = |byte: u8| if byte == b'_' { b'-' } else { byte };
    name.len() >= prefix.len() && name.bytes().map(hyphenated).zip(prefix.bytes()).all(|(a, b)| a == b)
}

/// Adds the forwarding headers: the address of the client, the host and the protocol that it used.
///
/// An application reads either `Forwarded` or `X-Forwarded-*`. What a trusted proxy says in one form is not filled in in the other, where
/// the protocol of this connection would contradict that of the client.
pub(super) fn add_forwarding(headers: &mut HeaderMap, origin: &Origin) {
    let is_standard = headers.contains_key(FORWARDED);
    let is_usual = headers.keys().any(|name| name.as_str().starts_with("x-forwarded-"));
    let host = headers.get(HOST).cloned();
    // An address is formatted once: that costs more than the rest of this function.
    let peer = origin.peer.to_string();
    if is_standard || !is_usual {
        let element = match headers.get(X_FORWARDED_PROTO) {
            _ if !is_standard => forwarded_element(&peer, host.as_ref(), Some("http")),
            sent => forwarded_element(&peer, None, sent.and_then(scheme)),
        };
        append(headers, FORWARDED, element);
    }
    let client = if origin.client == origin.peer { peer.clone() } else { origin.client.to_string() };
    if !is_standard || headers.contains_key(X_FORWARDED_FOR) {
        append(headers, X_FORWARDED_FOR, peer);
    }
    append(headers, VIA, "1.1 onceward".to_owned());
    if let Ok(client) = HeaderValue::try_from(client) {
        headers.insert(X_REAL_IP, client);
    }
    if is_standard {
        return;
    }
    headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
    if let Some(host) = host {
        headers.entry(X_FORWARDED_HOST).or_insert(host);
    }
}

/// Returns the protocol in `X-Forwarded-Proto`, if it is the only one.
fn scheme(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok().filter(|text| ["http", "https"].iter().any(|scheme| text.eq_ignore_ascii_case(scheme)))
}

/// Returns an element of `Forwarded` (RFC 7239).
fn forwarded_element(peer: &str, host: Option<&HeaderValue>, protocol: Option<&str>) -> String {
    let (open, close) = if peer.contains(':') { ("\"[", "]\"") } else { ("", "") };
    let mut element = ["for=", open, peer, close].concat();
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        element.extend([";host=\"", host, "\""]);
    }
    if let Some(protocol) = protocol {
        element.extend([";proto=", protocol]);
    }
    element
}

/// Appends an element to a list, on one line.
fn append(headers: &mut HeaderMap, name: HeaderName, element: String) {
    let lines: Vec<_> = headers.get_all(&name).iter().filter_map(|line| line.to_str().ok()).collect();
    let list = if lines.is_empty() { element } else { format!("{}, {element}", lines.join(", ")) };
    if let Ok(list) = HeaderValue::try_from(list) {
        headers.insert(name, list);
    }
}

/// Prepares the headers of a request whose response is stored: the upstream learns the run, and sends the response without an encoding,
/// since another client may receive the stored response.
pub(super) fn mark_run(headers: &mut HeaderMap, run: &str) {
    if let Ok(run) = HeaderValue::try_from(run) {
        headers.insert(RUN, run);
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    fn origin(is_trusted: bool) -> Origin {
        Origin { peer: "10.0.0.1".parse().unwrap(), client: "10.0.0.1".parse().unwrap(), is_trusted }
    }

    #[test]
    fn headers_of_one_connection_are_removed() {
        let mut headers = map(&[
            ("connection", "close, X-Hop"),
            ("connection", "host, content-length"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("host", "a"),
            ("content-length", "3"),
            ("accept", "*/*"),
        ]);
        remove_hop_by_hop(&mut headers);
        assert_eq!(lines(&headers), ["accept: */*", "content-length: 3", "host: a"]);
    }

    #[test]
    fn content_length_beside_a_transfer_encoding_is_removed() {
        for coding in ["chunked", "gzip, chunked"] {
            let mut headers = map(&[("content-length", "3"), ("transfer-encoding", coding), ("accept", "*/*")]);
            remove_hop_by_hop(&mut headers);
            assert_eq!(lines(&headers), ["accept: */*"]);
        }
    }

    #[test]
    fn content_length_becomes_one_number() {
        for (sent, expected) in [
            (&["3"][..], Some("3")),
            (&["3", "3"], Some("3")),
            (&["3, 3"], Some("3")),
            (&["3 ,3", "3"], Some("3")),
            (&["3", "4"], None),
            (&["3, 4"], None),
            (&["+3"], None),
            (&["-3"], None),
            (&["3,"], None),
            (&[""], None),
            (&[], None),
        ] {
            let mut headers = map(&sent.iter().map(|line| ("content-length", *line)).collect::<Vec<_>>());
            unify_length(&mut headers);
            let lines: Vec<_> = headers.get_all(CONTENT_LENGTH).iter().map(|line| line.to_str().unwrap()).collect();
            assert_eq!(lines, expected.into_iter().collect::<Vec<_>>(), "{sent:?}");
        }
    }

    #[test]
    fn spoofed_headers_of_a_client_are_removed() {
        let sent = [
            ("onceward-run", "1"),
            ("onceward_run", "2"),
            ("onceward-outcome", "executed"),
            ("onceward-token", "t"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x_forwarded_for", "6.6.6.6"),
            ("x-forwarded-prefix", "/evil"),
            ("forwarded", "for=6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
            ("idempotency-key", "k"),
        ];
        let mut headers = map(&sent);
        remove_spoofed(&mut headers, &origin(false), &[]);
        assert_eq!(lines(&headers), ["idempotency-key: k", "onceward-token: t"]);
        let mut headers = map(&sent);
        remove_spoofed(&mut headers, &origin(true), &[]);
        assert!(headers.contains_key("x-forwarded-for") && headers.contains_key("forwarded"));
        assert!(!headers.contains_key("x_forwarded_for") && !headers.contains_key("onceward-run"));
    }

    #[test]
    fn forwarding_headers_name_the_peer_and_its_host() {
        let mut headers = map(&[("host", "shop.example:80")]);
        add_forwarding(&mut headers, &origin(false));
        assert_eq!(
            lines(&headers),
            [
                "forwarded: for=10.0.0.1;host=\"shop.example:80\";proto=http",
                "host: shop.example:80",
                "via: 1.1 onceward",
                "x-forwarded-for: 10.0.0.1",
                "x-forwarded-host: shop.example:80",
                "x-forwarded-proto: http",
                "x-real-ip: 10.0.0.1",
            ]
        );
    }

    #[test]
    fn ipv6_address_is_quoted_in_forwarded() {
        assert_eq!(forwarded_element("2001:db8::7", None, Some("http")), "for=\"[2001:db8::7]\";proto=http");
    }

    #[test]
    fn forwarding_headers_of_a_trusted_proxy_are_extended() {
        let mut headers = map(&[
            ("host", "shop"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-for", "5.6.7.8"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=1.2.3.4;proto=https"),
        ]);
        add_forwarding(&mut headers, &origin(true));
        assert_eq!(headers["x-forwarded-for"], "1.2.3.4, 5.6.7.8, 10.0.0.1");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["forwarded"], "for=1.2.3.4;proto=https, for=10.0.0.1;proto=https");
    }

    #[test]
    fn form_that_a_trusted_proxy_does_not_use_is_not_filled_in() {
        let added = |name, value| {
            let mut headers = map(&[("host", "shop"), (name, value)]);
            add_forwarding(&mut headers, &origin(true));
            let added = lines(&headers).into_iter();
            added.filter(|line| line.contains("forwarded")).collect::<Vec<_>>()
        };
        assert_eq!(
            added("x-forwarded-proto", "https"),
            ["x-forwarded-for: 10.0.0.1", "x-forwarded-host: shop", "x-forwarded-proto: https"]
        );
        let forwarded = "for=1.2.3.4;host=shop.example;proto=https";
        assert_eq!(added("forwarded", forwarded), [format!("forwarded: {forwarded}, for=10.0.0.1")]);
    }

    #[test]
    fn upgrade_needs_the_connection_option() {
        assert_eq!(upgrade(&map(&[("upgrade", "websocket")])), None);
        assert_eq!(
            upgrade(&map(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")])).unwrap(),
            "websocket"
        );
    }

    #[test]
    fn header_of_a_subject_is_kept_from_a_trusted_proxy_only() {
        let subjects = [HeaderName::from_static("x-user")];
        for (is_trusted, left) in [(true, vec!["x-user: a"]), (false, vec![])] {
            let mut headers = map(&[("x-user", "a"), ("x_user", "b")]);
            remove_spoofed(&mut headers, &origin(is_trusted), &subjects);
            assert_eq!(lines(&headers), left);
        }
    }

    #[test]
    fn switch_to_another_version_of_http_is_not_forwarded() {
        for protocol in ["h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.3"] {
            let headers = map(&[("connection", "upgrade"), ("upgrade", protocol)]);
            assert_eq!(upgrade(&headers), None, "{protocol}");
        }
        let twice = map(&[("connection", "upgrade"), ("upgrade", "websocket"), ("upgrade", "h2c")]);
        assert_eq!(upgrade(&twice), None);
    }
}
