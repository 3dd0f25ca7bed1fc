//! The stores whose growth is measured, each with its server.

use std::path::Path;
use std::time::Duration;

use onceward::store::Sql;
use sqlx::{Connection as _, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::postgres_server::PostgresServer;
use crate::redis_server::RedisServer;
use crate::{Failure, cpu};

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Memory,
    Redis,
    Sqlite,
    Postgres,
}

impl StoreKind {
    pub(crate) const ALL: [Self; 4] = [Self::Memory, Self::Redis, Self::Sqlite, Self::Postgres];
    /// The stores whose cost should hardly grow.
    pub(crate) const WITH_GOALS: [Self; 2] = [Self::Memory, Self::Redis];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis => "Redis",
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }

    /// Returns the store with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The maximum number of records of a kind: filling a database with more takes too long.
    pub(crate) fn largest(self) -> u64 {
        match self {
            Self::Memory | Self::Redis => 10_000_000,
            Self::Sqlite | Self::Postgres => 1_000_000,
        }
    }

    /// The number of requests of one load of a route: few beside the records of the smallest store. A database waits for its disk for every
    /// request.
    pub(crate) fn requests(self) -> u64 {
        match self {
            Self::Memory | Self::Redis => 5_000,
            Self::Sqlite | Self::Postgres => 500,
        }
    }

    /// True if the store has a process, or several, besides the server under load.
    pub(crate) fn has_process(self) -> bool {
        matches!(self, Self::Redis | Self::Postgres)
    }
}

/// An empty store that was just started, and is removed when this is dropped.
pub(crate) enum ScaledStore {
    /// In the server under load.
    Memory,
    Redis(RedisServer),
    Sqlite(TempDir),
    Postgres(PostgresServer),
}

impl ScaledStore {
    pub(crate) async fn start(kind: StoreKind) -> Result<Self, Failure> {
        let store = match kind {
            StoreKind::Memory => Self::Memory,
            StoreKind::Redis => Self::Redis(RedisServer::start()?),
            StoreKind::Sqlite => Self::Sqlite(tempfile::tempdir()?),
            StoreKind::Postgres => Self::Postgres(PostgresServer::start()?),
        };
        if matches!(kind, StoreKind::Sqlite | StoreKind::Postgres) {
            Sql::migrate(&store.address()).await?;
        }
        Ok(store)
    }

    /// The name and version of the store; none for the memory store.
    pub(crate) async fn version(&mut self) -> Result<Option<String>, Failure> {
        match self {
            Self::Memory => Ok(None),
            Self::Redis(redis) => redis.version().map(Some),
            Self::Sqlite(_) => sqlite_version().await.map(Some),
            Self::Postgres(postgres) => postgres.version().await.map(Some),
        }
    }

    /// The address for the server under load; empty for the memory store.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Memory => String::new(),
            Self::Redis(redis) => redis.url(),
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path().join("records.db").display()),
            Self::Postgres(postgres) => postgres.url(),
        }
    }

    /// The CPU time of the store's own processes.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        match self {
            Self::Memory | Self::Sqlite(_) => Ok(Duration::ZERO),
            Self::Redis(redis) => cpu::of_threads(redis.id()),
            Self::Postgres(postgres) => cpu::of_family(postgres.id()),
        }
    }

    /// The bytes that the records use: resident memory of the server under load, memory of Redis, or size of file or table.
    pub(crate) async fn bytes(&mut self, server: u32) -> Result<u64, Failure> {
        match self {
            Self::Memory => resident(&std::fs::read_to_string(format!("/proc/{server}/status"))?),
            Self::Redis(redis) => used_memory(&redis.ask::<String>("INFO memory")?),
            Self::Sqlite(folder) => sqlite_bytes(&folder.path().join("records.db")).await,
            Self::Postgres(postgres) => postgres_bytes(&postgres.url()).await,
        }
    }
}

/// Parses the resident memory in `/proc/<process>/status`, without files.
fn resident(status: &str) -> Result<u64, Failure> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| format!("no RssAnon in {status}").into())
}

/// Parses `INFO memory`.
fn used_memory(info: &str) -> Result<u64, Failure> {
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    Ok(line.ok_or("Redis reports no used_memory")?.trim().parse()?)
}

async fn sqlite_version() -> Result<String, Failure> {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    let version: String = sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(format!("SQLite {version}"))
}

/// The size of the file, after the journal was copied into it.
async fn sqlite_bytes(file: &Path) -> Result<u64, Failure> {
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", file.display())).await?;
    sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await?;
    connection.close().await?;
    Ok(std::fs::metadata(file)?.len())
}

/// The size of the table and its indexes.
async fn postgres_bytes(url: &str) -> Result<u64, Failure> {
    let mut connection = PgConnection::connect(url).await?;
    let bytes: i64 =
        sqlx::query_scalar("SELECT pg_total_relation_size('onceward_records')").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(bytes.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_parsed_from_process_and_redis() {
        let status = "VmRSS:\t    9000 kB\nRssAnon:\t    8192 kB\nRssFile:\t     808 kB\n";
        assert_eq!(resident(status).unwrap(), 8192 * 1024);
        assert!(resident("VmRSS:\t 9000 kB\n").is_err());
        assert_eq!(used_memory("# Memory\r\nused_memory:123456\r\nused_memory_human:120K\r\n").unwrap(), 123_456);
        assert!(used_memory("used_memory_human:120K\r\n").is_err());
    }

    #[test]
    fn every_store_is_found_by_its_name() {
        assert!(StoreKind::ALL.into_iter().all(|kind| StoreKind::named(kind.name()) == Some(kind)));
        assert_eq!(StoreKind::named("none"), None);
    }
}
