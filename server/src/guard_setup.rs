//! Builds the guard from the settings, and checks that its store can be used.

use std::time::Duration;

use onceward::store::{Memory, Redis, Sql, SqlError, StoreError};
use onceward::{Guard, GuardBuilder};

use crate::app::BuildError;
use crate::check;
use crate::check::finding::{Finding, Level};
use crate::config::{Config, PreviousSecret, StoreAddress};

/// The time between two attempts to reach a store.
const RETRY_EVERY: Duration = Duration::from_millis(100);

/// Builds the guard and waits until its store answers.
///
/// # Errors
/// If the store cannot be used, or does not answer within `wait_for`.
pub(crate) async fn build_guard(config: &Config) -> Result<Guard, BuildError> {
    let builder = match &config.store {
        StoreAddress::Memory => Guard::builder(Memory::new().limit(config.memory_limit)),
        StoreAddress::Redis(url) => {
            // Whether it evicts is checked below.
            let redis = Redis::open(url)?.allow_eviction();
            Guard::builder(redis.prefix(&config.prefix).timeout(config.store_timeout))
        }
        StoreAddress::Sql(url) => Guard::builder(database(url, config).await?),
    };
    let builder = builder.token_ttl(config.token_ttl)?.share_every(config.share_every);
    let builder = builder.last_call(config.last_call).drain_limit(config.drain_limit);
    let builder = config.secret.iter().cloned().fold(builder, GuardBuilder::secret);
    let guard = match &config.secret_previous {
        None => builder,
        Some(PreviousSecret::Shared) => builder.secret_previous_shared(),
        Some(PreviousSecret::Secret(secret)) => builder.secret_previous(secret.clone()),
    };
    let guard = guard.build();
    wait_for(&guard, config).await?;
    Ok(guard)
}

/// Opens the database. Waits for one that cannot be reached, not for one without tables.
async fn database(url: &str, config: &Config) -> Result<Sql, BuildError> {
    let deadline = tokio::time::Instant::now() + config.wait_for;
    loop {
        match Sql::open_within(url, config.store_timeout).await {
            Ok(store) => return Ok(store.prefix(&config.prefix)),
            Err(SqlError::Unreachable(_)) if tokio::time::Instant::now() < deadline => {}
            Err(error) => return Err(BuildError::Database { store: config.store.to_string(), error }),
        }
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

/// Rejects a Redis that evicts records, unless `allow_eviction` is set: a key whose record is evicted runs again. If Redis does not say
/// whether it evicts, the service logs a warning and starts.
///
/// # Errors
/// If it evicts.
pub(crate) async fn refuse_eviction(config: &Config) -> Result<(), BuildError> {
    let StoreAddress::Redis(url) = &config.store else { return Ok(()) };
    match check::eviction(url, config.allow_eviction).await {
        Ok(Finding { level: Level::Problem, says, fix, .. }) => {
            return Err(BuildError::Unfit { says, fix: fix.unwrap_or_default() });
        }
        Ok(Finding { level: Level::Warning, says, .. }) => tracing::warn!("store: {says}"),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, "whether the store evicts records could not be seen; `onceward check` says more")
        }
    }
    Ok(())
}

/// Waits until the store answers.
async fn wait_for(guard: &Guard, config: &Config) -> Result<(), BuildError> {
    let deadline = tokio::time::Instant::now() + config.wait_for;
    loop {
        let Err(error) = guard.ping().await else { return Ok(()) };
        // It still redeems plain tokens and replays, so a restart is no reason to stop that.
        if error.is_full() {
            tracing::warn!(%error, "the store is full: starting, but not ready until it has room");
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(unfit(config, error).await);
        }
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

/// Why the store cannot be used: the finding of a check, or else the error itself.
async fn unfit(config: &Config, error: StoreError) -> BuildError {
    let found = match &config.store {
        StoreAddress::Redis(url) => check::rejection(url, &config.store.to_string()).await,
        StoreAddress::Memory | StoreAddress::Sql(_) => None,
    };
    let wait = onceward_api::duration::text(config.wait_for);
    match found {
        Some(Finding { says, fix, .. }) => BuildError::Unfit { says, fix: fix.unwrap_or_default() },
        None => BuildError::Silent { store: config.store.to_string(), wait, error },
    }
}
