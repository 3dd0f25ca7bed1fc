//! Results of settling a run.

use onceward_api::Code;

use crate::rejection::Rejection;

/// The result of settling a run: by its [`Pass`](crate::Pass), by a [`SignedPass`](crate::SignedPass), or later through the
/// [`Guard`](crate::Guard).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The outcome is on record: a token stays used, a reply is stored, an unknown outcome is marked. Also returned for a token that could
    /// not be released, because it expires within a second or was revoked meanwhile.
    Final,
    /// The client may retry: the token is valid again, or the key is free.
    Released,
    /// The record no longer belongs to this run: its lease expired and another request has claimed the key, or the run id is of another
    /// run. A duplicate may have run.
    Lost,
    /// The run was not settled, for this reason.
    Rejected(Rejection),
}

impl Settled {
    /// Returns `Ok` if the outcome is on record or the submission was released, and otherwise the rejection for the client.
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
