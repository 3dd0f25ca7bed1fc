//! Audit log: one line for each step of a run, so that an operator can reconstruct what happened.

use crate::effect::Effect;
use crate::metrics::ClaimEvent;
use crate::rejection::Rejection;
use crate::run_id::RunId;
use crate::store::StoreError;
use crate::ticket::Ticket;

/// Maximum length of an action in a log line and in a signed pass, in bytes. A client of the service may send an action of any length.
const LONGEST: usize = 256;

/// Returns the action for later log lines, or an empty string if these lines are disabled.
pub(crate) fn named(action: &str) -> String {
    // An application without a tracing subscriber receives the lines through the `log` crate, which `tracing::enabled!` does not check.
    let is_read = tracing::enabled!(target: "onceward::event", tracing::Level::INFO)
        || log::log_enabled!(target: "onceward::event", log::Level::Info);
    if is_read { shortened(action) } else { String::new() }
}

fn shortened(action: &str) -> String {
    if action.len() <= LONGEST {
        return action.to_owned();
    }
    let end = (0..=LONGEST).rev().find(|end| action.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &action[..end])
}

/// Returns the event that ends a run with this effect.
pub(crate) fn end(effect: Effect) -> ClaimEvent {
    match effect {
        Effect::Applied => ClaimEvent::Completed,
        Effect::NotApplied => ClaimEvent::Released,
        Effect::Unknown => ClaimEvent::Unknown,
    }
}

/// Logs an event of a claim.
pub(crate) fn claim(event: ClaimEvent, action: &str, ticket: &Ticket, run: RunId) {
    tracing::info!(target: "onceward::event", event = event.as_str(), action, ?ticket, %run);
}

/// Logs a submission that ran, and would not have run in [`Mode::Enforce`](crate::Mode::Enforce).
pub(crate) fn observed(action: &str, outcome: &str) {
    tracing::info!(target: "onceward::event", event = "observed", outcome, action);
}

/// Logs a submission that ran although the store could not be reached.
pub(crate) fn let_through(action: &str, error: &StoreError) {
    tracing::warn!(target: "onceward::event", event = "unprotected", action, %error);
}

/// Logs a submission that was rejected.
pub(crate) fn rejected(action: &str, ticket: &Ticket, rejection: &Rejection, owner: RunId) {
    let code = rejection.code().as_str();
    tracing::info!(target: "onceward::event", event = "refused", action, ?ticket, run = %owner, code);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_action_is_cut_between_two_characters() {
        for short in ["", "POST /orders", &"a".repeat(LONGEST)] {
            assert_eq!(shortened(short), short);
        }
        assert_eq!(shortened(&"a".repeat(LONGEST + 1)), "a".repeat(LONGEST) + "…");
        assert_eq!(shortened(&"€".repeat(LONGEST)), "€".repeat(LONGEST / 3) + "…");
    }
}
