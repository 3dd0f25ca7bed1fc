//! Passes: the permission to run, settled once.

pub(crate) mod signed;

use std::fmt;
use std::sync::Arc;

use crate::attempt::Attempt;
use crate::binding::Binding;
use crate::claim::Claim;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::intent::Intent;
use crate::reply::{NoReply, Reply};
use crate::run_id::RunId;
use crate::settled::Settled;
use crate::shutdown::InFlight;
use crate::store::StoreError;
use crate::ticket::Ticket;
use crate::token::TokenFields;

/// The permission to run the work, settled once by the effect of the run.
///
/// While the pass exists, the background task renews its claim. Dropping a pass before it is settled counts as
/// [`unknown`](Self::unknown), and a warning is logged.
///
/// # Cancel safety
///
/// The methods that settle a pass are **not cancel safe**: see [`settle`](Self::settle).
#[must_use = "dropping a pass leaves the outcome unknown, and the token used"]
pub struct Pass {
    basis: Basis,
    /// `None` once the pass is settled.
    in_flight: Option<InFlight>,
}

/// The object of a pass.
enum Basis {
    /// A plain token, whose record was removed from the store.
    Token(Arc<Engine>, TokenFields, Ticket),
    /// A plain token that an attempt has redeemed.
    Attempt(Arc<Engine>, TokenFields, Attempt, RunId),
    /// A claim: on a key, a remembered token or an interval.
    Claim(Arc<Claim>),
}

impl Pass {
    pub(crate) fn of_token(engine: Arc<Engine>, token: TokenFields, ticket: Ticket, in_flight: InFlight) -> Self {
        Self { basis: Basis::Token(engine, token, ticket), in_flight: Some(in_flight) }
    }

    pub(crate) fn of_attempt(
        engine: Arc<Engine>,
        token: TokenFields,
        attempt: &Attempt,
        run: RunId,
        in_flight: InFlight,
    ) -> Self {
        Self { basis: Basis::Attempt(engine, token, attempt.clone(), run), in_flight: Some(in_flight) }
    }

    pub(crate) fn of_claim(claim: Arc<Claim>, in_flight: InFlight) -> Self {
        Self { basis: Basis::Claim(claim), in_flight: Some(in_flight) }
    }

    fn engine(&self) -> &Engine {
        match &self.basis {
            Basis::Token(engine, ..) | Basis::Attempt(engine, ..) => engine,
            Basis::Claim(claim) => claim.engine(),
        }
    }

    /// Returns the id of this run, or `None` for a plain token without an attempt. [`Guard::release`](crate::Guard::release) needs it.
    ///
    /// If an attempt checks again, it continues the same run. Once that run has ended, the attempt starts another.
    pub fn run_id(&self) -> Option<RunId> {
        match &self.basis {
            Basis::Claim(claim) => Some(claim.run()),
            Basis::Attempt(.., run) => Some(*run),
            Basis::Token(..) => None,
        }
    }

    /// Returns the name of the record in the store.
    pub fn ticket(&self) -> Ticket {
        match &self.basis {
            Basis::Token(.., ticket) => *ticket,
            Basis::Attempt(_, token, ..) => Ticket::of_token(token.id),
            Basis::Claim(claim) => *claim.ticket(),
        }
    }

    /// Settles the run as applied. A duplicate receives this reply; without a reply, it is rejected (`reply_not_kept` under a key or
    /// with a remembered token).
    ///
    /// # Errors
    /// If the claim could not be completed, or if that is unknown. The write is retried in the background; until it succeeds, only the
    /// lease keeps a duplicate from running.
    ///
    /// # Cancel safety
    ///
    /// **Not cancel safe**: see [`settle`](Self::settle).
    pub async fn complete(self, reply: Option<Reply>) -> Result<Settled, StoreError> {
        self.settle(Effect::Applied, reply).await
    }

    /// Settles the run as not applied, so that the client may retry. A key is free again. A token is valid again until it expires, if at
    /// least one second is left.
    ///
    /// # Errors
    /// If the token or key could not be released, or if that is unknown. A plain token then counts as used: a second try could restore a
    /// token that another request has used meanwhile. The release of a claim is retried in the background.
    ///
    /// # Cancel safety
    ///
    /// **Not cancel safe**: see [`settle`](Self::settle).
    pub async fn release(self) -> Result<Settled, StoreError> {
        self.settle(Effect::NotApplied, None).await
    }

    /// Settles the run as unknown. A token stays used, a retryable claim expires with its lease, and under an at-most-once claim a
    /// duplicate receives `outcome_unknown` until the run is [settled](crate::Guard::settle).
    ///
    /// # Errors
    /// If an at-most-once claim could not be marked; it counts as unknown once its lease has expired.
    ///
    /// # Cancel safety
    ///
    /// **Not cancel safe**: see [`settle`](Self::settle).
    pub async fn unknown(self) -> Result<Settled, StoreError> {
        self.settle(Effect::Unknown, None).await
    }

    /// Settles the run by its effect.
    ///
    /// # Errors
    /// The same as for [`complete`](Self::complete), [`release`](Self::release) and [`unknown`](Self::unknown).
    ///
    /// # Cancel safety
    ///
    /// **Not cancel safe**: if this future is dropped before the store has replied, the outcome of the write is unknown to the caller. Once
    /// the write of a claim has started, the background task completes it. The release of a plain token is not retried, so the token may
    /// stay used.
    pub async fn settle(self, effect: Effect, reply: Option<Reply>) -> Result<Settled, StoreError> {
        self.end(effect, reply.ok_or(NoReply::NotGiven)).await
    }

    /// Like [`settle`](Self::settle), with the reason why there is no reply.
    pub(crate) async fn end(mut self, effect: Effect, reply: Result<Reply, NoReply>) -> Result<Settled, StoreError> {
        if self.try_end_unwritten(effect) {
            return Ok(Settled::Final);
        }
        // Boxed, so that the future of a run with nothing to write is small.
        Box::pin(self.write(effect, reply)).await
    }

    /// Ends the pass without a write, if the record already shows the outcome. Returns `false` if a write is necessary.
    pub(crate) fn try_end_unwritten(&mut self, effect: Effect) -> bool {
        let is_ended = match &self.basis {
            Basis::Token(..) | Basis::Attempt(..) => effect != Effect::NotApplied,
            Basis::Claim(claim) => claim.try_end_unwritten(effect),
        };
        if is_ended {
            self.in_flight = None;
        }
        is_ended
    }

    /// Writes the outcome.
    pub(crate) async fn write(&mut self, effect: Effect, reply: Result<Reply, NoReply>) -> Result<Settled, StoreError> {
        let Some(in_flight) = self.in_flight.take() else { return Ok(Settled::Final) };
        let written = match &self.basis {
            Basis::Claim(claim) => claim.settle(effect, reply, in_flight).await,
            Basis::Token(engine, token, ticket) => engine.give_back(token, ticket).await,
            Basis::Attempt(engine, token, attempt, run) => {
                let released = engine.unmark(token, attempt, *run).await;
                released.map(|released| if released == Settled::Released { released } else { Settled::Final })
            }
        };
        written.inspect_err(|error| self.engine().store.step_failed(error))
    }

    /// Converts the pass into a signed text, for a run in another process. That process renews and settles the claim through
    /// [`Guard::open_pass`](crate::Guard::open_pass). Returns `None` for a plain token, which has no claim to renew or settle.
    ///
    /// # Errors
    /// If the signing secret could not be fetched. The claim then expires with its lease, or under *at most once* stays as unknown. To
    /// avoid this, call [`Guard::fetch_secret`](crate::Guard::fetch_secret) before the check.
    ///
    /// # Cancel safety
    ///
    /// **Not cancel safe**: dropping this future drops the pass, and the outcome is unknown.
    pub async fn into_signed(mut self) -> Result<Option<String>, StoreError> {
        let Basis::Claim(claim) = &self.basis else { return Ok(None) };
        let signed = signed::sign(&*claim.engine().mint().await?, claim);
        claim.hand_over_to_signed().await;
        self.in_flight = None;
        Ok(Some(signed))
    }

    /// Returns the binding of this pass's token, to issue the next token with the same binding.
    pub fn binding<'a>(&self, intent: &Intent<'a>) -> Binding<'a> {
        let mut binding = Binding::none();
        let token = match &self.basis {
            Basis::Token(_, token, _) | Basis::Attempt(_, token, ..) => Some(token),
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
        tracing::warn!(ticket = ?self.ticket(), "a pass was dropped before it was settled; outcome unknown, token or key not released");
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("ticket", &self.ticket()).finish_non_exhaustive()
    }
}
