//! A claim: the right to run under a key, with a remembered token or in an interval, which the store keeps as long as the run
//! lasts.

mod duplicate;
mod own;
mod settling;
mod written;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onceward_api::Code;
use tokio::sync::Mutex;

use self::own::{Inserted, Met, Own, SURPRISES, restless};
use crate::attempt::IN_HAND;
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::drain::Running;
use crate::event::Event;
use crate::guard::Verdict;
use crate::meter::{Meter, Row};
use crate::not_kept::NotKept;
use crate::policy::{IntervalRules, KeyRules};
use crate::record::{Claimed, Done, Record};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::run_id::RunId;
use crate::store::{Epoch, Store, StoreError};
use crate::ticket::Ticket;
use crate::token::Imprint;
use crate::upkeep::{Place, Upkeep};
use crate::waiting::Waiting;

/// The right to run.
pub(crate) struct Claim {
    terms: Terms,
    record: Claimed,
    /// The same of a run that an earlier question for the same attempt has begun, and that this one carries on with.
    carried_on: OnceLock<Claimed>,
    begun: u64,
    /// Once this is set, no renewal is sent.
    is_settling: AtomicBool,
    state: Mutex<State>,
}

/// What a claim is made of.
pub(crate) struct Terms {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) upkeep: Upkeep,
    pub(crate) meter: Arc<Meter>,
    pub(crate) waiting: Waiting,
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
    Token(Imprint, [u8; 16]),
    Interval(IntervalRules),
}

impl Origin {
    fn row(&self) -> Row {
        match self {
            Self::Key => Row::Key,
            Self::Token(..) => Row::Remembered,
            Self::Interval(_) => Row::Interval,
        }
    }

    fn asker(&self) -> Option<[u8; 16]> {
        match self {
            Self::Token(_, asker) => Some(*asker),
            Self::Key | Self::Interval(_) => None,
        }
    }
}

struct State {
    own: Own,
    stage: Stage,
    /// Whether it may live longer than it was first made for.
    is_renewed: bool,
    /// Where it waits for its next step.
    place: Option<Place>,
    /// Whoever drains waits for what is left to write.
    running: Option<Running>,
    /// Whether a write was sent that outlives its lease.
    may_outlive: bool,
    /// How long to wait before what failed is tried again.
    backoff: Backoff,
}

/// What is left to do.
enum Stage {
    /// The work is being done: the claim is renewed.
    Running,
    /// It happened: this is to be written.
    Completing(Vec<u8>),
    /// It happened, and the claim lives longer than it has to.
    Shortening,
    /// It did not happen: the claim is to be removed, or the token put back.
    Releasing,
    /// Nobody can tell, and the claim, which is held, is to say so.
    Leaving,
    /// Nobody knows whether the claim was written. It is removed; not finding it proves nothing for a while.
    TakingBack {
        answered_at: Option<u64>,
        /// It is over by itself soon, so one try is enough.
        lapses: bool,
    },
    Over,
}

/// What is due after a step.
enum Next {
    /// A renewal, after this time.
    Renew(Duration),
    /// The same again: it failed, or the claim of another run is in the way.
    Again,
    Nothing,
}

/// A claim that lives no longer than this, and whose write may have been lost, is tried to be taken back once. If that is not answered either,
/// it is left to its lease: no handler runs under it, and a duplicate gets *in progress* until then.
const LAPSES: Duration = Duration::from_secs(15);

/// How long to wait before what failed is tried again: soon at first, for what a renewal is owed in the rest of the lease.
fn backoff(lease: Duration) -> Backoff {
    Backoff::between((lease / 40).max(Duration::from_millis(10)), lease / 3)
}

/// The same for a claim that the store does not have, and may be sent yet by a connection that was held up.
fn late_backoff(lease: Duration) -> Backoff {
    Backoff::between(lease / 8, lease / 2)
}

impl Claim {
    pub(crate) fn new(terms: Terms) -> Self {
        let record = Claimed {
            run: RunId::new(),
            attempt: terms.attempt,
            fingerprint: terms.fingerprint,
            asker: terms.origin.asker(),
            started_at: terms.clock.wall(),
            lease: terms.rules.lease.as_millis() as u64,
            held: None,
        };
        Self::of_record(terms, record)
    }

    fn of_record(terms: Terms, record: Claimed) -> Self {
        let own = Own::new(Arc::clone(&terms.store), terms.ticket, &record);
        let state = Mutex::new(State {
            own,
            stage: Stage::Running,
            is_renewed: false,
            place: None,
            running: None,
            may_outlive: false,
            backoff: backoff(terms.rules.lease),
        });
        let (begun, carried_on, is_settling) = (terms.clock.steady(), OnceLock::new(), AtomicBool::new(false));
        Self { terms, record, carried_on, begun, is_settling, state }
    }

    /// The claim as it stands in the store, before it is held.
    fn record(&self) -> &Claimed {
        self.carried_on.get().unwrap_or(&self.record)
    }

    pub(crate) fn run(&self) -> RunId {
        self.record().run
    }

    pub(crate) fn ticket(&self) -> &Ticket {
        &self.terms.ticket
    }

    /// The token it is on, if it is on one.
    pub(crate) fn token(&self) -> Option<&Imprint> {
        match &self.terms.origin {
            Origin::Token(token, _) => Some(token),
            Origin::Key | Origin::Interval(_) => None,
        }
    }

    /// What is said to somebody who comes when this is on record; `None` if that tells of no use.
    pub(crate) fn told(&self, found: &[u8]) -> Result<Option<Verdict>, StoreError> {
        match Record::decode(found).map_err(StoreError::not_executed)? {
            Record::Issued | Record::Attempted(_) => Ok(None),
            found => self.duplicate_of(found).map(Some),
        }
    }

    /// What is said to somebody whose token is over: a late retry still gets its answer.
    pub(crate) async fn late(&self, refusal: Refusal) -> Result<Verdict, StoreError> {
        let found = self.terms.store.look(&self.terms.ticket).await?;
        let told = found.map(|found| self.told(&found)).transpose()?.flatten();
        Ok(told.unwrap_or(Verdict::Refuse(refusal)))
    }

    /// Claims, and holds if the rules say so; `None` is the right to run, otherwise what a duplicate is told.
    pub(crate) async fn enter(self: &Arc<Self>, running: &mut Option<Running>) -> Result<Option<Verdict>, StoreError> {
        // Dropped last, when nobody has the state any more.
        let mut entering = Entering(Some(self));
        let mut state = self.state.lock().await;
        let made = match &self.terms.origin {
            Origin::Token(token, _) => self.make_of_token(token.epoch, &mut state).await,
            Origin::Key | Origin::Interval(_) => self.make(&mut state).await.map(Made::from),
        };
        entering.0 = None;
        match made {
            Ok(Made::Ours) => {
                self.step_after(&mut state, self.rhythm());
                self.log(Event::Claimed);
                Ok(None)
            }
            Ok(Made::Theirs(found)) => self.duplicate_of(found).map(Some),
            Ok(Made::Spent) => Ok(Some(Verdict::Refuse(Code::TokenUsed.into()))),
            Ok(Made::Stale) => self.late(Code::TokenStale.into()).await.map(Some),
            Err(error) => {
                if self.terms.attempt.is_none() && (state.may_outlive || matches!(error, StoreError::Unknown(_))) {
                    state.running = running.take();
                    self.take_back(&mut state);
                }
                Err(error)
            }
        }
    }

    fn take_back(self: &Arc<Self>, state: &mut State) {
        self.is_settling.store(true, Ordering::SeqCst);
        let outlives = state.may_outlive || matches!(self.terms.origin, Origin::Token(..));
        let lapses = !outlives && self.terms.rules.lease <= LAPSES;
        state.stage = Stage::TakingBack { answered_at: None, lapses };
        self.try_again(state);
    }

    /// Inserts for a lease, and then has it outlive that if it is to be held: an insert whose answer is lost must not stay
    /// for long.
    async fn make(&self, state: &mut State) -> Result<Option<Record>, StoreError> {
        for _ in 0..SURPRISES {
            let ours = match state.own.insert(&self.record, self.terms.rules.lease).await? {
                Inserted::New if !self.terms.rules.hold => return Ok(None),
                Inserted::New => self.record.clone(),
                Inserted::Other(found) => return Ok(Some(found)),
                // Whoever was told to run before may have done so, and nobody knows how that ended.
                Inserted::Own(claimed) if !claimed.is_running(self.terms.clock.wall()) => {
                    return Ok(Some(Record::Claimed(claimed)));
                }
                // Whoever is told to run has a whole lease, also if it is told so again.
                Inserted::Own(Claimed { run, started_at, .. }) => Claimed { run, started_at, ..self.record.clone() },
            };
            state.may_outlive = true;
            match self.write_again(&mut state.own, &ours).await? {
                Met::Own => {
                    self.carry_on(ours);
                    return Ok(None);
                }
                Met::Other(found) => return Ok(Some(found)),
                // Nothing is carried on with that was released meanwhile: that would give two runs one name.
                Met::Nothing => {}
            }
        }
        Err(restless())
    }

    fn carry_on(&self, ours: Claimed) {
        if ours.run != self.record.run {
            // It is made once, so nothing is there yet.
            let _ = self.carried_on.set(ours);
        }
    }

    /// Makes the claim in the place of a token that was issued and not used. It is held from the first.
    async fn make_of_token(&self, epoch: Epoch, state: &mut State) -> Result<Made, StoreError> {
        for pause in [IN_HAND.1 * IN_HAND.0 as u32, Duration::ZERO] {
            match state.own.take_over(epoch, &Record::ISSUED, self.renewed(&self.record), self.held_life()).await? {
                None => return Ok(Made::Stale),
                Some(Met::Own) => return Ok(Made::Ours),
                Some(Met::Other(found)) => return Ok(Made::Theirs(found)),
                // Whoever has it in hand has put it back by then; if nobody has, that is asked once and not all the time.
                Some(Met::Nothing) => tokio::time::sleep(pause).await,
            }
        }
        Ok(Made::Spent)
    }

    /// One step of what goes on beside the handler. Says whether the store has answered.
    pub(crate) async fn step(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock().await;
        self.leave_queue(&mut state);
        let (next, is_answered) = match &state.stage {
            // Whoever settles goes on from here.
            Stage::Running if self.is_settling() => (Next::Nothing, true),
            Stage::Running => {
                state.is_renewed = true;
                self.keep(&mut state.own).await
            }
            Stage::Over => (Next::Nothing, true),
            Stage::Completing(_) | Stage::Shortening | Stage::Releasing | Stage::Leaving | Stage::TakingBack { .. } => {
                self.settle_on(&mut state).await
            }
        };
        let is_patient = self.age() < self.patience(&state.stage);
        match next {
            Next::Renew(after) if is_patient => {
                state.backoff.reset();
                self.step_after(&mut state, after);
            }
            // A renewal waits for no other retry: the handler runs, and its lease must not expire while the store executes what it answers late.
            Next::Again if is_patient && matches!(state.stage, Stage::Running) => {
                let after = state.backoff.next();
                self.step_after(&mut state, after);
            }
            Next::Again if is_patient => self.try_again(&mut state),
            Next::Renew(_) | Next::Again | Next::Nothing => state.running = None,
        }
        is_answered
    }

    /// One try at what is left to do, and what is next.
    async fn settle_on(&self, state: &mut State) -> (Next, bool) {
        // A store that is full has answered: others need not wait because of it.
        let advanced = self.advance(state).await;
        let is_refused = advanced.is_err();
        let mut failed = advanced.is_err_and(|error| !error.is_full());
        match state.stage {
            Stage::Over => return (Next::Nothing, !failed),
            Stage::TakingBack { lapses: true, .. } => {
                state.stage = Stage::Over;
                return (Next::Nothing, !failed);
            }
            // A Redis that is full refuses the reply and renews the claim: nobody else runs while this is tried.
            Stage::Completing(_) if is_refused => failed = self.renew(&mut state.own).await.is_err(),
            _ => {}
        }
        (Next::Again, !failed)
    }

    /// Whether the store answers what is asked of this claim.
    pub(crate) async fn is_answered(&self) -> bool {
        self.terms.store.look(&self.terms.ticket).await.is_ok()
    }

    pub(crate) fn lease(&self) -> Duration {
        self.terms.rules.lease
    }

    fn step_after(self: &Arc<Self>, state: &mut State, after: Duration) {
        state.place = Some(self.terms.upkeep.add(Arc::clone(self), after));
    }

    /// What failed is tried again after a while; what may still be written late, at the end of that time for the last time.
    fn try_again(self: &Arc<Self>, state: &mut State) {
        let mut after = state.backoff.next();
        if let Stage::TakingBack { answered_at: Some(first), .. } = state.stage {
            let end = first.saturating_add(self.record.lease);
            after = after.min(Duration::from_millis(end.saturating_sub(self.terms.clock.steady())));
        }
        state.place = Some(self.terms.upkeep.retry(Arc::clone(self), after));
    }

    /// Renews, and says what is next, and whether the store has answered.
    async fn keep(&self, own: &mut Own) -> (Next, bool) {
        let kept = self.renew(own).await;
        let is_answered = kept.is_ok();
        match &kept {
            Ok(Next::Nothing) => self.log(Event::Lost),
            Ok(_) => {}
            Err(error) => {
                self.terms.meter.not_renewed();
                tracing::warn!(%error, ticket = ?self.terms.ticket, run = %self.run(), "could not renew the claim; retrying until the lease expires");
            }
        }
        (kept.unwrap_or(Next::Again), is_answered)
    }

    async fn renew(&self, own: &mut Own) -> Result<Next, StoreError> {
        let KeyRules { lease, hold, .. } = self.terms.rules;
        let other = match self.write_again(own, self.record()).await? {
            Met::Own => {
                self.terms.meter.renewed();
                return Ok(Next::Renew(self.rhythm()));
            }
            Met::Other(other) => other,
            Met::Nothing => match own.insert_again(self.revived().encode(), lease).await? {
                None => {
                    self.terms.meter.renewed();
                    // Held again with the next renewal, which is due at once.
                    return Ok(Next::Renew(if hold { Duration::ZERO } else { self.rhythm() }));
                }
                Some(other) => other,
            },
        };
        // A claim may be one that nobody knows of, written late by a store that was frozen, and taken back in a moment.
        Ok(if matches!(other, Record::Claimed(_)) { Next::Again } else { Next::Nothing })
    }

    /// Has it live for as long again, if it is there.
    async fn write_again(&self, own: &mut Own, record: &Claimed) -> Result<Met, StoreError> {
        let KeyRules { lease, hold, .. } = self.terms.rules;
        match hold {
            true => own.write(self.renewed(record), self.held_life()).await,
            false => own.write(record.encode(), lease).await,
        }
    }

    /// The claim as a renewal makes it again that has found nothing. A late renewal may do so after the run has ended, so
    /// the attempt does not carry on with it: it would get the pass of a run that is over.
    fn revived(&self) -> Claimed {
        Claimed { attempt: None, ..self.record().clone() }
    }

    fn done(&self, reply: Result<Reply, NotKept>) -> Vec<u8> {
        let reply = self.terms.rules.kept(reply);
        let Claimed { run, fingerprint, asker, .. } = *self.record();
        Done { run, fingerprint, asker, deadline: self.deadline(), reply }.encode()
    }

    /// The claim as one that is held, and alive at this moment.
    fn renewed(&self, record: &Claimed) -> Vec<u8> {
        record.hold(self.terms.clock.wall(), self.deadline()).encode()
    }

    /// How long a claim that is held outlives its last renewal: never less than until the next one is due.
    fn held_life(&self) -> Duration {
        self.terms.rules.retain.max(self.terms.rules.lease)
    }

    fn deadline(&self) -> u64 {
        self.terms.clock.wall().saturating_add(self.terms.rules.retain.as_millis() as u64)
    }

    fn is_settling(&self) -> bool {
        self.is_settling.load(Ordering::SeqCst)
    }

    fn age(&self) -> Duration {
        Duration::from_millis(self.terms.clock.steady().saturating_sub(self.begun))
    }

    /// How long until the next renewal. An interval is over by then as a rule, and need not be renewed; a lock lasts as long as its handler.
    fn rhythm(&self) -> Duration {
        match &self.terms.origin {
            Origin::Interval(rules) if !rules.is_lock => self.terms.rules.lease / 3 * 2,
            Origin::Interval(_) | Origin::Key | Origin::Token(..) => self.terms.rules.lease / 3,
        }
    }

    /// How long trying goes on.
    fn patience(&self, stage: &Stage) -> Duration {
        let KeyRules { lease, ceiling, retain, hold, .. } = self.terms.rules;
        match stage {
            Stage::Running => ceiling,
            // A claim that is not held goes away by itself.
            Stage::Releasing | Stage::Shortening if !hold => ceiling.saturating_add(lease),
            _ => ceiling.saturating_add(retain),
        }
    }

    /// Counts it, and writes a line of it.
    fn log(&self, event: Event) {
        self.terms.meter.claim(self.terms.origin.row(), event);
        event.log(&self.terms.action, &self.terms.ticket, self.run());
    }
}

/// A claim that is being made. If nobody waits for that any more, it is taken back.
struct Entering<'a>(Option<&'a Arc<Claim>>);

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        // The same attempt may have been accepted elsewhere.
        if let Some(claim) = self.0.take().filter(|claim| claim.terms.attempt.is_none())
            && let Ok(mut state) = claim.state.try_lock()
        {
            claim.take_back(&mut state);
        }
    }
}

/// What has become of making a claim.
enum Made {
    Ours,
    Theirs(Record),
    /// There is no token any more.
    Spent,
    /// The token is of a life of the store that is over.
    Stale,
}

impl From<Option<Record>> for Made {
    fn from(found: Option<Record>) -> Self {
        found.map_or(Self::Ours, Self::Theirs)
    }
}
