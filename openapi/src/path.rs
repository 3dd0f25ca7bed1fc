//! Canonical paths: any octet of a path may be percent-encoded, and routers decode it, so one path has many spellings.
//!
//! Two spellings that reach one handler with the same parameters are one action and one content. The canonical path is only used to
//! name them: routing, and the access rules of an application, see the path as it was sent.

use std::borrow::Cow;

/// Returns the canonical spelling of a path.
///
/// Every octet is decoded except `%2F`, which is not a separator, and `%25`, which does not start another encoded octet. An octet that
/// is not UTF-8 stays encoded, in upper case. A `%` that is not followed by two hexadecimal digits stands for itself and becomes
/// `%25`. Nothing else changes: `/a/./b`, `/a//b`, `/a/` and `/A` are distinct paths.
///
/// ```
/// use onceward_api::path::canonical;
///
/// assert_eq!(canonical("/%6frders/%e2%82%ac/%37"), "/orders/€/7");
/// assert_eq!(canonical("/a%2fb/100%25/100%/%ff"), "/a%2Fb/100%25/100%25/%FF");
/// ```
pub fn canonical(path: &str) -> Cow<'_, str> {
    if path.contains('%') { Cow::Owned(encode(&decode(path.as_bytes()))) } else { Cow::Borrowed(path) }
}

/// Returns the canonical spelling of an action. In an action that is a method and a path, such as `POST /orders`, the path becomes
/// canonical. Any other name stays unchanged.
///
/// ```
/// use onceward_api::path::canonical_action;
///
/// assert_eq!(canonical_action("POST /%6frders"), "POST /orders");
/// assert_eq!(canonical_action("100%25 cashback"), "100%25 cashback");
/// ```
pub fn canonical_action(action: &str) -> Cow<'_, str> {
    if !action.contains('%') {
        return Cow::Borrowed(action);
    }
    let Some((method, path)) =
        action.split_once(' ').filter(|(method, path)| is_method(method) && path.starts_with('/'))
    else {
        return Cow::Borrowed(action);
    };
    match canonical(path) {
        Cow::Borrowed(_) => Cow::Borrowed(action),
        Cow::Owned(path) => Cow::Owned([method, " ", &path].concat()),
    }
}

/// Returns true if the text can be a method: a token as defined in RFC 9110.
fn is_method(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Decodes until nothing is left to decode, because actix decodes a path twice, once to route it and once for its parameters, so
/// `%%34%31` reaches a handler as `A`. Any `%` and two digits that remain afterwards stay encoded.
fn decode(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    for byte in path {
        decoded.push(*byte);
        while let Some(octet) = last_octet(&decoded).filter(|octet| !b"/%".contains(octet)) {
            decoded.truncate(decoded.len() - 3);
            decoded.push(octet);
        }
    }
    decoded
}

/// Returns the octet that is percent-encoded at the end.
fn last_octet(text: &[u8]) -> Option<u8> {
    match text {
        [.., b'%', high, low] => octet(*high, *low),
        _ => None,
    }
}

fn octet(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// Encodes the octets that cannot stay decoded.
fn encode(decoded: &[u8]) -> String {
    let mut text = String::with_capacity(decoded.len());
    for chunk in decoded.utf8_chunks() {
        push_valid(&mut text, chunk.valid());
        chunk.invalid().iter().for_each(|octet| push_encoded(&mut text, *octet));
    }
    text
}

fn push_valid(text: &mut String, valid: &str) {
    let mut pieces = valid.split('%');
    text.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        // `decode` leaves only these encoded.
        let (octet, rest) = match piece.as_bytes() {
            [b'2', b'F' | b'f', ..] => (b'/', &piece[2..]),
            [b'2', b'5', ..] => (b'%', &piece[2..]),
            _ => (b'%', piece),
        };
        push_encoded(text, octet);
        text.push_str(rest);
    }
}

fn push_encoded(text: &mut String, octet: u8) {
    let digit = |value: u8| char::from(b"0123456789ABCDEF"[usize::from(value)]);
    text.extend(['%', digit(octet >> 4), digit(octet & 15)]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_octet_has_one_spelling() {
        for octet in 0..=u8::MAX {
            let upper = canonical(&format!("/x%{octet:02X}y")).into_owned();
            assert_eq!(canonical(&format!("/x%{octet:02x}y")), upper);
            assert_eq!(canonical(&upper), upper);
            let expected = match octet {
                b'/' | b'%' | 0x80.. => format!("/x%{octet:02X}y"),
                octet => format!("/x{}y", char::from(octet)),
            };
            assert_eq!(upper, expected);
        }
    }

    #[test]
    fn encoded_octets_are_upper_case_and_decoded_once() {
        for (path, expected) in [
            ("", ""),
            ("*", "*"),
            ("/", "/"),
            ("/%2f%2F", "/%2F%2F"),
            ("/%252F", "/%252F"),
            ("/%2541", "/%2541"),
            ("/%25%34%31", "/%2541"),
            ("/caf%C3%a9/%c3", "/café/%C3"),
            ("/café", "/café"),
            ("/%F0%9F%98%80%80", "/😀%80"),
            ("/%ff%FE", "/%FF%FE"),
            ("/a%2Eb/%2e%2e/c", "/a.b/../c"),
            ("/a%3Fb%23c%3B%3d", "/a?b#c;="),
            ("/+%2B%20", "/++ "),
        ] {
            assert_eq!(canonical(path), expected, "{path}");
        }
    }

    /// actix decodes these to the same parameter.
    #[test]
    fn percent_sign_that_encodes_nothing_stands_for_itself() {
        for (path, expected) in [
            ("/%", "/%25"),
            ("/100%/x", "/100%25/x"),
            ("/%zz%4", "/%25zz%254"),
            ("/%%41", "/%25A"),
            ("/%%34%31", "/A"),
            ("/%4%31", "/A"),
            ("/%%341", "/A"),
            ("/%%32%35", "/%25"),
            ("/%%32%46", "/%2F"),
            ("/%%46%46", "/%FF"),
            ("/%25%", "/%25%25"),
        ] {
            assert_eq!(canonical(path), expected, "{path}");
        }
    }

    #[test]
    fn paths_that_differ_stay_apart() {
        let paths = [
            "/a/b",
            "/a%2Fb",
            "/a%252Fb",
            "/a/./b",
            "/a/../b",
            "/A/b",
            "/a/b/",
            "//a/b",
            "/a//b",
            "/a/b;v=1",
            "/a+b",
            "/a b",
            "/a%FF",
            "/a%FE",
            "/a\u{fffd}",
            "/a%25FF",
        ];
        let canonical: std::collections::BTreeSet<_> = paths.iter().map(|path| canonical(path)).collect();
        assert_eq!(canonical.len(), paths.len());
    }

    #[test]
    fn only_action_with_method_and_path_becomes_canonical() {
        for (action, expected) in [
            ("POST /%6frders", "POST /orders"),
            ("PURGE /a%2fb?c=%31", "PURGE /a%2Fb?c=1"),
            ("m-search /%41 %42", "m-search /A B"),
            ("POST /orders", "POST /orders"),
            ("%50OST /orders", "%50OST /orders"),
            ("POST %6f", "POST %6f"),
            ("/%6frders", "/%6frders"),
            ("send (%6f) /%6f", "send (%6f) /%6f"),
            ("pay%20bill", "pay%20bill"),
            (" /%6f", " /%6f"),
            ("", ""),
        ] {
            assert_eq!(canonical_action(action), expected, "{action}");
        }
    }

    /// Returns a path of these octets, each of them in one of its spellings.
    fn spelled(octets: &[u8], spellings: &[u8]) -> String {
        let spell = |(octet, spelling): (&u8, &u8)| match spelling % 3 {
            0 if octet.is_ascii() && *octet != b'%' => char::from(*octet).to_string(),
            1 => format!("%{octet:02x}"),
            _ => format!("%{octet:02X}"),
        };
        octets.iter().zip(spellings).map(spell).collect()
    }

    /// Returns the octets of a path, with an encoded slash as `Err`.
    fn octets(path: &str) -> Vec<Result<u8, char>> {
        let bytes = path.as_bytes();
        let (mut found, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let encoded = bytes.get(at..at + 3).filter(|text| text[0] == b'%').and_then(|text| octet(text[1], text[2]));
            found.push(match encoded {
                Some(b'/') => Err('/'),
                Some(octet) => Ok(octet),
                None => Ok(bytes[at]),
            });
            at += if encoded.is_some() { 3 } else { 1 };
        }
        found
    }

    proptest! {
        #[test]
        fn canonicalization_is_idempotent(path in "([%2-5a-fF/é]|[^%]){0,24}") {
            let once = canonical(&path).into_owned();
            prop_assert_eq!(canonical(&once), once.as_str());
        }

        #[test]
        fn equivalent_octet_encodings_are_equal(octets: Vec<u8>, one: [u8; 32], other: [u8; 32]) {
            // `/` and `%2F` differ, so slashes are left out.
            let octets: Vec<u8> = octets.into_iter().filter(|octet| *octet != b'/').take(32).collect();
            let (one, other) = (spelled(&octets, &one), spelled(&octets, &other));
            prop_assert_eq!(canonical(&one), canonical(&other));
        }

        /// A well-encoded path keeps its octets, and separators stay distinct from encoded slashes.
        #[test]
        fn distinct_paths_are_not_merged(octets_of: Vec<u8>, spellings: [u8; 32]) {
            let path = spelled(&octets_of[..octets_of.len().min(32)], &spellings);
            prop_assert_eq!(octets(&canonical(&path)), octets(&path));
        }

        #[test]
        fn result_is_well_encoded(path in "([%2-5a-fF/é]|[^%]){0,24}") {
            let canonical = canonical(&path).into_owned();
            for (at, _) in canonical.match_indices('%') {
                let octet = octet(canonical.as_bytes()[at + 1], canonical.as_bytes()[at + 2]);
                prop_assert!(matches!(octet, Some(b'/' | b'%' | 0x80..)), "{}", canonical);
                prop_assert_eq!(&canonical[at + 1..at + 3], canonical[at + 1..at + 3].to_ascii_uppercase());
            }
        }
    }
}
