//! The permission to run, settled once.

pub(crate) mod signed;

use std::fmt;
use std::sync::Arc;

use crate::attempt::Attempt;
use crate::claim::Claim;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::intent::{Binding, Intent};
use crate::reply::{NoReply, Reply};
use crate::run_id::RunId;
use crate::settled::Settled;
use crate::shutdown::InFlight;
use crate::store::StoreError;
use crate::ticket::Ticket;
use crate::token::TokenFields;

/// The permission to run. Whoever holds it runs the work and then says how it ended, once.
///
/// A pass that is dropped unsettled counts as [`unknown`](Self::unknown), and a warning is logged. As long as it lives, the
/// claim on its key is renewed.
#[must_use = "a pass that is dropped uses up the token without a run"]
pub struct Pass {
    engine: Arc<Engine>,
    basis: Basis,
    /// Taken when it is settled.
    in_flight: Option<InFlight>,
}

/// What a pass was given for.
enum Basis {
    /// A token, which is not in the store any more.
    Token(TokenFields),
    /// A token that an attempt has marked.
    Attempt(TokenFields, Attempt, RunId),
    /// A claim: on a key, on a token whose answer is remembered, on an interval.
    Claim(Arc<Claim>),
}

impl Pass {
    pub(crate) fn of_token(engine: Arc<Engine>, token: TokenFields, in_flight: InFlight) -> Self {
        Self { engine, basis: Basis::Token(token), in_flight: Some(in_flight) }
    }

    pub(crate) fn of_attempt(
        engine: Arc<Engine>,
        token: TokenFields,
        attempt: &Attempt,
        run: RunId,
        in_flight: InFlight,
    ) -> Self {
        Self { engine, basis: Basis::Attempt(token, attempt.clone(), run), in_flight: Some(in_flight) }
    }

    pub(crate) fn of_claim(engine: Arc<Engine>, claim: Arc<Claim>, in_flight: InFlight) -> Self {
        Self { engine, basis: Basis::Claim(claim), in_flight: Some(in_flight) }
    }

    /// The name of this run, unless it is that of a token without an attempt. The same attempt, asked for again, carries on
    /// with the same run; once that has ended, it begins another. [`Guard::release`] is told which one did not take effect.
    pub fn run_id(&self) -> Option<RunId> {
        match &self.basis {
            Basis::Claim(claim) => Some(claim.run()),
            Basis::Attempt(_, _, run) => Some(*run),
            Basis::Token(_) => None,
        }
    }

    /// The name under which the store knows what this pass was given for.
    pub fn ticket(&self) -> Ticket {
        match &self.basis {
            Basis::Token(token) | Basis::Attempt(token, ..) => Ticket::of_token(token.id),
            Basis::Claim(claim) => *claim.ticket(),
        }
    }

    /// It happened, and a duplicate is given this reply; without one, it is told that there was one.
    ///
    /// # Errors
    /// If a claim could not be completed, or if that cannot be told. Trying goes on in the background; until it
    /// succeeds nothing but the lease keeps a duplicate from running.
    pub async fn complete(self, reply: Option<Reply>) -> Result<Settled, StoreError> {
        self.settle(Effect::Applied, reply).await
    }

    /// It did not happen: the same may be sent again. A token works again for what is left of its life, if that is a
    /// second or more.
    ///
    /// # Errors
    /// If it could not be given back, or if that cannot be told. A token counts as used then: trying again could bring
    /// back one that somebody has used in the meantime. For a key, trying goes on in the background.
    pub async fn release(self) -> Result<Settled, StoreError> {
        self.settle(Effect::NotApplied, None).await
    }

    /// Nobody can tell whether it happened: the token stays used, the claim is left to its lease, or held.
    ///
    /// # Errors
    /// If a claim that is held could not be marked; it says the same by itself once its lease is over.
    pub async fn unknown(self) -> Result<Settled, StoreError> {
        self.settle(Effect::Unknown, None).await
    }

    /// Says how it ended.
    ///
    /// # Errors
    /// As [`complete`](Self::complete), [`release`](Self::release) and [`unknown`](Self::unknown) do.
    pub async fn settle(self, effect: Effect, reply: Option<Reply>) -> Result<Settled, StoreError> {
        self.end(effect, reply.ok_or(NoReply::NotGiven)).await
    }

    /// The same, with the reason why there is no reply.
    pub(crate) async fn end(self, effect: Effect, reply: Result<Reply, NoReply>) -> Result<Settled, StoreError> {
        if matches!(self.basis, Basis::Token(_) | Basis::Attempt(..)) && effect != Effect::NotApplied {
            return Ok(self.spend());
        }
        if let Basis::Claim(claim) = &self.basis
            && claim.ends_unwritten(effect)
        {
            return Ok(self.spend());
        }
        // Apart, so that what has nothing to write does not carry room for it.
        Box::pin(self.write(effect, reply)).await
    }

    /// It stays as it is, which is what the store says already.
    fn spend(mut self) -> Settled {
        self.in_flight = None;
        Settled::Final
    }

    async fn write(mut self, effect: Effect, reply: Result<Reply, NoReply>) -> Result<Settled, StoreError> {
        let Some(in_flight) = self.in_flight.take() else { return Ok(Settled::Final) };
        match &self.basis {
            Basis::Claim(claim) => claim.settle(effect, reply, in_flight).await,
            Basis::Token(token) => self.engine.give_back(token).await,
            Basis::Attempt(token, attempt, run) => {
                let released = self.engine.unmark(token, attempt, *run).await?;
                Ok(if released == Settled::Released { released } else { Settled::Final })
            }
        }
    }

    /// Gives the claim out of hand, for a run in another process: that process renews it, and says how it ended, with what
    /// this gives it in writing. `None` if it is not a claim on a key.
    ///
    /// # Errors
    /// If the signing secret could not be fetched. The claim is left to its lease, or held: [`Guard::fetch_secret`] has it fetched
    /// before anything is claimed.
    pub async fn into_signed(mut self) -> Result<Option<String>, StoreError> {
        let Basis::Claim(claim) = &self.basis else { return Ok(None) };
        let Some(signed) = signed::sign(&*self.engine.mint().await?, claim) else { return Ok(None) };
        claim.hand_over_to_signed().await;
        self.in_flight = None;
        Ok(Some(signed))
    }

    /// How the token of this pass was bound, for a successor that is bound alike.
    pub fn binding<'a>(&self, intent: &Intent<'a>) -> Binding<'a> {
        let mut binding = Binding::none();
        let token = match &self.basis {
            Basis::Token(token) | Basis::Attempt(token, ..) => Some(token),
            Basis::Claim(claim) => claim.token(),
        };
        if let Some(token) = token {
            if token.names_action() {
                binding.action = Some(intent.action.clone());
            }
            if token.names_subject() {
                binding = binding.subject(intent.subject.clone());
            }
        }
        binding
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.in_flight.take().is_none() {
            return;
        }
        if let Basis::Claim(claim) = &self.basis {
            claim.abandon();
        }
        tracing::warn!(ticket = ?self.ticket(), "a pass was dropped before it was settled: nothing is given back");
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("ticket", &self.ticket()).finish_non_exhaustive()
    }
}
