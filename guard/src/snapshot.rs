//! What is on record of a submission at one moment.

use std::time::{Duration, SystemTime};

use onceward_api::Code;

use crate::clock;
use crate::record::{ClaimRecord, Record};
use crate::rejection::Rejection;
use crate::reply::{NoReply, Reply};
use crate::run_id::RunId;
use crate::ticket::Ticket;

/// What is on record of a submission. It may be outdated a moment later: it is for people and for reconciliation, never to decide
/// whether to run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// What the record says.
    pub state: RecordState,
    /// The run that wrote the record; `None` unless the record is that of a run.
    pub run: Option<RunId>,
    /// Of a run that may be in flight: the longest time until its record is renewed, expires, or says that the outcome is unknown. Until
    /// then a crashed process looks like one in flight.
    pub doubt: Option<Duration>,
    /// Of a claim whose owner has not given it up: the time within which a live owner renews it.
    pub lease: Option<Duration>,
    /// When the owner has last renewed an at-most-once claim, by the owner's own clock.
    renewed_at: Option<u64>,
}

/// The state of a submission, as its record says it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordState {
    /// The token was issued and has not been used.
    Issued,
    /// Nothing is recorded: the token was used, the key is free.
    Absent,
    /// A run is in flight since this time.
    Running(SystemTime),
    /// This run has ended, and its outcome is unknown.
    Unknown(RunId),
    /// The run took effect, and this is the reply, or why none was stored. Of a token: an attempt has used it, and may still ask again or
    /// release it.
    Done(Result<Reply, NoReply>),
    /// The token was revoked before it was used.
    Revoked,
    /// A request would be rejected whatever is on record, or what is on record is another caller's.
    Rejected(Rejection),
}

/// What a token says of itself, and what is on record of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenInfo {
    /// The name of its record in the store.
    pub ticket: Ticket,
    /// Whether it is valid for one action only.
    pub names_action: bool,
    /// Whether it is valid for one subject only.
    pub names_subject: bool,
    /// When it expires.
    pub expires_at: SystemTime,
    /// Whether one of our secrets has signed it, for what it was presented for. Do not believe the other fields otherwise.
    pub is_ours: bool,
    /// Why it is too late for it, if it has expired or is of an earlier epoch.
    pub late: Option<Rejection>,
    /// What is on record, whatever else is true of it.
    pub snapshot: Snapshot,
}

impl Snapshot {
    /// The record as it stands at this time, in milliseconds since 1970.
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

    /// Whether the owner of this claim has renewed it since `before`: then it is alive, whatever any clock says. Two snapshots a
    /// [`lease`](Self::lease) apart without a renewal show a claim whose owner is gone.
    pub fn is_renewed_since(&self, before: &Self) -> bool {
        self.run == before.run && self.renewed_at.is_some_and(|renewed| before.renewed_at != Some(renewed))
    }

    /// The stored reply, or what to tell a caller who wants to see it.
    ///
    /// # Errors
    /// Unless there is a reply.
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
