//! The permission to run, settled once.

use std::fmt;
use std::time::Duration;

use crate::drain::Running;
use crate::guard::Guard;
use crate::intent::{Binding, Intent};
use crate::policy::Effect;
use crate::record::Record;
use crate::store::StoreError;
use crate::ticket::Ticket;
use crate::token::Imprint;

/// With less life than this left, a token is not put back.
const WORTH_PUTTING_BACK: u64 = 1_000;

/// The permission to run. Whoever holds it runs the work and then says how it ended, once.
///
/// A pass that is dropped unsettled counts as [`unknown`](Self::unknown), and a warning is logged.
#[must_use = "a pass that is dropped uses up the token without a run"]
pub struct Pass {
    guard: Guard,
    token: Imprint,
    settled: bool,
    _running: Running,
}

impl Pass {
    pub(crate) fn new(guard: Guard, token: Imprint, running: Running) -> Self {
        Self { guard, token, settled: false, _running: running }
    }

    /// It happened: the token stays used.
    pub async fn complete(self) -> Result<(), StoreError> {
        self.settle(Effect::Happened).await
    }

    /// It did not happen: the token works again, for what is left of its life, if that is a second or more.
    ///
    /// # Errors
    /// If the token could not be put back, or if that cannot be told. It counts as used then: trying again could
    /// bring back a token that somebody has used in the meantime.
    pub async fn release(self) -> Result<(), StoreError> {
        self.settle(Effect::DidNotHappen).await
    }

    /// Nobody can tell whether it happened: the token stays used.
    pub async fn unknown(self) -> Result<(), StoreError> {
        self.settle(Effect::Unknown).await
    }

    /// Says how it ended.
    ///
    /// # Errors
    /// As [`release`](Self::release) does.
    pub async fn settle(mut self, effect: Effect) -> Result<(), StoreError> {
        self.settled = true;
        match effect {
            Effect::Happened | Effect::Unknown => Ok(()),
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

    /// The one write that would not recognise itself if it were sent again, so it is sent once.
    async fn put_back(&self) -> Result<(), StoreError> {
        let left = self.token.expires_at.saturating_sub(self.guard.clock().wall());
        if left < WORTH_PUTTING_BACK {
            return Ok(());
        }
        let life = Duration::from_millis(left) + Guard::GRACE;
        self.guard.store().put_back(&Ticket::of_token(self.token.id), &Record::ISSUED, life).await.map(drop)
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
