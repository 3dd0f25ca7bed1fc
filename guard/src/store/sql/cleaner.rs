//! Removes what has expired, a few rows at a time, so that nobody waits for it.

use std::time::Duration;

use sqlx::Pool;
use tokio::time::{Instant, timeout};

use super::dialect::{Batch, Dialect};

/// How often it looks.
pub(super) const EVERY: Duration = Duration::from_secs(10);
/// How long one statement may take, and how long a connection is waited for: a database that does not answer is asked again later.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How much longer than a batch has taken it pauses after it: four fifths of the time are the application's.
const PAUSE: u32 = 4;
/// And at least this long.
const SHORTEST: Duration = Duration::from_millis(5);

/// Removes one batch, and says how long to pause before the next one, if there is one.
pub(super) async fn clean_some<DB: Dialect>(
    pool: &Pool<DB>,
    batch: &mut Batch,
) -> Result<Option<Duration>, sqlx::Error> {
    let begun = Instant::now();
    let acquired = timeout(PATIENCE, pool.acquire()).await;
    let mut connection = acquired.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
    let Ok(removed) = timeout(PATIENCE, DB::clean(&mut connection, batch)).await else {
        connection.close_on_drop();
        return Err(sqlx::Error::Protocol("the database did not answer in time".to_owned()));
    };
    let removed = removed?;
    batch.from = removed.until;
    let pause = (begun.elapsed() * PAUSE).max(SHORTEST);
    Ok((removed.count >= batch.most).then_some(pause))
}

/// Removes what has expired for as long as it is polled.
pub(crate) async fn keep_clean<DB: Dialect>(pool: &Pool<DB>) {
    let mut batch = Batch::FIRST;
    loop {
        let cleaned = clean_some(pool, &mut batch).await;
        let cleaned = cleaned.inspect_err(|error| tracing::warn!(%error, "what has expired could not be removed yet"));
        let pause = cleaned.ok().flatten();
        if pause.is_none() {
            batch = Batch::FIRST;
        }
        tokio::time::sleep(pause.unwrap_or(EVERY)).await;
    }
}
