//! Why a statement has no response, and whether it certainly changed nothing.

use std::error::Error;
use std::path::PathBuf;

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};
use sqlx::sqlite::SqliteError;

use crate::store::StoreError;

/// What makes the tables.
const FIX: &str = "make them with `onceward migrate --store ADDRESS`, or with `Sql::migrate`";

/// Why a database cannot be used as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlError {
    /// The address is not one of a database.
    #[error(
        "this is not the address of a database, as in postgres://user@host/database or sqlite:/var/lib/onceward.db: {0}"
    )]
    Address(String),
    /// The database could not be reached.
    #[error("the database is out of reach: {0}")]
    Unreachable(String),
    /// The database answers, and does not let us in, or do what has to be done.
    #[error("the database says no: {says}; {fix}")]
    Rejected {
        /// What it says.
        says: String,
        /// What to do about it.
        fix: &'static str,
    },
    /// The tables are missing.
    #[error("the tables of Onceward are not in this database; {FIX}")]
    NotMigrated,
    /// The tables were made by an earlier version of Onceward.
    #[error(
        "the tables of Onceward in this database are of version {found}, and this version of Onceward needs version {needed}; update them with \
         `onceward migrate --store ADDRESS`, or with `Sql::migrate`, which keeps what is in them"
    )]
    Outdated {
        /// Of which version they are.
        found: i32,
        /// Of which version they have to be.
        needed: i32,
    },
    /// The file of SQLite cannot be opened, or not be written.
    #[error("the file cannot be opened by this user: it and its folder have to be there, and to be writable ({0})")]
    NoRights(String),
    /// The folder of the SQLite file does not exist, or is none.
    #[error("the folder {} of the SQLite file {why}; create it, or name another file in the address", .folder.display())]
    NoFolder {
        /// Where the file would be.
        folder: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// What the address names is no file, or no database.
    #[error("{} is {what}; name a file for SQLite in the address, as in sqlite:/var/lib/onceward.db", .path.display())]
    NotAFile {
        /// What it names.
        path: PathBuf,
        /// And what that is.
        what: &'static str,
    },
    /// A table of that name is there, and is not ours, or is of a later version.
    #[error(
        "the tables in this database are not as this version of Onceward makes them ({0}); if they are somebody else's, \
         give Onceward a database or a schema of its own, and otherwise run a version that knows them"
    )]
    OtherShape(String),
}

impl SqlError {
    /// What an error says about the tables or about us, or else that the database is out of reach.
    pub(super) fn from(error: sqlx::Error) -> Self {
        match (shape(&error), fix(&error)) {
            (Some(found), _) => found,
            (None, Some(fix)) => Self::Rejected { says: error.to_string(), fix },
            (None, None) => Self::Unreachable(error.to_string()),
        }
    }
}

/// Why a statement has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatementError {
    /// There was no connection to send it over.
    #[error("no connection to the database: {reason}")]
    NoConnection {
        /// Why not.
        reason: String,
        #[source]
        cause: Option<sqlx::Error>,
    },
    /// Others were quicker every time.
    #[error("others changed the same row all the time")]
    Contended,
    /// The tables are not there, or not as they should be.
    #[error(transparent)]
    Tables(SqlError),
    /// The file at the address is not the one that was opened.
    #[error("the SQLite file was deleted or replaced while this process had it open; start the process again")]
    OtherFile {
        /// Whether nothing was asked for that reason.
        is_certain: bool,
    },
    /// It was sent, and no answer came in time.
    #[error("the database did not answer in time")]
    TimedOut,
    /// The database said no, or the connection broke.
    #[error("{0}")]
    Sql(#[source] sqlx::Error),
}

impl From<sqlx::Error> for StatementError {
    fn from(error: sqlx::Error) -> Self {
        match shape(&error) {
            Some(found) => Self::Tables(found),
            None => Self::Sql(error),
        }
    }
}

impl StatementError {
    /// There was no connection, for this reason.
    pub(super) fn no_connection(reason: impl ToString) -> Self {
        Self::NoConnection { reason: reason.to_string(), cause: None }
    }

    /// A database that says no has done nothing. One that says that it ends may have done it before.
    pub(crate) fn is_certain(&self) -> bool {
        match self {
            Self::NoConnection { .. } | Self::Contended | Self::Tables(_) => true,
            Self::OtherFile { is_certain } => *is_certain,
            Self::TimedOut => false,
            Self::Sql(sqlx::Error::Database(error)) => is_a_plain_no(&**error),
            Self::Sql(error) => matches!(
                error,
                sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::Encode(_) | sqlx::Error::BeginFailed
            ),
        }
    }
}

impl From<StatementError> for StoreError {
    fn from(error: StatementError) -> Self {
        if error.is_certain() { Self::not_executed(error) } else { Self::unknown(error) }
    }
}

/// Whether the connection that this came over is still good.
pub(super) fn leaves_the_connection(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if is_a_plain_no(&**error))
}

fn is_a_plain_no(error: &dyn DatabaseError) -> bool {
    if let Some(error) = error.try_downcast_ref::<PgDatabaseError>() {
        // `statement_completion_unknown` says so itself; whoever ends a connection may have finished the statement.
        return error.severity() == PgSeverity::Error && error.code() != "40003";
    }
    // An input or output error of SQLite may have come after everything was written.
    primary(error) != Some(10)
}

/// Whether the database wants the whole transaction again: it could not be put in order with others, or was in a circle with them, or
/// the file was in use.
pub(crate) fn asks_for_a_repetition(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(is_out_of_order)
}

/// The same of any error, one of the database itself included.
pub(crate) fn wants_a_repetition(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref().is_some_and(asks_for_a_repetition)
        || error.downcast_ref::<Box<dyn DatabaseError>>().is_some_and(|error| is_out_of_order(&**error))
        || error.downcast_ref::<PgDatabaseError>().is_some_and(|error| is_out_of_order(error))
        || error.downcast_ref::<SqliteError>().is_some_and(|error| is_out_of_order(error))
}

fn is_out_of_order(error: &dyn DatabaseError) -> bool {
    match error.try_downcast_ref::<SqliteError>() {
        Some(_) => matches!(primary(error), Some(5 | 6)),
        // By SQLSTATE, so that a library between the driver and us can ask for it too.
        None => matches!(error.code().as_deref(), Some("40001" | "40P01")),
    }
}

/// Whether the transaction has failed before this statement, and takes no more.
pub(crate) fn has_failed_already(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    error.try_downcast_ref::<PgDatabaseError>().is_some_and(|error| error.code() == "25P02")
}

/// Whether a lock was waited for as long as `lock_timeout` lets anybody wait.
pub(crate) fn has_waited_in_vain(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    error.try_downcast_ref::<PgDatabaseError>().is_some_and(|error| error.code() == "55P03")
}

/// What to do where a database does not let us in, or do what has to be done. To wait would not help.
fn fix(error: &sqlx::Error) -> Option<&'static str> {
    let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    match error.code() {
        code if code.starts_with("28") => Some("look at the user and the password in the address, and at pg_hba.conf"),
        "3D000" => Some("make this database with CREATE DATABASE, or name another one in the address"),
        "42501" => Some("grant this user what it needs, or let its owner run `onceward migrate`"),
        "25006" => Some("name the primary, and a user who may write"),
        _ => None,
    }
}

/// SQLite's result code without what is said in more detail.
fn primary(error: &dyn DatabaseError) -> Option<i32> {
    error.try_downcast_ref::<SqliteError>()?;
    error.code()?.parse::<i32>().ok().map(|code| code & 0xff)
}

/// What an error says about our tables.
fn shape(error: &sqlx::Error) -> Option<SqlError> {
    let sqlx::Error::Database(error) = error else { return shape_of_row(error) };
    let says = error.message();
    if let Some(error) = error.try_downcast_ref::<PgDatabaseError>() {
        return match error.code() {
            "42P01" if says.contains("onceward_") => Some(SqlError::NotMigrated),
            // A column or its type, and a name that is not unique.
            "42703" | "42804" | "42883" | "42P10" | "23502" => Some(SqlError::OtherShape(says.to_owned())),
            _ => None,
        };
    }
    match primary(&**error)? {
        1 if says.contains("no such table: onceward_clock") => Some(SqlError::Outdated { found: 1, needed: 2 }),
        1 if says.contains("no such table: onceward_") => Some(SqlError::NotMigrated),
        1 if says.contains("column") || says.contains("ON CONFLICT clause does not match") => {
            Some(SqlError::OtherShape(says.to_owned()))
        }
        // A file that cannot be written or opened, and one that is no database behind its first bytes.
        8 | 14 => Some(SqlError::NoRights(says.to_owned())),
        26 => Some(SqlError::OtherShape(says.to_owned())),
        _ => None,
    }
}

fn shape_of_row(error: &sqlx::Error) -> Option<SqlError> {
    use sqlx::Error::{ColumnDecode, ColumnIndexOutOfBounds, ColumnNotFound, RowNotFound};
    match error {
        ColumnDecode { .. } | ColumnIndexOutOfBounds { .. } | ColumnNotFound(_) => {
            Some(SqlError::OtherShape(error.to_string()))
        }
        RowNotFound => Some(SqlError::NotMigrated),
        _ => None,
    }
}
