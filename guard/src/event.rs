//! One line in the log for each step of a run, for whoever has to find out later what happened.

use crate::policy::Effect;
use crate::refusal::Refusal;
use crate::run_id::RunId;
use crate::store::StoreError;
use crate::ticket::Ticket;

/// The name of an action for the lines to come, if there will be any.
pub(crate) fn named(action: &str) -> String {
    if tracing::enabled!(target: "onceward::event", tracing::Level::INFO) { action.to_owned() } else { String::new() }
}

/// What happened to a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    Claimed,
    Completed,
    Released,
    Unknown,
    Lost,
}

impl Event {
    pub(crate) const ALL: [Self; 5] = [Self::Claimed, Self::Completed, Self::Released, Self::Unknown, Self::Lost];

    /// How a run has ended.
    pub(crate) fn of(effect: Effect) -> Self {
        match effect {
            Effect::Happened => Self::Completed,
            Effect::DidNotHappen => Self::Released,
            Effect::Unknown => Self::Unknown,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Completed => "completed",
            Self::Released => "released",
            Self::Unknown => "unknown",
            Self::Lost => "lost",
        }
    }

    pub(crate) fn log(self, action: &str, ticket: &Ticket, run: RunId) {
        tracing::info!(target: "onceward::event", event = self.as_str(), action, ?ticket, %run);
    }
}

/// A submission that ran although the store could not be asked.
pub(crate) fn let_through(action: &str, error: &StoreError) {
    tracing::warn!(target: "onceward::event", event = "unprotected", action, %error);
}

/// A submission that did not run.
pub(crate) fn refused(action: &str, ticket: &Ticket, refusal: &Refusal, owner: RunId) {
    let code = refusal.code().as_str();
    tracing::info!(target: "onceward::event", event = "refused", action, ?ticket, run = %owner, code);
}
