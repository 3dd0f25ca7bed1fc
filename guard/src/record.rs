//! What the store holds, as versioned bytes.

/// The version that this build writes, the first byte of every record.
const VERSION: u8 = 1;
/// The second byte says what kind of record it is.
const ISSUED: u8 = b'i';
const ATTEMPTED: u8 = b'a';

/// What is known of a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// A token that nobody has used yet.
    Issued,
    /// A token that one attempt has used.
    Attempted(Attempted),
}

/// Which attempt has used a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempted {
    /// The attempt's digest.
    pub(crate) attempt: [u8; 16],
    /// Until when this record lives, in milliseconds since 1970.
    pub(crate) deadline: u64,
    /// When the token itself expires, for putting it back.
    pub(crate) expires_at: u64,
}

/// Bytes that this build does not understand: written by another version, so nothing may be concluded from them.
#[derive(Debug, thiserror::Error)]
#[error("the store holds a record that this version does not know")]
pub(crate) struct UnknownRecord;

impl Record {
    /// The bytes of an issued token: always the same, so that they can be compared without being read.
    pub(crate) const ISSUED: [u8; 2] = [VERSION, ISSUED];

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, UnknownRecord> {
        match bytes {
            [VERSION, ISSUED] => Ok(Self::Issued),
            [VERSION, ATTEMPTED, rest @ ..] => Attempted::decode(rest).map(Self::Attempted).ok_or(UnknownRecord),
            _ => Err(UnknownRecord),
        }
    }
}

impl Attempted {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, ATTEMPTED];
        bytes.extend_from_slice(&self.attempt);
        bytes.extend_from_slice(&self.deadline.to_be_bytes());
        bytes.extend_from_slice(&self.expires_at.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (attempt, rest) = bytes.split_first_chunk()?;
        let (deadline, rest) = rest.split_first_chunk()?;
        let expires_at = rest.try_into().ok()?;
        Some(Self {
            attempt: *attempt,
            deadline: u64::from_be_bytes(*deadline),
            expires_at: u64::from_be_bytes(expires_at),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_of_another_version_are_not_guessed_at() {
        assert_eq!(Record::decode(&Record::ISSUED).unwrap(), Record::Issued);
        let attempted = Attempted { attempt: [7; 16], deadline: 1, expires_at: 2 };
        let good = attempted.encode();
        assert_eq!(Record::decode(&good).unwrap(), Record::Attempted(attempted));
        let longer = [good.as_slice(), &[0]].concat();
        let newer = [&[VERSION + 1], &good[1..]].concat();
        for other in [&b""[..], b"i", &[VERSION], &[VERSION, b'c'], &[VERSION + 1, ISSUED], &[VERSION, ISSUED, 0]]
            .into_iter()
            .chain([&good[..good.len() - 1], &longer, &newer])
        {
            assert!(Record::decode(other).is_err(), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_stumble(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(Record::Attempted(attempted)) = Record::decode(&bytes) {
                prop_assert_eq!(attempted.encode(), bytes);
            }
        }
    }
}
