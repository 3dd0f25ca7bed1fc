//! A database of a test's own, of either kind, with the tables that it names.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, SqliteConnection};
use tempfile::TempDir;
use uuid::Uuid;

use crate::postgres::PostgresServer;

/// How long a writer may wait for the others, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

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
