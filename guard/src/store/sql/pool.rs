//! The connection pool, driven on the background thread.

use std::cmp::Ordering;
use std::sync::atomic::{self, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use onceward_api::duration::spaced;
use sqlx::pool::PoolOptions;
use sqlx::{ConnectOptions, Connection, Pool};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::dialect::{Dialect, Operation, StatementOutcome, Statements};
use super::error::{SqlError, StatementError, leaves_the_connection};
use super::sweep::Sweeper;
use crate::runtime;
use crate::store::async_trait;

/// The timeout for opening a connection.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// The interval at which the epoch is read, and the timeout of that.
const LOOK: Duration = Duration::from_secs(10);
/// The extra time for a result after its deadline: the database itself cancels a statement shortly before.
const BEYOND: Duration = Duration::from_millis(10);

/// A database of either dialect.
#[async_trait]
pub(super) trait SqlBackend: Send + Sync + 'static {
    async fn ask(self: Arc<Self>, operation: Operation, deadline: Instant) -> Result<StatementOutcome, StatementError>;

    fn epoch(&self) -> [u8; 8];
}

/// The connection pool of one database.
pub(super) struct SqlPool<DB: Dialect> {
    pool: Pool<DB>,
    /// The timeout of a verb.
    timeout: Duration,
    epoch: AtomicU64,
    /// The command that creates the tables.
    command: String,
}

impl<DB: Dialect> SqlPool<DB> {
    /// Connects, and checks the tables.
    pub(super) async fn open(
        pool: PoolOptions<DB>,
        options: <DB::Connection as Connection>::Options,
        timeout: Duration,
        command: String,
    ) -> Result<Arc<Self>, SqlError> {
        let (sender, receiver) = oneshot::channel();
        runtime::spawn(async move {
            // The caller may have been dropped.
            let _ = sender.send(Self::opened(pool, options, timeout, command).await);
        });
        receiver.await.unwrap_or_else(|_| Err(SqlError::Unreachable("the background thread has ended".to_owned())))
    }

    async fn opened(
        pool: PoolOptions<DB>,
        options: <DB::Connection as Connection>::Options,
        verb_timeout: Duration,
        command: String,
    ) -> Result<Arc<Self>, SqlError> {
        let options = options.disable_statement_logging();
        // Not through the pool, which would hide the reason of a failure.
        let connect = timeout(CONNECT, options.connect()).await;
        let connect =
            connect.map_err(|_| SqlError::Unreachable(format!("no connection within {}", spaced(CONNECT))))?;
        let mut connection = connect.map_err(SqlError::from)?;
        let asked = timeout(CONNECT, async {
            let epoch = epoch::<DB>(&mut connection).await?;
            check_shape::<DB>(&mut connection).await?;
            Ok(epoch)
        });
        let epoch = asked.await.map_err(|_| SqlError::Unreachable(format!("no reply within {}", spaced(CONNECT))))?;
        let epoch = epoch.map_err(|error: SqlError| error.with_command(|| command.clone()))?;
        let _ = connection.close().await;
        let pool = pool.connect_lazy_with(options);
        let database = Arc::new(Self { pool, timeout: verb_timeout, epoch: AtomicU64::new(epoch), command });
        runtime::spawn(keep_sweeping(Arc::downgrade(&database)));
        runtime::spawn(watch_epoch(Arc::downgrade(&database)));
        Ok(database)
    }

    /// Reads the epoch from the database, and caches it if the database answers in time.
    async fn look_at_epoch(&self) {
        let Ok(Ok(mut connection)) = timeout(LOOK, self.pool.acquire()).await else { return };
        match timeout(LOOK, epoch::<DB>(&mut connection)).await {
            Ok(Ok(epoch)) => self.epoch.store(epoch, atomic::Ordering::Relaxed),
            Ok(Err(error)) => tracing::debug!(%error, "could not read the epoch"),
            Err(_) => connection.close_on_drop(),
        }
    }

    async fn answer(&self, operation: &Operation, deadline: Instant) -> Result<StatementOutcome, StatementError> {
        // In a separate task, so that a connection that opens too late for this request is available to the next.
        let acquired = timeout_at(deadline, tokio::spawn(self.pool.acquire())).await;
        let mut connection = match acquired {
            Ok(Ok(Ok(connection))) => connection,
            Ok(Ok(Err(error))) => {
                return Err(StatementError::NoConnection { reason: error.to_string(), cause: Some(error) });
            }
            Ok(Err(ended)) => return Err(StatementError::no_connection(ended)),
            Err(_) => {
                let timeout = spaced(self.timeout);
                return Err(StatementError::no_connection(format!("the pool had none to offer within {timeout}")));
            }
        };
        match timeout_at(deadline + BEYOND, <DB as Statements>::ask(&mut connection, operation)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                if !leaves_the_connection(&error) {
                    connection.close_on_drop();
                }
                Err(StatementError::from(error).with_command(&self.command))
            }
            Err(_) => {
                connection.close_on_drop();
                Err(StatementError::TimedOut(self.timeout))
            }
        }
    }
}

#[async_trait]
impl<DB: Dialect> SqlBackend for SqlPool<DB> {
    async fn ask(self: Arc<Self>, operation: Operation, deadline: Instant) -> Result<StatementOutcome, StatementError> {
        let (sender, receiver) = oneshot::channel();
        let timeout = self.timeout;
        runtime::spawn(async move {
            // The caller may have been dropped.
            let _ = sender.send(self.answer(&operation, deadline).await);
        });
        receiver.await.unwrap_or(Err(StatementError::TimedOut(timeout)))
    }

    fn epoch(&self) -> [u8; 8] {
        self.epoch.load(atomic::Ordering::Relaxed).to_be_bytes()
    }
}

/// Reads the epoch, if the tables have the required version.
async fn epoch<DB: Dialect>(connection: &mut DB::Connection) -> Result<u64, SqlError> {
    let (version, epoch) = DB::version(connection).await.map_err(SqlError::from)?;
    check_version::<DB>(version)?;
    let epoch: [u8; 8] = epoch
        .try_into()
        .map_err(|_| SqlError::OtherShape("onceward_schema.reign does not have eight bytes".to_owned()))?;
    Ok(u64::from_be_bytes(epoch))
}

/// Checks the version of the tables: an earlier one can be migrated, a later one is an error.
pub(super) fn check_version<DB: Dialect>(found: i32) -> Result<(), SqlError> {
    match found.cmp(&DB::VERSION) {
        Ordering::Equal => Ok(()),
        Ordering::Less => {
            Err(SqlError::Outdated { found, needed: DB::VERSION, command: super::address::command("…") })
        }
        Ordering::Greater => {
            Err(SqlError::OtherShape(format!("they have version {found}, and this version needs {}", DB::VERSION)))
        }
    }
}

/// Checks that the table of records was created by Onceward, since the sweep deletes rows from it.
pub(super) async fn check_shape<DB: Dialect>(connection: &mut DB::Connection) -> Result<(), SqlError> {
    match DB::oddity(connection).await.map_err(SqlError::from)? {
        Some(oddity) => Err(SqlError::OtherShape(oddity)),
        None => Ok(()),
    }
}

/// Sweeps expired rows until the store is dropped; stops between two batches.
async fn keep_sweeping<DB: Dialect>(database: Weak<SqlPool<DB>>) {
    let mut sweeper = Sweeper::new();
    loop {
        let Some(database) = database.upgrade() else { return };
        let pause = sweeper.sweep(&database.pool).await;
        drop(database);
        sleep(pause).await;
    }
}

/// Reads the epoch at a fixed interval, independently of other work, until the store is dropped.
async fn watch_epoch<DB: Dialect>(database: Weak<SqlPool<DB>>) {
    loop {
        sleep(LOOK).await;
        let Some(database) = database.upgrade() else { return };
        database.look_at_epoch().await;
    }
}
