//! A claim: the right to run under a key, with a remembered token or in an interval, which the store keeps as long as the run
//! lasts.

mod cell;
mod duplicate;
mod remote;
mod renewal;
mod settle;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onceward_api::Code;
use tokio::sync::Mutex;

use self::cell::{CellInsert, CellWrite, MAX_CONFLICTS, RecordCell, conflict};
use crate::audit;
use crate::backoff::Backoff;
use crate::engine::Engine;
use crate::epoch::Epoch;
use crate::metrics::{ClaimEvent, PolicyLabel};
use crate::policy::{IntervalRules, KeyRules};
use crate::record::{ClaimRecord, DoneRecord, Record};
use crate::redemption::IN_HAND;
use crate::rejection::{Duplicate, Rejection};
use crate::renewal::QueuePosition;
use crate::reply::{NoReply, Reply};
use crate::run_id::RunId;
use crate::shutdown::InFlight;
use crate::store::StoreError;
use crate::ticket::Ticket;
use crate::token::TokenFields;

/// The right to run.
pub(crate) struct Claim {
    terms: Terms,
    record: ClaimRecord,
    /// The same of a run that an earlier question for the same attempt has begun, and that this one carries on with.
    carried_on: OnceLock<ClaimRecord>,
    begun: u64,
    /// Once this is set, no renewal is sent.
    is_settling: AtomicBool,
    state: Mutex<ClaimProgress>,
}

/// What a claim is made of.
pub(crate) struct Terms {
    pub(crate) engine: Arc<Engine>,
    pub(crate) rules: KeyRules,
    pub(crate) origin: Origin,
    pub(crate) action: String,
    pub(crate) ticket: Ticket,
    pub(crate) fingerprint: Option<[u8; 16]>,
    /// The digest of a caller's attempt: asked for again while it runs, it is the same run. Otherwise each is a new one.
    pub(crate) attempt: Option<[u8; 16]>,
}

/// What a claim is on.
pub(crate) enum Origin {
    Key,
    /// A token whose answer is remembered, and who has sent it, for what.
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
    /// Whether it may live longer than it was first made for.
    is_renewed: bool,
    /// Where it waits for its next step.
    place: Option<QueuePosition>,
    /// Whoever drains waits for what is left to write.
    running: Option<InFlight>,
    /// Whether a write was sent that outlives its lease.
    may_outlive: bool,
    /// How long to wait before what failed is tried again.
    backoff: Backoff,
}

/// What is left to do.
enum ClaimStage {
    /// The work is being done: the claim is renewed.
    Running,
    /// It happened: this is to be written.
    Completing(Vec<u8>),
    /// It happened, and the claim lives longer than it has to.
    Truncating,
    /// It did not happen: the claim is to be removed, or the token put back.
    Releasing,
    /// Nobody can tell, and the claim, which is held, is to say so.
    MarkingUnknown,
    /// Nobody knows whether the claim was written. It is removed; not finding it proves nothing for a while.
    Revoking {
        answered_at: Option<u64>,
        /// It is over by itself soon, so one try is enough.
        lapses: bool,
    },
    Over,
}

/// A claim that lives no longer than this, and whose write may have been lost, is tried to be taken back once. If that is not answered either,
/// it is left to its lease: no handler runs under it, and a duplicate gets *in progress* until then.
const LAPSES: Duration = Duration::from_secs(15);

impl Claim {
    pub(crate) fn new(terms: Terms) -> Self {
        let record = ClaimRecord {
            run: RunId::new(),
            attempt: terms.attempt,
            fingerprint: terms.fingerprint,
            asker: terms.origin.asker(),
            started_at: terms.engine.clock.wall(),
            lease: terms.rules.lease.as_millis() as u64,
            heartbeat: None,
        };
        Self::of_record(terms, record)
    }

    fn of_record(terms: Terms, record: ClaimRecord) -> Self {
        let own = RecordCell::new(Arc::clone(&terms.engine.store), terms.ticket, &record);
        let state = Mutex::new(ClaimProgress {
            own,
            stage: ClaimStage::Running,
            is_renewed: false,
            place: None,
            running: None,
            may_outlive: false,
            backoff: renewal::backoff(terms.rules.lease),
        });
        let (begun, carried_on, is_settling) = (terms.engine.clock.steady(), OnceLock::new(), AtomicBool::new(false));
        Self { terms, record, carried_on, begun, is_settling, state }
    }

    /// The claim as it stands in the store, before it is held.
    fn record(&self) -> &ClaimRecord {
        self.carried_on.get().unwrap_or(&self.record)
    }

    pub(crate) fn run(&self) -> RunId {
        self.record().run
    }

    pub(crate) fn ticket(&self) -> &Ticket {
        &self.terms.ticket
    }

    /// The token it is on, if it is on one.
    pub(crate) fn token(&self) -> Option<&TokenFields> {
        match &self.terms.origin {
            Origin::Token(token, _) => Some(token),
            Origin::Key | Origin::Interval(_) => None,
        }
    }

    /// What is said to somebody who comes when this is on record; `None` if that tells of no use.
    pub(crate) fn duplicate_for(&self, found: &[u8]) -> Result<Option<Duplicate>, StoreError> {
        match Record::decode(found).map_err(StoreError::not_executed)? {
            Record::Issued | Record::Attempted(_) => Ok(None),
            found => self.duplicate_of(found).map(Some),
        }
    }

    /// What is said to somebody whose token is over: a late retry still gets its answer.
    pub(crate) async fn reply_to_late(&self, rejection: Rejection) -> Result<Duplicate, StoreError> {
        let found = self.terms.engine.store.look(&self.terms.ticket).await?;
        let told = found.map(|found| self.duplicate_for(&found)).transpose()?.flatten();
        Ok(told.unwrap_or(Duplicate::Reject(rejection)))
    }

    /// Claims, and holds if the rules say so; `None` is the right to run, otherwise what a duplicate is told.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        running: &mut Option<InFlight>,
    ) -> Result<Option<Duplicate>, StoreError> {
        // Dropped last, when nobody has the state any more.
        let mut entering = EntryGuard(Some(self));
        let mut state = self.state.lock().await;
        let made = match &self.terms.origin {
            Origin::Token(token, _) => self.redeem(token.epoch, &mut state).await,
            Origin::Key | Origin::Interval(_) => self.insert(&mut state).await.map(EnterResult::from),
        };
        entering.0 = None;
        match made {
            Ok(EnterResult::Ours) => {
                self.step_after(&mut state, self.renewal_interval());
                self.log(ClaimEvent::Claimed);
                Ok(None)
            }
            Ok(EnterResult::Theirs(found)) => self.duplicate_of(found).map(Some),
            Ok(EnterResult::Spent) => Ok(Some(Duplicate::Reject(Code::TokenUsed.into()))),
            Ok(EnterResult::Stale) => self.reply_to_late(Code::TokenStale.into()).await.map(Some),
            Err(error) => {
                if self.terms.attempt.is_none() && (state.may_outlive || matches!(error, StoreError::Unknown(_))) {
                    state.running = running.take();
                    self.revoke(&mut state);
                }
                Err(error)
            }
        }
    }

    fn revoke(self: &Arc<Self>, state: &mut ClaimProgress) {
        self.is_settling.store(true, Ordering::SeqCst);
        let outlives = state.may_outlive || matches!(self.terms.origin, Origin::Token(..));
        let lapses = !outlives && self.terms.rules.lease <= LAPSES;
        state.stage = ClaimStage::Revoking { answered_at: None, lapses };
        self.try_again(state);
    }

    /// Inserts for a lease, and then has it outlive that if it is to be held: an insert whose answer is lost must not stay
    /// for long.
    async fn insert(&self, state: &mut ClaimProgress) -> Result<Option<Record>, StoreError> {
        for _ in 0..MAX_CONFLICTS {
            let ours = match state.own.insert(&self.record, self.terms.rules.lease).await? {
                CellInsert::New if !self.terms.rules.at_most_once => return Ok(None),
                CellInsert::New => self.record.clone(),
                CellInsert::Other(found) => return Ok(Some(found)),
                // Whoever was told to run before may have done so, and nobody knows how that ended.
                CellInsert::Own(claimed) if !claimed.is_running(self.terms.engine.clock.wall()) => {
                    return Ok(Some(Record::Claimed(claimed)));
                }
                // Whoever is told to run has a whole lease, also if it is told so again.
                CellInsert::Own(ClaimRecord { run, started_at, .. }) => {
                    ClaimRecord { run, started_at, ..self.record.clone() }
                }
            };
            state.may_outlive = true;
            match self.write_again(&mut state.own, &ours).await? {
                CellWrite::Own => {
                    self.carry_on(ours);
                    return Ok(None);
                }
                CellWrite::Other(found) => return Ok(Some(found)),
                // Nothing is carried on with that was released meanwhile: that would give two runs one name.
                CellWrite::Nothing => {}
            }
        }
        Err(conflict())
    }

    fn carry_on(&self, ours: ClaimRecord) {
        if ours.run != self.record.run {
            // It is made once, so nothing is there yet.
            let _ = self.carried_on.set(ours);
        }
    }

    /// Makes the claim in the place of a token that was issued and not used. It is held from the first.
    async fn redeem(&self, epoch: Epoch, state: &mut ClaimProgress) -> Result<EnterResult, StoreError> {
        for pause in [IN_HAND.1 * IN_HAND.0 as u32, Duration::ZERO] {
            match state
                .own
                .take_over(epoch, &Record::ISSUED, self.renewed(&self.record), self.at_most_once_life())
                .await?
            {
                None => return Ok(EnterResult::Stale),
                Some(CellWrite::Own) => return Ok(EnterResult::Ours),
                Some(CellWrite::Other(found)) => return Ok(EnterResult::Theirs(found)),
                // Whoever has it in hand has put it back by then; if nobody has, that is asked once and not all the time.
                Some(CellWrite::Nothing) => tokio::time::sleep(pause).await,
            }
        }
        Ok(EnterResult::Spent)
    }

    fn done(&self, reply: Result<Reply, NoReply>) -> Vec<u8> {
        let reply = self.terms.rules.kept(reply);
        let ClaimRecord { run, fingerprint, asker, .. } = *self.record();
        DoneRecord { run, fingerprint, asker, deadline: self.deadline(), reply }.encode()
    }

    /// The claim as one that is held, and alive at this moment.
    fn renewed(&self, record: &ClaimRecord) -> Vec<u8> {
        record.with_heartbeat(self.terms.engine.clock.wall(), self.deadline()).encode()
    }

    /// How long a claim that is held outlives its last renewal: never less than until the next one is due.
    fn at_most_once_life(&self) -> Duration {
        self.terms.rules.retain.max(self.terms.rules.lease)
    }

    fn deadline(&self) -> u64 {
        self.terms.engine.clock.wall().saturating_add(self.terms.rules.retain.as_millis() as u64)
    }

    fn is_settling(&self) -> bool {
        self.is_settling.load(Ordering::SeqCst)
    }

    fn age(&self) -> Duration {
        Duration::from_millis(self.terms.engine.clock.steady().saturating_sub(self.begun))
    }

    /// Counts it, and writes a line of it.
    fn log(&self, event: ClaimEvent) {
        self.terms.engine.metrics.claim(self.terms.origin.label(), event);
        audit::claim(event, &self.terms.action, &self.terms.ticket, self.run());
    }
}

/// A claim that is being made. If nobody waits for that any more, it is taken back.
struct EntryGuard<'a>(Option<&'a Arc<Claim>>);

impl Drop for EntryGuard<'_> {
    fn drop(&mut self) {
        // The same attempt may have been accepted elsewhere.
        if let Some(claim) = self.0.take().filter(|claim| claim.terms.attempt.is_none())
            && let Ok(mut state) = claim.state.try_lock()
        {
            claim.revoke(&mut state);
        }
    }
}

/// What has become of making a claim.
enum EnterResult {
    Ours,
    Theirs(Record),
    /// There is no token any more.
    Spent,
    /// The token is of a life of the store that is over.
    Stale,
}

impl From<Option<Record>> for EnterResult {
    fn from(found: Option<Record>) -> Self {
        found.map_or(Self::Ours, Self::Theirs)
    }
}
