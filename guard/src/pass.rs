//! The permission to run, settled once.

use std::fmt;

use crate::drain::Running;
use crate::guard::{Guard, Released};
use crate::intent::{Binding, Intent};
use crate::policy::Effect;
use crate::record::Record;
use crate::store::StoreError;
use crate::ticket::Ticket;
use crate::token::Imprint;

/// What became of a token when its pass was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It stays used.
    Spent,
    /// It works again.
    Back,
}

/// The permission to run. Whoever holds it runs the work and then says how it ended, once.
///
/// A pass that is dropped unsettled counts as [`unknown`](Self::unknown), and a warning is logged.
#[must_use = "a pass that is dropped uses up the token without a run"]
pub struct Pass {
    guard: Guard,
    token: Imprint,
    /// The attempt whose mark is on the token; without one, the token is not in the store.
    attempt: Option<String>,
    settled: bool,
    _running: Running,
}

impl Pass {
    pub(crate) fn of_token(guard: Guard, token: Imprint, running: Running) -> Self {
        Self { guard, token, attempt: None, settled: false, _running: running }
    }

    pub(crate) fn of_attempt(guard: Guard, token: Imprint, attempt: &str, running: Running) -> Self {
        let mut pass = Self::of_token(guard, token, running);
        pass.attempt = Some(attempt.to_owned());
        pass
    }

    /// It happened: the token stays used.
    pub async fn complete(self) -> Result<Settled, StoreError> {
        self.settle(Effect::Happened).await
    }

    /// It did not happen: the token works again, for what is left of its life, if that is a second or more.
    ///
    /// # Errors
    /// If the token could not be put back, or if that cannot be told. It counts as used then: trying again could
    /// bring back a token that somebody has used in the meantime.
    pub async fn release(self) -> Result<Settled, StoreError> {
        self.settle(Effect::DidNotHappen).await
    }

    /// Nobody can tell whether it happened: the token stays used.
    pub async fn unknown(self) -> Result<Settled, StoreError> {
        self.settle(Effect::Unknown).await
    }

    /// Says how it ended.
    ///
    /// # Errors
    /// As [`release`](Self::release) does.
    pub async fn settle(mut self, effect: Effect) -> Result<Settled, StoreError> {
        self.settled = true;
        match effect {
            Effect::Happened | Effect::Unknown => Ok(Settled::Spent),
            Effect::DidNotHappen => self.put_back().await,
        }
    }

    /// How the token of this pass was bound, for a successor that is bound alike.
    pub fn binding<'a>(&self, intent: &Intent<'a>) -> Binding<'a> {
        let mut binding = Binding::none();
        if self.token.names_action() {
            binding = binding.action(intent.action);
        }
        if self.token.names_subject() {
            binding = binding.subject(intent.subject.clone());
        }
        binding
    }

    async fn put_back(&self) -> Result<Settled, StoreError> {
        let ticket = Ticket::of_token(self.token.id);
        if let Some(attempt) = &self.attempt {
            let released = self.guard.unmark(&ticket, attempt).await?;
            return Ok(if released == Released::Back { Settled::Back } else { Settled::Spent });
        }
        let Some(life) = self.guard.worth_putting_back(self.token.expires_at) else { return Ok(Settled::Spent) };
        // The one write that would not recognise itself if it were sent again, so it is sent once.
        self.guard.store().put_back(&ticket, &Record::ISSUED, life).await?;
        Ok(Settled::Back)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if !self.settled {
            let ticket = Ticket::of_token(self.token.id);
            tracing::warn!(?ticket, "a pass was dropped before it was settled: its token stays used");
        }
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("ticket", &Ticket::of_token(self.token.id)).finish_non_exhaustive()
    }
}
