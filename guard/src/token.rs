//! Tokens: `ow1_` and the base64url of flags, id, expiry, epoch and tag.

pub(crate) mod mint;
pub(crate) mod salt;
pub(crate) mod secret;

use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use onceward_api::Code;
use uuid::Uuid;

use crate::clock::{self, Clock};
use crate::epoch::Epoch;

const PREFIX: &str = "ow1_";
const LENGTH: usize = 1 + 16 + 8 + 8 + TAG;
/// Length in base64url, without padding.
const TEXT: usize = (LENGTH * 4).div_ceil(3);
/// Length of the signature in a token, in bytes: 128 bits.
pub(crate) const TAG: usize = 16;

/// Time for which a record outlives the expiry of its token, to tolerate clock skew.
pub(crate) const GRACE: Duration = Duration::from_secs(60);
/// Minimum remaining life of a token that is given back, in milliseconds.
const WORTH_PUTTING_BACK: u64 = 1_000;

/// The token is bound to an action.
pub(crate) const FLAG_ACTION: u8 = 0b01;
/// The token is bound to a subject.
pub(crate) const FLAG_SUBJECT: u8 = 0b10;

/// A one-time token for a client. Only [`as_str`](Self::as_str) reveals its text; `Debug` does not, so that it never appears in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    text: String,
    expires_at: u64,
}

impl Token {
    /// Returns the text that the client sends back.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the expiry of the token.
    pub fn expires_at(&self) -> SystemTime {
        clock::system_time(self.expires_at)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// The token that a request presents. It is decoded once, and not verified: `Mint::verify` does that.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credential {
    /// The request presents no token.
    Missing,
    /// The text that the request presents is not a token.
    Malformed,
    Token(TokenFields, [u8; TAG]),
}

impl Credential {
    /// Decodes the text that a request presents as its token.
    pub(crate) fn of(text: &str) -> Self {
        TokenFields::open(text).map_or(Self::Malformed, |(fields, tag)| Self::Token(fields, tag))
    }

    /// Returns the fields and the signature of the token, or the code of the rejection.
    pub(crate) fn presented(&self) -> Result<(&TokenFields, &[u8; TAG]), Code> {
        match self {
            Self::Token(fields, tag) => Ok((fields, tag)),
            Self::Malformed => Err(Code::TokenMalformed),
            Self::Missing => Err(Code::TokenMissing),
        }
    }

    /// Returns the fields of the token, if the request presents one.
    pub(crate) fn fields(&self) -> Option<&TokenFields> {
        self.presented().ok().map(|(fields, _)| fields)
    }
}

/// The fields of a token. [`open`](Self::open) does not verify the signature; `Mint::verify` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenFields {
    pub(crate) flags: u8,
    pub(crate) id: Uuid,
    pub(crate) expires_at: u64,
    pub(crate) epoch: Epoch,
}

impl TokenFields {
    pub(crate) fn names_action(&self) -> bool {
        self.flags & FLAG_ACTION != 0
    }

    pub(crate) fn names_subject(&self) -> bool {
        self.flags & FLAG_SUBJECT != 0
    }

    /// Returns the TTL with which to restore the record of a token, or `None` if less than one second of its life is left.
    pub(crate) fn worth_putting_back(expires_at: u64, clock: &Clock) -> Option<Duration> {
        let left = expires_at.saturating_sub(clock.wall());
        (left >= WORTH_PUTTING_BACK).then(|| Duration::from_millis(left) + GRACE)
    }

    pub(crate) fn seal(&self, tag: [u8; TAG]) -> Token {
        let mut bytes = Vec::with_capacity(LENGTH);
        self.write(&mut bytes);
        bytes.extend_from_slice(&tag);
        let mut text = String::from(PREFIX);
        URL_SAFE_NO_PAD.encode_string(&bytes, &mut text);
        Token { text, expires_at: self.expires_at }
    }

    /// Decodes a token, or returns `None` if the text is not one. Each token has one encoding only.
    pub(crate) fn open(text: &str) -> Option<(Self, [u8; TAG])> {
        let mut buffer = [0; LENGTH + 3];
        let text = text.strip_prefix(PREFIX).filter(|text| text.len() == TEXT)?;
        URL_SAFE_NO_PAD.decode_slice(text, &mut buffer).ok().filter(|length| *length == LENGTH)?;
        let (fields, tag) = Self::read(&buffer[..LENGTH])?;
        Some((fields, tag.try_into().ok()?))
    }

    /// Appends the fields to `to`.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        to.push(self.flags);
        to.extend_from_slice(self.id.as_bytes());
        to.extend_from_slice(&self.expires_at.to_be_bytes());
        to.extend_from_slice(&self.epoch);
    }

    /// Reads the fields, and returns them with the remaining bytes.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (flags, rest) = bytes.split_first()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (expires_at, rest) = rest.split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        let expires_at = u64::from_be_bytes(*expires_at);
        Some((Self { flags: *flags, id: Uuid::from_bytes(*id), expires_at, epoch: *epoch }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: TokenFields =
        TokenFields { flags: FLAG_ACTION, id: Uuid::from_u128(7), expires_at: 1_800_000_000_000, epoch: [9; 8] };

    #[test]
    fn sealed_token_opens_with_the_same_fields() {
        let token = FIELDS.seal([3; TAG]);
        assert_eq!(token.as_str().len(), PREFIX.len() + TEXT);
        assert_eq!(TokenFields::open(token.as_str()), Some((FIELDS, [3; TAG])));
        assert!(!format!("{token:?}").contains(token.as_str()));
    }

    #[test]
    fn token_has_one_spelling_only() {
        let token = FIELDS.seal([3; TAG]).as_str().to_owned();
        let body = &token[PREFIX.len()..];
        // 49 bytes are 392 bits and 66 characters are 396: the last four bits have to be zero.
        let last = body.chars().last().unwrap();
        let spare = char::from(last as u8 + 1);
        let others = [
            format!("{}{spare}", &token[..token.len() - 1]),
            format!("{token}="),
            format!("{token}=="),
            format!(" {token}"),
            format!("{token}A"),
            token[..token.len() - 1].to_owned(),
            format!("OW1_{body}"),
            format!("ow2_{body}"),
            body.to_owned(),
            String::new(),
            PREFIX.to_owned(),
            format!("{PREFIX}{}", "+".repeat(TEXT)),
            format!("{PREFIX}{}", "é".repeat(TEXT / 2)),
        ];
        for other in others {
            assert_eq!(TokenFields::open(&other), None, "{other}");
        }
    }
}
