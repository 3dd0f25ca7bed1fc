//! The statements of SQLite.
//!
//! One writer at a time, so that no statement ever waits in its middle; `now` is the same throughout a statement. A verb that has
//! changed nothing looks what is there.

use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Pool, Sqlite, Transaction};

use super::dialect::{Answer, Batch, Dialect, Question, Removed, Row, Statements, Verb};

const INSERT: &str = "INSERT INTO onceward_records AS old (name, value, expires_at)
    VALUES (?1, ?2, CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?3)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at
    WHERE old.expires_at <= unixepoch('subsec') * 1000 RETURNING value";

const TAKE: &str =
    "DELETE FROM onceward_records WHERE name = ?1 AND expires_at > unixepoch('subsec') * 1000 RETURNING value";

const SWAP: &str = "UPDATE onceward_records
    SET value = ?3, expires_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?4
    WHERE name = ?1 AND value = ?2 AND expires_at > unixepoch('subsec') * 1000 RETURNING value";

const REMOVE: &str = "DELETE FROM onceward_records
    WHERE name = ?1 AND value = ?2 AND expires_at > unixepoch('subsec') * 1000 RETURNING value";

const LOOK: &str = "SELECT value FROM onceward_records WHERE name = ?1 AND expires_at > unixepoch('subsec') * 1000";

/// Also names every column, so that a table of another shape is found out.
const VERSION: &str = "SELECT version, reign FROM onceward_schema
    LEFT JOIN (SELECT name, value, expires_at FROM onceward_records LIMIT 0) AS columns ON true";

/// What has other columns beside ours may be ours.
const ODDITY: &str = "SELECT CASE
    WHEN NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'onceward_records') THEN NULL
    WHEN NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'onceward_schema')
        THEN 'onceward_records is there without onceward_schema'
    WHEN 'expires_at INTEGER, name TEXT, value BLOB' IS NOT (SELECT group_concat(name || ' ' || type, ', ') FROM (
        SELECT name, type FROM pragma_table_info('onceward_records')
        WHERE name IN ('name', 'value', 'expires_at') ORDER BY name))
        THEN 'a column of onceward_records has another type'
    WHEN 'name' IS NOT (SELECT group_concat(name) FROM pragma_table_info('onceward_records') WHERE pk > 0)
        THEN 'nothing makes the name unique'
    END";

const CLEAN: &str = "DELETE FROM onceward_records WHERE rowid IN (
    SELECT rowid FROM onceward_records WHERE expires_at <= unixepoch('subsec') * 1000 AND expires_at >= ?1
    ORDER BY expires_at LIMIT ?2) RETURNING expires_at";

const COMPLETE: &str = "UPDATE onceward_records
    SET value = ?3, expires_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?4 WHERE name = ?1 AND value = ?2";

impl Dialect for Sqlite {}

impl Statements for Sqlite {
    async fn ask(connection: &mut SqliteConnection, question: &Question) -> Result<Answer, sqlx::Error> {
        let Question { verb, name, held, value, millis } = question;
        let query = match verb {
            Verb::Insert => sqlx::query_scalar(INSERT).bind(name).bind(value).bind(millis),
            Verb::Take => sqlx::query_scalar(TAKE).bind(name),
            Verb::Swap => sqlx::query_scalar(SWAP).bind(name).bind(held).bind(value).bind(millis),
            Verb::Remove => sqlx::query_scalar(REMOVE).bind(name).bind(held),
            Verb::Look => sqlx::query_scalar(LOOK).bind(name),
        };
        // To its end: what comes after the first row is what makes it last.
        let there: Option<Vec<u8>> = query.fetch_all(&mut *connection).await?.pop();
        match (verb, there) {
            (Verb::Look, there) => Ok(Answer { is_done: false, there }),
            (Verb::Take, there) => Ok(Answer { is_done: there.is_some(), there }),
            (_, Some(_)) => Ok(Answer { is_done: true, there: None }),
            (_, None) => Ok(Answer { is_done: false, there: look(connection, name).await? }),
        }
    }

    async fn version(connection: &mut SqliteConnection) -> Result<(i32, Vec<u8>), sqlx::Error> {
        sqlx::query_as(VERSION).fetch_one(connection).await
    }

    async fn oddity(connection: &mut SqliteConnection) -> Result<Option<String>, sqlx::Error> {
        sqlx::query_scalar(ODDITY).fetch_one(connection).await
    }

    async fn clean(connection: &mut SqliteConnection, batch: &Batch) -> Result<Removed, sqlx::Error> {
        let query = sqlx::query_scalar(CLEAN).bind(batch.from).bind(batch.most);
        let expired: Vec<i64> = query.fetch_all(connection).await?;
        Ok(Removed { count: expired.len() as i64, until: expired.into_iter().max().unwrap_or_default() })
    }

    /// One that begins by reading could not go on to write once somebody else has written.
    async fn begin(pool: &Pool<Self>) -> Result<Transaction<'static, Self>, sqlx::Error> {
        pool.begin_with("BEGIN IMMEDIATE").await
    }

    async fn claim(connection: &mut SqliteConnection, row: &Row<'_>) -> Result<Answer, sqlx::Error> {
        let query = sqlx::query_scalar(INSERT).bind(row.name).bind(row.value).bind(row.millis);
        let written: Vec<Vec<u8>> = query.fetch_all(&mut *connection).await?;
        let is_done = !written.is_empty();
        Ok(Answer { is_done, there: if is_done { None } else { look(connection, row.name).await? } })
    }

    async fn complete(connection: &mut SqliteConnection, held: &[u8], row: &Row<'_>) -> Result<bool, sqlx::Error> {
        let query = sqlx::query(COMPLETE).bind(row.name).bind(held).bind(row.value).bind(row.millis);
        let done = query.execute(connection).await?;
        Ok(done.rows_affected() == 1)
    }

    async fn goes_on(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        sqlx::query("SELECT 1").execute(connection).await.map(drop)
    }
}

async fn look(connection: &mut SqliteConnection, name: &str) -> Result<Option<Vec<u8>>, sqlx::Error> {
    Ok(sqlx::query_scalar(LOOK).bind(name).fetch_all(connection).await?.pop())
}

/// One connection: there is one writer anyhow, and those who wait for a connection are served in their order, which those who wait for
/// the file are not.
pub(super) fn pool() -> SqlitePoolOptions {
    SqlitePoolOptions::new().max_connections(1).test_before_acquire(false).max_lifetime(None).idle_timeout(None)
}

/// How the file is opened: what was answered is on the disk, and readers do not keep a writer waiting. A statement that waits for the
/// file too long is given up a moment before we do so: then it is certain that it changed nothing.
pub(super) fn options(options: SqliteConnectOptions, timeout: Duration) -> SqliteConnectOptions {
    options
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(timeout * 4 / 5)
        .foreign_keys(false)
}
