//! Replies: stored responses, which duplicates receive instead of a second run.

mod stored_headers;

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use self::stored_headers::StoredHeaders;

/// Headers that are stored by default. The others belong to one response, or to the session of one client.
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

/// Headers that are never stored, even on request: they would reveal a client's credentials, or break the connection of the replay.
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

/// A stored response.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    status: u16,
    headers: StoredHeaders,
    body: Bytes,
}

impl Reply {
    /// Creates a reply with this status and body, and no headers yet.
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: StoredHeaders::default(), body: body.into() }
    }

    /// Reads a reply from a record: this many encoded headers, and the body behind them. Returns `None` if they are malformed.
    pub(crate) fn from_record(status: u16, headers: u16, bytes: &Bytes) -> Option<Self> {
        let (headers, body) = StoredHeaders::read(headers, bytes)?;
        Some(Self { status, headers, body })
    }

    /// Returns the headers as a record holds them, and their number.
    pub(crate) fn encoded_headers(&self) -> (&[u8], usize) {
        self.headers.encoded()
    }

    /// Returns whether the reply can be encoded in a record.
    pub(crate) fn fits(&self) -> bool {
        self.headers.fit()
    }

    /// Adds a header, in addition to others of the same name. Ignores headers that are never stored, such as `Set-Cookie`. A reply with a name
    /// or value of more than 65,535 bytes cannot be stored, and [`headers`](Self::headers) does not show that header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.push(&name.to_ascii_lowercase(), value.as_ref());
        self
    }

    /// Like [`header`](Self::header), for a name in lower case.
    pub(crate) fn push(&mut self, name: &str, value: &[u8]) {
        if !is_never_kept(name) {
            self.headers.push(name, value);
        }
    }

    /// Returns whether a response header is stored by default. The name has to be in lower case.
    pub fn keeps(name: &str) -> bool {
        KEPT.contains(&name)
    }

    /// Returns the status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the stored headers, in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers.iter()
    }

    /// Returns the headers for a response, without a copy of the values.
    pub(crate) fn shared_headers(&self) -> impl Iterator<Item = (Cow<'static, str>, Bytes)> {
        self.headers.shared()
    }

    /// Returns the body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the size of headers and body, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.headers.size() + self.body.len()
    }
}

fn is_never_kept(name: &str) -> bool {
    NEVER.contains(&name) || name.starts_with("onceward-") || name.starts_with("proxy-")
}

/// Shows only status and size: a reply may contain sensitive data.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("status", &self.status).field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// The reason why a run that took effect has no stored response. A duplicate receives this reason, and does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoReply {
    /// The record does not contain a reason.
    Unrecorded,
    /// The response was larger than [`KeyRules::reply_limit`](crate::KeyRules::reply_limit), or one of its headers was too long to store.
    TooLarge,
    /// The response was streamed, so its length was not known in advance.
    Streamed,
    /// The response was streamed and compressed, as by `actix_web::middleware::Compress` inside of the guard. If `Compress` wraps the guard
    /// instead, the response is stored, and each replay is compressed for its client.
    Compressed,
    /// Reading the response body failed.
    BrokeOff,
    /// The run was completed without a response.
    NotGiven,
    /// The run was settled later, without a response.
    Settled,
    /// The value that the run returned could not be serialized as JSON.
    Unwritable,
    /// The store had no room for the response, or has evicted it since: see [`Memory::limit`](crate::store::Memory::limit).
    NoRoom,
}

impl NoReply {
    /// All reasons, by their number in a record. Number 1 means that the response follows.
    const NUMBERED: [(u8, Self); 9] = [
        (0, Self::Unrecorded),
        (2, Self::TooLarge),
        (3, Self::Streamed),
        (4, Self::Compressed),
        (5, Self::BrokeOff),
        (6, Self::NotGiven),
        (7, Self::Settled),
        (8, Self::Unwritable),
        (9, Self::NoRoom),
    ];

    /// Returns the number that represents the reason in a record.
    pub(crate) fn number(self) -> u8 {
        Self::NUMBERED.into_iter().find(|(_, reason)| *reason == self).map_or(0, |(number, _)| number)
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::NUMBERED.into_iter().find(|(known, _)| *known == number).map(|(_, reason)| reason)
    }

    /// Returns the reason as a sentence.
    pub fn says(self) -> &'static str {
        match self {
            Self::Unrecorded => "The reason was not recorded.",
            Self::TooLarge => "Its response was too large to store.",
            Self::Streamed => {
                "Its response was streamed, so its length was not known in advance and it was not stored."
            }
            Self::Compressed => "Its response was compressed while it was sent, so it was not stored.",
            Self::BrokeOff => "Its response body failed while it was read, so it was not stored.",
            Self::NotGiven => "It was completed without a response to store.",
            Self::Settled => "It was settled later, without a response to store.",
            Self::Unwritable => "Its result could not be serialized as JSON, so it was not stored.",
            Self::NoRoom => "The store had no room for its response.",
        }
    }

    /// Returns the reason as a sentence in Simplified Chinese.
    pub(crate) fn chinese(self) -> &'static str {
        match self {
            Self::Unrecorded => "没有记录原因。",
            Self::TooLarge => "响应过大，无法保存。",
            Self::Streamed => "响应以流的方式发送，事先不知道长度，因此没有保存。",
            Self::Compressed => "响应在发送时被压缩，因此没有保存。",
            Self::BrokeOff => "读取响应体时出错，因此没有保存。",
            Self::NotGiven => "完成时没有提供要保存的响应。",
            Self::Settled => "该提交是事后确认的，没有要保存的响应。",
            Self::Unwritable => "结果无法序列化为 JSON，因此没有保存。",
            Self::NoRoom => "存储空间不足，无法保存响应。",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_headers_are_never_stored() {
        let reply = ["Set-Cookie", "AUTHORIZATION", "Date", "Onceward-Outcome", "Proxy-Authenticate", "Connection"]
            .into_iter()
            .fold(Reply::new(201, "made"), |reply, name| reply.header(name, "x"));
        assert_eq!(reply, Reply::new(201, "made"));
        assert!(KEPT.iter().all(|name| !is_never_kept(name)));
    }

    #[test]
    fn repeated_header_is_stored_twice() {
        let reply = Reply::new(200, "").header("Link", "</a>").header("link", "</b>");
        let links: Vec<_> = reply.headers().collect();
        assert_eq!(links, [("link", &b"</a>"[..]), ("link", b"</b>")]);
    }

    #[test]
    fn each_reason_has_its_own_number_and_sentence() {
        let all = NoReply::NUMBERED.map(|(_, reason)| reason);
        for (at, reason) in all.into_iter().enumerate() {
            assert_eq!(NoReply::from_number(reason.number()), Some(reason));
            assert!(
                all[at + 1..].iter().all(|other| other.says() != reason.says() && other.number() != reason.number())
            );
        }
        assert_eq!(NoReply::from_number(1), None, "number 1 marks a stored response");
    }
}
