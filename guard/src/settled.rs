//! How a run was settled.

use onceward_api::Code;

use crate::rejection::Rejection;

/// How a run was settled: by its [`Pass`](crate::Pass), by a [`SignedPass`](crate::SignedPass), or afterwards through the
/// [`Guard`](crate::Guard).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The outcome is on record: a token stays used, a reply is stored, an unknown outcome is marked. Also a token that should have been
    /// given back and was not, because it has less than a second to live or was revoked meanwhile.
    Final,
    /// The same may be sent again: the token is valid again, the key is free.
    Released,
    /// The record is not that of this run any more: the run took longer than its lease and another request has the key, or another run is
    /// meant. A duplicate may have run.
    Lost,
    /// Nothing was settled, for this reason.
    Rejected(Rejection),
}

impl Settled {
    /// Whether the outcome is on record or the submission is released; otherwise what to tell the caller.
    ///
    /// # Errors
    /// `claim_lost` for [`Lost`](Self::Lost), and the reason of a [rejection](Self::Rejected).
    pub fn into_result(self) -> Result<(), Rejection> {
        match self {
            Self::Final | Self::Released => Ok(()),
            Self::Lost => Err(Code::ClaimLost.into()),
            Self::Rejected(rejection) => Err(rejection),
        }
    }
}
