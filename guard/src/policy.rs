//! A policy is a row of the table: how a request enters, and what its answer says about the effect.

/// How a submission is told from its repetition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// A token that we issued is good for one use.
    Token {
        /// Accept only a token that was issued for this action, and for this caller where there is one.
        bound: bool,
    },
}

/// Whether the submission took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It did; a duplicate must not.
    Happened,
    /// It did not, and may be sent again.
    DidNotHappen,
    /// Nobody can tell, so nothing is given back.
    Unknown,
}

impl Policy {
    /// A token that we issued is good for one use, on every route it is not bound away from.
    pub fn token() -> Self {
        Self::Token { bound: false }
    }

    /// Accepts only tokens that were issued for this action, and for this caller where there is one.
    #[must_use]
    pub fn bound(self) -> Self {
        match self {
            Self::Token { .. } => Self::Token { bound: true },
        }
    }

    /// What an answer with this status says about the effect, where nobody says it better.
    pub fn effect(&self, status: u16) -> Effect {
        match (self, status) {
            (_, ..400) => Effect::Happened,
            (Self::Token { .. }, 400..500) => Effect::DidNotHappen,
            (_, 500 | 501 | 503) => Effect::DidNotHappen,
            (_, 500..) => Effect::Unknown,
        }
    }
}
