use std::fmt;

use crate::Code;

/// The outcome of a request: the value of the `Onceward-Outcome` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The run took effect, as far as its response tells; the record is final.
    Executed,
    /// The response is an error that is stored and replayed, and it is unknown whether a handler ran: the router and extractors
    /// create such responses too, and nothing marks that the handler was entered.
    Replayable,
    /// Nothing took effect: the handler's response says so, or the handler was never entered. The token or key is valid again.
    NotApplied,
    /// Nothing took effect, but the token or key could not be released. The token counts as used: the client fetches another.
    /// A key or an interval is free once the release succeeds in the background, or when its lease expires.
    NotReleased,
    /// The handler ran, and it is unknown whether it took effect. The token stays used; a claim waits for its lease, or for an operator.
    Unknown,
    /// This is the stored response of the first run.
    Replayed,
    /// No record prevents a duplicate from running. The handler ran, unless the router or an extractor created the response.
    Unprotected,
    /// The token was accepted and is now used (redeem and forward-auth).
    Redeemed,
    /// The request was rejected for this reason.
    Rejected(Code),
}

impl Outcome {
    /// Returns the value of the header.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Replayable => "replayable",
            Self::NotApplied => "not_applied",
            Self::NotReleased => "not_released",
            Self::Unknown => "unknown",
            Self::Replayed => "replayed",
            Self::Unprotected => "unprotected",
            Self::Redeemed => "redeemed",
            Self::Rejected(code) => code.as_str(),
        }
    }

    /// Returns the value of the `Server-Timing` header that repeats the outcome.
    pub fn server_timing(self) -> String {
        format!("onceward;desc={self}")
    }

    /// Parses the value of the header. Returns `None` for a value of a later version of the contract.
    pub fn parse(text: &str) -> Option<Self> {
        let rejections = || Code::ALL.into_iter().map(Self::Rejected);
        Self::OWN.into_iter().chain(rejections()).find(|outcome| outcome.as_str() == text)
    }

    /// Returns true if the response is the handler's own, new or stored, and not a rejection by a guard.
    pub const fn is_handlers(self) -> bool {
        !matches!(self, Self::Redeemed | Self::Rejected(_))
    }

    /// All outcomes except the rejections.
    const OWN: [Self; 8] = [
        Self::Executed,
        Self::Replayable,
        Self::NotApplied,
        Self::NotReleased,
        Self::Unknown,
        Self::Replayed,
        Self::Unprotected,
        Self::Redeemed,
    ];
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_round_trip_and_are_distinct() {
        let all: Vec<_> = Outcome::OWN.into_iter().chain(Code::ALL.into_iter().map(Outcome::Rejected)).collect();
        for outcome in &all {
            assert_eq!(Outcome::parse(outcome.as_str()), Some(*outcome));
        }
        let texts: std::collections::BTreeSet<_> = all.iter().map(|outcome| outcome.as_str()).collect();
        assert_eq!(texts.len(), all.len());
        assert_eq!(Outcome::parse("Executed"), None);
    }

    #[test]
    fn rejection_is_not_the_handlers_response() {
        assert!(Outcome::NotApplied.is_handlers() && Outcome::Unknown.is_handlers() && Outcome::Replayed.is_handlers());
        assert!(!Outcome::Redeemed.is_handlers() && !Outcome::Rejected(Code::Internal).is_handlers());
    }
}
