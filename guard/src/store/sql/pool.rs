//! The connection pool, driven on the background thread.

use std::cmp::Ordering;
use std::sync::atomic::{self, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::{ConnectOptions, Connection, Pool};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::dialect::{Dialect, Operation, StatementOutcome, Statements};
use super::error::{SqlError, StatementError, leaves_the_connection};
use super::sweep::Sweeper;
use crate::runtime;
use crate::store::async_trait;

/// How long a new connection may take until it can be used.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// How often the epoch is read, and how long that may take.
const LOOK: Duration = Duration::from_secs(10);
/// How much longer than its deadline a response is waited for: the database itself aborts a statement a moment before.
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
    epoch: AtomicU64,
}

impl<DB: Dialect> SqlPool<DB> {
    /// Connects, and checks the tables.
    pub(super) async fn open(
        pool: PoolOptions<DB>,
        options: <DB::Connection as Connection>::Options,
    ) -> Result<Arc<Self>, SqlError> {
        let (sender, receiver) = oneshot::channel();
        runtime::spawn(async move {
            // The caller may have gone.
            let _ = sender.send(Self::opened(pool, options).await);
        });
        receiver.await.unwrap_or_else(|_| Err(SqlError::Unreachable("the background thread has ended".to_owned())))
    }

    async fn opened(
        pool: PoolOptions<DB>,
        options: <DB::Connection as Connection>::Options,
    ) -> Result<Arc<Self>, SqlError> {
        let options = options.disable_statement_logging();
        // Not through the pool, which would keep the reason to itself.
        let connect = timeout(CONNECT, options.connect()).await;
        let connect = connect.map_err(|_| SqlError::Unreachable(format!("no connection within {CONNECT:?}")))?;
        let mut connection = connect.map_err(SqlError::from)?;
        let asked = timeout(CONNECT, async {
            let epoch = epoch::<DB>(&mut connection).await?;
            check_shape::<DB>(&mut connection).await?;
            Ok(epoch)
        });
        let epoch = asked.await.map_err(|_| SqlError::Unreachable(format!("no answer within {CONNECT:?}")))??;
        let _ = connection.close().await;
        let database = Arc::new(Self { pool: pool.connect_lazy_with(options), epoch: AtomicU64::new(epoch) });
        runtime::spawn(keep_sweeping(Arc::downgrade(&database)));
        runtime::spawn(watch_epoch(Arc::downgrade(&database)));
        Ok(database)
    }

    /// Notes the epoch that is stored now, if that is told in time.
    async fn look_at_epoch(&self) {
        let Ok(Ok(mut connection)) = timeout(LOOK, self.pool.acquire()).await else { return };
        match timeout(LOOK, epoch::<DB>(&mut connection)).await {
            Ok(Ok(epoch)) => self.epoch.store(epoch, atomic::Ordering::Relaxed),
            Ok(Err(error)) => tracing::debug!(%error, "the epoch could not be looked at"),
            Err(_) => connection.close_on_drop(),
        }
    }

    async fn answer(&self, operation: &Operation, deadline: Instant) -> Result<StatementOutcome, StatementError> {
        // In a task of its own, so that a connection that takes its time is there for the next one.
        let acquired = timeout_at(deadline, tokio::spawn(self.pool.acquire())).await;
        let mut connection = match acquired {
            Ok(Ok(Ok(connection))) => connection,
            Ok(Ok(Err(error))) => {
                return Err(StatementError::NoConnection { reason: error.to_string(), cause: Some(error) });
            }
            Ok(Err(ended)) => return Err(StatementError::no_connection(ended)),
            Err(_) => return Err(StatementError::no_connection("none was free or could be made in time")),
        };
        match timeout_at(deadline + BEYOND, <DB as Statements>::ask(&mut connection, operation)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                if !leaves_the_connection(&error) {
                    connection.close_on_drop();
                }
                Err(error.into())
            }
            Err(_) => {
                connection.close_on_drop();
                Err(StatementError::TimedOut)
            }
        }
    }
}

#[async_trait]
impl<DB: Dialect> SqlBackend for SqlPool<DB> {
    async fn ask(self: Arc<Self>, operation: Operation, deadline: Instant) -> Result<StatementOutcome, StatementError> {
        let (sender, receiver) = oneshot::channel();
        runtime::spawn(async move {
            // The caller may have gone.
            let _ = sender.send(self.answer(&operation, deadline).await);
        });
        receiver.await.unwrap_or(Err(StatementError::TimedOut))
    }

    fn epoch(&self) -> [u8; 8] {
        self.epoch.load(atomic::Ordering::Relaxed).to_be_bytes()
    }
}

/// The epoch that is stored, if the tables are of this version.
async fn epoch<DB: Dialect>(connection: &mut DB::Connection) -> Result<u64, SqlError> {
    let (version, epoch) = DB::version(connection).await.map_err(SqlError::from)?;
    check_version::<DB>(version)?;
    let epoch: [u8; 8] = epoch.try_into().map_err(|_| SqlError::OtherShape("an epoch has eight bytes".to_owned()))?;
    Ok(u64::from_be_bytes(epoch))
}

/// Tables of an earlier version can be updated, and those of a later one are left alone.
pub(super) fn check_version<DB: Dialect>(found: i32) -> Result<(), SqlError> {
    match found.cmp(&DB::VERSION) {
        Ordering::Equal => Ok(()),
        Ordering::Less => Err(SqlError::Outdated { found, needed: DB::VERSION }),
        Ordering::Greater => {
            Err(SqlError::OtherShape(format!("they are of version {found}, and this is {}", DB::VERSION)))
        }
    }
}

/// What is removed there has to be ours.
pub(super) async fn check_shape<DB: Dialect>(connection: &mut DB::Connection) -> Result<(), SqlError> {
    match DB::oddity(connection).await.map_err(SqlError::from)? {
        Some(oddity) => Err(SqlError::OtherShape(oddity)),
        None => Ok(()),
    }
}

/// Sweeps expired rows until the store is dropped, which ends it between any two batches.
async fn keep_sweeping<DB: Dialect>(database: Weak<SqlPool<DB>>) {
    let mut sweeper = Sweeper::new();
    loop {
        let Some(database) = database.upgrade() else { return };
        let pause = sweeper.sweep(&database.pool).await;
        drop(database);
        sleep(pause).await;
    }
}

/// Looks whether the epoch is another one, whatever else there is to do, until the store is dropped.
async fn watch_epoch<DB: Dialect>(database: Weak<SqlPool<DB>>) {
    loop {
        sleep(LOOK).await;
        let Some(database) = database.upgrade() else { return };
        database.look_at_epoch().await;
    }
}
