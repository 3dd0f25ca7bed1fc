//! The way to a database: connections that are made and driven on the background thread.

use std::cmp::Ordering;
use std::sync::atomic::{self, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::{ConnectOptions, Connection, Pool};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::cleaner::Cleaner;
use super::dialect::{Answer, Dialect, Question, Statements};
use super::failure::{Failure, SqlError, leaves_the_connection};
use crate::runtime;
use crate::store::async_trait;

/// How long a new connection may take until it can be used.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// How often the epoch is looked at, and how long that may take.
const LOOK: Duration = Duration::from_secs(10);
/// What an answer gets beyond its time, since the database gives up a statement by itself a moment before.
const BEYOND: Duration = Duration::from_millis(10);

/// A database of either kind.
#[async_trait]
pub(super) trait Asked: Send + Sync + 'static {
    async fn ask(self: Arc<Self>, question: Question, deadline: Instant) -> Result<Answer, Failure>;

    fn epoch(&self) -> [u8; 8];
}

/// A database.
pub(super) struct Base<DB: Dialect> {
    pool: Pool<DB>,
    epoch: AtomicU64,
}

impl<DB: Dialect> Base<DB> {
    /// Goes there, and looks whether its tables are as they should be.
    pub(super) async fn open(
        pool: PoolOptions<DB>,
        options: <DB::Connection as Connection>::Options,
    ) -> Result<Arc<Self>, SqlError> {
        let (tell, told) = oneshot::channel();
        runtime::spawn(async move {
            // Whoever asked may have gone.
            let _ = tell.send(Self::opened(pool, options).await);
        });
        told.await.unwrap_or_else(|_| Err(SqlError::Unreachable("the background thread has ended".to_owned())))
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
        let base = Arc::new(Self { pool: pool.connect_lazy_with(options), epoch: AtomicU64::new(epoch) });
        runtime::spawn(keep_clean(Arc::downgrade(&base)));
        runtime::spawn(watch_epoch(Arc::downgrade(&base)));
        Ok(base)
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

    async fn answer(&self, question: &Question, deadline: Instant) -> Result<Answer, Failure> {
        // In a task of its own, so that a connection that takes its time is there for the next one.
        let acquired = timeout_at(deadline, tokio::spawn(self.pool.acquire())).await;
        let mut connection = match acquired {
            Ok(Ok(Ok(connection))) => connection,
            Ok(Ok(Err(error))) => return Err(Failure::NoConnection(error.to_string())),
            Ok(Err(ended)) => return Err(Failure::NoConnection(ended.to_string())),
            Err(_) => return Err(Failure::NoConnection("none was free or could be made in time".to_owned())),
        };
        match timeout_at(deadline + BEYOND, <DB as Statements>::ask(&mut connection, question)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                if !leaves_the_connection(&error) {
                    connection.close_on_drop();
                }
                Err(error.into())
            }
            Err(_) => {
                connection.close_on_drop();
                Err(Failure::TimedOut)
            }
        }
    }
}

#[async_trait]
impl<DB: Dialect> Asked for Base<DB> {
    async fn ask(self: Arc<Self>, question: Question, deadline: Instant) -> Result<Answer, Failure> {
        let (tell, told) = oneshot::channel();
        runtime::spawn(async move {
            // Whoever asked may have gone.
            let _ = tell.send(self.answer(&question, deadline).await);
        });
        told.await.unwrap_or(Err(Failure::TimedOut))
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

/// Removes what has expired until the store is dropped, which ends it between any two batches.
async fn keep_clean<DB: Dialect>(base: Weak<Base<DB>>) {
    let mut cleaner = Cleaner::new();
    loop {
        let Some(base) = base.upgrade() else { return };
        let pause = cleaner.clean(&base.pool).await;
        drop(base);
        sleep(pause).await;
    }
}

/// Looks whether the epoch is another one, whatever else there is to do, until the store is dropped.
async fn watch_epoch<DB: Dialect>(base: Weak<Base<DB>>) {
    loop {
        sleep(LOOK).await;
        let Some(base) = base.upgrade() else { return };
        base.look_at_epoch().await;
    }
}
