//! The paths of a route: literal segments, `{name}` for one segment, and `*` at the end for the rest.

use std::borrow::Cow;

use onceward_api::path::canonical;

use super::normal_path::normal;

/// A pattern for paths, such as `/orders/{id}` or `/api/*`.
///
/// It matches every spelling of a path that an upstream may take for the same one: with percent-encoded letters, repeated slashes, or dot
/// segments. Letter case and a slash at the end matter; `/api/*` matches `/api`, `/api/` and everything below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    segments: Vec<Segment>,
    /// True if the pattern ends with `/*`.
    has_rest: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// A text in its canonical spelling; empty only at the end, for a slash.
    Literal(String),
    /// One segment that is not empty.
    Parameter(String),
}

impl PathPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// If it is malformed. The error quotes it and states the fix.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("`{text}` {what}");
        let below = text.strip_prefix('/').ok_or_else(|| wrong("must start with a slash, as in `/orders/{id}`"))?;
        if let Some(mark) = below.chars().find(|mark| matches!(mark, '?' | '#')) {
            return Err(wrong(&format!("contains `{mark}`; write the path only, without a query")));
        }
        let (named, has_rest) = match below.strip_suffix("/*") {
            _ if below == "*" => (None, true),
            Some(named) => (Some(named), true),
            None => (Some(below), false),
        };
        let names = named.into_iter().flat_map(|named| named.split('/'));
        let segments =
            names.map(|name| Segment::parse(name).map_err(|what| wrong(&what))).collect::<Result<Vec<_>, _>>()?;
        let pattern = Self { text: text.to_owned(), segments, has_rest };
        pattern.check().map_err(|what| wrong(&what))?;
        Ok(pattern)
    }

    /// Returns the pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the names of the parameters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Parameter(name) => Some(name.as_str()),
            Segment::Literal(_) => None,
        })
    }

    /// Matches a path as it was sent, and returns the decoded values of the parameters by name.
    pub fn parameters(&self, path: &str) -> Option<Vec<(&str, String)>> {
        self.parameters_of_normal(&normal(path))
    }

    /// Like [`parameters`](Self::parameters), for a path that is [`normal`] already. Allocates nothing for a
    /// pattern without parameters.
    pub fn parameters_of_normal(&self, path: &str) -> Option<Vec<(&str, String)>> {
        let mut parameters = Vec::new();
        let mut left = path.strip_prefix('/').map(|below| below.split('/'))?;
        for segment in &self.segments {
            let sent = left.next()?;
            match segment {
                Segment::Literal(text) if text == sent => {}
                Segment::Parameter(name) if !sent.is_empty() => parameters.push((name.as_str(), decoded(sent))),
                _ => return None,
            }
        }
        (self.has_rest || left.next().is_none()).then_some(parameters)
    }

    /// Returns true if every path that `other` matches is also matched by this pattern.
    pub fn covers(&self, other: &Self) -> bool {
        let is_long_enough = match self.has_rest {
            true => other.segments.len() >= self.segments.len(),
            false => other.segments.len() == self.segments.len() && !other.has_rest,
        };
        is_long_enough && self.segments.iter().zip(&other.segments).all(|(own, other)| own.covers(other))
    }

    /// Checks the segments together.
    fn check(&self) -> Result<(), String> {
        let names: Vec<_> = self.names().collect();
        if let Some(name) = names.iter().enumerate().find_map(|(at, name)| names[..at].contains(name).then_some(name)) {
            return Err(format!("names `{{{name}}}` twice; give each parameter a name of its own"));
        }
        // The last segment may be empty: a slash at the end.
        let inner = if self.has_rest { self.segments.len() } else { self.segments.len().saturating_sub(1) };
        if self.segments[..inner].contains(&Segment::Literal(String::new())) {
            return Err("contains an empty segment; write one slash between two segments".to_owned());
        }
        Ok(())
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            return match !name.is_empty() && name.bytes().all(is_plain) {
                true => Ok(Self::Parameter(name.to_owned())),
                false => Err(format!(
                    "has the parameter `{text}`; a name consists of letters, digits and `_`, as in `{{id}}`"
                )),
            };
        }
        if text.contains('*') {
            return Err(
                "contains `*` elsewhere than as the last segment, as in `/api/*`; write `%2A` for the character"
                    .to_owned(),
            );
        }
        if text.contains(['{', '}']) {
            return Err(format!("has the segment `{text}`; a parameter is a whole segment, as in `/orders/{{id}}`"));
        }
        match canonical(text).into_owned() {
            dots if matches!(dots.as_str(), "." | "..") => {
                Err("contains a dot segment; write the path that it leads to".to_owned())
            }
            text => Ok(Self::Literal(text)),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Parameter(_), Self::Parameter(_)) => true,
            (Self::Parameter(_), Self::Literal(text)) => !text.is_empty(),
            (own, other) => own == other,
        }
    }
}

/// Decodes a segment of a canonical path, in which every `%` begins an encoded octet. An octet that is not UTF-8 becomes U+FFFD.
fn decoded(segment: &str) -> String {
    if !segment.contains('%') {
        return segment.to_owned();
    }
    let mut octets = Vec::with_capacity(segment.len());
    let mut pieces = segment.split('%');
    octets.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2).unwrap_or((piece, ""));
        octets.extend(u8::from_str_radix(digits, 16));
        octets.extend_from_slice(rest.as_bytes());
    }
    match String::from_utf8_lossy(&octets) {
        Cow::Borrowed(text) => text.to_owned(),
        Cow::Owned(text) => text,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the values of the parameters, joined, or `None`.
    fn matched(text: &str, path: &str) -> Option<String> {
        let values = |parameters: Vec<(&str, String)>| {
            parameters.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        pattern(text).parameters(path).map(values)
    }

    #[test]
    fn literal_matches_every_spelling_of_its_path() {
        for path in [
            "/orders",
            "//orders",
            "/%6frders",
            "/%6Frders",
            "/a/../orders",
            "/./orders",
            "/a/%2e%2E/orders",
            "/../orders",
        ] {
            assert_eq!(matched("/orders", path).as_deref(), Some(""), "{path}");
        }
        for path in [
            "/orders/",
            "/Orders",
            "/order",
            "/orders/7",
            "/",
            "",
            "orders",
            "*",
            "/orders%2F",
            "/orders/..",
            "/orders;a",
        ] {
            assert_eq!(matched("/orders", path), None, "{path}");
        }
        for (text, path) in [
            ("/", "/"),
            ("/", "/a/.."),
            ("/a/", "/a/"),
            ("/a/", "/a/."),
            ("/caf%c3%a9", "/café"),
            ("/a%2fb", "/a%2Fb"),
            ("/%2A", "/*"),
            ("/%2A", "/%2a"),
        ] {
            assert_eq!(matched(text, path).as_deref(), Some(""), "{text} {path}");
        }
        assert_eq!(matched("/", "/a"), None);
        assert_eq!(matched("/a/", "/a"), None);
    }

    #[test]
    fn parameter_matches_one_segment_and_is_decoded() {
        for (path, expected) in [
            ("/orders/7/pay", Some("id=7")),
            ("//orders//7/x/../pay", Some("id=7")),
            ("/orders/a%2Fb/pay", Some("id=a/b")),
            ("/orders/100%25/pay", Some("id=100%")),
            ("/orders/100%/pay", Some("id=100%")),
            ("/orders/caf%C3%A9/pay", Some("id=café")),
            ("/orders/%FF%fe/pay", Some("id=\u{fffd}\u{fffd}")),
            ("/orders/%2541/pay", Some("id=%41")),
            ("/orders//pay", None),
            ("/orders/7/8/pay", None),
            ("/orders/7/pay/", None),
            ("/orders/../pay", None),
        ] {
            assert_eq!(matched("/orders/{id}/pay", path).as_deref(), expected, "{path}");
        }
        assert_eq!(matched("/{a}/{b}", "/1/2").as_deref(), Some("a=1 b=2"));
        assert_eq!(matched("/orders/{id}", "/orders/"), None);
    }

    #[test]
    fn rest_matches_everything_below_and_the_path_itself() {
        for path in ["/api", "/api/", "/api/a", "/api/a/b/", "/x/../api/%61"] {
            assert_eq!(matched("/api/*", path).as_deref(), Some(""), "{path}");
        }
        for path in ["/", "/apis", "/api/..", "/ap/i"] {
            assert_eq!(matched("/api/*", path), None, "{path}");
        }
        assert_eq!(matched("/{shop}/*", "/7/a/b").as_deref(), Some("shop=7"));
        assert_eq!(matched("/{shop}/*", "/"), None);
        for path in ["/", "/a", "/a/b/"] {
            assert_eq!(matched("/*", path).as_deref(), Some(""), "{path}");
        }
    }

    #[test]
    fn malformed_pattern_is_rejected_with_the_fix() {
        for (text, expected) in [
            ("", "must start with a slash"),
            ("orders", "must start with a slash"),
            ("/a?b=1", "without a query"),
            ("/a#b", "without a query"),
            ("/a*", "`*` elsewhere"),
            ("/*/a", "`*` elsewhere"),
            ("/a/*/", "`*` elsewhere"),
            ("/**", "`*` elsewhere"),
            ("/{}", "has the parameter `{}`"),
            ("/{a-b}", "has the parameter `{a-b}`"),
            ("/{a}b", "a parameter is a whole segment"),
            ("/a}", "a parameter is a whole segment"),
            ("/{a}/{a}", "names `{a}` twice"),
            ("//a", "contains an empty segment"),
            ("/a//", "contains an empty segment"),
            ("//*", "contains an empty segment"),
            ("/a//*", "contains an empty segment"),
            ("/a/../b", "contains a dot segment"),
            ("/%2e/b", "contains a dot segment"),
        ] {
            let error = PathPattern::parse(text).expect_err(text);
            assert!(error.starts_with(&format!("`{text}` ")) && error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn pattern_covers_narrower_ones() {
        for (wide, narrow) in [
            ("/*", "/"),
            ("/*", "/a/{b}/*"),
            ("/a/*", "/a"),
            ("/a/*", "/a/b/"),
            ("/a/*", "/a/*"),
            ("/{x}", "/a"),
            ("/{x}", "/{y}"),
            ("/{x}/*", "/a/"),
            ("/%61", "/a"),
        ] {
            assert!(pattern(wide).covers(&pattern(narrow)), "{wide} {narrow}");
        }
        for (wide, narrow) in [
            ("/a", "/{x}"),
            ("/a", "/a/"),
            ("/a", "/a/*"),
            ("/a/*", "/*"),
            ("/{x}", "/"),
            ("/a/{x}", "/a/"),
            ("/a", "/b"),
        ] {
            assert!(!pattern(wide).covers(&pattern(narrow)), "{wide} {narrow}");
        }
    }

    proptest! {
        #[test]
        fn any_segment_round_trips_through_a_parameter(octets in "[^/]{1,12}", spellings: [bool; 64]) {
            prop_assume!(!matches!(octets.as_str(), "." | ".."));
            let spell = |(octet, is_encoded): (u8, bool)| match octet {
                b'%' | 0x80.. => format!("%{octet:02x}"),
                _ if is_encoded => format!("%{octet:02X}"),
                octet => char::from(octet).to_string(),
            };
            let sent: String = octets.bytes().zip(spellings).map(spell).collect();
            let pattern = pattern("/a/{x}");
            prop_assert_eq!(pattern.parameters(&format!("/a/{sent}")), Some(vec![("x", octets)]));
        }

        #[test]
        fn no_text_panics(text: String, path: String) {
            if let Ok(pattern) = PathPattern::parse(&text) {
                let _ = pattern.parameters(&path);
                prop_assert!(pattern.covers(&pattern));
            }
        }

        #[test]
        fn covered_paths_match_the_covering_pattern(wide in "(/([ab]|[{]x[}])){0,3}(/|/[*])?", narrow in "(/([ab]|[{]x[}])){0,3}(/|/[*])?", path in "(/[ab]?){0,4}") {
            if let (Ok(wide), Ok(narrow)) = (PathPattern::parse(&wide), PathPattern::parse(&narrow)) {
                prop_assert!(!wide.covers(&narrow) || narrow.parameters(&path).is_none() || wide.parameters(&path).is_some());
            }
        }
    }
}
