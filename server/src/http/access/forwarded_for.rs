//! The client address that a proxy reports in `X-Forwarded-For` or in `Forwarded` (RFC 7239).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use onceward::http::RequestHead;

/// The header that a proxy uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForwardedHeader {
    /// `X-Forwarded-For`: addresses, separated by commas. It takes precedence, because most proxies set it.
    XForwardedFor,
    /// `Forwarded`: elements of several pairs each, of which `for` has the address.
    Forwarded,
}

impl ForwardedHeader {
    /// Returns the header that a request has, if any.
    pub(super) fn of(request: &impl RequestHead) -> Option<Self> {
        let is_there = |field: &Self| request.header(field.name()).next().is_some();
        [Self::XForwardedFor, Self::Forwarded].into_iter().find(is_there)
    }

    /// Returns the name, in lower case.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }

    /// Returns the hops, the nearest first; `None` for a hop without a valid address.
    pub(super) fn hops(self, request: &impl RequestHead) -> Vec<Option<IpAddr>> {
        // Each line is parsed on its own, so a line of the client cannot change how the line of a proxy is parsed.
        let read = |line| std::str::from_utf8(line).ok().and_then(|line| self.read(line));
        let lines = request.header(self.name()).map(read);
        let mut hops: Vec<_> = lines.flat_map(|hops| hops.unwrap_or_else(|| vec![None])).collect();
        hops.reverse();
        hops
    }

    /// Returns the addresses of a line, in order; `None` if the line cannot be split into elements.
    fn read(self, line: &str) -> Option<Vec<Option<IpAddr>>> {
        match self {
            Self::XForwardedFor => Some(line.split(',').map(|hop| node(hop.trim())).collect()),
            Self::Forwarded => {
                let elements = split(line, ',')?.into_iter().filter(|element| !element.trim().is_empty());
                elements.map(element).collect()
            }
        }
    }
}

/// Returns the hosts that a line of `Forwarded` names, in order. A line that cannot be parsed is returned as it is, so that it equals only
/// itself.
pub(crate) fn forwarded_hosts(line: &str) -> Vec<String> {
    let read = || {
        let mut hosts = Vec::new();
        for element in split(line, ',')? {
            for (name, value) in split(element, ';')?.into_iter().filter_map(|pair| pair.trim().split_once('=')) {
                if name.eq_ignore_ascii_case("host") {
                    hosts.push(unquoted(value)?);
                }
            }
        }
        Some(hosts)
    };
    read().unwrap_or_else(|| vec![line.to_owned()])
}

/// Returns the address in an element, as in `for=192.0.2.60;proto=http`. The outer `None` means that the element is malformed.
fn element(text: &str) -> Option<Option<IpAddr>> {
    let mut address = None;
    for pair in split(text, ';')?.into_iter().map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=')?;
        let value = unquoted(value)?;
        if name.eq_ignore_ascii_case("for") {
            address = node(&value);
        }
    }
    Some(address)
}

/// Splits at separators outside of quotes; `None` if a quote is not closed.
fn split(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut pieces, mut begin, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if character == separator && !is_quoted => {
                pieces.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[begin..]);
    (!is_quoted).then_some(pieces)
}

/// Removes the quotes of a value; `None` if they do not enclose all of it.
fn unquoted(value: &str) -> Option<String> {
    let Some(quoted) = value.strip_prefix('"') else { return (!value.contains('"')).then(|| value.to_owned()) };
    let mut text = String::new();
    let mut characters = quoted.chars();
    loop {
        match characters.next()? {
            '"' => return characters.as_str().is_empty().then_some(text),
            '\\' => text.push(characters.next()?),
            character => text.push(character),
        }
    }
}

/// Parses an address, with or without a port: `192.0.2.60`, `192.0.2.60:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`.
fn node(text: &str) -> Option<IpAddr> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let is_whole = port.is_empty() || port.starts_with(':');
        return address.parse::<Ipv6Addr>().ok().filter(|_| is_whole).map(IpAddr::V6);
    }
    let (address, _) = text.split_once(':').unwrap_or((text, ""));
    text.parse().ok().or_else(|| address.parse::<Ipv4Addr>().ok().map(IpAddr::V4))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn hops(lines: &[(&str, &str)]) -> Vec<String> {
        let request = lines.iter().fold(TestRequest::default(), |request, line| request.append_header(*line));
        let request = request.to_http_request();
        let hops = ForwardedHeader::of(&request).unwrap().hops(&request);
        hops.into_iter().map(|hop| hop.map_or("?".to_owned(), |hop| hop.to_string())).collect()
    }

    fn forwarded(line: &str) -> Vec<String> {
        hops(&[("forwarded", line)])
    }

    #[test]
    fn every_standard_address_form_is_parsed() {
        assert_eq!(forwarded("for=192.0.2.60;proto=http;by=203.0.113.43"), ["192.0.2.60"]);
        assert_eq!(forwarded("by=203.0.113.43 ; For=\"192.0.2.60:4711\""), ["192.0.2.60"]);
        assert_eq!(forwarded("FOR=192.0.2.60:4711"), ["192.0.2.60"]);
        assert_eq!(forwarded("for=\"192.0.2.60:_hidden\""), ["192.0.2.60"]);
        assert_eq!(forwarded("For=\"[2001:db8:cafe::17]:4711\""), ["2001:db8:cafe::17"]);
        assert_eq!(forwarded("for=\"[2001:db8:cafe::17]\""), ["2001:db8:cafe::17"]);
        assert_eq!(forwarded("for=\"\\1\\9\\2.0.2.60\""), ["192.0.2.60"]);
        assert_eq!(forwarded("for=192.0.2.43, for=\"[2001:db8::1]\";proto=https,"), ["2001:db8::1", "192.0.2.43"]);
    }

    #[test]
    fn hidden_or_unknown_node_has_no_address() {
        for line in
            ["for=unknown", "for=_hidden", "for=\"_SEVKISEK\"", "proto=https", "for=", "for=\"\"", "for=nonsense"]
        {
            assert_eq!(forwarded(line), ["?"], "{line}");
        }
        assert_eq!(forwarded("for=192.0.2.43, for=unknown, for=198.51.100.17"), ["198.51.100.17", "?", "192.0.2.43"]);
        assert_eq!(forwarded("for=\"unknown, for=192.0.2.1\", for=192.0.2.43"), ["192.0.2.43", "?"]);
    }

    #[test]
    fn unterminated_client_header_cannot_hide_proxy_hops() {
        let ending = [", for=192.0.2.43", ", for=\"[2001:db8::1]:80\"", ", for=\"192.0.2.43\";proto=http"];
        for begun in ["for=\"", "for=6.6.6.6;x=\"", "for=\"6.6.6.6", "for=6.6.6.6;x=\"\\", "for=6.6.6.6\"", "for"] {
            for end in ending {
                let read = forwarded(&format!("{begun}{end}"));
                assert_ne!(read[0], "6.6.6.6", "{begun}{end}");
            }
            let apart = hops(&[("forwarded", begun), ("forwarded", "for=192.0.2.43")]);
            assert_eq!(apart[0], "192.0.2.43", "{begun}");
        }
    }

    #[test]
    fn x_forwarded_for_precedes_forwarded() {
        assert_eq!(hops(&[("forwarded", "for=192.0.2.1"), ("x-forwarded-for", "192.0.2.2")]), ["192.0.2.2"]);
        assert_eq!(
            hops(&[("x-forwarded-for", "192.0.2.2"), ("x-forwarded-for", "x, [::1]:80")]),
            ["::1", "?", "192.0.2.2"]
        );
        assert_eq!(ForwardedHeader::of(&TestRequest::default().to_http_request()), None);
    }
}
