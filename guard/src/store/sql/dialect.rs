//! The operations of the store, and their statements in each SQL dialect.

use std::future::Future;

use sqlx::{Connection, Database, Pool, Transaction};

/// A supported database: `sqlx::Postgres` or `sqlx::Sqlite`. The trait is sealed; other crates cannot implement it.
#[expect(private_bounds, reason = "it is sealed by this")]
pub trait Dialect: Database + Statements {}

/// The statements of one database.
pub(crate) trait Statements: Database {
    /// The version of the tables that the statements require.
    const VERSION: i32;

    /// Returns the command that creates the tables in the database of these options, without their password.
    fn migrate_command(options: &<Self::Connection as Connection>::Options) -> String;

    /// Executes a verb of the store.
    fn ask(
        connection: &mut Self::Connection,
        operation: &Operation,
    ) -> impl Future<Output = Result<StatementOutcome, sqlx::Error>> + Send;

    /// Reads the version of the tables, and the epoch of the store.
    fn version(connection: &mut Self::Connection) -> impl Future<Output = Result<(i32, Vec<u8>), sqlx::Error>> + Send;

    /// Returns how an existing table of records differs from one that Onceward creates; `None` if it does not.
    fn oddity(connection: &mut Self::Connection) -> impl Future<Output = Result<Option<String>, sqlx::Error>> + Send;

    /// Deletes some expired rows, and returns how many and up to which expiry. Skips locked rows.
    fn sweep(
        connection: &mut Self::Connection,
        range: &SweepRange,
    ) -> impl Future<Output = Result<SweepOutcome, sqlx::Error>> + Send;

    /// Begins a transaction that may write.
    fn begin(pool: &Pool<Self>) -> impl Future<Output = Result<Transaction<'static, Self>, sqlx::Error>> + Send;

    /// Inserts a row in a transaction, after waiting for any concurrent transaction that inserts the same row. If the row exists,
    /// returns its value. If the result is neither done nor a value, a concurrent insert was just committed, and a retry sees it.
    fn claim(
        connection: &mut Self::Connection,
        row: &RecordRow<'_>,
    ) -> impl Future<Output = Result<StatementOutcome, sqlx::Error>> + Send;

    /// Replaces the value of a row that this transaction inserted with `held`, and starts its time to live now. Returns whether the row
    /// was found.
    fn complete(
        connection: &mut Self::Connection,
        held: &[u8],
        row: &RecordRow<'_>,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    /// Executes a statement without effect: a transaction that has already failed returns an error.
    fn goes_on(connection: &mut Self::Connection) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// One operation of the store.
#[derive(Clone)]
pub(crate) struct Operation {
    pub(super) verb: SqlVerb,
    pub(super) name: String,
    pub(super) held: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) millis: i64,
}

/// The four verbs.
#[derive(Debug, Clone, Copy)]
pub(super) enum SqlVerb {
    Insert,
    Swap,
    Remove,
    Look,
}

/// The outcome of a statement.
pub(crate) struct StatementOutcome {
    /// True if the change was made.
    pub(crate) is_done: bool,
    /// The current value, if the change was not made.
    pub(crate) there: Option<Vec<u8>>,
}

/// The range of expired rows to delete.
pub(crate) struct SweepRange {
    /// Only rows that expired at this time or later, in milliseconds since 1970. Earlier rows have just been deleted, and the database
    /// would scan all of their remains again.
    pub(super) from: i64,
    /// The maximum number of rows.
    pub(super) most: i64,
}

impl SweepRange {
    /// The first batch: the rows that expired first.
    pub(super) const FIRST: Self = Self { from: 0, most: 500 };
}

/// The result of a sweep.
pub(crate) struct SweepOutcome {
    pub(super) count: i64,
    /// The latest expiry among the deleted rows.
    pub(super) until: i64,
}

/// A row in a transaction.
pub(crate) struct RecordRow<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a [u8],
    pub(crate) millis: i64,
}
