//! Deletion of expired rows, in small batches so that no other statement waits for it.

use std::time::Duration;

use sqlx::Pool;
use tokio::time::{Instant, timeout};

use super::dialect::{Dialect, SweepRange};

/// The interval between sweeps.
const EVERY: Duration = Duration::from_secs(10);
/// The timeout of one batch, and of waiting for a connection: a database that does not answer is tried again later.
const PATIENCE: Duration = Duration::from_secs(10);
/// The database's own timeout for a batch, whatever the connection's timeout is: it cancels the batch shortly before the client gives
/// up.
pub(super) const STATEMENT: Duration = Duration::from_secs(8);
/// The pause after a batch, as a multiple of its duration: four fifths of the time belong to the application.
const PAUSE: u32 = 4;
/// The minimum pause after a batch.
const SHORTEST: Duration = Duration::from_millis(5);

/// Deletes expired rows batch by batch.
pub(super) struct Sweeper {
    range: SweepRange,
}

impl Sweeper {
    pub(super) fn new() -> Self {
        Self { range: SweepRange::FIRST }
    }

    /// Deletes one batch, and returns how long to pause before the next one. A batch that failed is retried from the same position.
    pub(super) async fn sweep<DB: Dialect>(&mut self, pool: &Pool<DB>) -> Duration {
        let begun = Instant::now();
        match self.remove(pool).await {
            Ok(true) => (begun.elapsed() * PAUSE).max(SHORTEST),
            Ok(false) => {
                self.range = SweepRange::FIRST;
                EVERY
            }
            Err(error) => {
                tracing::warn!(%error, "could not delete expired rows; retrying in 10 s");
                EVERY
            }
        }
    }

    /// Deletes one batch, and returns whether there may be another one.
    async fn remove<DB: Dialect>(&mut self, pool: &Pool<DB>) -> Result<bool, sqlx::Error> {
        let acquired = timeout(PATIENCE, pool.acquire()).await;
        let mut connection = acquired.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
        let Ok(removed) = timeout(PATIENCE, DB::sweep(&mut connection, &self.range)).await else {
            connection.close_on_drop();
            return Err(sqlx::Error::Protocol(format!("no reply within {PATIENCE:?}")));
        };
        let removed = removed?;
        self.range.from = removed.until;
        Ok(removed.count >= self.range.most)
    }
}

/// Deletes expired rows for as long as it is polled.
pub(crate) async fn keep_clean<DB: Dialect>(pool: &Pool<DB>) {
    let mut sweeper = Sweeper::new();
    loop {
        let pause = sweeper.sweep(pool).await;
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

    use super::super::address::SqlAddress;
    use super::super::migrate::script;
    use super::*;

    /// A retry from the start would scan all deleted rows again, which takes longest when there is most to delete.
    #[tokio::test]
    async fn failed_sweep_batch_is_retried_from_its_position() {
        let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
        let run = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.unwrap();
        run(script(&SqlAddress::Sqlite(SqliteConnectOptions::new()))).await;
        run("WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 700)
            INSERT INTO onceward_records SELECT 'over-' || n, x'', n FROM n")
        .await;
        let mut sweeper = Sweeper::new();
        assert!(sweeper.sweep(&pool).await < EVERY, "there is more");
        assert_eq!(sweeper.range.from, 500);

        run("ALTER TABLE onceward_records RENAME TO elsewhere").await;
        assert_eq!((sweeper.sweep(&pool).await, sweeper.range.from), (EVERY, 500));

        run("ALTER TABLE elsewhere RENAME TO onceward_records").await;
        assert_eq!((sweeper.sweep(&pool).await, sweeper.range.from), (EVERY, 0), "that was all");
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM onceward_records").fetch_one(&pool).await.unwrap();
        assert_eq!(left, 0);
    }
}
