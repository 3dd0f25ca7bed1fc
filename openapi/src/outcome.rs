use std::fmt;

use crate::Code;

/// What became of a request: the value of the `Onceward-Outcome` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The run took effect, as far as its answer tells; the record is final.
    Executed,
    /// The response is an error that is stored and replayed, and whether a handler ran is not known: the router and extractors
    /// make such responses too, and no mark says that the handler was entered.
    Replayable,
    /// Nothing took effect, because the handler answered so or was never entered. The token or key is valid again.
    NotApplied,
    /// Nothing took effect, but the token or key could not be given back. The token counts as used: the client fetches another.
    /// A key or an interval is free once the release succeeds in the background, or when its lease expires.
    NotReleased,
    /// The handler ran, and whether it took effect is unknown. The token stays used; a claim waits for its lease, or for an operator.
    Unknown,
    /// The first answer again.
    Replayed,
    /// Nothing is on record that keeps a duplicate from running. The handler ran, unless the response is one of the router or an extractor.
    Unprotected,
    /// The token was accepted and is spent (redeem and forward-auth).
    Redeemed,
    /// The request was refused for this reason.
    Rejected(Code),
}

impl Outcome {
    /// The header's value.
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

    /// The value of the `Server-Timing` header that repeats it.
    pub fn server_timing(self) -> String {
        format!("onceward;desc={self}")
    }

    /// Reads the header's value. `None` if a later version of the contract has written it.
    pub fn parse(text: &str) -> Option<Self> {
        let refused = || Code::ALL.into_iter().map(Self::Rejected);
        Self::OWN.into_iter().chain(refused()).find(|outcome| outcome.as_str() == text)
    }

    /// Whether the handler's own answer carries it, now or from before: not a rejection by a guard.
    pub const fn is_handlers(self) -> bool {
        !matches!(self, Self::Redeemed | Self::Rejected(_))
    }

    /// All but the rejections.
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
    fn every_outcome_is_read_as_it_is_written_and_no_two_are_alike() {
        let all: Vec<_> = Outcome::OWN.into_iter().chain(Code::ALL.into_iter().map(Outcome::Rejected)).collect();
        for outcome in &all {
            assert_eq!(Outcome::parse(outcome.as_str()), Some(*outcome));
        }
        let texts: std::collections::BTreeSet<_> = all.iter().map(|outcome| outcome.as_str()).collect();
        assert_eq!(texts.len(), all.len());
        assert_eq!(Outcome::parse("Executed"), None);
    }

    #[test]
    fn a_refusal_is_not_the_handler_s() {
        assert!(Outcome::NotApplied.is_handlers() && Outcome::Unknown.is_handlers() && Outcome::Replayed.is_handlers());
        assert!(!Outcome::Redeemed.is_handlers() && !Outcome::Rejected(Code::Internal).is_handlers());
    }
}
