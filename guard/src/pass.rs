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

/// The permission to run the work, settled once by how it ended.
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

    /// The id of this run; `None` for a token without an attempt. An attempt that asks again carries on with the same run; once that has
    /// ended, it begins another. [`Guard::release`](crate::Guard::release) takes it.
    pub fn run_id(&self) -> Option<RunId> {
        match &self.basis {
            Basis::Claim(claim) => Some(claim.run()),
            Basis::Attempt(_, _, run) => Some(*run),
            Basis::Token(_) => None,
        }
    }

    /// The name of the record in the store that this pass was given for.
    pub fn ticket(&self) -> Ticket {
        match &self.basis {
            Basis::Token(token) | Basis::Attempt(token, ..) => Ticket::of_token(token.id),
            Basis::Claim(claim) => *claim.ticket(),
        }
    }

    /// Settles the run as applied. A duplicate receives this reply; without one, it is told that there was one.
    ///
    /// # Errors
    /// If the claim could not be completed, or if that is unknown. The write is retried in the background; until it succeeds, nothing but the
    /// lease keeps a duplicate from running.
    pub async fn complete(self, reply: Option<Reply>) -> Result<Settled, StoreError> {
        self.settle(Effect::Applied, reply).await
    }

    /// Settles the run as not applied: the same may be sent again. A token is valid again for the rest of its life, if that is a second or
    /// more.
    ///
    /// # Errors
    /// If it could not be released, or if that is unknown. A token counts as used then: a retry could bring back one that another request has
    /// used in the meantime. The release of a key is retried in the background.
    pub async fn release(self) -> Result<Settled, StoreError> {
        self.settle(Effect::NotApplied, None).await
    }

    /// Settles the run as unknown: a token stays used, a retryable claim expires with its lease, and an at-most-once claim says so until it is
    /// [settled](crate::Guard::settle).
    ///
    /// # Errors
    /// If an at-most-once claim could not be marked; it counts as unknown once its lease has expired.
    pub async fn unknown(self) -> Result<Settled, StoreError> {
        self.settle(Effect::Unknown, None).await
    }

    /// Settles the run by its effect.
    ///
    /// # Errors
    /// As [`complete`](Self::complete), [`release`](Self::release) and [`unknown`](Self::unknown) do.
    pub async fn settle(self, effect: Effect, reply: Option<Reply>) -> Result<Settled, StoreError> {
        self.end(effect, reply.ok_or(NoReply::NotGiven)).await
    }

    /// As [`settle`](Self::settle), with the reason why there is no reply.
    pub(crate) async fn end(self, effect: Effect, reply: Result<Reply, NoReply>) -> Result<Settled, StoreError> {
        if matches!(self.basis, Basis::Token(_) | Basis::Attempt(..)) && effect != Effect::NotApplied {
            return Ok(self.spend());
        }
        if let Basis::Claim(claim) = &self.basis
            && claim.try_end_unwritten(effect)
        {
            return Ok(self.spend());
        }
        // Boxed, so that a run with nothing to write does not carry the size of a write.
        Box::pin(self.write(effect, reply)).await
    }

    /// Leaves the record as it is: it says so already.
    fn spend(mut self) -> Settled {
        self.in_flight = None;
        Settled::Final
    }

    async fn write(mut self, effect: Effect, reply: Result<Reply, NoReply>) -> Result<Settled, StoreError> {
        let Some(in_flight) = self.in_flight.take() else { return Ok(Settled::Final) };
        let written = match &self.basis {
            Basis::Claim(claim) => claim.settle(effect, reply, in_flight).await,
            Basis::Token(token) => self.engine.give_back(token).await,
            Basis::Attempt(token, attempt, run) => {
                let released = self.engine.unmark(token, attempt, *run).await;
                released.map(|released| if released == Settled::Released { released } else { Settled::Final })
            }
        };
        written.inspect_err(|error| self.engine.store.step_failed(error))
    }

    /// Turns the pass into a signed text, for a run in another process: that process renews the claim and settles it with the text, by
    /// [`Guard::open_pass`](crate::Guard::open_pass). `None` for a plain token, which has no claim to renew or settle.
    ///
    /// # Errors
    /// If the signing secret could not be fetched: call [`Guard::fetch_secret`](crate::Guard::fetch_secret) before anything is claimed. The claim
    /// expires with its lease, or stays as unknown.
    pub async fn into_signed(mut self) -> Result<Option<String>, StoreError> {
        let Basis::Claim(claim) = &self.basis else { return Ok(None) };
        let signed = signed::sign(&*self.engine.mint().await?, claim);
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
        tracing::warn!(ticket = ?self.ticket(), "a pass was dropped before it was settled; its outcome is unknown, and nothing is released");
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("ticket", &self.ticket()).finish_non_exhaustive()
    }
}
