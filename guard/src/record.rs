//! Records in the store, as versioned bytes.

mod claim;
mod codec;
mod done;

use bytes::Bytes;
use onceward_api::Code;

pub(crate) use self::claim::ClaimRecord;
use self::codec::Reader;
pub(crate) use self::done::{BARRED, DoneRecord, REVOKED};
use crate::run_id::RunId;

/// Version of the records, and first byte of each. It changes with the layout, and whenever processes of the previous version must not work
/// on the same records. A record of another version is never interpreted.
const VERSION: u8 = 2;
/// The second byte of a record is its kind.
const ISSUED: u8 = b'i';
const ATTEMPTED: u8 = b'a';
const CLAIMED: u8 = b'c';
const DONE: u8 = b'd';

/// The record of a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// A token that was not used yet.
    Issued,
    /// A token that an attempt has redeemed.
    Attempted(AttemptRecord),
    /// A run that has started.
    Claimed(ClaimRecord),
    /// A run that has ended, and its reply.
    Done(DoneRecord),
}

/// The attempt that has redeemed a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttemptRecord {
    /// The digest of the attempt.
    pub(crate) attempt: [u8; 16],
    /// The run that the token was redeemed for. An attempt that releases the token and redeems it again starts another run.
    pub(crate) run: RunId,
    /// Expiry of this record, in milliseconds since 1970.
    pub(crate) deadline: u64,
    /// Expiry of the token itself, needed to release it.
    pub(crate) expires_at: u64,
}

/// The error for a record that this build cannot decode, so that no verdict may rely on it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnknownRecord {
    #[error(
        "the store holds a record of version {0}, and this process reads version {VERSION}: a newer Onceward uses the same store; upgrade \
         this process too"
    )]
    Newer(u8),
    #[error(
        "the store holds a record of version {0}, and this process reads version {VERSION}: stop the processes of the older Onceward, and \
         delete its records or wait until they expire"
    )]
    Older(u8),
    #[error("the store holds a record that Onceward did not write, or that belongs to another kind of ticket")]
    Foreign,
}

impl UnknownRecord {
    /// Returns why bytes cannot be decoded.
    fn of(bytes: &[u8]) -> Self {
        match bytes {
            [version @ 1..VERSION, ISSUED | ATTEMPTED | CLAIMED | DONE, ..] => Self::Older(*version),
            [version, ISSUED | ATTEMPTED | CLAIMED | DONE, ..] if *version > VERSION => Self::Newer(*version),
            _ => Self::Foreign,
        }
    }
}

impl Record {
    /// The bytes of an issued token: always the same, so that they can be compared without being decoded.
    pub(crate) const ISSUED: [u8; 2] = [VERSION, ISSUED];

    /// Returns the code with which a request is rejected if its token has this record: the token was used, or revoked before it was used.
    pub(crate) fn used(&self) -> Code {
        match self {
            Self::Done(done) if done.is_revocation() => Code::TokenRevoked,
            Self::Issued | Self::Attempted(_) | Self::Claimed(_) | Self::Done(_) => Code::TokenUsed,
        }
    }

    /// Returns the keyed fingerprint of the content of the first request.
    pub(crate) fn fingerprint(&self) -> Option<[u8; 16]> {
        match self {
            Self::Claimed(claimed) => claimed.fingerprint,
            Self::Done(done) => done.fingerprint,
            Self::Issued | Self::Attempted(_) => None,
        }
    }

    /// Returns the digest of subject and action of the first request, if the ticket does not include them.
    pub(crate) fn asker(&self) -> Option<[u8; 16]> {
        match self {
            Self::Claimed(claimed) => claimed.asker,
            Self::Done(done) => done.asker,
            Self::Issued | Self::Attempted(_) => None,
        }
    }

    /// Decodes a record. Copies its reply, if it has one.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, UnknownRecord> {
        Self::decode_with(bytes, Bytes::copy_from_slice)
    }

    /// Decodes a record. Its reply shares the memory of `bytes`.
    pub(crate) fn decode_shared(bytes: &Bytes) -> Result<Self, UnknownRecord> {
        Self::decode_with(bytes, |part| bytes.slice_ref(part))
    }

    fn decode_with(bytes: &[u8], share: impl FnOnce(&[u8]) -> Bytes) -> Result<Self, UnknownRecord> {
        let read = || {
            let [VERSION, kind, rest @ ..] = bytes else { return None };
            let mut reader = Reader::new(rest);
            let record = match *kind {
                ISSUED => Self::Issued,
                ATTEMPTED => Self::Attempted(AttemptRecord::read(&mut reader)?),
                CLAIMED => Self::Claimed(ClaimRecord::read(&mut reader)?),
                DONE => Self::Done(DoneRecord::read(&mut reader, share)?),
                _ => return None,
            };
            reader.is_at_end().then_some(record)
        };
        read().ok_or_else(|| UnknownRecord::of(bytes))
    }
}

impl AttemptRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, ATTEMPTED];
        bytes.extend_from_slice(&self.attempt);
        bytes.extend_from_slice(self.run.as_bytes());
        bytes.extend_from_slice(&self.deadline.to_be_bytes());
        bytes.extend_from_slice(&self.expires_at.to_be_bytes());
        bytes
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            attempt: from.array()?,
            run: RunId::from_bytes(from.array()?),
            deadline: from.number()?,
            expires_at: from.number()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reply::NoReply;
    use crate::reply::Reply;

    fn samples() -> Vec<(Vec<u8>, Record)> {
        let attempted = AttemptRecord { attempt: [7; 16], run: RunId::from_bytes([4; 16]), deadline: 1, expires_at: 2 };
        let claimed = ClaimRecord {
            run: RunId::from_bytes([5; 16]),
            attempt: None,
            fingerprint: Some([6; 16]),
            asker: None,
            started_at: 3,
            lease: 15_000,
            heartbeat: None,
        };
        let held = ClaimRecord { fingerprint: None, asker: Some([8; 16]), ..claimed.clone() }.with_heartbeat(9, 10);
        let named = ClaimRecord { attempt: Some([9; 16]), ..claimed.clone() };
        let reply = Reply::new(201, "made").header("location", "/orders/1").header("link", "a").header("link", "b");
        let done = DoneRecord {
            run: claimed.run,
            fingerprint: claimed.fingerprint,
            asker: None,
            deadline: 4,
            reply: Ok(reply),
        };
        let not_kept =
            DoneRecord { fingerprint: None, asker: Some([8; 16]), reply: Err(NoReply::Unrecorded), ..done.clone() };
        let streamed = DoneRecord { reply: Err(NoReply::Streamed), ..not_kept.clone() };
        vec![
            (Record::ISSUED.to_vec(), Record::Issued),
            (attempted.encode(), Record::Attempted(attempted)),
            (claimed.encode(), Record::Claimed(claimed)),
            (held.encode(), Record::Claimed(held)),
            (named.encode(), Record::Claimed(named)),
            (done.encode(), Record::Done(done)),
            (not_kept.encode(), Record::Done(not_kept)),
            (streamed.encode(), Record::Done(streamed)),
        ]
    }

    #[test]
    fn encoded_record_decodes_to_itself() {
        for (bytes, record) in samples() {
            assert_eq!(Record::decode(&bytes).unwrap(), record);
        }
    }

    #[test]
    fn bytes_of_another_version_are_rejected() {
        for (good, record) in samples() {
            for version in [0, VERSION - 1, VERSION + 1] {
                let other = [&[version], &good[1..]].concat();
                assert!(Record::decode(&other).is_err(), "version {version}: {record:?}");
            }
            for end in 0..good.len() {
                let shorter = &good[..end];
                let is_shorter_body =
                    matches!(Record::decode(shorter), Ok(Record::Done(DoneRecord { reply: Ok(_), .. })));
                assert!(Record::decode(shorter).is_err() || is_shorter_body, "{shorter:?}");
            }
            let longer = [good.as_slice(), &[0]].concat();
            let has_body = matches!(&record, Record::Done(done) if done.reply.is_ok());
            assert_eq!(Record::decode(&longer).is_ok(), has_body, "{record:?}");
        }
        for other in [&b""[..], b"i", &[VERSION], &[VERSION, b'z']] {
            assert!(Record::decode(other).is_err(), "{other:?}");
        }
    }

    #[test]
    fn record_without_its_reply_states_no_room() {
        for (bytes, record) in samples() {
            let expected = match record {
                Record::Done(done) if done.reply.is_ok() => {
                    Some(DoneRecord { reply: Err(NoReply::NoRoom), ..done }.encode())
                }
                _ => None,
            };
            assert_eq!(DoneRecord::has_reply(&bytes), expected.is_some());
            assert_eq!(DoneRecord::without_reply(&bytes), expected);
        }
        assert_eq!(DoneRecord::without_reply(&[VERSION, DONE]), None);
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_never_panics(
            kind in prop::sample::select(vec![ISSUED, ATTEMPTED, CLAIMED, DONE, b'z']),
            rest in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            let bytes = [&[VERSION, kind], rest.as_slice()].concat();
            let again = match Record::decode(&bytes) {
                Ok(Record::Issued) => Record::ISSUED.to_vec(),
                Ok(Record::Attempted(attempted)) => attempted.encode(),
                Ok(Record::Claimed(claimed)) => claimed.encode(),
                Ok(Record::Done(done)) => done.encode(),
                Err(_) => return Ok(()),
            };
            prop_assert_eq!(again, bytes);
        }
    }
}
