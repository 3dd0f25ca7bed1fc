//! The operations of the store, and their statements in each SQL dialect.

use std::future::Future;

use sqlx::{Database, Pool, Transaction};

/// A database that Onceward speaks to: `sqlx::Postgres` or `sqlx::Sqlite`. There are no others, and nobody can add one: what it
/// does is private.
#[expect(private_bounds, reason = "it is sealed by this")]
pub trait Dialect: Database + Statements {}

/// The statements of one kind of database.
pub(crate) trait Statements: Database {
    /// Of which version the tables are that these statements go by.
    const VERSION: i32;

    /// A verb of the store.
    fn ask(
        connection: &mut Self::Connection,
        operation: &Operation,
    ) -> impl Future<Output = Result<StatementOutcome, sqlx::Error>> + Send;

    /// Which version the tables are of, and the epoch of the store.
    fn version(connection: &mut Self::Connection) -> impl Future<Output = Result<(i32, Vec<u8>), sqlx::Error>> + Send;

    /// What shows that the table of records is not ours, if there is one.
    fn oddity(connection: &mut Self::Connection) -> impl Future<Output = Result<Option<String>, sqlx::Error>> + Send;

    /// Deletes some expired rows, and returns how many. Locked rows are left for later.
    fn sweep(
        connection: &mut Self::Connection,
        range: &SweepRange,
    ) -> impl Future<Output = Result<SweepOutcome, sqlx::Error>> + Send;

    /// Begins a transaction that may write.
    fn begin(pool: &Pool<Self>) -> impl Future<Output = Result<Transaction<'static, Self>, sqlx::Error>> + Send;

    /// Inserts a row in a transaction, having waited for any other transaction that has done so; if one is there, that is given.
    /// Neither done nor there: it came meanwhile, and is seen when asked once more.
    fn claim(
        connection: &mut Self::Connection,
        row: &RecordRow<'_>,
    ) -> impl Future<Output = Result<StatementOutcome, sqlx::Error>> + Send;

    /// Writes another value into a row that this transaction has inserted with what is held, valid from now on; says whether it is there.
    fn complete(
        connection: &mut Self::Connection,
        held: &[u8],
        row: &RecordRow<'_>,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;

    /// Asks for nothing: a transaction that has failed before says so.
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

/// The five verbs.
#[derive(Debug, Clone, Copy)]
pub(super) enum SqlVerb {
    Insert,
    Take,
    Swap,
    Remove,
    Look,
}

/// The outcome of a statement.
pub(crate) struct StatementOutcome {
    /// The change was made.
    pub(crate) is_done: bool,
    /// What was there, if it was not; of a take, what was taken.
    pub(crate) there: Option<Vec<u8>>,
}

/// Which expired rows are deleted.
pub(crate) struct SweepRange {
    /// Those that expired at this time or later, in milliseconds since 1970: what lies before has just been removed, and a database that
    /// has not forgotten it yet would step over all of it again.
    pub(super) from: i64,
    /// So many of them at most.
    pub(super) most: i64,
}

impl SweepRange {
    /// What has been over for the longest time, a few rows of it.
    pub(super) const FIRST: Self = Self { from: 0, most: 500 };
}

/// What a sweep has deleted.
pub(crate) struct SweepOutcome {
    pub(super) count: i64,
    /// When the last of them had expired.
    pub(super) until: i64,
}

/// A row in a transaction.
pub(crate) struct RecordRow<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a [u8],
    pub(crate) millis: i64,
}
