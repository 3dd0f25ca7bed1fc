//! A database of a test's own, of either kind, with the tables that it names.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use onceward::store::Sql;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, SqliteConnection};
use tempfile::TempDir;
use uuid::Uuid;

use crate::postgres::PostgresServer;

/// How long a writer may wait for the others, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time of a file, where nobody sets the wall clock.
const FILE_TIME: &str = "(SELECT time_ms + CAST(unixepoch('subsec') * 1000 AS INTEGER) - wall_ms FROM onceward_clock)";

/// One in a real PostgreSQL.
pub struct Postgres {
    url: String,
    _server: Arc<PostgresServer>,
}

/// One in a file.
pub struct Sqlite {
    folder: TempDir,
}

impl Postgres {
    /// How a transaction begins that is going to write.
    pub const BEGIN: &str = "BEGIN";

    /// A new one.
    pub async fn with(tables: &str) -> Self {
        let server = server();
        let url = server.database(&format!("test_{}", Uuid::new_v4().simple())).await;
        let database = Self { url, _server: server };
        database.execute(tables).await;
        database
    }

    /// A connection to it.
    pub async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.expect("the server answers")
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Runs statements.
    pub async fn execute(&self, statements: &str) {
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut self.connection().await).await.expect("they run");
    }

    /// The one number that a query gives, which has to be a bigint.
    pub async fn number(&self, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut self.connection().await).await.expect("one number")
    }

    /// The one text that a query gives.
    pub async fn text(&self, query: &str) -> String {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut self.connection().await).await.expect("one text")
    }
}

impl Sqlite {
    /// How a transaction begins that is going to write.
    pub const BEGIN: &str = "BEGIN IMMEDIATE";

    /// A new one.
    pub async fn with(tables: &str) -> Self {
        let database = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        database.execute(tables).await;
        database
    }

    /// A connection to it.
    pub async fn connection(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new()
            .filename(self.folder.path().join("test.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(PATIENCE);
        options.connect().await.expect("the file opens")
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("test.db").display())
    }

    /// Runs statements.
    pub async fn execute(&self, statements: &str) {
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut self.connection().await).await.expect("they run");
    }

    /// The one number that a query gives.
    pub async fn number(&self, query: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut self.connection().await).await.expect("one number")
    }

    /// The one text that a query gives.
    pub async fn text(&self, query: &str) -> String {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut self.connection().await).await.expect("one text")
    }
}

/// One of either kind, with the tables of Onceward.
pub enum TestDatabase {
    /// In a real PostgreSQL.
    Postgres(Postgres),
    /// In a file.
    Sqlite(Sqlite),
}

impl TestDatabase {
    /// A new one of each kind.
    pub async fn both() -> [Self; 2] {
        let both = [Self::Postgres(Postgres::with("").await), Self::Sqlite(Sqlite::with("").await)];
        for database in &both {
            Sql::migrate(&database.url()).await.expect("the tables can be made");
        }
        both
    }

    /// Where it is.
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

    /// The one number that a query gives.
    pub async fn number(&self, query: &str) -> i64 {
        match self {
            Self::Postgres(database) => database.number(query).await,
            Self::Sqlite(database) => database.number(query).await,
        }
    }

    /// The time so many days from now, by the database's clock, as a record has it.
    pub fn in_days(&self, days: i64) -> String {
        match self {
            Self::Postgres(_) => format!("clock_timestamp() + {days} * interval '1 day'"),
            Self::Sqlite(_) => format!("{FILE_TIME} + {days} * 86400000"),
        }
    }

    /// For how many milliseconds a record is still valid, by the database's clock.
    pub fn left(&self) -> String {
        match self {
            Self::Postgres(_) => "(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint".to_owned(),
            Self::Sqlite(_) => format!("expires_at - {FILE_TIME}"),
        }
    }

    /// Begins another epoch, as after a backup was restored.
    pub async fn begin_epoch(&self) {
        let epoch = match self {
            Self::Postgres(_) => "decode('0102030405060708', 'hex')",
            Self::Sqlite(_) => "x'0102030405060708'",
        };
        self.execute(&format!("UPDATE onceward_schema SET reign = {epoch}")).await;
    }

    /// Adds so many records, which expire in so many days.
    pub async fn fill(&self, name: &str, count: usize, days: i64) {
        let expires_at = self.in_days(days);
        let numbers = format!("WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})");
        self.execute(&format!(
            "{numbers} INSERT INTO onceward_records SELECT '{name}-' || n, 'x', {expires_at} FROM n"
        ))
        .await;
    }
}

/// One server for all tests that run at the same time; it ends with the last of them.
fn server() -> Arc<PostgresServer> {
    static SHARED: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().expect("no test dies while it starts a server");
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(PostgresServer::start());
        *shared = Arc::downgrade(&server);
        server
    })
}
