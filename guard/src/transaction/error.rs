use crate::store::StoreError;
use crate::store::sql::{SqlError, StatementError, asks_for_a_repetition, has_failed_already};

/// An error of a claim in a transaction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The database could not serialize this transaction with others. Roll it back, and repeat all of it.
    #[error("the database wants this transaction again, from its beginning: {0}")]
    RetryTransaction(#[source] sqlx::Error),
    /// An earlier statement of this transaction has failed.
    #[error(
        "this transaction has failed before, and takes no more statements: roll it back, and claim first in a new one"
    )]
    FailedAlready,
    /// The tables are missing, or do not belong to Onceward.
    #[error(transparent)]
    Tables(SqlError),
    /// The record was written by another version.
    #[error("the database holds a record that this version does not know")]
    UnknownRecord,
    /// The claim is not in this transaction: it was made in another one, or this one was rolled back to a savepoint before it.
    #[error("this transaction does not have the claim; complete it in the transaction in which it was made")]
    NotClaimed,
    /// Whether the claim was committed is unknown: its record, if there is one, may have expired.
    #[error(
        "a record of this may have expired, so that nobody knows any more whether it was committed; let `retain` be longer"
    )]
    Expired,
    /// The work succeeded, but still holds its transaction.
    #[error("the work did not give its transaction back, so nothing could be committed; drop it before the work ends")]
    NotGivenBack,
    /// The database returned an error, or cannot be reached. Nothing was claimed, since an uncommitted transaction has no effect. From
    /// [`TxClaim::was_committed`](super::TxClaim::was_committed) it means that the outcome is not known yet.
    #[error(transparent)]
    Database(sqlx::Error),
}

impl ClaimError {
    /// Returns whether the transaction may succeed if it is repeated.
    pub fn asks_for_a_repetition(&self) -> bool {
        matches!(self, Self::RetryTransaction(_))
    }
}

impl From<sqlx::Error> for ClaimError {
    fn from(error: sqlx::Error) -> Self {
        if asks_for_a_repetition(&error) {
            return Self::RetryTransaction(error);
        }
        if has_failed_already(&error) {
            return Self::FailedAlready;
        }
        match StatementError::from(error) {
            StatementError::Tables(tables) => Self::Tables(tables),
            StatementError::Sql(error) => Self::Database(error),
            other => Self::Database(sqlx::Error::Protocol(other.to_string())),
        }
    }
}

/// An uncommitted transaction has no effect, so only [`ClaimError::Expired`] leaves the outcome unknown.
impl From<ClaimError> for StoreError {
    fn from(error: ClaimError) -> Self {
        if matches!(error, ClaimError::Expired) { Self::unknown(error) } else { Self::not_executed(error) }
    }
}
