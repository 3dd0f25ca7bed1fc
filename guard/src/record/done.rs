use bytes::Bytes;

use super::codec::{Reader, write_optional};
use super::{DONE, VERSION};
use crate::reply::NoReply;
use crate::reply::Reply;
use crate::run_id::RunId;

/// Marks that a reply follows. Any other number is the reason why there is none.
const REPLY: u8 = 1;

/// A run that has ended, or a bar on a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DoneRecord {
    /// The run.
    pub(crate) run: RunId,
    /// The keyed fingerprint of the content; `None` if the request has no fingerprint.
    pub(crate) fingerprint: Option<[u8; 16]>,
    /// A digest of subject and action, as in the claim.
    pub(crate) asker: Option<[u8; 16]>,
    /// Expiry of the record, in milliseconds since 1970.
    pub(crate) deadline: u64,
    /// The reply, or the reason why there is none.
    pub(crate) reply: Result<Reply, NoReply>,
}

/// Run ids of records that bar a token, which belong to no run. `BARRED` bars a token that may have been used, `REVOKED` one that was not.
pub(crate) const BARRED: RunId = RunId::from_bytes([0; 16]);
pub(crate) const REVOKED: RunId = RunId::from_bytes([0xff; 16]);

impl DoneRecord {
    /// Creates a record that bars a token. Its asker matches no caller, so that the token is also rejected on routes that remember replies.
    pub(crate) fn bar(whose: RunId, deadline: u64) -> Self {
        let (asker, reply) = (Some(*whose.as_bytes()), Err(NoReply::Unrecorded));
        Self { run: whose, fingerprint: None, asker, deadline, reply }
    }

    /// Returns whether a token was revoked before it was used.
    pub(crate) fn is_revocation(&self) -> bool {
        self.run == REVOKED
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.reply.as_ref().map_or(0, encoded_size));
        bytes.extend_from_slice(&[VERSION, DONE]);
        bytes.extend_from_slice(self.run.as_bytes());
        write_optional(&mut bytes, self.fingerprint.as_ref().map(|fingerprint| &fingerprint[..]));
        write_optional(&mut bytes, self.asker.as_ref().map(|asker| &asker[..]));
        bytes.extend_from_slice(&self.deadline.to_be_bytes());
        match &self.reply {
            Ok(reply) => {
                bytes.push(REPLY);
                write_reply(&mut bytes, reply);
            }
            Err(reason) => bytes.push(reason.number()),
        }
        bytes
    }

    /// Returns whether these bytes are a record with a reply.
    pub(crate) fn has_reply(bytes: &[u8]) -> bool {
        Self::before_reply(bytes).is_some()
    }

    /// Returns the bytes of a record without its reply, for a store that has no room for the reply, or `None` if the record has none.
    pub(crate) fn without_reply(bytes: &[u8]) -> Option<Vec<u8>> {
        Some([Self::before_reply(bytes)?, &[NoReply::NoRoom.number()]].concat())
    }

    /// Returns the fields before the reply, or `None` if the record has none.
    fn before_reply(bytes: &[u8]) -> Option<&[u8]> {
        let [VERSION, DONE, fields @ ..] = bytes else { return None };
        let mut reader = Reader::new(fields);
        let (_run, _fingerprint) = (reader.array::<16>()?, reader.optional(Reader::array::<16>)?);
        let (_asker, _deadline) = (reader.optional(Reader::array::<16>)?, reader.number()?);
        let before = bytes.len() - reader.rest().len();
        (*bytes.get(before)? == REPLY).then(|| &bytes[..before])
    }

    /// Reads the record. `share` returns a part of its bytes for the reply.
    pub(super) fn read(from: &mut Reader<'_>, share: impl FnOnce(&[u8]) -> Bytes) -> Option<Self> {
        Some(Self {
            run: RunId::from_bytes(from.array()?),
            fingerprint: from.optional(Reader::array)?,
            asker: from.optional(Reader::array)?,
            deadline: from.number()?,
            reply: match from.array()? {
                [REPLY] => Ok(read_reply(from, share)?),
                [number] => Err(NoReply::from_number(number)?),
            },
        })
    }
}

/// Returns the encoded size of a reply, in bytes.
fn encoded_size(reply: &Reply) -> usize {
    4 + reply.encoded_headers().0.len() + reply.body().len()
}

/// Writes the body last, so that it needs no length.
fn write_reply(to: &mut Vec<u8>, reply: &Reply) {
    let (headers, count) = reply.encoded_headers();
    to.extend_from_slice(&reply.status().to_be_bytes());
    to.extend_from_slice(&small(count));
    to.extend_from_slice(headers);
    to.extend_from_slice(reply.body());
}

fn read_reply(from: &mut Reader<'_>, share: impl FnOnce(&[u8]) -> Bytes) -> Option<Reply> {
    let (status, headers) = (from.small()?, from.small()?);
    Reply::from_record(status, headers, &share(from.rest()))
}

/// Encodes a number of headers. `Reply::fits` has already excluded replies with more of them.
fn small(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}
