//! A claim: the right to run under a key, which the store keeps as long as the run lasts.

mod own;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onceward_api::Code;
use tokio::sync::{Mutex, MutexGuard};

use self::own::{Met, Own, SURPRISES, restless};
use crate::clock::Clock;
use crate::drain::Running;
use crate::event::{self, Event};
use crate::guard::Verdict;
use crate::pass::Settled;
use crate::policy::{Effect, IntervalRules, KeyRules};
use crate::record::{Claimed, Done, Record, UnknownRecord};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::run_id::RunId;
use crate::store::{Store, StoreError};
use crate::ticket::Ticket;
use crate::token::Imprint;
use crate::upkeep::{Place, Upkeep};

/// How often, and how long after each time, a token that is not there is asked for again: somebody may have its record in hand,
/// to find that it is not for him.
const IN_HAND: (usize, Duration) = (8, Duration::from_millis(8));
/// The shortest wait that a duplicate of a run in progress is told, in milliseconds.
const SHORTEST_WAIT: u64 = 1_000;

/// The right to run under a key.
pub(crate) struct Claim {
    terms: Terms,
    record: Claimed,
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
    pub(crate) rules: KeyRules,
    pub(crate) origin: Origin,
    pub(crate) action: String,
    pub(crate) ticket: Ticket,
    pub(crate) fingerprint: Option<[u8; 16]>,
}

/// What a claim is on.
pub(crate) enum Origin {
    Key,
    /// A token whose answer is remembered.
    Token(Imprint),
    Interval(IntervalRules),
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
    },
    Over,
}

impl Claim {
    pub(crate) fn new(terms: Terms) -> Self {
        let record = Claimed {
            run: RunId::new(),
            fingerprint: terms.fingerprint,
            started_at: terms.clock.wall(),
            lease: terms.rules.lease.as_millis() as u64,
            held: None,
        };
        let own = Own::new(Arc::clone(&terms.store), terms.ticket, record.run);
        let state = Mutex::new(State { own, stage: Stage::Running, is_renewed: false, place: None, running: None });
        Self { begun: terms.clock.steady(), terms, record, is_settling: AtomicBool::new(false), state }
    }

    pub(crate) fn run(&self) -> RunId {
        self.record.run
    }

    pub(crate) fn ticket(&self) -> &Ticket {
        &self.terms.ticket
    }

    /// The token it is on, if it is on one.
    pub(crate) fn token(&self) -> Option<&Imprint> {
        match &self.terms.origin {
            Origin::Token(token) => Some(token),
            Origin::Key | Origin::Interval(_) => None,
        }
    }

    /// What is said to somebody who comes when the token is over; `None` if nothing is known of its use.
    pub(crate) fn late(&self, found: &[u8]) -> Result<Option<Verdict>, StoreError> {
        match Record::decode(found).map_err(StoreError::not_executed)? {
            Record::Issued | Record::Attempted(_) => Ok(None),
            found => self.duplicate_of(found).map(Some),
        }
    }

    /// Claims, and holds if the rules say so; `None` is the right to run, otherwise what a duplicate is told.
    pub(crate) async fn enter(self: &Arc<Self>, running: &mut Option<Running>) -> Result<Option<Verdict>, StoreError> {
        // Dropped last, when nobody has the state any more.
        let mut entering = Entering(Some(self));
        let mut state = self.state.lock().await;
        let mut may_be_there = false;
        let made = match &self.terms.origin {
            Origin::Token(_) => self.make_of_token(&mut state.own).await,
            Origin::Key | Origin::Interval(_) => self.make(&mut state.own, &mut may_be_there).await.map(Made::from),
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
            Err(error) => {
                if may_be_there || matches!(error, StoreError::Unknown(_)) {
                    state.running = running.take();
                    self.take_back(&mut state);
                }
                Err(error)
            }
        }
    }

    fn take_back(self: &Arc<Self>, state: &mut State) {
        self.is_settling.store(true, Ordering::SeqCst);
        state.stage = Stage::TakingBack { answered_at: None };
        self.step_after(state, self.pace());
    }

    /// Inserts for a lease, and then has it outlive that if it is to be held: an insert whose answer is lost must not stay
    /// for long.
    async fn make(&self, own: &mut Own, may_be_there: &mut bool) -> Result<Option<Record>, StoreError> {
        for _ in 0..SURPRISES {
            if let Some(found) = own.insert(self.record.encode(), self.terms.rules.lease).await? {
                return Ok(Some(found));
            }
            if !self.terms.rules.hold {
                return Ok(None);
            }
            *may_be_there = true;
            match own.write(self.renewed(), self.held_life()).await? {
                Met::Own => return Ok(None),
                Met::Other(found) => return Ok(Some(found)),
                Met::Nothing => {}
            }
        }
        Err(restless())
    }

    /// Makes the claim in the place of a token that was issued and not used. It is held from the first.
    async fn make_of_token(&self, own: &mut Own) -> Result<Made, StoreError> {
        for _ in 0..IN_HAND.0 {
            match own.take_over(&Record::ISSUED, self.renewed(), self.held_life()).await? {
                Met::Own => return Ok(Made::Ours),
                Met::Other(found) => return Ok(Made::Theirs(found)),
                // Whoever has it in hand puts it back in a moment.
                Met::Nothing => tokio::time::sleep(IN_HAND.1).await,
            }
        }
        Ok(Made::Spent)
    }

    /// One step of what goes on beside the handler.
    pub(crate) async fn step(self: &Arc<Self>) {
        let mut state = self.state.lock().await;
        self.leave_queue(&mut state);
        let again = match &state.stage {
            // Whoever settles goes on from here.
            Stage::Running if self.is_settling() => None,
            Stage::Running => {
                state.is_renewed = true;
                self.keep(&mut state.own).await
            }
            Stage::Over => None,
            Stage::Completing(_) | Stage::Shortening | Stage::Releasing | Stage::Leaving | Stage::TakingBack { .. } => {
                let failed = self.advance(&mut state).await.is_err();
                // A Redis that is full refuses the reply and renews the claim: nobody else runs while this is tried.
                if failed && matches!(state.stage, Stage::Completing(_)) {
                    let _ = self.renew(&mut state.own).await;
                }
                (failed || !matches!(state.stage, Stage::Over)).then(|| self.pace())
            }
        };
        match again {
            Some(after) if self.age() < self.patience(&state.stage) => self.step_after(&mut state, after),
            _ => state.running = None,
        }
    }

    fn step_after(self: &Arc<Self>, state: &mut State, after: Duration) {
        state.place = Some(self.terms.upkeep.add(Arc::clone(self), after));
    }

    /// Says how it ended. If that cannot be written, trying goes on in the background.
    pub(crate) async fn settle(
        self: &Arc<Self>,
        effect: Effect,
        reply: Option<Reply>,
        running: Running,
    ) -> Result<Settled, StoreError> {
        let mut state = self.begin_settling().await;
        state.stage = match (&self.terms.origin, effect) {
            (Origin::Interval(rules), _) if rules.is_lock => Stage::Releasing,
            (_, Effect::DidNotHappen) => Stage::Releasing,
            (Origin::Interval(rules), Effect::Happened)
                if rules.is_shorter_than_its_claim() || (state.is_renewed && self.age() < rules.every) =>
            {
                Stage::Shortening
            }
            (_, Effect::Unknown) if self.terms.rules.hold => Stage::Leaving,
            (Origin::Interval(_), _) | (_, Effect::Unknown) => {
                self.leave_queue(&mut state);
                state.stage = Stage::Over;
                self.log(Event::of(effect));
                return Ok(Settled::Final);
            }
            (Origin::Key | Origin::Token(_), Effect::Happened) => Stage::Completing(self.done(reply)),
        };
        state.running = Some(running);
        let settled = self.advance(&mut state).await;
        // Until here the next renewal stayed due: it goes on with this if nobody waits for it any more.
        self.leave_queue(&mut state);
        if !matches!(state.stage, Stage::Over) {
            self.step_after(&mut state, self.pace());
        }
        settled
    }

    /// Gives up without a word: the lease ends it, and a claim that is held says that nobody can tell. What is only kept from
    /// running at the same time is free at once.
    pub(crate) fn abandon(self: &Arc<Self>) {
        self.is_settling.store(true, Ordering::SeqCst);
        // A step that is under way finds out by itself.
        let Ok(mut state) = self.state.try_lock() else { return self.log(Event::Unknown) };
        self.leave_queue(&mut state);
        state.stage = match &self.terms.origin {
            Origin::Interval(rules) if rules.is_lock => Stage::Releasing,
            Origin::Key | Origin::Token(_) if self.terms.rules.hold => Stage::Leaving,
            Origin::Key | Origin::Token(_) | Origin::Interval(_) => Stage::Over,
        };
        if matches!(state.stage, Stage::Over) {
            return self.log(Event::Unknown);
        }
        self.step_after(&mut state, Duration::ZERO);
    }

    /// Waits for a renewal that is under way, and lets no other begin.
    async fn begin_settling(&self) -> MutexGuard<'_, State> {
        self.is_settling.store(true, Ordering::SeqCst);
        self.state.lock().await
    }

    /// No step is due any more.
    fn leave_queue(&self, state: &mut State) {
        state.place.take().into_iter().for_each(|place| self.terms.upkeep.remove(place));
    }

    /// Says from now on that the outcome is unknown.
    async fn leave(&self, own: &mut Own) -> Result<(), StoreError> {
        let (ended, retain) = (self.record.hold(0, self.deadline()).encode(), self.terms.rules.retain);
        if matches!(own.write(ended.clone(), retain).await?, Met::Nothing) {
            own.insert_again(ended, retain).await?;
        }
        Ok(())
    }

    /// One try at what is left to do.
    async fn advance(&self, state: &mut State) -> Result<Settled, StoreError> {
        let own = &mut state.own;
        let settled = match &mut state.stage {
            Stage::Completing(record) => match self.complete(own, record).await? {
                Some(settled) => settled,
                // Trying goes on: it may be a claim that nobody knows of, which is taken back in a moment.
                None => return Ok(Settled::Lost),
            },
            Stage::Shortening => self.shorten(own).await.map(|()| Settled::Final)?,
            Stage::Leaving => {
                self.leave(own).await?;
                self.log(Event::Unknown);
                (state.stage, state.running) = (Stage::Over, None);
                return Ok(Settled::Final);
            }
            // Whatever else is there, nothing of ours is.
            Stage::Releasing => self.release(own).await.map(|()| Settled::Back)?,
            Stage::TakingBack { answered_at } => {
                let met = self.give_back(own).await?;
                if self.may_still_come(&met, answered_at) {
                    return Ok(Settled::Back);
                }
                Settled::Back
            }
            Stage::Running | Stage::Over => return Ok(Settled::Final),
        };
        self.log(match settled {
            Settled::Final => Event::Completed,
            Settled::Back => Event::Released,
            Settled::Lost => Event::Lost,
        });
        state.stage = Stage::Over;
        state.running = None;
        Ok(settled)
    }

    /// Gives it back for good. Whoever has the claim of a token in hand puts it back in a moment.
    async fn release(&self, own: &mut Own) -> Result<(), StoreError> {
        for _ in 0..IN_HAND.0 {
            if !matches!(self.give_back(own).await?, Met::Nothing) || self.token().is_none() {
                break;
            }
            tokio::time::sleep(IN_HAND.1).await;
        }
        Ok(())
    }

    /// Removes the claim; a token that is worth it works again.
    async fn give_back(&self, own: &mut Own) -> Result<Met, StoreError> {
        let life = self.token().map(|token| Imprint::worth_putting_back(token.expires_at, &self.terms.clock));
        match life {
            Some(Some(life)) => own.hand_over(&Record::ISSUED, life).await,
            Some(None) | None => own.erase().await,
        }
    }

    /// Has the claim end when the interval does.
    async fn shorten(&self, own: &mut Own) -> Result<(), StoreError> {
        let Origin::Interval(rules) = &self.terms.origin else { return Ok(()) };
        match rules.every.checked_sub(self.age()).filter(|left| !left.is_zero()) {
            Some(left) => own.write(self.record.encode(), left).await.map(drop),
            None => own.erase().await.map(drop),
        }
    }

    /// Writes the reply; `None` if somebody else's claim is there.
    async fn complete(&self, own: &mut Own, record: &[u8]) -> Result<Option<Settled>, StoreError> {
        let retain = self.terms.rules.retain;
        for _ in 0..SURPRISES {
            let other = match own.write(record.to_vec(), retain).await? {
                Met::Own => return Ok(Some(Settled::Final)),
                Met::Other(found) if own.is_of_this_run(&found) => return Ok(Some(Settled::Final)),
                Met::Other(found) => found,
                // It has lapsed, and nobody came.
                Met::Nothing => match own.insert_again(record.to_vec(), retain).await? {
                    None if own.holds(record) => return Ok(Some(Settled::Final)),
                    // A late renewal was there first.
                    None => continue,
                    Some(found) => found,
                },
            };
            return Ok((!matches!(other, Record::Claimed(_))).then_some(Settled::Lost));
        }
        Err(restless())
    }

    /// Whether a claim that is being taken back may be written yet: until a lease after the store first answered.
    fn may_still_come(&self, met: &Met, answered_at: &mut Option<u64>) -> bool {
        let now = self.terms.clock.steady();
        let first = *answered_at.get_or_insert(now);
        matches!(met, Met::Nothing) && now < first.saturating_add(self.record.lease)
    }

    /// Renews, and says when to do so again; `None` if there is nothing left to renew.
    async fn keep(&self, own: &mut Own) -> Option<Duration> {
        let kept = self.renew(own).await;
        match &kept {
            Ok(Some(_)) => {}
            Ok(None) => self.log(Event::Lost),
            Err(error) => {
                tracing::warn!(%error, ticket = ?self.terms.ticket, run = %self.run(), "a claim could not be renewed");
            }
        }
        kept.unwrap_or_else(|_| Some(self.pace()))
    }

    async fn renew(&self, own: &mut Own) -> Result<Option<Duration>, StoreError> {
        let KeyRules { lease, hold, .. } = self.terms.rules;
        let (record, life) = if hold { (self.renewed(), self.held_life()) } else { (self.record.encode(), lease) };
        let other = match own.write(record, life).await? {
            Met::Own => return Ok(Some(self.rhythm())),
            Met::Other(other) => other,
            Met::Nothing => match own.insert_again(self.record.encode(), lease).await? {
                // Held again with the next renewal, which is due at once.
                None => return Ok(Some(if hold { Duration::ZERO } else { self.rhythm() })),
                Some(other) => other,
            },
        };
        // A claim may be one that nobody knows of, written late by a store that was frozen, and taken back in a moment.
        Ok(matches!(other, Record::Claimed(_)).then(|| self.pace()))
    }

    /// What is said to a request that has met somebody else's record. Other content is told before anything else.
    fn duplicate_of(&self, found: Record) -> Result<Verdict, StoreError> {
        let (owner, said) = match &found {
            Record::Claimed(claimed) => (claimed.run, claimed.fingerprint),
            Record::Done(done) => (done.run, done.fingerprint),
            Record::Attempted(_) if self.token().is_some() => return Ok(Verdict::Refuse(Code::TokenUsed.into())),
            Record::Issued | Record::Attempted(_) => return Err(StoreError::not_executed(UnknownRecord)),
        };
        let is_other = said.zip(self.record.fingerprint).is_some_and(|(theirs, ours)| theirs != ours);
        let refusal = match (found, &self.terms.origin) {
            (_, Origin::Token(_)) if is_other => {
                Refusal::new(Code::TokenUsed).detail("This token was sent before with other content. Fetch a new one.")
            }
            (_, _) if is_other => Code::KeyReused.into(),
            (Record::Claimed(claimed), Origin::Interval(rules)) => too_soon(rules, &claimed, self.terms.clock.wall()),
            (Record::Done(Done { reply: Some(reply), .. }), _) => return Ok(Verdict::Replay(reply)),
            (Record::Claimed(claimed), _) => unfinished(&claimed, self.terms.clock.wall()),
            _ => Code::ReplyNotKept.into(),
        };
        event::refused(&self.terms.action, &self.terms.ticket, &refusal, owner);
        Ok(Verdict::Refuse(refusal))
    }

    fn done(&self, reply: Option<Reply>) -> Vec<u8> {
        let reply = reply.filter(|reply| reply.size() <= self.terms.rules.reply_limit && reply.fits());
        Done { run: self.run(), fingerprint: self.record.fingerprint, deadline: self.deadline(), reply }.encode()
    }

    /// The claim as one that is held, and alive at this moment.
    fn renewed(&self) -> Vec<u8> {
        self.record.hold(self.terms.clock.wall(), self.deadline()).encode()
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

    /// How long until the next renewal. An interval is over by then as a rule, and need not be renewed.
    fn rhythm(&self) -> Duration {
        match self.terms.origin {
            Origin::Interval(_) => self.terms.rules.lease * 2 / 3,
            Origin::Key | Origin::Token(_) => self.terms.rules.lease / 3,
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

    /// How long to wait before what failed is tried again.
    fn pace(&self) -> Duration {
        (self.terms.rules.lease / 10).clamp(Duration::from_millis(10), Duration::from_millis(500))
    }

    fn log(&self, event: Event) {
        event.log(&self.terms.action, &self.terms.ticket, self.run());
    }
}

/// A claim that is being made. If nobody waits for that any more, it is taken back.
struct Entering<'a>(Option<&'a Arc<Claim>>);

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.0.take()
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
}

impl From<Option<Record>> for Made {
    fn from(found: Option<Record>) -> Self {
        found.map_or(Self::Ours, Self::Theirs)
    }
}

/// What is said of a claim on an interval: to come back when it is over, or a moment later if it still runs then.
fn too_soon(rules: &IntervalRules, claimed: &Claimed, now: u64) -> Refusal {
    let over = claimed.started_at.saturating_add(rules.every.as_millis() as u64);
    let refusal = Refusal::new(Code::TooSoon).wait(Duration::from_millis(over.saturating_sub(now).max(1)));
    match &rules.message {
        Some(message) => refusal.detail(message.clone()),
        None => refusal,
    }
}

/// What is said of a claim that is there. Whoever asks for a run that has lasted for a while is told to wait for as long
/// again, up to a lease: a quick run is asked for soon, and a slow one not all the time.
fn unfinished(claimed: &Claimed, now: u64) -> Refusal {
    if !claimed.is_running(now) {
        return Code::OutcomeUnknown.into();
    }
    let so_far = now.saturating_sub(claimed.started_at);
    let wait = so_far.clamp(SHORTEST_WAIT, claimed.lease.max(SHORTEST_WAIT));
    Refusal::new(Code::InProgress).wait(Duration::from_millis(wait))
}
