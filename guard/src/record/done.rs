use bytes::Bytes;

use super::fields::{Reader, write_optional};
use super::{DONE, VERSION};
use crate::reply::Reply;
use crate::run_id::RunId;

/// A run that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Done {
    /// Whose it was.
    pub(crate) run: RunId,
    /// What the request said, as far as the store may know; none if it was not looked at.
    pub(crate) fingerprint: Option<[u8; 16]>,
    /// Who has asked, and for what, as in the claim.
    pub(crate) asker: Option<[u8; 16]>,
    /// Until when the record lives, in milliseconds since 1970.
    pub(crate) deadline: u64,
    /// The answer, unless it was too large to keep.
    pub(crate) reply: Option<Reply>,
}

impl Done {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(80 + self.reply.as_ref().map_or(0, Reply::size));
        bytes.extend_from_slice(&[VERSION, DONE]);
        bytes.extend_from_slice(self.run.as_bytes());
        write_optional(&mut bytes, self.fingerprint.as_ref().map(|fingerprint| &fingerprint[..]));
        write_optional(&mut bytes, self.asker.as_ref().map(|asker| &asker[..]));
        bytes.extend_from_slice(&self.deadline.to_be_bytes());
        bytes.push(u8::from(self.reply.is_some()));
        if let Some(reply) = &self.reply {
            write_reply(&mut bytes, reply);
        }
        bytes
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            run: RunId::from_bytes(from.array()?),
            fingerprint: from.optional(Reader::array)?,
            asker: from.optional(Reader::array)?,
            deadline: from.number()?,
            reply: from.optional(read_reply)?,
        })
    }
}

/// The body comes last and needs no length.
fn write_reply(to: &mut Vec<u8>, reply: &Reply) {
    to.extend_from_slice(&reply.status().to_be_bytes());
    to.extend_from_slice(&small(reply.headers().count()));
    for (name, value) in reply.headers() {
        to.extend_from_slice(&small(name.len()));
        to.extend_from_slice(name.as_bytes());
        to.extend_from_slice(&small(value.len()));
        to.extend_from_slice(value);
    }
    to.extend_from_slice(reply.body());
}

fn read_reply(from: &mut Reader<'_>) -> Option<Reply> {
    let status = from.small()?;
    let mut headers = Vec::new();
    for _ in 0..from.small()? {
        let name = std::str::from_utf8(from.bytes()?).ok()?;
        headers.push((name.to_owned().into(), Bytes::copy_from_slice(from.bytes()?)));
    }
    Some(Reply::from_record(status, headers, Bytes::copy_from_slice(from.rest())))
}

/// What does not fit was left out when the answer was kept.
fn small(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}
