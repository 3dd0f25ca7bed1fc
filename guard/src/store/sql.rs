//! The store on PostgreSQL or SQLite: each verb is one atomic step on one row, and the database's own time says what is over.

mod address;
mod base;
mod cleaner;
mod dialect;
mod failure;
mod file;
mod file_clock;
mod migration;
mod opened_file;
mod postgres;
mod sqlite;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::address::Address;
use self::base::{Asked, Base};
pub(crate) use self::cleaner::keep_clean;
pub use self::dialect::Dialect;
pub(crate) use self::dialect::{Answer, Row};
use self::dialect::{Question, Verb};
pub use self::failure::SqlError;
pub(crate) use self::failure::{
    Failure, asks_for_a_repetition, has_failed_already, has_waited_in_vain, is_prepared_for_another_shape,
    wants_a_repetition,
};
pub use self::migration::Migrated;
use self::opened_file::{InFile, OpenedFile};
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
    base: Arc<dyn Asked>,
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
        let base: Arc<dyn Asked> = match Address::parse(address)? {
            Address::Postgres(options) => {
                Base::open(postgres::pool(timeout), postgres::options(options, timeout)).await?
            }
            Address::Sqlite(options) => {
                let is_there = file::examine(options.get_filename())?;
                let file = OpenedFile::at(options.get_filename());
                let opened = Base::open(sqlite::pool(), sqlite::options(options, timeout)).await;
                let base = opened.map_err(|error| match error {
                    SqlError::NoRights(_) if !is_there => SqlError::NotMigrated,
                    error => error,
                })?;
                InFile::new(base, file)
            }
        };
        Ok(Self { base, prefix: "onceward".to_owned(), timeout })
    }

    /// Whether this is an address, without going there.
    ///
    /// # Errors
    /// If it is none.
    pub fn check_address(address: &str) -> Result<(), SqlError> {
        Address::parse(address).map(drop)
    }

    /// Makes the tables where they are missing, updates those of an earlier version, and otherwise changes nothing. A file of SQLite is made
    /// as well. Processes of the earlier version that still run go on until they are started again.
    ///
    /// # Errors
    /// If the address cannot be read, the database cannot be reached, or what is there has another shape.
    pub async fn migrate(address: &str) -> Result<Migrated, SqlError> {
        migration::migrate(Address::parse(address)?).await
    }

    /// What [`migrate`](Self::migrate) runs, for whoever runs it by other means.
    ///
    /// # Errors
    /// If the address cannot be read.
    pub fn migration(address: &str) -> Result<&'static str, SqlError> {
        Ok(migration::script(&Address::parse(address)?))
    }

    /// What every name begins with: `onceward`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    async fn ask(&self, question: Question, deadline: Instant) -> Result<Answer, StoreError> {
        Ok(Arc::clone(&self.base).ask(question, deadline).await?)
    }

    /// Asks until the answer says one thing or the other. Where it says neither, the statement has waited for another one, has
    /// certainly changed nothing, and was told how things were before.
    async fn settled<T>(&self, question: Question, read: impl Fn(Answer) -> Option<T> + Send) -> Result<T, StoreError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some(settled) = read(self.ask(question.clone(), deadline).await?) {
                return Ok(settled);
            }
            if Instant::now() >= deadline {
                return Err(Failure::Contended.into());
            }
        }
    }

    async fn compare(&self, question: Question) -> Result<Compared, StoreError> {
        let held = question.held.clone();
        let read = |Answer { is_done, there }: Answer| match there {
            _ if is_done => Some(Compared::Done),
            Some(there) if there == held => None,
            Some(there) => Some(Compared::Found(there.into())),
            None => Some(Compared::Gone),
        };
        self.settled(question, read).await
    }

    fn question(&self, verb: Verb, ticket: &Ticket) -> Question {
        Question { verb, name: ticket.name(&self.prefix), held: Vec::new(), value: Vec::new(), millis: 0 }
    }
}

#[async_trait]
impl Store for Sql {
    async fn insert(&self, ticket: &Ticket, value: &[u8], ttl: Duration) -> Result<Option<Bytes>, StoreError> {
        let question = Question { value: value.to_vec(), millis: millis(ttl), ..self.question(Verb::Insert, ticket) };
        let read = |Answer { is_done, there }| if is_done { Some(None) } else { there.map(|there| Some(there.into())) };
        self.settled(question, read).await
    }

    async fn take(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        let answer = self.ask(self.question(Verb::Take, ticket), Instant::now() + self.timeout).await?;
        Ok(answer.there.map(Bytes::from))
    }

    async fn swap(&self, ticket: &Ticket, held: &[u8], value: &[u8], ttl: Duration) -> Result<Compared, StoreError> {
        let question = self.question(Verb::Swap, ticket);
        self.compare(Question { held: held.to_vec(), value: value.to_vec(), millis: millis(ttl), ..question }).await
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8]) -> Result<Compared, StoreError> {
        self.compare(Question { held: held.to_vec(), ..self.question(Verb::Remove, ticket) }).await
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        let answer = self.ask(self.question(Verb::Look, ticket), Instant::now() + self.timeout).await?;
        Ok(answer.there.map(Bytes::from))
    }

    fn epoch(&self, _ticket: &Ticket) -> Option<Epoch> {
        Some(self.base.epoch())
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
