use std::fmt;

use crate::Code;

/// What became of a request: the value of the `Onceward-Outcome` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The handler ran.
    Executed,
    /// The first answer again.
    Replayed,
    /// The handler ran, but nothing keeps a duplicate from running again.
    Unprotected,
    /// The token was accepted and is spent (redeem and forward-auth).
    Redeemed,
    /// Nothing ran, for this reason.
    Refused(Code),
}

impl Outcome {
    /// The header's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Replayed => "replayed",
            Self::Unprotected => "unprotected",
            Self::Redeemed => "redeemed",
            Self::Refused(code) => code.as_str(),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
