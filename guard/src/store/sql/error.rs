//! Errors of statements, and whether a failed statement certainly changed nothing.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use onceward_api::duration::spaced;
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};
use sqlx::sqlite::SqliteError;

use super::address::command;
use crate::store::StoreError;

/// The reason why a database cannot be used as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlError {
    /// The address does not name a supported database.
    #[error("invalid database address (examples: postgres://user@host/database or sqlite:/var/lib/onceward.db): {0}")]
    Address(String),
    /// The database refuses connections: it is not running, or has another address.
    #[error("the database refuses connections; start it, or correct the address")]
    Refused,
    /// The database could not be reached.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// The database rejects the login or a required statement. A retry does not help.
    #[error("PostgreSQL returned an error: {says}; {fix}")]
    Rejected {
        /// The SQLSTATE, such as `28P01` for a wrong password.
        code: String,
        /// The database's error message.
        says: String,
        /// The suggested fix.
        fix: &'static str,
    },
    /// The tables are missing.
    #[error("the tables of Onceward are missing from this database; create them with `{command}` or `Sql::migrate`")]
    NotMigrated {
        /// The command that creates them, quoted for a shell. A password in the address is replaced by `PASSWORD`.
        command: String,
    },
    /// The tables were created by an earlier version of Onceward.
    #[error(
        "the tables of Onceward in this database have version {found}, and this version of Onceward needs version {needed}; update them \
         with `{command}` or `Sql::migrate`, which keep all records"
    )]
    Outdated {
        /// The version of the tables.
        found: i32,
        /// The required version.
        needed: i32,
        /// The command that updates them, quoted for a shell. A password in the address is replaced by `PASSWORD`.
        command: String,
    },
    /// The SQLite file cannot be opened or written.
    #[error("the SQLite file cannot be opened by this user ({0}); the file and its folder must exist and be writable")]
    NoRights(String),
    /// The folder of the SQLite file does not exist, or is not a folder.
    #[error("the folder {} of the SQLite file {why}; create it, or name another file in the address", .folder.display())]
    NoFolder {
        /// The folder of the file.
        folder: PathBuf,
        /// The problem with it.
        why: &'static str,
    },
    /// The path in the address is not a file, or not a SQLite database.
    #[error("{} is {what}; name a file for SQLite in the address, as in sqlite:/var/lib/onceward.db", .path.display())]
    NotAFile {
        /// The path in the address.
        path: PathBuf,
        /// The kind of object found there.
        what: &'static str,
    },
    /// A table with the same name exists, and was not created by Onceward, or is of a later version.
    #[error(
        "the tables in this database do not have the schema of this version of Onceward ({0}); if another application created them, \
         give Onceward its own database or schema, otherwise run the version that created them"
    )]
    OtherShape(String),
}

impl SqlError {
    /// Classifies an error: wrong tables, a rejection by the database, or else an unreachable database.
    pub(super) fn from(error: sqlx::Error) -> Self {
        match (shape(&error), fix(&error)) {
            (Some(found), _) => found,
            (None, Some((code, fix))) => Self::Rejected { code, says: reason(&error), fix },
            (None, None) => match &error {
                sqlx::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => Self::Refused,
                error => Self::Unreachable(reason(error)),
            },
        }
    }

    /// Adds the complete command to an error about missing or outdated tables.
    pub(crate) fn with_command(self, complete: impl FnOnce() -> String) -> Self {
        match self {
            Self::NotMigrated { .. } => Self::NotMigrated { command: complete() },
            Self::Outdated { found, needed, .. } => Self::Outdated { found, needed, command: complete() },
            other => other,
        }
    }
}

/// Returns the text of an error without the driver's introduction.
fn reason(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn lost_or_reason(error: &sqlx::Error) -> String {
    let before = if matches!(error, sqlx::Error::Io(_)) { "connection lost before the reply: " } else { "" };
    format!("{before}{}", reason(error))
}

/// For a `main` that returns [`io::Result`].
impl From<SqlError> for io::Error {
    fn from(error: SqlError) -> Self {
        let kind = match error {
            SqlError::Address(_) => io::ErrorKind::InvalidInput,
            SqlError::NoFolder { .. } => io::ErrorKind::NotFound,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// The reason why a statement has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatementError {
    /// There was no connection to send the statement over.
    #[error("no connection to the database: {reason}")]
    NoConnection {
        /// The reason.
        reason: String,
        #[source]
        cause: Option<sqlx::Error>,
    },
    /// Concurrent statements changed the row on every attempt.
    #[error("too much contention on one row")]
    Contended,
    /// The tables are missing, or have another schema.
    #[error(transparent)]
    Tables(SqlError),
    /// The file at the address is no longer the one that was opened.
    #[error("the SQLite file was deleted or replaced while this process had it open; restart the process")]
    OtherFile {
        /// True if the statement was certainly not sent.
        is_certain: bool,
    },
    /// The statement was sent, and no result arrived within this time.
    #[error("no reply within {}", spaced(*.0))]
    TimedOut(Duration),
    /// The database returned an error, or the connection broke.
    #[error("{}", lost_or_reason(.0))]
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
    /// Creates an error for a missing connection.
    pub(super) fn no_connection(reason: impl ToString) -> Self {
        Self::NoConnection { reason: reason.to_string(), cause: None }
    }

    /// Adds the complete command to an error about missing or outdated tables.
    pub(super) fn with_command(self, command: &str) -> Self {
        match self {
            Self::Tables(error) => Self::Tables(error.with_command(|| command.to_owned())),
            other => other,
        }
    }

    /// Returns whether the statement certainly changed nothing. A database that returns an error has done nothing; one that reports
    /// that it terminates may have executed the statement before.
    pub(crate) fn is_certain(&self) -> bool {
        match self {
            Self::NoConnection { .. } | Self::Contended | Self::Tables(_) => true,
            Self::OtherFile { is_certain } => *is_certain,
            Self::TimedOut(_) => false,
            Self::Sql(sqlx::Error::Database(error)) => is_definitely_not_executed(&**error),
            Self::Sql(error) => matches!(
                error,
                sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::Encode(_) | sqlx::Error::BeginFailed
            ),
        }
    }

    /// Returns whether the database did not reply.
    pub(crate) fn is_away(&self) -> bool {
        match self {
            Self::NoConnection { .. } | Self::TimedOut(_) => true,
            Self::Contended | Self::Tables(_) | Self::OtherFile { .. } => false,
            Self::Sql(error) => !leaves_the_connection(error),
        }
    }
}

impl From<StatementError> for StoreError {
    fn from(error: StatementError) -> Self {
        if error.is_certain() { Self::not_executed(error) } else { Self::unknown(error) }
    }
}

/// Returns whether the connection can still be used after this error.
pub(super) fn leaves_the_connection(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if is_definitely_not_executed(&**error))
}

/// Returns whether the database reports an error that it returns only for a statement that changed nothing.
fn is_definitely_not_executed(error: &dyn DatabaseError) -> bool {
    if let Some(error) = error.try_downcast_ref::<PgDatabaseError>() {
        // `statement_completion_unknown` says so itself; a server that terminates the connection may have completed the statement.
        return error.severity() == PgSeverity::Error && error.code() != "40003";
    }
    // SQLite may report an I/O error after everything was written.
    primary(error) != Some(10)
}

/// Returns whether the database asks to retry the whole transaction: because of a serialization failure, a deadlock, or a busy file.
pub(crate) fn is_serialization_failure(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(is_conflict)
}

/// Like [`is_serialization_failure`], for any error type, including the driver's own database errors.
pub(crate) fn is_any_serialization_failure(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref().is_some_and(is_serialization_failure)
        || error.downcast_ref::<Box<dyn DatabaseError>>().is_some_and(|error| is_conflict(&**error))
        || error.downcast_ref::<PgDatabaseError>().is_some_and(|error| is_conflict(error))
        || error.downcast_ref::<SqliteError>().is_some_and(|error| is_conflict(error))
}

fn is_conflict(error: &dyn DatabaseError) -> bool {
    match error.try_downcast_ref::<SqliteError>() {
        Some(_) => matches!(primary(error), Some(5 | 6)),
        // By SQLSTATE, so that a library between the driver and this crate can ask for a retry too.
        None => matches!(error.code().as_deref(), Some("40001" | "40P01")),
    }
}

/// Returns whether the transaction had failed before this statement, and accepts no more.
pub(crate) fn has_failed_already(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    error.try_downcast_ref::<PgDatabaseError>().is_some_and(|error| error.code() == "25P02")
}

/// Returns whether waiting for a lock exceeded `lock_timeout`.
pub(crate) fn lock_timed_out(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    error.try_downcast_ref::<PgDatabaseError>().is_some_and(|error| error.code() == "55P03")
}

/// Returns the suggested fix if the database rejects the login or a required statement. A retry would not help.
/// Also returns the SQLSTATE.
fn fix(error: &sqlx::Error) -> Option<(String, &'static str)> {
    let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    let fix = match error.code() {
        code if code.starts_with("28") => {
            "correct the user and the password in the address, or allow the login in pg_hba.conf"
        }
        "3D000" => "create the database with CREATE DATABASE, or name another one in the address",
        "42501" => "grant this user the missing permission, or run `onceward migrate` as the owner of the schema",
        "25006" => "name the primary in the address, and a user with write access",
        _ => return None,
    };
    Some((error.code().to_owned(), fix))
}

/// Returns SQLite's primary result code, without the extended part.
fn primary(error: &dyn DatabaseError) -> Option<i32> {
    error.try_downcast_ref::<SqliteError>()?;
    error.code()?.parse::<i32>().ok().map(|code| code & 0xff)
}

/// Returns the problem with the tables that an error reveals.
fn shape(error: &sqlx::Error) -> Option<SqlError> {
    let sqlx::Error::Database(error) = error else { return shape_of_row(error) };
    let says = error.message();
    if let Some(error) = error.try_downcast_ref::<PgDatabaseError>() {
        return match error.code() {
            "42P01" if says.contains("onceward_") => Some(SqlError::NotMigrated { command: command("postgres://…") }),
            // A wrong column, a wrong type, or a name that is not unique.
            "42703" | "42804" | "42883" | "42P10" | "23502" => Some(SqlError::OtherShape(says.to_owned())),
            _ => None,
        };
    }
    match primary(&**error)? {
        1 if says.contains("no such table: onceward_clock") => {
            Some(SqlError::Outdated { found: 1, needed: 2, command: command("sqlite:…") })
        }
        1 if says.contains("no such table: onceward_") => {
            Some(SqlError::NotMigrated { command: command("sqlite:…") })
        }
        1 if says.contains("column") || says.contains("ON CONFLICT clause does not match") => {
            Some(SqlError::OtherShape(says.to_owned()))
        }
        // The file cannot be written or opened; 26 below: it starts like a SQLite database and is none.
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
        RowNotFound => Some(SqlError::NotMigrated { command: command("…") }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_tells_whether_the_statement_may_have_been_executed() {
        let says = |error: StatementError| StoreError::from(error).to_string();
        let timeout = StatementError::TimedOut(Duration::from_millis(250));
        assert_eq!(says(timeout), "no reply within 250 ms; it may have been executed");
        let lost = sqlx::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(says(lost.into()), "connection lost before the reply: broken pipe; it may have been executed");
        assert_eq!(says(StatementError::Contended), "not executed: too much contention on one row");
    }
}
