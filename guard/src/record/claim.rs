use super::codec::{Reader, write_optional};
use super::{CLAIMED, VERSION};
use crate::run_id::RunId;

/// A run that is in flight, or whose outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimRecord {
    /// The run that owns the claim. The id is random, so that no other run has it, not even a run of the same attempt.
    pub(crate) run: RunId,
    /// The digest of the attempt that the claim was written for, if the request has one. A retry of the same attempt continues this run.
    pub(crate) attempt: Option<[u8; 16]>,
    /// The keyed fingerprint of the content; `None` if the request has no fingerprint.
    pub(crate) fingerprint: Option<[u8; 16]>,
    /// A digest of subject and action, where the ticket does not include them: any client may send an unbound token.
    pub(crate) asker: Option<[u8; 16]>,
    /// Start of the run, in milliseconds since 1970.
    pub(crate) started_at: u64,
    /// Lifetime of the claim without a renewal, in milliseconds.
    pub(crate) lease: u64,
    /// Present if the claim outlives its lease, so that no other request runs before it is settled.
    pub(crate) heartbeat: Option<Heartbeat>,
}

/// The heartbeat of a claim that outlives its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    /// Time of the last renewal, in milliseconds since 1970; zero once the owner has marked the outcome as unknown.
    pub(crate) renewed_at: u64,
    /// Expiry of the record, in milliseconds since 1970.
    pub(crate) deadline: u64,
}

impl ClaimRecord {
    /// Returns the same claim with a heartbeat, so that it outlives its lease.
    pub(crate) fn with_heartbeat(&self, renewed_at: u64, deadline: u64) -> Self {
        Self { heartbeat: Some(Heartbeat { renewed_at, deadline }), ..self.clone() }
    }

    /// Returns whether the owner may still be running. A claim without a heartbeat expires by itself.
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
