//! Why it could not be found out, or was not asked well.

use sqlx::error::BoxDynError;

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
    /// Another transaction was in the way: roll back, and do the whole transaction once more.
    #[error("another transaction was in the way: roll back and repeat the whole transaction")]
    Again(#[source] Option<sqlx::Error>),
    /// An earlier statement of this transaction has failed.
    #[error("this transaction has failed before, and takes no more statements: roll it back, and begin a new one")]
    FailedAlready(#[source] sqlx::Error),
    /// The database did not do it.
    #[error("the database did not do it: {0}")]
    Database(#[source] sqlx::Error),
}

impl PatternError {
    /// Whether the same transaction, repeated from its beginning, may work.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Again(_))
    }
}
