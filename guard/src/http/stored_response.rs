//! The part of a response that is stored, and the reasons why none is.

use bytes::Bytes;

use crate::policy::Policy;
use crate::reply::NoReply;
use crate::reply::Reply;

/// The length of a response's body, as far as it is known before reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLength {
    /// The length in bytes.
    Known(u64),
    /// Unknown: the body is streamed. Compression middleware between guard and handler streams its output.
    Streamed { has_content_encoding: bool },
}

impl BodyLength {
    /// Returns the reason why a body of this length is not read, and so not stored; `None` if it is read.
    pub(crate) fn unread(self, limit: usize) -> Option<NoReply> {
        match self {
            Self::Known(length) => (length > limit as u64).then_some(NoReply::TooLarge),
            Self::Streamed { has_content_encoding: true } => Some(NoReply::Compressed),
            Self::Streamed { has_content_encoding: false } => Some(NoReply::Streamed),
        }
    }
}

/// Returns how much of a response is read, if its body is read at all: if the policy stores responses, or if the route judges by the
/// body.
pub(crate) fn read_limit(policy: &Policy, limit: usize) -> Option<usize> {
    (limit > 0 || policy.keeps_replies()).then_some(limit)
}

/// Creates the stored form of a response: its status, its body, and the headers that the route keeps.
pub(crate) fn capture<'a>(
    status: u16,
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
    body: Bytes,
    is_kept: impl Fn(&str) -> bool,
) -> Reply {
    let mut reply = Reply::new(status, body);
    headers.filter(|(name, _)| is_kept(name)).for_each(|(name, value)| reply.push(name, value));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_read_if_its_length_is_known_and_within_the_limit() {
        assert_eq!([0, 9, 10].map(|length| BodyLength::Known(length).unread(10)), [None; 3]);
        assert_eq!(BodyLength::Known(11).unread(10), Some(NoReply::TooLarge));
        assert_eq!(BodyLength::Known(0).unread(0), None);
        let streamed = |has_content_encoding| BodyLength::Streamed { has_content_encoding }.unread(10);
        assert_eq!([streamed(true), streamed(false)], [Some(NoReply::Compressed), Some(NoReply::Streamed)]);
    }

    #[test]
    fn body_is_not_read_if_nothing_needs_it() {
        assert_eq!(read_limit(&Policy::token(), 0), None);
        assert_eq!(read_limit(&Policy::token(), 1), Some(1));
        assert_eq!(read_limit(&Policy::key(crate::policy::KeyRules::retryable()), 0), Some(0));
    }

    #[test]
    fn kept_headers_are_stored_and_cookies_never() {
        let headers = [("content-type", &b"text/plain"[..]), ("x-cost", b"1"), ("x-other", b"2"), ("set-cookie", b"s")];
        let reply = capture(201, headers.into_iter(), Bytes::from_static(b"made"), |name| name != "x-other");
        let stored: Vec<_> = reply.headers().collect();
        assert_eq!(stored, [("content-type", &b"text/plain"[..]), ("x-cost", b"1")]);
        assert_eq!((reply.status(), &reply.body()[..]), (201, &b"made"[..]));
    }
}
