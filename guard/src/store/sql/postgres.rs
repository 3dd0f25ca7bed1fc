//! The statements of PostgreSQL.
//!
//! A verb that compares is one statement: it changes the row if its value is as expected, and returns the value from the statement's
//! snapshot. If the statement had to wait for a concurrent one, that value is stale, and the statement is repeated where it matters.
//! `clock_timestamp()` is the current time; `now()` would be the start of the transaction.

use std::time::Duration;

use percent_encoding::utf8_percent_encode;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Pool, Postgres, Transaction};

use super::address::{ENCODED, command};
use super::dialect::{Dialect, Operation, RecordRow, SqlVerb, StatementOutcome, Statements, SweepOutcome, SweepRange};
use super::pool::CONNECT;
use super::sweep::STATEMENT;

/// The maximum number of connections of a store.
const CONNECTIONS: u32 = 10;
/// A connection that has been idle for longer is pinged before it is used.
const IDLE: Duration = Duration::from_millis(500);

const INSERT: &str = "WITH written AS (
    INSERT INTO onceward_records AS old (name, value, expires_at)
    VALUES ($1, $2, clock_timestamp() + $3 * interval '1 millisecond')
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at
    WHERE old.expires_at <= clock_timestamp() RETURNING 1)
SELECT EXISTS (SELECT FROM written),
    (SELECT value FROM onceward_records WHERE name = $1 AND expires_at > clock_timestamp())";

const SWAP: &str = "WITH written AS (
    UPDATE onceward_records SET value = $3, expires_at = clock_timestamp() + $4 * interval '1 millisecond'
    WHERE name = $1 AND value = $2 AND expires_at > clock_timestamp() RETURNING 1)
SELECT EXISTS (SELECT FROM written),
    (SELECT value FROM onceward_records WHERE name = $1 AND expires_at > clock_timestamp())";

const REMOVE: &str = "WITH removed AS (
    DELETE FROM onceward_records WHERE name = $1 AND value = $2 AND expires_at > clock_timestamp() RETURNING 1)
SELECT EXISTS (SELECT FROM removed),
    (SELECT value FROM onceward_records WHERE name = $1 AND expires_at > clock_timestamp())";

const LOOK: &str = "SELECT false, value FROM onceward_records WHERE name = $1 AND expires_at > clock_timestamp()";

/// Names every column, so that a table with another schema is detected.
const VERSION: &str = "SELECT version, reign FROM onceward_schema
    LEFT JOIN (SELECT name, value, expires_at FROM onceward_records LIMIT 0) AS columns ON true";

/// The tables are created in one transaction, so `onceward_records` is looked up first: if it exists, `onceward_schema` must exist too.
/// A table with additional columns is accepted.
const ODDITY: &str = "SELECT CASE
    WHEN to_regclass('onceward_records') IS NULL THEN NULL
    WHEN to_regclass('onceward_schema') IS NULL THEN 'onceward_records exists without onceward_schema'
    WHEN 'expires_at timestamp with time zone, name text, value bytea' IS DISTINCT FROM (
        SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attname) FROM pg_attribute
        WHERE attrelid = to_regclass('onceward_records') AND attname IN ('name', 'value', 'expires_at'))
        THEN 'a column of onceward_records has another type'
    WHEN NOT EXISTS (SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
        WHERE indrelid = to_regclass('onceward_records') AND attname = 'name' AND indisunique AND indnkeyatts = 1
            AND indpred IS NULL)
        THEN 'the column name is not unique'
    END";

/// The time is read once, in a subquery, where it bounds the index scan; inline, the scan would read and discard every row that is
/// still valid.
const SWEEP: &str = "WITH removed AS (DELETE FROM onceward_records WHERE ctid = ANY (ARRAY (
    SELECT ctid FROM onceward_records
    WHERE expires_at <= (SELECT clock_timestamp()) AND expires_at >= to_timestamp($1 / 1000.0)
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING expires_at)
SELECT count(*), coalesce(floor(extract(epoch FROM max(expires_at)) * 1000), 0)::bigint FROM removed";

const COMPLETE: &str = "UPDATE onceward_records
    SET value = $3, expires_at = clock_timestamp() + $4 * interval '1 millisecond' WHERE name = $1 AND value = $2";

impl Dialect for Postgres {}

impl Statements for Postgres {
    const VERSION: i32 = 1;

    fn migrate_command(options: &PgConnectOptions) -> String {
        let encoded = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
        let host = match options.get_socket() {
            Some(folder) => encoded(&folder.to_string_lossy()),
            None if options.get_host().contains(':') => format!("[{}]", options.get_host().trim_matches(['[', ']'])),
            None => options.get_host().to_owned(),
        };
        let port = match options.get_port() {
            5432 => String::new(),
            port => format!(":{port}"),
        };
        let database = options.get_database().map(|name| format!("/{}", encoded(name))).unwrap_or_default();
        // Among them may be the schema.
        let settings = options.get_options().map(|settings| format!("?options={}", encoded(settings)));
        let user = encoded(options.get_username());
        command(&format!("postgres://{user}@{host}{port}{database}{}", settings.unwrap_or_default()))
    }

    async fn ask(connection: &mut PgConnection, operation: &Operation) -> Result<StatementOutcome, sqlx::Error> {
        let Operation { verb, name, held, value, millis } = operation;
        let query = match verb {
            SqlVerb::Insert => sqlx::query_as(INSERT).bind(name).bind(value).bind(*millis as f64),
            SqlVerb::Swap => sqlx::query_as(SWAP).bind(name).bind(held).bind(value).bind(*millis as f64),
            SqlVerb::Remove => sqlx::query_as(REMOVE).bind(name).bind(held),
            SqlVerb::Look => sqlx::query_as(LOOK).bind(name),
        };
        Ok(answer(query.fetch_optional(connection).await?))
    }

    async fn version(connection: &mut PgConnection) -> Result<(i32, Vec<u8>), sqlx::Error> {
        sqlx::query_as(VERSION).fetch_one(connection).await
    }

    async fn oddity(connection: &mut PgConnection) -> Result<Option<String>, sqlx::Error> {
        sqlx::query_scalar(ODDITY).fetch_one(connection).await
    }

    async fn sweep(connection: &mut PgConnection, range: &SweepRange) -> Result<SweepOutcome, sqlx::Error> {
        // With its own timeout: the connection's `statement_timeout` is that of a verb.
        let begin =
            format!("BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {}", STATEMENT.as_millis());
        let mut transaction = connection.begin_with(AssertSqlSafe(begin)).await?;
        let query = sqlx::query_as(SWEEP).bind(range.from).bind(range.most);
        let (count, until) = query.fetch_one(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(SweepOutcome { count, until })
    }

    async fn begin(pool: &Pool<Self>) -> Result<Transaction<'static, Self>, sqlx::Error> {
        pool.begin().await
    }

    async fn claim(connection: &mut PgConnection, row: &RecordRow<'_>) -> Result<StatementOutcome, sqlx::Error> {
        let query = sqlx::query_as(INSERT).bind(row.name).bind(row.value).bind(row.millis as f64);
        Ok(answer(query.fetch_optional(connection).await?))
    }

    async fn complete(connection: &mut PgConnection, held: &[u8], row: &RecordRow<'_>) -> Result<bool, sqlx::Error> {
        let query = sqlx::query(COMPLETE).bind(row.name).bind(held).bind(row.value).bind(row.millis as f64);
        let done = query.execute(connection).await?;
        Ok(done.rows_affected() == 1)
    }

    async fn goes_on(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query("SELECT 1").execute(connection).await.map(drop)
    }
}

fn answer(row: Option<(bool, Option<Vec<u8>>)>) -> StatementOutcome {
    let (is_done, there) = row.unwrap_or((false, None));
    StatementOutcome { is_done, there }
}

/// Returns the pool settings. Connections are not tested before each use, which would cost a second round trip.
pub(super) fn pool(timeout: Duration) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(CONNECT.max(timeout))
        .test_before_acquire(false)
        .before_acquire(|connection, life| {
            Box::pin(async move { Ok(life.idle_for < IDLE || connection.ping().await.is_ok()) })
        })
}

/// Returns the connection settings. The server cancels a slow statement shortly before the client's timeout: then the statement
/// certainly changed nothing.
pub(super) fn options(options: PgConnectOptions, timeout: Duration) -> PgConnectOptions {
    let given_up = (timeout * 4 / 5).max(Duration::from_millis(1)).as_millis().to_string();
    let settings = [("default_transaction_isolation", "read committed"), ("statement_timeout", &given_up)];
    let named = options.get_application_name().is_some();
    let options = if named { options } else { options.application_name("onceward") };
    options.options(settings)
}
