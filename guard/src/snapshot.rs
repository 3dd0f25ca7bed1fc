//! Snapshots: the record of a submission at one point in time.

use std::time::{Duration, SystemTime};

use onceward_api::Code;

use crate::clock;
use crate::record::{ClaimRecord, Record};
use crate::rejection::Rejection;
use crate::reply::{NoReply, Reply};
use crate::run_id::RunId;
use crate::ticket::Ticket;

/// The record of a submission at one point in time. It may be outdated a moment later: use it for display and reconciliation, never to
/// decide whether to run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The state of the submission.
    pub state: RecordState,
    /// The run that wrote the record, or `None` if no run wrote it.
    pub run: Option<RunId>,
    /// Maximum time until the record of a run in flight is renewed, expires, or counts as unknown. Until then, a crashed run looks like one
    /// in flight. `None` if no run is in flight.
    pub doubt: Option<Duration>,
    /// The time within which a live owner renews its claim. `None` if there is no claim, or if its owner has ended the run.
    pub lease: Option<Duration>,
    /// Time of the last renewal of an at-most-once claim, by the owner's clock.
    renewed_at: Option<u64>,
}

/// The state of a submission, according to its record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordState {
    /// The token was issued and has not been used.
    Issued,
    /// There is no record: the token was used, or the key is free.
    Absent,
    /// A run has been in flight since this time.
    Running(SystemTime),
    /// This run has ended, and its outcome is unknown.
    Unknown(RunId),
    /// The run took effect, with this reply or the reason why none was stored. Also the state of a plain token that an attempt has redeemed
    /// and may still check again or release.
    Done(Result<Reply, NoReply>),
    /// The token was revoked before it was used.
    Revoked,
    /// A request would be rejected whatever is on record, or the record belongs to another subject or action.
    Rejected(Rejection),
}

/// The fields of a token, and its record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenInfo {
    /// The name of its record in the store.
    pub ticket: Ticket,
    /// True if the token is valid for one action only.
    pub names_action: bool,
    /// True if the token is valid for one subject only.
    pub names_subject: bool,
    /// The expiry of the token.
    pub expires_at: SystemTime,
    /// True if one of the guard's secrets signed the token and it is valid for the presented intent. Otherwise do not trust the other
    /// fields.
    pub is_ours: bool,
    /// The rejection of a token that has expired or is from an earlier epoch.
    pub late: Option<Rejection>,
    /// The record, even if the token is not valid.
    pub snapshot: Snapshot,
}

impl Snapshot {
    /// Creates a snapshot of a record at this time, in milliseconds since 1970.
    pub(crate) fn of(record: Option<Record>, now: u64) -> Self {
        let mut snapshot = Self::from(RecordState::of(record.as_ref(), now));
        match record {
            Some(Record::Claimed(claim)) => snapshot.describe(&claim, now),
            Some(Record::Done(done)) => snapshot.run = Some(done.run),
            Some(Record::Issued | Record::Attempted(_)) | None => {}
        }
        snapshot
    }

    fn describe(&mut self, claim: &ClaimRecord, now: u64) {
        let end = claim.heartbeat.map_or(now, |heartbeat| heartbeat.renewed_at).saturating_add(claim.lease);
        let is_given_up = claim.heartbeat.is_some_and(|heartbeat| heartbeat.renewed_at == 0);
        self.run = Some(claim.run);
        self.doubt = claim.is_running(now).then(|| Duration::from_millis(end.saturating_sub(now)));
        self.lease = (!is_given_up).then(|| Duration::from_millis(claim.lease));
        self.renewed_at = claim.heartbeat.map(|heartbeat| heartbeat.renewed_at).filter(|renewed| *renewed > 0);
    }

    /// Returns whether the owner has renewed its claim since `before`. If so, the owner is alive, regardless of clock skew. Two snapshots a
    /// [`lease`](Self::lease) apart without a renewal show that the owner has crashed.
    pub fn is_renewed_since(&self, before: &Self) -> bool {
        self.run == before.run && self.renewed_at.is_some_and(|renewed| before.renewed_at != Some(renewed))
    }

    /// Returns the stored reply, or the rejection for a client that requests it.
    ///
    /// # Errors
    /// If no reply is stored.
    pub fn into_reply(self) -> Result<Reply, Rejection> {
        Err(match self.state {
            RecordState::Done(Ok(reply)) => return Ok(reply),
            RecordState::Done(Err(reason)) => reason.into(),
            RecordState::Revoked => Code::TokenRevoked.into(),
            RecordState::Running(_) => Code::InProgress.into(),
            RecordState::Unknown(_) => Code::OutcomeUnknown.into(),
            RecordState::Absent | RecordState::Issued => Code::NotFound.into(),
            RecordState::Rejected(rejection) => rejection,
        })
    }
}

impl From<RecordState> for Snapshot {
    fn from(state: RecordState) -> Self {
        Self { state, run: None, doubt: None, lease: None, renewed_at: None }
    }
}

impl RecordState {
    fn of(record: Option<&Record>, now: u64) -> Self {
        match record {
            None => Self::Absent,
            Some(Record::Issued) => Self::Issued,
            Some(Record::Attempted(_)) => Self::Done(Err(NoReply::Unrecorded)),
            Some(Record::Claimed(claim)) if claim.is_running(now) => {
                Self::Running(clock::system_time(claim.started_at))
            }
            Some(Record::Claimed(claim)) => Self::Unknown(claim.run),
            Some(Record::Done(done)) if done.is_revocation() => Self::Revoked,
            Some(Record::Done(done)) => Self::Done(done.reply.clone()),
        }
    }
}
