//! How a claim ends: completed, shortened, released, left, taken back. What fails is tried again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::MutexGuard;

use super::own::{Met, Own, SURPRISES, restless};
use super::{Claim, Origin, Stage, State, late_backoff};
use crate::attempt::IN_HAND;
use crate::drain::Running;
use crate::event::Event;
use crate::not_kept::NotKept;
use crate::pass::Settled;
use crate::policy::Effect;
use crate::record::Record;
use crate::reply::Reply;
use crate::store::StoreError;
use crate::token::Imprint;

impl Claim {
    /// Says how it ended. If that cannot be written, trying goes on in the background.
    pub(crate) async fn settle(
        self: &Arc<Self>,
        effect: Effect,
        reply: Result<Reply, NotKept>,
        running: Running,
    ) -> Result<Settled, StoreError> {
        let mut state = self.begin_settling().await;
        state.stage = match (&self.terms.origin, effect) {
            (Origin::Interval(rules), _) if rules.is_lock => Stage::Releasing,
            (_, Effect::DidNotHappen) => Stage::Releasing,
            (Origin::Interval(rules), Effect::Happened) if rules.is_shorter_than_its_claim() || state.is_renewed => {
                Stage::Shortening
            }
            (_, Effect::Unknown) if self.terms.rules.hold => Stage::Leaving,
            (Origin::Interval(_), _) | (_, Effect::Unknown) => {
                self.end(&mut state, effect);
                return Ok(Settled::Final);
            }
            (Origin::Key | Origin::Token(..), Effect::Happened) => Stage::Completing(self.done(reply)),
        };
        state.running = Some(running);
        let settled = self.advance(&mut state).await;
        // Until here the next renewal stayed due: it goes on with this if nobody waits for it any more.
        self.leave_queue(&mut state);
        if !matches!(state.stage, Stage::Over) {
            self.try_again(&mut state);
        }
        settled
    }

    /// Ends it if there is nothing to write: an interval that took place is left to expire. No, if there is, or if a renewal is
    /// under way.
    pub(crate) fn ends_unwritten(&self, effect: Effect) -> bool {
        let Origin::Interval(rules) = &self.terms.origin else { return false };
        if effect != Effect::Happened || rules.is_lock || rules.is_shorter_than_its_claim() {
            return false;
        }
        self.is_settling.store(true, Ordering::SeqCst);
        match self.state.try_lock() {
            Ok(mut state) if !state.is_renewed => {
                self.end(&mut state, effect);
                true
            }
            _ => false,
        }
    }

    /// Nothing is left to do.
    fn end(&self, state: &mut State, effect: Effect) {
        self.leave_queue(state);
        state.stage = Stage::Over;
        self.log(Event::of(effect));
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
            Origin::Key | Origin::Token(..) if self.terms.rules.hold => Stage::Leaving,
            Origin::Key | Origin::Token(..) | Origin::Interval(_) => Stage::Over,
        };
        if matches!(state.stage, Stage::Over) {
            return self.log(Event::Unknown);
        }
        self.step_after(&mut state, Duration::ZERO);
    }

    /// Waits for a renewal that is under way, and lets no other begin.
    pub(super) async fn begin_settling(&self) -> MutexGuard<'_, State> {
        self.is_settling.store(true, Ordering::SeqCst);
        self.state.lock().await
    }

    /// No step is due any more.
    pub(super) fn leave_queue(&self, state: &mut State) {
        state.place.take().into_iter().for_each(|place| self.terms.upkeep.remove(place));
    }

    /// Says from now on that the outcome is unknown.
    pub(super) async fn leave(&self, own: &mut Own) -> Result<(), StoreError> {
        let (ended, retain) = (self.record().hold(0, self.deadline()).encode(), self.terms.rules.retain);
        if matches!(own.write(ended.clone(), retain).await?, Met::Nothing) {
            own.insert_again(ended, retain).await?;
        }
        Ok(())
    }

    /// One try at what is left to do.
    pub(super) async fn advance(&self, state: &mut State) -> Result<Settled, StoreError> {
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
            Stage::Releasing => {
                let is_back = self.release(own).await?;
                self.log(Event::Released);
                (state.stage, state.running) = (Stage::Over, None);
                return Ok(if is_back { Settled::Back } else { Settled::Final });
            }
            Stage::TakingBack { answered_at, lapses } => {
                let met = self.give_back(own).await?;
                if answered_at.is_none() {
                    state.backoff = late_backoff(self.terms.rules.lease);
                }
                if !*lapses && self.may_still_come(&met, answered_at) {
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

    /// Gives it back for good, and says whether the same may be sent again. A key or an interval may, whatever else is there now. A
    /// token may if it works again. A concurrent check of the token may have its claim in hand, and puts it back in a moment.
    pub(super) async fn release(&self, own: &mut Own) -> Result<bool, StoreError> {
        let Some(token) = self.token() else { return self.give_back(own).await.map(|_| true) };
        let is_worth_it = Imprint::worth_putting_back(token.expires_at, &self.terms.clock).is_some();
        for _ in 0..IN_HAND.0 {
            match self.give_back(own).await? {
                Met::Nothing => tokio::time::sleep(IN_HAND.1).await,
                Met::Own | Met::Other(Record::Issued) => return Ok(is_worth_it),
                Met::Other(_) => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Removes the claim; a token that is worth it works again. Those that wait for this run are told.
    pub(super) async fn give_back(&self, own: &mut Own) -> Result<Met, StoreError> {
        let life = self.token().map(|token| Imprint::worth_putting_back(token.expires_at, &self.terms.clock));
        let met = match life {
            Some(Some(life)) => own.hand_over(&Record::ISSUED, life).await?,
            Some(None) | None => own.erase().await?,
        };
        if matches!(met, Met::Own) {
            self.terms.waiting.released(&self.terms.ticket);
        }
        Ok(met)
    }

    /// Has the claim end when the interval does: at once, if the handler took longer than that.
    pub(super) async fn shorten(&self, own: &mut Own) -> Result<(), StoreError> {
        let Origin::Interval(rules) = &self.terms.origin else { return Ok(()) };
        match rules.every.checked_sub(self.age()).filter(|left| !left.is_zero()) {
            Some(left) => own.write(self.record().encode(), left).await.map(drop),
            None => own.erase().await.map(drop),
        }
    }

    /// Writes the reply; `None` if somebody else's claim is there.
    pub(super) async fn complete(&self, own: &mut Own, record: &[u8]) -> Result<Option<Settled>, StoreError> {
        let retain = self.terms.rules.retain;
        for _ in 0..SURPRISES {
            let other = match own.write(record.to_vec(), retain).await? {
                Met::Own => return Ok(Some(Settled::Final)),
                Met::Other(found) => found,
                // It has lapsed, and nobody came.
                Met::Nothing => match own.insert_again(record.to_vec(), retain).await? {
                    None if own.holds(record) => return Ok(Some(Settled::Final)),
                    // A late renewal was there first.
                    None => continue,
                    Some(found) => found,
                },
            };
            return Ok(match other {
                other if own.is_end(&other) => Some(Settled::Final),
                // Of another run, also if that is for the same try.
                Record::Claimed(_) => None,
                _ => Some(Settled::Lost),
            });
        }
        Err(restless())
    }

    /// Whether a claim that is being taken back may be written yet: until a lease after the store first answered.
    pub(super) fn may_still_come(&self, met: &Met, answered_at: &mut Option<u64>) -> bool {
        let now = self.terms.clock.steady();
        let first = *answered_at.get_or_insert(now);
        matches!(met, Met::Nothing | Met::Other(Record::Issued)) && now < first.saturating_add(self.record.lease)
    }
}
