//! A kept answer: what a duplicate is given instead of a second run.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

/// The headers that are kept of every answer. The others speak of that one exchange, or of that one caller's session.
const KEPT: [&str; 9] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "etag",
    "link",
    "location",
    "vary",
];

/// What is never kept, whoever asks for it: it would hand out somebody's login again, or break the connection it is sent on.
const NEVER: [&str; 12] = [
    "authorization",
    "connection",
    "content-length",
    "date",
    "idempotent-replayed",
    "keep-alive",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// A kept answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    status: u16,
    headers: Vec<(Cow<'static, str>, Bytes)>,
    body: Bytes,
}

impl Reply {
    /// An answer with this status and body, and no header yet.
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn from_record(status: u16, headers: Vec<(Cow<'static, str>, Bytes)>, body: Bytes) -> Self {
        Self { status, headers, body }
    }

    /// Whether it can be written down at all.
    pub(crate) fn fits(&self) -> bool {
        let fits = |length: usize| length <= usize::from(u16::MAX);
        fits(self.headers.len()) && self.headers.iter().all(|(name, value)| fits(name.len()) && fits(value.len()))
    }

    /// Adds a header, beside others of the same name. One that is never kept is left out.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<Bytes>) -> Self {
        let name = match KEPT.into_iter().find(|kept| kept.eq_ignore_ascii_case(name)) {
            Some(kept) => Cow::Borrowed(kept),
            None => Cow::Owned(name.to_ascii_lowercase()),
        };
        if !is_never_kept(&name) {
            self.headers.push((name, value.into()));
        }
        self
    }

    /// Whether an answer's header is kept where nobody asks for more.
    pub fn keeps(name: &str) -> bool {
        KEPT.contains(&name)
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The headers that were kept, in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.headers.iter().map(|(name, value)| (&**name, value))
    }

    /// The headers, without a copy of the names that every response may have.
    pub(crate) fn named_headers(&self) -> impl Iterator<Item = &(Cow<'static, str>, Bytes)> {
        self.headers.iter()
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// How much there is to keep.
    pub(crate) fn size(&self) -> usize {
        self.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() + self.body.len()
    }
}

fn is_never_kept(name: &str) -> bool {
    NEVER.contains(&name) || name.starts_with("onceward-") || name.starts_with("proxy-")
}

/// An answer may hold anything, so it does not show itself.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("status", &self.status).field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_s_login_is_kept_whoever_asks_for_it() {
        let reply = ["Set-Cookie", "AUTHORIZATION", "Date", "Onceward-Outcome", "Proxy-Authenticate", "Connection"]
            .into_iter()
            .fold(Reply::new(201, "made"), |reply, name| reply.header(name, "x"));
        assert_eq!(reply, Reply::new(201, "made"));
        assert!(KEPT.iter().all(|name| !is_never_kept(name)));
    }

    #[test]
    fn a_header_that_was_sent_twice_is_kept_twice() {
        let reply = Reply::new(200, "").header("Link", "</a>").header("link", "</b>");
        let links: Vec<_> = reply.headers().map(|(name, value)| (name, &value[..])).collect();
        assert_eq!(links, [("link", &b"</a>"[..]), ("link", b"</b>")]);
    }
}
