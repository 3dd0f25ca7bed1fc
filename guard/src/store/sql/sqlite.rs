//! The statements of SQLite.
//!
//! There is one writer at a time, so no statement has to wait once it has started. A change is a transaction that takes the write lock
//! before it reads the time. That is the time of the [file](SqliteClock), not SQLite's `now`. A verb that changed nothing reads the
//! current value.

use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, Pool, Sqlite, Transaction};

use super::address::command;
use super::dialect::{Dialect, Operation, RecordRow, SqlVerb, StatementOutcome, Statements, SweepOutcome, SweepRange};
use super::sqlite_clock::{ClockReading, SqliteClock};

/// A transaction that starts with a read could not write once another process has written.
const BEGIN: &str = "BEGIN IMMEDIATE";

const INSERT: &str = "INSERT INTO onceward_records AS old (name, value, expires_at) VALUES (?2, ?3, ?1 + ?4)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at
    WHERE old.expires_at <= ?1 RETURNING value";

const SWAP: &str = "UPDATE onceward_records SET value = ?4, expires_at = ?1 + ?5
    WHERE name = ?2 AND value = ?3 AND expires_at > ?1 RETURNING value";

const REMOVE: &str = "DELETE FROM onceward_records WHERE name = ?2 AND value = ?3 AND expires_at > ?1 RETURNING value";

const THERE: &str = "SELECT value FROM onceward_records WHERE name = ?2 AND expires_at > ?1";

/// Reads the record and the clock in one statement: a reader takes no lock, and sees both from the same snapshot.
const LOOK: &str = "SELECT time_ms, boot, boot_ms, wall_ms, value, expires_at
    FROM onceward_clock LEFT JOIN onceward_records ON name = ?1";

/// The first statement changes nothing, and takes the write lock. In an application's transaction that began without the lock, reading
/// first would make the following write fail. It also distinguishes a file without the tables from one without a clock.
const TIME: &str = "UPDATE onceward_records SET value = value WHERE false;
    SELECT time_ms, boot, boot_ms, wall_ms FROM onceward_clock";

const TICK: &str = "UPDATE onceward_clock SET time_ms = ?1, boot = ?2, boot_ms = ?3, wall_ms = ?4";

/// Names every column, so that a table with another schema is detected. A file without a clock is of version 1.
const VERSION: &str =
    "SELECT CASE WHEN version = 2 AND NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'onceward_clock')
    THEN 1 ELSE version END, reign FROM onceward_schema
    LEFT JOIN (SELECT name, value, expires_at FROM onceward_records LIMIT 0) AS columns ON true";

/// A table with additional columns is accepted.
const ODDITY: &str = "SELECT CASE
    WHEN NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'onceward_records') THEN NULL
    WHEN NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'onceward_schema')
        THEN 'onceward_records exists without onceward_schema'
    WHEN 'expires_at INTEGER, name TEXT, value BLOB' IS NOT (SELECT group_concat(name || ' ' || type, ', ') FROM (
        SELECT name, type FROM pragma_table_info('onceward_records')
        WHERE name IN ('name', 'value', 'expires_at') ORDER BY name))
        THEN 'a column of onceward_records has another type'
    WHEN 'name' IS NOT (SELECT group_concat(name) FROM pragma_table_info('onceward_records') WHERE pk > 0)
        THEN 'the column name is not unique'
    END";

const SWEEP: &str = "DELETE FROM onceward_records WHERE rowid IN (
    SELECT rowid FROM onceward_records WHERE expires_at <= ?1 AND expires_at >= ?2
    ORDER BY expires_at LIMIT ?3) RETURNING expires_at";

const COMPLETE: &str = "UPDATE onceward_records SET value = ?4, expires_at = ?1 + ?5 WHERE name = ?2 AND value = ?3";

impl Dialect for Sqlite {}

impl Statements for Sqlite {
    const VERSION: i32 = 2;

    fn migrate_command(options: &SqliteConnectOptions) -> String {
        let file = options.get_filename().to_string_lossy();
        match &*file {
            memory if memory.starts_with("file:") || memory == ":memory:" => command("sqlite:…"),
            file => command(&format!("sqlite:{}", file.replace('%', "%25").replace('?', "%3F"))),
        }
    }

    async fn ask(connection: &mut SqliteConnection, operation: &Operation) -> Result<StatementOutcome, sqlx::Error> {
        if matches!(operation.verb, SqlVerb::Look) {
            return look(connection, &operation.name).await;
        }
        let mut transaction = connection.begin_with(BEGIN).await?;
        let answer = change(&mut transaction, operation).await?;
        transaction.commit().await?;
        Ok(answer)
    }

    async fn version(connection: &mut SqliteConnection) -> Result<(i32, Vec<u8>), sqlx::Error> {
        sqlx::query_as(VERSION).fetch_one(connection).await
    }

    async fn oddity(connection: &mut SqliteConnection) -> Result<Option<String>, sqlx::Error> {
        sqlx::query_scalar(ODDITY).fetch_one(connection).await
    }

    async fn sweep(connection: &mut SqliteConnection, range: &SweepRange) -> Result<SweepOutcome, sqlx::Error> {
        let mut transaction = connection.begin_with(BEGIN).await?;
        let now = now(&mut transaction).await?;
        let query = sqlx::query_scalar(SWEEP).bind(now).bind(range.from).bind(range.most);
        let expired: Vec<i64> = query.fetch_all(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(SweepOutcome { count: expired.len() as i64, until: expired.into_iter().max().unwrap_or_default() })
    }

    async fn begin(pool: &Pool<Self>) -> Result<Transaction<'static, Self>, sqlx::Error> {
        pool.begin_with(BEGIN).await
    }

    async fn claim(connection: &mut SqliteConnection, row: &RecordRow<'_>) -> Result<StatementOutcome, sqlx::Error> {
        let now = now(connection).await?;
        let query = sqlx::query_scalar(INSERT).bind(now).bind(row.name).bind(row.value).bind(row.millis);
        let written: Vec<Vec<u8>> = query.fetch_all(&mut *connection).await?;
        let is_done = !written.is_empty();
        Ok(StatementOutcome { is_done, there: if is_done { None } else { there(connection, now, row.name).await? } })
    }

    async fn complete(
        connection: &mut SqliteConnection,
        held: &[u8],
        row: &RecordRow<'_>,
    ) -> Result<bool, sqlx::Error> {
        let now = now(connection).await?;
        let query = sqlx::query(COMPLETE).bind(now).bind(row.name).bind(held).bind(row.value).bind(row.millis);
        let done = query.execute(connection).await?;
        Ok(done.rows_affected() == 1)
    }

    async fn goes_on(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        sqlx::query("SELECT 1").execute(connection).await.map(drop)
    }
}

/// Executes a verb that changes a record, within its own transaction.
async fn change(connection: &mut SqliteConnection, operation: &Operation) -> Result<StatementOutcome, sqlx::Error> {
    let Operation { verb, name, held, value, millis } = operation;
    let now = now(connection).await?;
    let query = match verb {
        SqlVerb::Insert => sqlx::query_scalar(INSERT).bind(now).bind(name).bind(value).bind(millis),
        SqlVerb::Swap => sqlx::query_scalar(SWAP).bind(now).bind(name).bind(held).bind(value).bind(millis),
        SqlVerb::Remove => sqlx::query_scalar(REMOVE).bind(now).bind(name).bind(held),
        SqlVerb::Look => sqlx::query_scalar(THERE).bind(now).bind(name),
    };
    let found: Option<Vec<u8>> = query.fetch_all(&mut *connection).await?.pop();
    match (verb, found) {
        (SqlVerb::Look, there) => Ok(StatementOutcome { is_done: false, there }),
        (_, Some(_)) => Ok(StatementOutcome { is_done: true, there: None }),
        (_, None) => Ok(StatementOutcome { is_done: false, there: there(connection, now, name).await? }),
    }
}

/// Returns the time of the file, in a transaction that has taken the write lock: values that are read after waiting for it are not
/// stale. Updates the clock's row if that is due.
async fn now(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    // Fetches all rows, as every statement here does: only a completed statement does not block the commit.
    let row: Option<(i64, String, i64, i64)> = sqlx::query_as(TIME).fetch_all(&mut *connection).await?.pop();
    let (time_ms, boot, boot_ms, wall_ms) = row.ok_or(sqlx::Error::RowNotFound)?;
    let row = SqliteClock { time_ms, boot, boot_ms, wall_ms };
    let clock = row.at(ClockReading::now());
    if clock.is_due_after(&row) {
        let SqliteClock { time_ms, boot, boot_ms, wall_ms } = &clock;
        sqlx::query(TICK).bind(time_ms).bind(boot).bind(boot_ms).bind(wall_ms).execute(connection).await?;
    }
    Ok(clock.time_ms)
}

async fn there(connection: &mut SqliteConnection, now: i64, name: &str) -> Result<Option<Vec<u8>>, sqlx::Error> {
    Ok(sqlx::query_scalar(THERE).bind(now).bind(name).fetch_all(connection).await?.pop())
}

/// The columns of the clock, and those of a record.
type LookRow = (i64, String, i64, i64, Option<Vec<u8>>, Option<i64>);

async fn look(connection: &mut SqliteConnection, name: &str) -> Result<StatementOutcome, sqlx::Error> {
    let seen: Option<LookRow> = sqlx::query_as(LOOK).bind(name).fetch_all(connection).await?.pop();
    let (time_ms, boot, boot_ms, wall_ms, value, expires_at) = seen.ok_or(sqlx::Error::RowNotFound)?;
    let now = SqliteClock { time_ms, boot, boot_ms, wall_ms }.at(ClockReading::now()).time_ms;
    Ok(StatementOutcome { is_done: false, there: value.filter(|_| expires_at.is_some_and(|at| at > now)) })
}

/// Returns the pool settings. One connection, since there is only one writer anyway: callers that wait for a connection are served in
/// order, while those that wait for the file lock are not.
pub(super) fn pool() -> SqlitePoolOptions {
    SqlitePoolOptions::new().max_connections(1).test_before_acquire(false).max_lifetime(None).idle_timeout(None)
}

/// Returns the connection settings. A confirmed write is on disk, and readers do not block a writer. SQLite gives up waiting for the
/// file lock shortly before the client's timeout: then the statement certainly changed nothing.
pub(super) fn options(options: SqliteConnectOptions, timeout: Duration) -> SqliteConnectOptions {
    options
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(timeout * 4 / 5)
        .foreign_keys(false)
}
