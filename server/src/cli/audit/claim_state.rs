//! The state of a claim that has no end in the log, according to the store.

use std::time::Duration;

use onceward::{Kind, RecordState, Snapshot};

use super::event_log::{LastEvent, OpenClaim};

/// The state of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimState {
    /// The run has ended, whatever the log says.
    Ended,
    /// The owner is alive.
    Alive,
    /// The owner may be alive; that is known within this time.
    InDoubt(Duration),
    /// The owner died, and the record waits until an operator settles the run.
    Held,
    /// The owner recorded that the outcome is unknown, and the record waits until an operator settles the run.
    LeftUnknown,
    /// The owner died, and the claim has expired.
    Lapsed,
    /// The owner died, the claim has expired, and another run has started since.
    RanAgain,
}

/// Returns the state of a claim, according to its record.
pub(super) fn fate(open: &OpenClaim, examined: &Snapshot) -> ClaimState {
    let is_own = examined.run == Some(open.run);
    match (&examined.state, open.begun) {
        (RecordState::Running(_), _) if is_own => examined.doubt.map_or(ClaimState::Alive, ClaimState::InDoubt),
        (RecordState::Unknown(_), LastEvent::Claimed) if is_own => ClaimState::Held,
        (RecordState::Unknown(_), LastEvent::LeftUnknown) if is_own => ClaimState::LeftUnknown,
        (RecordState::Done(_), _) if is_own => ClaimState::Ended,
        // It ended as unknown, and its record is gone or belongs to another run.
        (_, LastEvent::LeftUnknown) => ClaimState::Ended,
        // A released token: it is valid again, so its process was alive.
        (RecordState::Issued, _) => ClaimState::Ended,
        (RecordState::Absent, LastEvent::Claimed) => ClaimState::Lapsed,
        (_, LastEvent::Claimed) => ClaimState::RanAgain,
    }
}

impl ClaimState {
    pub(super) fn doubt(self) -> Option<Duration> {
        if let Self::InDoubt(doubt) = self { Some(doubt) } else { None }
    }

    pub(super) fn is_gone(self) -> bool {
        matches!(self, Self::Held | Self::LeftUnknown | Self::Lapsed | Self::RanAgain)
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Alive => "alive",
            Self::InDoubt(_) => "in_doubt",
            Self::Held => "held",
            Self::LeftUnknown => "unknown",
            Self::Lapsed => "lapsed",
            Self::RanAgain => "ran_again",
        }
    }

    pub(super) const fn says(self) -> &'static str {
        match self {
            Self::Ended => "It has ended.",
            Self::Alive => "Its owner is alive.",
            Self::InDoubt(_) => "Its owner may be alive.",
            Self::Held => "Its owner is gone. A duplicate receives outcome_unknown until the run is settled.",
            Self::LeftUnknown => {
                "It ended, and its effect is unknown. A duplicate receives outcome_unknown until the run is settled."
            }
            Self::Lapsed => {
                "Its owner is gone, and its claim has expired: the next request runs, although this run may have taken effect."
            }
            Self::RanAgain => {
                "Its owner is gone, its claim has expired, and another run has started since: it may have taken effect twice."
            }
        }
    }

    /// Returns the advice for the operator.
    pub(super) fn fix(self, open: &OpenClaim) -> Option<String> {
        match (self, open.ticket.kind()) {
            (Self::Held | Self::LeftUnknown, Kind::Key | Kind::Token) => Some(format!(
                "find out whether it took effect; then: onceward key settle {} --run {} --applied (or --not-applied)",
                open.ticket, open.run
            )),
            (Self::Lapsed | Self::RanAgain, _) => {
                Some("find out whether it took effect; `at_most_once` prevents a second run.".to_owned())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use onceward::testing;
    use onceward::{Intent, Key, KeyRules, Policy, Subject, Ticket, Verdict};

    use super::*;

    /// The record in the store decides, run by run.
    #[tokio::test]
    async fn claim_state_follows_the_record_of_its_run() {
        let (guard, clock) = testing::guard();
        let key = Key::new("k").unwrap();
        let (ticket, lease) = (Ticket::of_key(&Subject::anonymous(), "a", &key), Duration::from_secs(10));
        let intent = Intent::new("a", Subject::anonymous()).key(&key);
        let policy = Policy::key(KeyRules::at_most_once().lease(lease).unwrap());
        let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("the key is free") };
        let open = OpenClaim::new(pass.run_id().unwrap(), ticket, LastEvent::Claimed);
        let left = OpenClaim { begun: LastEvent::LeftUnknown, ..open.clone() };
        let judged = async |open: &OpenClaim| fate(open, &guard.look_at(&ticket).await.unwrap());
        assert_eq!(judged(&open).await, ClaimState::InDoubt(lease));
        pass.unknown().await.unwrap();
        assert_eq!((judged(&open).await, judged(&left).await), (ClaimState::Held, ClaimState::LeftUnknown));
        clock.advance(Duration::from_secs(25 * 60 * 60));
        assert_eq!((judged(&open).await, judged(&left).await), (ClaimState::Lapsed, ClaimState::Ended));
        let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("the key is free again") };
        assert_eq!((judged(&open).await, judged(&left).await), (ClaimState::RanAgain, ClaimState::Ended));
        let second = OpenClaim::new(pass.run_id().unwrap(), ticket, LastEvent::Claimed);
        pass.complete(None).await.unwrap();
        assert_eq!((judged(&open).await, judged(&second).await), (ClaimState::RanAgain, ClaimState::Ended));
    }
}
