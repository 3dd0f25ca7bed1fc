//! The store on PostgreSQL or SQLite. Each verb is one atomic step on one row, and the database's own clock decides what has expired.

mod address;
mod dialect;
mod error;
mod migrate;
mod pool;
mod postgres;
mod sqlite;
mod sqlite_clock;
mod sqlite_file;
mod sqlite_path;
mod sweep;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::address::SqlAddress;
pub use self::dialect::Dialect;
use self::dialect::{Operation, SqlVerb};
pub(crate) use self::dialect::{RecordRow, StatementOutcome};
pub use self::error::SqlError;
pub(crate) use self::error::{
    StatementError, has_failed_already, is_any_serialization_failure, is_serialization_failure, lock_timed_out,
};
pub use self::migrate::MigrationOutcome;
use self::pool::{SqlBackend, SqlPool};
use self::sqlite_file::{SqliteFile, SqliteFileBackend};
pub(crate) use self::sweep::keep_clean;
use super::{Bytes, Compared, Epoch, Room, Store, StoreError, async_trait};
use crate::ticket::Ticket;

/// A store in an SQL database. It outlives every process and is shared by all of them.
///
/// ```no_run
/// use onceward::store::Sql;
///
/// # async fn open() -> Result<(), onceward::store::SqlError> {
/// Sql::migrate("postgres://shop@127.0.0.1/shop").await?;
/// let store = Sql::open("postgres://shop@127.0.0.1/shop").await?;
/// # Ok(())
/// # }
/// ```
///
/// `sqlite:path` is a file for the processes of one machine; `postgres://` is a server for the processes of many machines.
/// [`migrate`](Self::migrate) or `onceward migrate` creates the tables. An expired record is absent for every verb at once, by the
/// clock of the server or of the file; its row is deleted a little later, in small batches.
///
/// A SQLite file uses the boot clock of its machine, so setting the wall clock does not affect its records; only after a reboot does
/// the wall clock determine how much time has passed. If a file is deleted or replaced while a process has it open, every verb of that
/// process fails until the process restarts: other processes would use another file, and accept again what was accepted here.
///
/// Statements are never retried once they may have been executed: a statement whose reply was lost is reported as
/// [`StoreError::Unknown`].
#[derive(Clone)]
pub struct Sql {
    backend: Arc<dyn SqlBackend>,
    prefix: String,
    timeout: Duration,
}

impl Sql {
    /// The default timeout of a verb; change it with [`open_within`](Self::open_within).
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(250);

    /// Opens a store at this address. A background thread that runs nothing else opens and drives the connections, so a handler that
    /// blocks its own thread does not stall them.
    ///
    /// # Errors
    /// If the address cannot be parsed, the database cannot be reached, or its tables do not exist.
    pub async fn open(address: &str) -> Result<Self, SqlError> {
        Self::open_within(address, Self::DEFAULT_TIMEOUT).await
    }

    /// Like [`open`](Self::open), with a timeout for each verb, at most one hour. The timeout includes waiting for a connection.
    /// PostgreSQL itself cancels a statement shortly before the timeout, so that its outcome is known.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub async fn open_within(address: &str, timeout: Duration) -> Result<Self, SqlError> {
        let timeout = timeout.min(Duration::from_secs(3600));
        let command = address::command(address);
        let backend: Arc<dyn SqlBackend> = match SqlAddress::parse(address)? {
            SqlAddress::Postgres(options) => {
                SqlPool::open(postgres::pool(timeout), postgres::options(options, timeout), timeout, command).await?
            }
            SqlAddress::Sqlite(options) => {
                let is_there = sqlite_path::examine(options.get_filename())?;
                let file = SqliteFile::at(options.get_filename());
                let missing = SqlError::NotMigrated { command: command.clone() };
                let opened = SqlPool::open(sqlite::pool(), sqlite::options(options, timeout), timeout, command).await;
                let backend = opened.map_err(|error| match error {
                    SqlError::NoRights(_) if !is_there => missing,
                    error => error,
                })?;
                SqliteFileBackend::new(backend, file)
            }
        };
        Ok(Self { backend, prefix: "onceward".to_owned(), timeout })
    }

    /// Checks that the address can be parsed, without connecting.
    ///
    /// # Errors
    /// If the address cannot be parsed.
    pub fn check_address(address: &str) -> Result<(), SqlError> {
        SqlAddress::parse(address).map(drop)
    }

    /// Creates missing tables and updates those of an earlier version; otherwise changes nothing. Creates the SQLite file too, if it is
    /// missing. Running processes of the earlier version continue to work until they are restarted.
    ///
    /// # Errors
    /// If the address cannot be parsed, the database cannot be reached, or the existing tables have another schema.
    pub async fn migrate(address: &str) -> Result<MigrationOutcome, SqlError> {
        let migrated = migrate::migrate(SqlAddress::parse(address)?).await;
        migrated.map_err(|error| error.with_command(|| address::command(address)))
    }

    /// Returns the script that [`migrate`](Self::migrate) runs, for other migration tools.
    ///
    /// # Errors
    /// If the address cannot be parsed.
    pub fn migration(address: &str) -> Result<&'static str, SqlError> {
        Ok(migrate::script(&SqlAddress::parse(address)?))
    }

    /// Sets the prefix of every record name. Default: `onceward`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    async fn ask(&self, operation: Operation, deadline: Instant) -> Result<StatementOutcome, StoreError> {
        Ok(Arc::clone(&self.backend).ask(operation, deadline).await?)
    }

    /// Repeats a statement until its result is conclusive. An inconclusive result means that the statement waited for a concurrent one,
    /// certainly changed nothing, and read the state from before.
    async fn settled<T>(
        &self,
        operation: Operation,
        read: impl Fn(StatementOutcome) -> Option<T> + Send,
    ) -> Result<T, StoreError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some(settled) = read(self.ask(operation.clone(), deadline).await?) {
                return Ok(settled);
            }
            if Instant::now() >= deadline {
                return Err(StatementError::Contended.into());
            }
        }
    }

    async fn compare(&self, operation: Operation, epoch: Option<Epoch>) -> Result<Compared, StoreError> {
        if epoch.is_some_and(|epoch| epoch != self.backend.epoch()) {
            return Ok(Compared::Stale);
        }
        let held = operation.held.clone();
        let read = |StatementOutcome { is_done, there }: StatementOutcome| match there {
            _ if is_done => Some(Compared::Done),
            Some(there) if there == held => None,
            Some(there) => Some(Compared::Found(there.into())),
            None => Some(Compared::Gone),
        };
        self.settled(operation, read).await
    }

    fn operation(&self, verb: SqlVerb, ticket: &Ticket) -> Operation {
        Operation { verb, name: ticket.name(&self.prefix), held: Vec::new(), value: Vec::new(), millis: 0 }
    }
}

#[async_trait]
impl Store for Sql {
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration, _: Room) -> Result<Option<Bytes>, StoreError> {
        let operation =
            Operation { value: value.to_vec(), millis: millis(ttl), ..self.operation(SqlVerb::Insert, ticket) };
        let read = |StatementOutcome { is_done, there }| {
            if is_done { Some(None) } else { there.map(|there| Some(there.into())) }
        };
        self.settled(operation, read).await
    }

    async fn swap(
        &self,
        ticket: &Ticket,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
        _: Room,
        epoch: Option<Epoch>,
    ) -> Result<Compared, StoreError> {
        let operation = self.operation(SqlVerb::Swap, ticket);
        let operation = Operation { held: held.to_vec(), value: value.to_vec(), millis: millis(ttl), ..operation };
        self.compare(operation, epoch).await
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8], epoch: Option<Epoch>) -> Result<Compared, StoreError> {
        self.compare(Operation { held: held.to_vec(), ..self.operation(SqlVerb::Remove, ticket) }, epoch).await
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        let answer = self.ask(self.operation(SqlVerb::Look, ticket), Instant::now() + self.timeout).await?;
        Ok(answer.there.map(Bytes::from))
    }

    fn epoch(&self, _ticket: &Ticket) -> Option<Epoch> {
        Some(self.backend.epoch())
    }
}

impl fmt::Debug for Sql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sql").field("prefix", &self.prefix).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Converts to milliseconds: at least one, and at most what a database can add to a timestamp.
pub(crate) fn millis(ttl: Duration) -> i64 {
    const CENTURY: i64 = 100 * 365 * 24 * 60 * 60 * 1000;
    i64::try_from(ttl.as_millis()).unwrap_or(CENTURY).clamp(1, CENTURY)
}
