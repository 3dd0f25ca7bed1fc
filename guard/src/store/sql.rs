//! The store on PostgreSQL or SQLite: each verb is one atomic step on one row, and the database's own time says what is over.

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
    StatementError, asks_for_a_repetition, has_failed_already, has_waited_in_vain, wants_a_repetition,
};
pub use self::migrate::MigrationOutcome;
use self::pool::{SqlBackend, SqlPool};
use self::sqlite_file::{SqliteFile, SqliteFileBackend};
pub(crate) use self::sweep::keep_clean;
use super::{Bytes, Compared, Epoch, Store, StoreError, async_trait};
use crate::ticket::Ticket;

/// A store in a database, which outlives every process and is shared by all of them.
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
/// `sqlite:path` is a file, for the processes of one machine; `postgres://` a server, for those of many. Its tables are made by
/// [`migrate`](Self::migrate), or by `onceward migrate`. What has expired is absent at once for every verb, by the clock of the
/// server, or by the time of the file, and is removed a little later, a few rows at a time. A file goes by the boot clock of its machine, so
/// that nothing happens to its records when the wall clock is set; only after a restart of the machine does the wall clock say how much time has passed.
/// A file that is deleted or replaced while a process has it open is an error in that process until it is started again: other processes
/// would use another file, and accept again what was accepted here.
///
/// Nothing is ever sent twice: a statement whose answer was lost is reported as [`StoreError::Unknown`].
#[derive(Clone)]
pub struct Sql {
    backend: Arc<dyn SqlBackend>,
    prefix: String,
    timeout: Duration,
}

impl Sql {
    /// How long a verb may take, unless [`open_within`](Self::open_within) says otherwise.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(250);

    /// A store at this address. Connections are made and driven on a thread that runs nothing else, so that a handler that
    /// blocks its own thread does not stop them.
    ///
    /// # Errors
    /// If the address cannot be read, the database cannot be reached, or its tables have not been made.
    pub async fn open(address: &str) -> Result<Self, SqlError> {
        Self::open_within(address, Self::DEFAULT_TIMEOUT).await
    }

    /// The same, for a store whose verbs may take this long, waiting for a connection included; an hour at most. A statement that
    /// takes longer is given up by PostgreSQL itself, a moment before, so that its end is known.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub async fn open_within(address: &str, timeout: Duration) -> Result<Self, SqlError> {
        let timeout = timeout.min(Duration::from_secs(3600));
        let backend: Arc<dyn SqlBackend> = match SqlAddress::parse(address)? {
            SqlAddress::Postgres(options) => {
                SqlPool::open(postgres::pool(timeout), postgres::options(options, timeout)).await?
            }
            SqlAddress::Sqlite(options) => {
                let is_there = sqlite_path::examine(options.get_filename())?;
                let file = SqliteFile::at(options.get_filename());
                let opened = SqlPool::open(sqlite::pool(), sqlite::options(options, timeout)).await;
                let backend = opened.map_err(|error| match error {
                    SqlError::NoRights(_) if !is_there => SqlError::NotMigrated,
                    error => error,
                })?;
                SqliteFileBackend::new(backend, file)
            }
        };
        Ok(Self { backend, prefix: "onceward".to_owned(), timeout })
    }

    /// Whether this is an address, without going there.
    ///
    /// # Errors
    /// If it is none.
    pub fn check_address(address: &str) -> Result<(), SqlError> {
        SqlAddress::parse(address).map(drop)
    }

    /// Makes the tables where they are missing, updates those of an earlier version, and otherwise changes nothing. A file of SQLite is made
    /// as well. Processes of the earlier version that still run go on until they are started again.
    ///
    /// # Errors
    /// If the address cannot be read, the database cannot be reached, or what is there has another shape.
    pub async fn migrate(address: &str) -> Result<MigrationOutcome, SqlError> {
        migrate::migrate(SqlAddress::parse(address)?).await
    }

    /// What [`migrate`](Self::migrate) runs, for whoever runs it by other means.
    ///
    /// # Errors
    /// If the address cannot be read.
    pub fn migration(address: &str) -> Result<&'static str, SqlError> {
        Ok(migrate::script(&SqlAddress::parse(address)?))
    }

    /// What every name begins with: `onceward`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    async fn ask(&self, operation: Operation, deadline: Instant) -> Result<StatementOutcome, StoreError> {
        Ok(Arc::clone(&self.backend).ask(operation, deadline).await?)
    }

    /// Asks until the answer says one thing or the other. Where it says neither, the statement has waited for another one, has
    /// certainly changed nothing, and was told how things were before.
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

    async fn compare(&self, operation: Operation) -> Result<Compared, StoreError> {
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
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        let operation =
            Operation { value: value.to_vec(), millis: millis(ttl), ..self.operation(SqlVerb::Insert, ticket) };
        let read = |StatementOutcome { is_done, there }| {
            if is_done { Some(None) } else { there.map(|there| Some(there.into())) }
        };
        self.settled(operation, read).await
    }

    async fn take(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        let answer = self.ask(self.operation(SqlVerb::Take, ticket), Instant::now() + self.timeout).await?;
        Ok(answer.there.map(Bytes::from))
    }

    async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration) -> Result<Compared, StoreError> {
        let operation = self.operation(SqlVerb::Swap, ticket);
        self.compare(Operation { held: held.to_vec(), value: value.to_vec(), millis: millis(ttl), ..operation }).await
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8]) -> Result<Compared, StoreError> {
        self.compare(Operation { held: held.to_vec(), ..self.operation(SqlVerb::Remove, ticket) }).await
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

/// At least one, and no more than a database can add to the time.
pub(crate) fn millis(ttl: Duration) -> i64 {
    const CENTURY: i64 = 100 * 365 * 24 * 60 * 60 * 1000;
    i64::try_from(ttl.as_millis()).unwrap_or(CENTURY).clamp(1, CENTURY)
}
