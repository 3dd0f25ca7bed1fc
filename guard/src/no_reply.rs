//! Why a run that took effect has no response on record.

use onceward_api::Code;

use crate::rejection::Rejection;

/// Why a run that took effect has no response on record: a duplicate is told, and does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoReply {
    /// The record does not say why.
    Unrecorded,
    /// The response was larger than [`KeyRules::reply_limit`](crate::KeyRules::reply_limit), or a header of it too long to store.
    TooLarge,
    /// The response was streamed: its length was not known beforehand.
    Streamed,
    /// The response was streamed and compressed, as `actix_web::middleware::Compress` does inside of the guard. Wrapped outside of it,
    /// the response is stored and each replay is compressed as its client reads it.
    Compressed,
    /// The response broke off while it was read.
    BrokeOff,
    /// The run was completed without a response.
    NotGiven,
    /// The run was settled afterwards, without a response.
    Settled,
    /// The value that the run returned could not be written as JSON.
    Unwritable,
    /// The store had no room for the response, or has dropped it since to make room for others: see
    /// [`Memory::limit`](crate::store::Memory::limit).
    NoRoom,
}

impl NoReply {
    /// Each but the first, by its number in a record.
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

    /// How a record says so, in the place where 1 says that the response follows.
    pub(crate) fn number(self) -> u8 {
        Self::NUMBERED.into_iter().find(|(_, reason)| *reason == self).map_or(0, |(number, _)| number)
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::NUMBERED.into_iter().find(|(known, _)| *known == number).map(|(_, reason)| reason)
    }

    /// The reason as a sentence.
    pub fn says(self) -> &'static str {
        match self {
            Self::Unrecorded => "Its response was not stored.",
            Self::TooLarge => "Its response was larger than is stored.",
            Self::Streamed => {
                "Its response was streamed, so its length was not known beforehand and it was not stored."
            }
            Self::Compressed => "Its response was compressed while it was sent, so it was not stored.",
            Self::BrokeOff => "Its response broke off and was not stored.",
            Self::NotGiven => "It was completed without a response to store.",
            Self::Settled => "It was settled afterwards, without a response to store.",
            Self::Unwritable => "Its result could not be written as JSON, so it was not stored.",
            Self::NoRoom => "The store had no room to keep its response.",
        }
    }
}

impl From<NoReply> for Rejection {
    fn from(reason: NoReply) -> Self {
        Self::new(Code::ReplyNotKept).detail(format!("This submission was carried out before. {}", reason.says()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_number_and_a_sentence_of_its_own() {
        let all = NoReply::NUMBERED.map(|(_, reason)| reason);
        for (at, reason) in all.into_iter().enumerate() {
            assert_eq!(NoReply::from_number(reason.number()), Some(reason));
            assert!(
                all[at + 1..].iter().all(|other| other.says() != reason.says() && other.number() != reason.number())
            );
        }
        assert_eq!(NoReply::from_number(1), None, "that is a response");
    }
}
