//! Claims: the right to run under a key, with a remembered token or in an interval. The store holds the record of a claim while its run is
//! in flight.

mod cell;
mod duplicate;
mod entry;
mod remote;
mod renewal;
mod settle;
mod watch;
mod window;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onceward_api::Code;
use tokio::sync::Mutex;

use self::cell::{CellInsert, CellWrite, MAX_CONFLICTS, RecordCell, conflict};
pub(crate) use self::duplicate::used_with_other_content;
pub(crate) use self::entry::{Entered, enter};
use crate::audit;
use crate::backoff::Backoff;
use crate::engine::Engine;
use crate::metrics::{ClaimEvent, PolicyLabel};
use crate::policy::{IntervalRules, KeyRules};
use crate::record::{ClaimRecord, DoneRecord, Record};
use crate::rejection::Duplicate;
use crate::renewal::QueuePosition;
use crate::reply::{NoReply, Reply};
use crate::run_id::RunId;
use crate::shutdown::InFlight;
use crate::store::{StoreError, WatchedStore};
use crate::ticket::Ticket;
use crate::token::TokenFields;

/// The right to run a handler, and the state of its record in the store.
pub(crate) struct Claim {
    terms: Terms,
    record: ClaimRecord,
    /// The record of a run that an earlier request of the same attempt started, and that this claim continues.
    carried_on: OnceLock<ClaimRecord>,
    begun: u64,
    /// Set when settling begins; from then on no renewal is sent.
    is_settling: AtomicBool,
    state: Mutex<ClaimProgress>,
}

/// The inputs of a claim.
pub(crate) struct Terms {
    pub(crate) engine: Arc<Engine>,
    pub(crate) rules: KeyRules,
    pub(crate) origin: Origin,
    pub(crate) action: String,
    pub(crate) ticket: Ticket,
    pub(crate) fingerprint: Option<[u8; 16]>,
    /// Digest of the caller's attempt. A repeated request of the same attempt continues the run in flight; without an attempt, every
    /// request is a new run.
    pub(crate) attempt: Option<[u8; 16]>,
}

impl Terms {
    /// Returns the record of a new run.
    fn record(&self) -> ClaimRecord {
        ClaimRecord {
            run: RunId::new(),
            attempt: self.attempt,
            fingerprint: self.fingerprint,
            asker: self.origin.asker(),
            started_at: self.engine.clock.wall(),
            lease: self.rules.lease.as_millis() as u64,
            heartbeat: None,
        }
    }

    /// Returns the claimed token, if the claim is on one.
    fn token(&self) -> Option<&TokenFields> {
        match &self.origin {
            Origin::Token(token, _) => Some(token),
            Origin::Key | Origin::Interval(_) => None,
        }
    }

    /// Encodes the record with a heartbeat of now, as an at-most-once claim.
    fn renewed(&self, record: &ClaimRecord) -> Vec<u8> {
        record.with_heartbeat(self.engine.clock.wall(), self.deadline()).encode()
    }

    /// Returns the TTL of an at-most-once claim after a renewal: at least a lease, so that it lasts until the next renewal is due.
    fn at_most_once_life(&self) -> Duration {
        self.rules.retain.max(self.rules.lease)
    }

    fn deadline(&self) -> u64 {
        self.engine.clock.wall().saturating_add(self.rules.retain.as_millis() as u64)
    }
}

/// The object of a claim.
pub(crate) enum Origin {
    Key,
    /// A token whose reply is remembered, and a digest of the subject that sent it and the action it was sent for.
    Token(TokenFields, [u8; 16]),
    Interval(IntervalRules),
}

impl Origin {
    fn label(&self) -> PolicyLabel {
        match self {
            Self::Key => PolicyLabel::Key,
            Self::Token(..) => PolicyLabel::Remembered,
            Self::Interval(_) => PolicyLabel::Interval,
        }
    }

    fn asker(&self) -> Option<[u8; 16]> {
        match self {
            Self::Token(_, asker) => Some(*asker),
            Self::Key | Self::Interval(_) => None,
        }
    }
}

struct ClaimProgress {
    own: RecordCell,
    stage: ClaimStage,
    /// True if a renewal was sent, so that the claim may outlive its first lease.
    is_renewed: bool,
    /// Position in the renewal queue.
    place: Option<QueuePosition>,
    /// Delays a graceful shutdown until the remaining writes are done.
    running: Option<InFlight>,
    /// True if a write was sent whose TTL exceeds the lease.
    may_outlive: bool,
    /// Backoff between retries of a failed step.
    backoff: Backoff,
    /// Age of the claim at the first retry of the outcome of an interval.
    first_retry: Option<Duration>,
}

/// The remaining work on a claim.
enum ClaimStage {
    /// The handler runs, and the claim is renewed.
    Running,
    /// The run took effect: write this record.
    Completing(Vec<u8>),
    /// The run took effect, and the claim lives longer than its interval: shorten it.
    Truncating,
    /// The run did not take effect, or the claim is a lock: remove the claim or restore the token.
    Releasing,
    /// The outcome is unknown: mark the at-most-once claim as such.
    MarkingUnknown,
    /// It is unknown whether the claim was written: remove it. For one lease, an absent record proves nothing, since the write may still
    /// arrive.
    Revoking {
        answered_at: Option<u64>,
        /// The claim expires soon, so a single try is enough.
        lapses: bool,
    },
    Over,
}

/// Maximum lease of a claim that is revoked with a single try if its write may have been lost. If the store does not reply to that try
/// either, the claim expires with its lease: no handler runs under it, and a duplicate receives `in_progress` until then.
const LAPSES: Duration = Duration::from_secs(15);

impl Claim {
    /// Creates a claim that is not written yet.
    pub(crate) fn new(terms: Terms) -> Self {
        let record = terms.record();
        Self::of_record(terms, record)
    }

    fn of_record(terms: Terms, record: ClaimRecord) -> Self {
        let own = RecordCell::new(terms.ticket, &record);
        let state = Mutex::new(ClaimProgress {
            own,
            stage: ClaimStage::Running,
            is_renewed: false,
            place: None,
            running: None,
            may_outlive: false,
            backoff: renewal::backoff(terms.rules.lease),
            first_retry: None,
        });
        let (begun, carried_on, is_settling) = (terms.engine.clock.steady(), OnceLock::new(), AtomicBool::new(false));
        Self { terms, record, carried_on, begun, is_settling, state }
    }

    /// Returns the claim's record without the heartbeat of an at-most-once claim.
    fn record(&self) -> &ClaimRecord {
        self.carried_on.get().unwrap_or(&self.record)
    }

    pub(crate) fn run(&self) -> RunId {
        self.record().run
    }

    pub(crate) fn ticket(&self) -> &Ticket {
        &self.terms.ticket
    }

    /// Returns the claimed token, if the claim is on one.
    pub(crate) fn token(&self) -> Option<&TokenFields> {
        self.terms.token()
    }

    /// Writes the claim, with a TTL beyond its lease under *at most once*. `first` is the result of the insert, if it has been sent already.
    /// Returns `None` if the handler may run, and otherwise the verdict on the duplicate.
    ///
    /// # Errors
    /// If the store failed. A claim that may have been written is revoked in the background, unless it has an attempt.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe without an attempt: if the future is dropped, the background task revokes a claim that may have been written. With an
    /// attempt, the claim stays for a retry of the attempt.
    async fn enter_by_steps(
        self: &Arc<Self>,
        first: Option<CellInsert>,
        running: &mut Option<InFlight>,
    ) -> Result<Option<Duplicate>, StoreError> {
        // Declared before `state`, so that it is dropped after the lock is released.
        let mut entering = EntryGuard(Some(self));
        let mut state = self.state.lock().await;
        let entered = match &self.terms.origin {
            Origin::Token(token, _) => self.redeem(token, &mut state).await,
            Origin::Key | Origin::Interval(_) => self.insert(&mut state, first).await.map(EnterResult::from),
        };
        entering.0 = None;
        match entered {
            Ok(EnterResult::Ours) => {
                self.begin(&mut state);
                Ok(None)
            }
            Ok(EnterResult::Theirs(found)) => self.terms.duplicate_of(found).map(Some),
            Ok(EnterResult::Absent(code)) => Ok(Some(Duplicate::Reject(code.into()))),
            Ok(EnterResult::Late(code)) => self.terms.reply_to_late(code.into()).await.map(Some),
            Err(error) => {
                if self.terms.attempt.is_none() && (state.may_outlive || matches!(error, StoreError::Unknown(_))) {
                    state.running = running.take();
                    self.revoke(&mut state);
                }
                Err(error)
            }
        }
    }

    /// Schedules the first renewal of a claim that is written.
    fn begin(self: &Arc<Self>, state: &mut ClaimProgress) {
        self.step_after(state, self.renewal_interval());
        self.log(ClaimEvent::Claimed);
    }

    fn revoke(self: &Arc<Self>, state: &mut ClaimProgress) {
        self.is_settling.store(true, Ordering::SeqCst);
        let outlives = state.may_outlive || matches!(self.terms.origin, Origin::Token(..));
        let lapses = !outlives && self.terms.rules.lease <= LAPSES;
        state.stage = ClaimStage::Revoking { answered_at: None, lapses };
        self.try_again(state);
    }

    /// Inserts the claim for one lease, and then extends an at-most-once claim beyond it. If the reply to the insert is lost, the claim
    /// expires after one lease.
    async fn insert(
        &self,
        state: &mut ClaimProgress,
        mut first: Option<CellInsert>,
    ) -> Result<Option<Record>, StoreError> {
        for _ in 0..MAX_CONFLICTS {
            let inserted = match first.take() {
                Some(inserted) => inserted,
                None => state.own.insert(self.store(), &self.record, self.terms.rules.lease).await?,
            };
            let ours = match inserted {
                CellInsert::New if !self.terms.rules.at_most_once => return Ok(None),
                CellInsert::New => self.record.clone(),
                CellInsert::Other(found) => return Ok(Some(found)),
                // An earlier request of this attempt may have run the handler, and its outcome is unknown.
                CellInsert::Own(claimed) if !claimed.is_running(self.terms.engine.clock.wall()) => {
                    return Ok(Some(Record::Claimed(claimed)));
                }
                CellInsert::Own(claimed) => self.continuing(&claimed),
            };
            state.may_outlive = true;
            match self.write_again(&mut state.own, &ours).await? {
                CellWrite::Own => {
                    self.carry_on(ours);
                    return Ok(None);
                }
                CellWrite::Other(found) => return Ok(Some(found)),
                // The claim was released meanwhile. Continuing it would give two runs the same id, so insert a new one.
                CellWrite::Nothing => {}
            }
        }
        Err(conflict())
    }

    /// Returns the record with which this claim continues `theirs`, the run of an earlier request of the same attempt, with a full lease.
    fn continuing(&self, theirs: &ClaimRecord) -> ClaimRecord {
        ClaimRecord { run: theirs.run, started_at: theirs.started_at, ..self.record.clone() }
    }

    fn carry_on(&self, ours: ClaimRecord) {
        if ours.run != self.record.run {
            // A claim is entered once, so the cell is still empty.
            let _ = self.carried_on.set(ours);
        }
    }

    /// Replaces the record of an issued, unused token with the claim. The claim outlives its lease from the start.
    async fn redeem(&self, token: &TokenFields, state: &mut ClaimProgress) -> Result<EnterResult, StoreError> {
        if self.terms.engine.is_expired(token) {
            return self.resume_expired(token, state).await;
        }
        for _ in 0..MAX_CONFLICTS {
            let (claim, life) = (self.terms.renewed(&self.record), self.terms.at_most_once_life());
            let found = match state.own.take_over(self.store(), token.epoch, &Record::ISSUED, claim, life).await? {
                None => return Ok(EnterResult::Late(Code::TokenStale)),
                Some(CellWrite::Own) => return Ok(EnterResult::Ours),
                Some(CellWrite::Other(found)) => found,
                Some(CellWrite::Nothing) => {
                    return Ok(EnterResult::Absent(self.terms.engine.absent(token, &self.terms.ticket)));
                }
            };
            match found {
                Record::Claimed(theirs) if self.is_same_attempt(&theirs) => match self.resume(&theirs, state).await? {
                    CellWrite::Own => return Ok(EnterResult::Ours),
                    // The earlier request has released the token meanwhile.
                    CellWrite::Nothing | CellWrite::Other(Record::Issued) => {
                        state.own = RecordCell::new(self.terms.ticket, &self.record);
                    }
                    CellWrite::Other(found) => return Ok(EnterResult::Theirs(found)),
                },
                found => return Ok(EnterResult::Theirs(found)),
            }
        }
        Err(conflict())
    }

    /// Continues the run of an earlier request of the same attempt, which was accepted before the token expired. The record of another
    /// epoch may be outdated, and proves nothing.
    async fn resume_expired(&self, token: &TokenFields, state: &mut ClaimProgress) -> Result<EnterResult, StoreError> {
        let late = Ok(EnterResult::Late(Code::TokenExpired));
        match self.terms.engine.record(&self.terms.ticket).await? {
            Some(Record::Claimed(theirs)) if self.is_same_attempt(&theirs) => {
                if !self.terms.engine.is_of_epoch(token).await? {
                    return late;
                }
                match self.resume(&theirs, state).await? {
                    CellWrite::Own => Ok(EnterResult::Ours),
                    CellWrite::Nothing | CellWrite::Other(_) => late,
                }
            }
            _ => late,
        }
    }

    /// Returns whether this claim repeats the request that wrote the claim `theirs`, and that run may still be in flight.
    fn is_same_attempt(&self, theirs: &ClaimRecord) -> bool {
        theirs.attempt.is_some()
            && (theirs.attempt, theirs.asker) == (self.record.attempt, self.record.asker)
            && theirs.is_running(self.terms.engine.clock.wall())
    }

    /// Takes over the claim `theirs` of the same attempt with a compare-and-swap.
    async fn resume(&self, theirs: &ClaimRecord, state: &mut ClaimProgress) -> Result<CellWrite, StoreError> {
        let ours = self.continuing(theirs);
        state.own = RecordCell::written(self.terms.ticket, theirs, theirs.encode());
        let written = self.write_again(&mut state.own, &ours).await?;
        if matches!(written, CellWrite::Own) {
            self.carry_on(ours);
        }
        Ok(written)
    }

    fn done(&self, reply: Result<Reply, NoReply>) -> Vec<u8> {
        let reply = self.terms.rules.kept(reply);
        let ClaimRecord { run, fingerprint, asker, .. } = *self.record();
        DoneRecord { run, fingerprint, asker, deadline: self.outcome_deadline(), reply }.encode()
    }

    fn store(&self) -> &WatchedStore {
        &self.terms.engine.store
    }

    fn is_settling(&self) -> bool {
        self.is_settling.load(Ordering::SeqCst)
    }

    fn age(&self) -> Duration {
        Duration::from_millis(self.terms.engine.clock.steady().saturating_sub(self.begun))
    }

    /// Counts the event, and writes it to the audit log.
    fn log(&self, event: ClaimEvent) {
        self.terms.engine.metrics.claim(self.terms.origin.label(), event);
        audit::claim(event, &self.terms.action, &self.terms.ticket, self.run());
    }
}

/// Revokes the claim if the future of `enter` is dropped before the store has replied.
struct EntryGuard<'a>(Option<&'a Arc<Claim>>);

impl Drop for EntryGuard<'_> {
    fn drop(&mut self) {
        // Another request of the same attempt may already run under this claim.
        if let Some(claim) = self.0.take().filter(|claim| claim.terms.attempt.is_none())
            && let Ok(mut state) = claim.state.try_lock()
        {
            claim.revoke(&mut state);
        }
    }
}

/// The result of writing a claim.
enum EnterResult {
    Ours,
    Theirs(Record),
    /// The token has no record.
    Absent(Code),
    /// The token has expired, or was issued in an earlier epoch of the store.
    Late(Code),
}

impl From<Option<Record>> for EnterResult {
    fn from(found: Option<Record>) -> Self {
        found.map_or(Self::Ours, Self::Theirs)
    }
}
