//! The tables and their migration. The column `reign` holds the epoch; it keeps the name that existing databases have.
//!
//! After a backup was restored, a new epoch makes all issued tokens stale. Running processes read it within ten seconds:
//! - PostgreSQL: `UPDATE onceward_schema SET reign = substring(uuid_send(gen_random_uuid()) FROM 1 FOR 8)`
//! - SQLite: `UPDATE onceward_schema SET reign = randomblob(8)`

use std::time::Duration;

use onceward_api::duration::spaced;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions as _, Connection, Postgres, Sqlite};
use tokio::time::timeout;

use super::address::SqlAddress;
use super::dialect::{Dialect, Statements};
use super::error::SqlError;
use super::pool::{CONNECT, check_shape, check_version};

const POSTGRES: &str = r#"BEGIN;
SELECT pg_advisory_xact_lock(8027137150431421036);
CREATE TABLE IF NOT EXISTS onceward_records (
    name text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS onceward_records_expires_at ON onceward_records (expires_at);
CREATE TABLE IF NOT EXISTS onceward_schema (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version integer NOT NULL,
    reign bytea NOT NULL CHECK (length(reign) = 8)
);
INSERT INTO onceward_schema (version, reign)
    VALUES (1, substring(uuid_send(gen_random_uuid()) FROM 1 FOR 8)) ON CONFLICT DO NOTHING;
COMMIT;
"#;

/// The clock starts at the wall clock time, by which version 1 wrote expiries, so that existing records keep their lifetime. It names
/// no boot: until the first change, the wall clock determines how far it has advanced.
const SQLITE: &str = "BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS onceward_records (
    name TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL,
    expires_at INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS onceward_records_expires_at ON onceward_records (expires_at);
CREATE TABLE IF NOT EXISTS onceward_schema (
    only_row INTEGER PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    version INTEGER NOT NULL,
    reign BLOB NOT NULL CHECK (length(reign) = 8)
);
CREATE TABLE IF NOT EXISTS onceward_clock (
    only_row INTEGER PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    time_ms INTEGER NOT NULL,
    boot TEXT NOT NULL,
    boot_ms INTEGER NOT NULL,
    wall_ms INTEGER NOT NULL
);
INSERT INTO onceward_clock (only_row, time_ms, boot, boot_ms, wall_ms)
    SELECT 1, now, '', 0, now FROM (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now) WHERE true
    ON CONFLICT DO NOTHING;
INSERT INTO onceward_schema (only_row, version, reign) VALUES (1, 2, randomblob(8))
    ON CONFLICT DO UPDATE SET version = 2 WHERE version < 2;
COMMIT;
";

/// The result of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationOutcome {
    /// The tables were missing, and were created.
    Made,
    /// The tables were of an earlier version, and were updated; their records were kept.
    Updated,
    /// The tables were current, and nothing was changed.
    Current,
}

pub(super) fn script(address: &SqlAddress) -> &'static str {
    match address {
        SqlAddress::Postgres(_) => POSTGRES,
        SqlAddress::Sqlite(_) => SQLITE,
    }
}

/// The timeout of a migration, including waiting for a concurrent one.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn migrate(address: SqlAddress) -> Result<MigrationOutcome, SqlError> {
    let migrated = timeout(PATIENCE, migrated(address)).await;
    migrated.unwrap_or_else(|_| {
        Err(SqlError::Unreachable(format!("the migration did not end within {}", spaced(PATIENCE))))
    })
}

async fn migrated(address: SqlAddress) -> Result<MigrationOutcome, SqlError> {
    match address {
        SqlAddress::Postgres(options) => {
            let connect = timeout(CONNECT, options.disable_statement_logging().connect()).await;
            let connect =
                connect.map_err(|_| SqlError::Unreachable(format!("no connection within {}", spaced(CONNECT))))?;
            let connection: PgConnection = connect.map_err(SqlError::from)?;
            run::<Postgres>(connection, POSTGRES).await
        }
        SqlAddress::Sqlite(options) => {
            super::sqlite_path::examine(options.get_filename())?;
            let options = super::sqlite::options(options, Duration::from_secs(5)).create_if_missing(true);
            let connect = options.disable_statement_logging().connect().await;
            // Unlike in `Sql::open`, an error here means that the folder is not writable, not that tables are missing.
            let connection: SqliteConnection = connect.map_err(SqlError::from)?;
            run::<Sqlite>(connection, SQLITE).await
        }
    }
}

async fn run<DB: Dialect>(mut connection: DB::Connection, script: &'static str) -> Result<MigrationOutcome, SqlError>
where
    for<'c> &'c mut DB::Connection: sqlx::Executor<'c, Database = DB>,
{
    let migrated = match DB::version(&mut connection).await.map_err(SqlError::from) {
        Ok((found, _)) if found >= DB::VERSION => MigrationOutcome::Current,
        found @ (Ok(_) | Err(SqlError::NotMigrated { .. })) => {
            // Checked before anything is created: records in a table that is adopted here are deleted when they expire. A table that a
            // concurrent migration commits during the check may be seen without its columns, so the check is repeated.
            if check_shape::<DB>(&mut connection).await.is_err() {
                check_shape::<DB>(&mut connection).await?;
            }
            sqlx::raw_sql(script).execute(&mut connection).await.map_err(SqlError::from)?;
            if found.is_ok() { MigrationOutcome::Updated } else { MigrationOutcome::Made }
        }
        Err(error) => return Err(error),
    };
    // Checked for existing tables too: a table with this name may belong to another application.
    let (version, _) = <DB as Statements>::version(&mut connection).await.map_err(SqlError::from)?;
    check_version::<DB>(version)?;
    check_shape::<DB>(&mut connection).await?;
    let _ = connection.close().await;
    Ok(migrated)
}
