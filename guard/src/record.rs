//! What the store holds, as versioned bytes.

/// The version that this build writes, the first byte of every record.
const VERSION: u8 = 1;

/// What is known of a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// A token that nobody has used yet.
    Issued,
}

/// Bytes that this build does not understand: written by another version, so nothing may be concluded from them.
#[derive(Debug, thiserror::Error)]
#[error("the store holds a record that this version does not know")]
pub(crate) struct UnknownRecord;

impl Record {
    pub(crate) const ISSUED: [u8; 2] = [VERSION, b'i'];

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, UnknownRecord> {
        if bytes == Self::ISSUED { Ok(Self::Issued) } else { Err(UnknownRecord) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_another_version_are_not_guessed_at() {
        assert_eq!(Record::decode(&Record::ISSUED).unwrap(), Record::Issued);
        for other in [&b""[..], b"i", &[VERSION], &[VERSION, b'c'], &[VERSION + 1, b'i'], &[VERSION, b'i', 0]] {
            assert!(Record::decode(other).is_err(), "{other:?}");
        }
    }
}
