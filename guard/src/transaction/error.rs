use sqlx::Pool;

use super::Dialect;
use crate::store::StoreError;
use crate::store::sql::{SqlError, StatementError, has_failed_already, is_serialization_failure};

/// An error of a claim in a transaction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The database could not serialize this transaction with others. Roll it back, and repeat all of it.
    #[error("the database could not serialize this transaction; roll it back and repeat it: {0}")]
    RetryTransaction(#[source] sqlx::Error),
    /// An earlier statement of this transaction has failed.
    #[error("an earlier statement of this transaction failed; roll it back, and claim first in a new transaction")]
    FailedAlready,
    /// The tables are missing, or do not belong to Onceward.
    #[error(transparent)]
    Tables(SqlError),
    /// The record was written by another version.
    #[error("the database holds a record that this version does not know")]
    UnknownRecord,
    /// The claim is not in this transaction: it was inserted in another one, or this one was rolled back to a savepoint before it.
    #[error("the claim is not in this transaction; complete it in the transaction that inserted it")]
    NotClaimed,
    /// The outcome of the commit is unknown: the record of the claim, if there was one, may have expired.
    #[error(
        "the record of the claim may have expired, so it is unknown whether it was committed; set a longer `retain`"
    )]
    Expired,
    /// The work succeeded, but still holds its transaction.
    #[error(
        "the work still holds its transaction, so nothing was committed; drop the `TxHandle` before the work returns"
    )]
    NotGivenBack,
    /// The database returned an error, or is unreachable. Nothing was claimed, since an uncommitted transaction has no effect. From
    /// [`TxClaim::was_committed`](super::TxClaim::was_committed) it means that the outcome is not known yet.
    #[error(transparent)]
    Database(sqlx::Error),
}

impl ClaimError {
    /// Adds the command that creates the tables in the database of this connection pool, if they are missing.
    pub(super) fn at<DB: Dialect>(self, pool: &Pool<DB>) -> Self {
        match self {
            Self::Tables(error) => Self::Tables(error.with_command(|| DB::migrate_command(&pool.connect_options()))),
            other => other,
        }
    }

    /// Returns whether the transaction may succeed if it is repeated.
    pub fn should_repeat(&self) -> bool {
        matches!(self, Self::RetryTransaction(_))
    }
}

impl From<sqlx::Error> for ClaimError {
    fn from(error: sqlx::Error) -> Self {
        if is_serialization_failure(&error) {
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
