//! One line in the log for each step of a run, for whoever has to find out later what happened.

use crate::effect::Effect;
use crate::metrics::ClaimEvent;
use crate::rejection::Rejection;
use crate::run_id::RunId;
use crate::store::StoreError;
use crate::ticket::Ticket;

/// The longest name of an action in a line, in bytes. A caller of the service may name one of any length, and a pass has it too.
const LONGEST: usize = 256;

/// The name of an action for the lines to come, if there will be any.
pub(crate) fn named(action: &str) -> String {
    if tracing::enabled!(target: "onceward::event", tracing::Level::INFO) { shortened(action) } else { String::new() }
}

fn shortened(action: &str) -> String {
    if action.len() <= LONGEST {
        return action.to_owned();
    }
    let end = (0..=LONGEST).rev().find(|end| action.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &action[..end])
}

/// The event with which a run ends that had this effect.
pub(crate) fn end(effect: Effect) -> ClaimEvent {
    match effect {
        Effect::Applied => ClaimEvent::Completed,
        Effect::NotApplied => ClaimEvent::Released,
        Effect::Unknown => ClaimEvent::Unknown,
    }
}

/// Something happened to a claim.
pub(crate) fn claim(event: ClaimEvent, action: &str, ticket: &Ticket, run: RunId) {
    tracing::info!(target: "onceward::event", event = event.as_str(), action, ?ticket, %run);
}

/// A submission that ran, and would not have in [`Mode::Enforce`](crate::Mode::Enforce).
pub(crate) fn observed(action: &str, outcome: &str) {
    tracing::info!(target: "onceward::event", event = "observed", outcome, action);
}

/// A submission that ran although the store could not be asked.
pub(crate) fn let_through(action: &str, error: &StoreError) {
    tracing::warn!(target: "onceward::event", event = "unprotected", action, %error);
}

/// A submission that did not run.
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
