//! Errors of a change, and whether the transaction may be retried.

use std::borrow::Cow;
use std::error::Error;

use sqlx::error::{BoxDynError, DatabaseError, ErrorKind};
use sqlx::postgres::PgDatabaseError;
use sqlx::sqlite::SqliteError;

/// The SQLSTATE of a transaction that failed because of a concurrent one, and should be retried.
const SERIALIZATION_FAILURE: &str = "40001";

/// The error of a change: the call is invalid, or the database failed.
///
/// After [`Again`](PatternError::Again), [`FailedAlready`](PatternError::FailedAlready) and [`Database`](PatternError::Database), roll the
/// transaction back. If the connection broke during a statement outside of a transaction, the outcome is unknown: repeat the same change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// Invalid name of a table or column.
    #[error(
        "{0:?} is not a valid name of a table or column: use at most 63 letters, digits and underscores, without a digit first"
    )]
    Name(String),
    /// The change has no key.
    #[error("the row is not identified: call key(column, value) on Change::to(\"{0}\")")]
    NoKey(String),
    /// A key must not be NULL: NULL is never equal to NULL.
    #[error("the key {0} is NULL, which is not equal to any value")]
    NullKey(String),
    /// A column is set twice.
    #[error("the column {0} is set twice")]
    Twice(String),
    /// The change sets no column.
    #[error("the change sets no column: add with(column, value), or use insert_once")]
    NothingToSet,
    /// More than one row has this key. None was changed.
    #[error("{table} has more than one row with this {key}: use the primary key, or all columns of a unique key")]
    NotUnique {
        /// The table.
        table: String,
        /// The columns of the key.
        key: String,
    },
    /// The key has no unique index.
    #[error("{key} has no unique index: CREATE UNIQUE INDEX ON {table} ({key})")]
    NoUniqueIndex {
        /// The table.
        table: String,
        /// The columns of the key.
        key: String,
    },
    /// The target status is not in the given order, or equals the initial status.
    #[error("invalid target status for {0}: it is not in the given order, or equals the initial status")]
    Status(String),
    /// The amount is less than one.
    #[error("{0} is not a valid amount: use 1 or more")]
    Amount(i64),
    /// A value cannot be encoded for the database.
    #[error("the value of {column} cannot be encoded")]
    Value {
        /// The column.
        column: String,
        /// The error of the encoder.
        source: BoxDynError,
    },
    /// A conflict with a concurrent transaction: roll back, and retry the whole transaction.
    ///
    /// Its [`source`](Error::source) is a serialization failure, a deadlock or a busy file, or has their SQLSTATE (40001).
    /// `Guard::transact` of the crate `onceward`, or any other retry loop for sqlx, therefore retries the transaction. Create one from
    /// another error with [`again`](Self::again).
    #[error("conflict with a concurrent transaction: roll back and retry the whole transaction")]
    Again(#[source] sqlx::Error),
    /// An earlier statement of this transaction has failed.
    #[error("an earlier statement of this transaction failed: roll back and start a new transaction")]
    FailedAlready(#[source] sqlx::Error),
    /// The database returned an error.
    #[error("the database returned an error: {0}")]
    Database(#[source] sqlx::Error),
}

impl PatternError {
    /// Creates [`Again`](Self::Again) from any error.
    pub fn again(error: sqlx::Error) -> Self {
        if is_conflict(&error) {
            return Self::Again(error);
        }
        Self::Again(Conflict { message: error.to_string(), cause: Some(error) }.into())
    }

    /// True if a retry of the whole transaction may succeed.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Again(_))
    }

    /// The row changed too often between the statement and the read.
    pub(crate) fn contended() -> Self {
        Self::Again(Conflict { message: "too much contention on one row".to_owned(), cause: None }.into())
    }

    /// Classifies an error of the database.
    pub(crate) fn of(error: sqlx::Error) -> Self {
        if is_conflict(&error) || is_prepared_for_another_shape(&error) {
            return Self::again(error);
        }
        if has_failed_already(&error) {
            return Self::FailedAlready(error);
        }
        Self::Database(error)
    }
}

/// A conflict that the database does not report as one. It has the SQLSTATE of a serialization failure, so that retry loops retry it too.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Conflict {
    message: String,
    #[source]
    cause: Option<sqlx::Error>,
}

impl DatabaseError for Conflict {
    fn message(&self) -> &str {
        &self.message
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(SERIALIZATION_FAILURE))
    }

    fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

/// Returns true for a conflict with a concurrent transaction: a serialization failure or a deadlock, or a busy SQLite file.
fn is_conflict(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    match error.try_downcast_ref::<SqliteError>() {
        Some(_) => {
            let code = error.code().and_then(|code| code.parse::<i32>().ok());
            code.is_some_and(|code| matches!(code & 0xff, 5 | 6))
        }
        None => matches!(error.code().as_deref(), Some(SERIALIZATION_FAILURE | "40P01")),
    }
}

/// Returns true if the transaction failed before this statement, and accepts no more statements.
fn has_failed_already(error: &sqlx::Error) -> bool {
    postgres(error).is_some_and(|error| error.code() == "25P02")
}

/// Returns true if a statement was prepared when its table had other columns.
pub(crate) fn is_prepared_for_another_shape(error: &sqlx::Error) -> bool {
    let is_outdated =
        |error: &PgDatabaseError| error.code() == "0A000" && error.routine() == Some("RevalidateCachedQuery");
    postgres(error).is_some_and(is_outdated)
}

fn postgres(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The SQLSTATE of the first error of sqlx among the causes.
    fn sqlstate(error: &PatternError) -> Option<String> {
        let source = error.source()?.downcast_ref::<sqlx::Error>()?;
        source.as_database_error()?.code().map(Cow::into_owned)
    }

    #[test]
    fn every_conflict_has_sqlstate_40001_among_its_causes() {
        for conflict in [PatternError::contended(), PatternError::again(sqlx::Error::RowNotFound)] {
            assert!(conflict.is_temporary());
            assert_eq!(sqlstate(&conflict).as_deref(), Some(SERIALIZATION_FAILURE), "{conflict:?}");
        }
        assert_eq!(sqlstate(&PatternError::Database(sqlx::Error::RowNotFound)), None);
    }

    /// `Box<dyn DatabaseError>` of sqlx has no source, so the chain is followed inside of it.
    #[test]
    fn again_keeps_its_source_error() {
        let PatternError::Again(again) = PatternError::again(sqlx::Error::RowNotFound) else { panic!("not Again") };
        let conflict = again.as_database_error().expect("conflict").as_error();
        let cause = conflict.source().and_then(|cause| cause.downcast_ref());
        assert!(matches!(cause, Some(sqlx::Error::RowNotFound)), "{again:?}");
        assert_eq!(conflict.to_string(), sqlx::Error::RowNotFound.to_string());
    }
}
