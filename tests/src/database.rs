//! A fresh PostgreSQL or SQLite database for one test, with the given tables.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use onceward::store::Sql;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, SqliteConnection};
use tempfile::TempDir;
use uuid::Uuid;

use crate::postgres::PostgresServer;

/// Maximum time a SQLite writer waits for the others on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// SQL for the time of a SQLite file, for tests that do not set the wall clock.
const FILE_TIME: &str = "(SELECT time_ms + CAST(unixepoch('subsec') * 1000 AS INTEGER) - wall_ms FROM onceward_clock)";

/// A database on a real PostgreSQL server.
pub struct Postgres {
    url: String,
    _server: Arc<PostgresServer>,
}

/// A database in a SQLite file.
pub struct Sqlite {
    folder: TempDir,
}

impl Postgres {
    /// The statement that begins a writing transaction.
    pub const BEGIN: &str = "BEGIN";

    /// Creates a database with these tables.
    pub async fn with(tables: &str) -> Self {
        let server = server();
        let url = server.database(&format!("test_{}", Uuid::new_v4().simple())).await;
        let database = Self { url, _server: server };
        database.execute(tables).await;
        database
    }

    /// Opens a connection.
    pub async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.expect("the server answers")
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Runs statements.
    pub async fn execute(&self, statements: &str) {
        sqlx::raw_sql(AssertSqlSafe(statements))
            .execute(&mut self.connection().await)
            .await
            .expect("the statements run");
    }

    /// Returns the single number of a query, which must be a bigint.
    pub async fn number(&self, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut self.connection().await).await.expect("one number")
    }

    /// Returns the single text of a query.
    pub async fn text(&self, query: &str) -> String {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut self.connection().await).await.expect("one text")
    }
}

impl Sqlite {
    /// The statement that begins a writing transaction.
    pub const BEGIN: &str = "BEGIN IMMEDIATE";

    /// Creates a database with these tables.
    pub async fn with(tables: &str) -> Self {
        let database = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        database.execute(tables).await;
        database
    }

    /// Opens a connection.
    pub async fn connection(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new()
            .filename(self.folder.path().join("test.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(PATIENCE);
        options.connect().await.expect("the file opens")
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("test.db").display())
    }

    /// Runs statements.
    pub async fn execute(&self, statements: &str) {
        sqlx::raw_sql(AssertSqlSafe(statements))
            .execute(&mut self.connection().await)
            .await
            .expect("the statements run");
    }

    /// Returns the single number of a query.
    pub async fn number(&self, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut self.connection().await).await.expect("one number")
    }

    /// Returns the single text of a query.
    pub async fn text(&self, query: &str) -> String {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut self.connection().await).await.expect("one text")
    }
}

/// A database of either kind, with the tables of Onceward.
pub enum TestDatabase {
    /// On a real PostgreSQL server.
    Postgres(Postgres),
    /// In a SQLite file.
    Sqlite(Sqlite),
}

impl TestDatabase {
    /// Creates one database of each kind.
    pub async fn both() -> [Self; 2] {
        let both = [Self::Postgres(Postgres::with("").await), Self::Sqlite(Sqlite::with("").await)];
        for database in &both {
            Sql::migrate(&database.url()).await.expect("the tables are created");
        }
        both
    }

    /// Its URL.
    pub fn url(&self) -> String {
        match self {
            Self::Postgres(database) => database.url().to_owned(),
            Self::Sqlite(database) => database.url(),
        }
    }

    /// Runs statements.
    pub async fn execute(&self, statements: &str) {
        match self {
            Self::Postgres(database) => database.execute(statements).await,
            Self::Sqlite(database) => database.execute(statements).await,
        }
    }

    /// Returns the single number of a query.
    pub async fn number(&self, query: &str) -> i64 {
        match self {
            Self::Postgres(database) => database.number(query).await,
            Self::Sqlite(database) => database.number(query).await,
        }
    }

    /// Returns SQL for the time `days` from now by the database's clock, in the format of a record.
    pub fn in_days(&self, days: i64) -> String {
        match self {
            Self::Postgres(_) => format!("clock_timestamp() + {days} * interval '1 day'"),
            Self::Sqlite(_) => format!("{FILE_TIME} + {days} * 86400000"),
        }
    }

    /// Returns SQL for the milliseconds until a record expires, by the database's clock.
    pub fn left(&self) -> String {
        match self {
            Self::Postgres(_) => "(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint".to_owned(),
            Self::Sqlite(_) => format!("expires_at - {FILE_TIME}"),
        }
    }

    /// Begins a new epoch, as after a restored backup.
    pub async fn begin_epoch(&self) {
        let database = match self {
            Self::Postgres(_) => "PostgreSQL",
            Self::Sqlite(_) => "SQLite",
        };
        let row = format!("| {database} | `UPDATE ");
        let documented = include_str!("../../guard/docs/stores.md").lines().find_map(|line| line.strip_prefix(&row));
        let statement = documented.and_then(|rest| rest.strip_suffix("` |")).expect("a documented statement");
        self.execute(&format!("UPDATE {statement}")).await;
    }

    /// Adds `count` records that expire in `days` days.
    pub async fn fill(&self, name: &str, count: usize, days: i64) {
        let expires_at = self.in_days(days);
        let numbers = format!("WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})");
        self.execute(&format!(
            "{numbers} INSERT INTO onceward_records SELECT '{name}-' || n, 'x', {expires_at} FROM n"
        ))
        .await;
    }
}

/// Returns the server that all concurrent tests share; it ends with the last of them.
fn server() -> Arc<PostgresServer> {
    static SHARED: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().expect("no test panics while it starts a server");
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(PostgresServer::start());
        *shared = Arc::downgrade(&server);
        server
    })
}
