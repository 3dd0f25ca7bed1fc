//! Why a change was not made, and whether the transaction may be repeated.

use std::borrow::Cow;
use std::error::Error;

use sqlx::error::{BoxDynError, DatabaseError, ErrorKind};
use sqlx::postgres::PgDatabaseError;
use sqlx::sqlite::SqliteError;

/// The SQLSTATE for a transaction that failed because of another one, and is to be repeated.
const SERIALIZATION_FAILURE: &str = "40001";

/// Nothing is known to have changed: the change was asked wrongly, or the database did not do it.
///
/// After [`Again`](PatternError::Again), [`FailedAlready`](PatternError::FailedAlready) and [`Database`](PatternError::Database), roll the transaction back; whether a
/// statement outside of a transaction ran before its connection broke, only asking the same again can tell.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// It is no name of a table or column.
    #[error("{0:?} is no name of a table or column: letters, digits and underscores, no digit first, 63 at most")]
    Name(String),
    /// No key says which row is meant.
    #[error("name the row: Change::to(\"{0}\") needs a key(column, value)")]
    NoKey(String),
    /// A key may not be NULL: no two of those are ever the same.
    #[error("the key {0} is NULL, which is never the same as another")]
    NullKey(String),
    /// A column is named twice.
    #[error("the column {0} is named twice")]
    Twice(String),
    /// There is nothing to be changed.
    #[error("there is nothing to set: add with(column, value), or use insert_once")]
    NothingToSet,
    /// The key names more than one row, and none was changed.
    #[error("{table} has more than one row with this {key}: use a primary key, or the whole of a unique one")]
    NotUnique {
        /// The table.
        table: String,
        /// The columns of the key.
        key: String,
    },
    /// The database has no unique index that would decide.
    #[error("nothing makes {key} unique: CREATE UNIQUE INDEX ON {table} ({key})")]
    NoUniqueIndex {
        /// The table.
        table: String,
        /// The columns of the key.
        key: String,
    },
    /// The status is not in the order that was given, or a change leads from a status to the same.
    #[error("no way leads to this status of {0}: it is not in the order given, or it is where the change begins")]
    Status(String),
    /// So much can neither be taken nor given back.
    #[error("{0} is no amount: one or more")]
    Amount(i64),
    /// A value cannot be written for the database.
    #[error("the value of {column} cannot be sent")]
    Value {
        /// The column.
        column: String,
        /// What is wrong with it.
        source: BoxDynError,
    },
    /// Another transaction was in the way: roll back, and repeat the whole transaction.
    ///
    /// Its [`source`](Error::source) is a serialization failure, a deadlock or a busy file, or has their SQLSTATE (40001). So
    /// `Guard::transact` of the crate `onceward`, or any other loop that knows sqlx, repeats the transaction. Make one of another error with
    /// [`again`](Self::again).
    #[error("another transaction was in the way: roll back and repeat the whole transaction")]
    Again(#[source] sqlx::Error),
    /// An earlier statement of this transaction has failed.
    #[error("this transaction has failed before, and takes no more statements: roll it back, and begin a new one")]
    FailedAlready(#[source] sqlx::Error),
    /// The database did not do it.
    #[error("the database did not do it: {0}")]
    Database(#[source] sqlx::Error),
}

impl PatternError {
    /// [`Again`](Self::Again), because of this error, whatever it is.
    pub fn again(error: sqlx::Error) -> Self {
        if is_conflict(&error) {
            return Self::Again(error);
        }
        Self::Again(Conflict { message: error.to_string(), cause: Some(error) }.into())
    }

    /// Whether the same transaction, repeated from its beginning, may work.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Again(_))
    }

    /// The row changed too often between the statement and the look.
    pub(crate) fn contended() -> Self {
        Self::Again(Conflict { message: "too much contention on one row".to_owned(), cause: None }.into())
    }

    /// What an error of the database means to the caller.
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

/// A conflict that the database does not report as one. It has the SQLSTATE of a serialization failure, so that a loop which repeats those
/// repeats this too.
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

/// Whether another transaction was in the way: a serialization failure or a deadlock, or a busy SQLite file.
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

/// Whether the transaction failed before this statement, and takes no more.
fn has_failed_already(error: &sqlx::Error) -> bool {
    postgres(error).is_some_and(|error| error.code() == "25P02")
}

/// Whether a statement was prepared when its table had other columns.
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
    fn every_conflict_has_the_sqlstate_of_a_serialization_failure_among_its_causes() {
        for conflict in [PatternError::contended(), PatternError::again(sqlx::Error::RowNotFound)] {
            assert!(conflict.is_temporary());
            assert_eq!(sqlstate(&conflict).as_deref(), Some(SERIALIZATION_FAILURE), "{conflict:?}");
        }
        assert_eq!(sqlstate(&PatternError::Database(sqlx::Error::RowNotFound)), None);
    }

    /// `Box<dyn DatabaseError>` of sqlx has no source, so the chain is followed inside of it.
    #[test]
    fn again_keeps_the_error_that_it_was_made_of() {
        let PatternError::Again(again) = PatternError::again(sqlx::Error::RowNotFound) else { panic!("not Again") };
        let conflict = again.as_database_error().expect("a conflict").as_error();
        let cause = conflict.source().and_then(|cause| cause.downcast_ref());
        assert!(matches!(cause, Some(sqlx::Error::RowNotFound)), "{again:?}");
        assert_eq!(conflict.to_string(), sqlx::Error::RowNotFound.to_string());
    }
}
