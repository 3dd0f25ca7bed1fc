use super::codec::{Reader, write_optional};
use super::{CLAIMED, VERSION};
use crate::run_id::RunId;

/// A run that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimRecord {
    /// Whose it is: random, so that no other run has the same, not even of the same attempt.
    pub(crate) run: RunId,
    /// The attempt that it was claimed for, if one was named: asked for again, the same attempt carries on with this run.
    pub(crate) attempt: Option<[u8; 16]>,
    /// What the request said, as far as the store may know; none if it was not looked at.
    pub(crate) fingerprint: Option<[u8; 16]>,
    /// Who has asked, and for what, where the ticket does not say so: anybody may send a token that is bound to nobody.
    pub(crate) asker: Option<[u8; 16]>,
    /// When it began, in milliseconds since 1970.
    pub(crate) started_at: u64,
    /// How long it lives without being renewed, in milliseconds.
    pub(crate) lease: u64,
    /// A claim that outlives its lease, so that nobody runs in its place before it is settled.
    pub(crate) heartbeat: Option<Heartbeat>,
}

/// What a claim says that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    /// When its owner was last known to live; zero once the owner has said that nobody can tell how it ended.
    pub(crate) renewed_at: u64,
    /// Until when the record lives.
    pub(crate) deadline: u64,
}

impl ClaimRecord {
    /// The same claim, held.
    pub(crate) fn with_heartbeat(&self, renewed_at: u64, deadline: u64) -> Self {
        Self { heartbeat: Some(Heartbeat { renewed_at, deadline }), ..self.clone() }
    }

    /// Whether its owner may still be at work. A claim that is not held goes away by itself.
    pub(crate) fn is_running(&self, now: u64) -> bool {
        self.heartbeat.is_none_or(|heartbeat| now < heartbeat.renewed_at.saturating_add(self.lease))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(112);
        bytes.extend_from_slice(&[VERSION, CLAIMED]);
        bytes.extend_from_slice(self.run.as_bytes());
        write_optional(&mut bytes, self.attempt.as_ref().map(|attempt| &attempt[..]));
        write_optional(&mut bytes, self.fingerprint.as_ref().map(|fingerprint| &fingerprint[..]));
        write_optional(&mut bytes, self.asker.as_ref().map(|asker| &asker[..]));
        bytes.extend_from_slice(&self.started_at.to_be_bytes());
        bytes.extend_from_slice(&self.lease.to_be_bytes());
        bytes.push(u8::from(self.heartbeat.is_some()));
        if let Some(heartbeat) = self.heartbeat {
            bytes.extend_from_slice(&heartbeat.renewed_at.to_be_bytes());
            bytes.extend_from_slice(&heartbeat.deadline.to_be_bytes());
        }
        bytes
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            run: RunId::from_bytes(from.array()?),
            attempt: from.optional(Reader::array)?,
            fingerprint: from.optional(Reader::array)?,
            asker: from.optional(Reader::array)?,
            started_at: from.number()?,
            lease: from.number()?,
            heartbeat: from
                .optional(|from| Some(Heartbeat { renewed_at: from.number()?, deadline: from.number()? }))?,
        })
    }
}
