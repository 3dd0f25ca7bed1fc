//! Builds the guard from the settings, and checks that its store can be used.

use std::time::Duration;

use onceward::store::{Memory, Redis, Sql, SqlError, Store, StoreError};
use onceward::{Guard, GuardBuilder};
use onceward_api::duration::spaced;
use tokio::time::Instant;

use crate::app::BuildError;
use crate::check;
use crate::check::connect_error::{ConnectError, NamedRedis};
use crate::check::database::{START, migration};
use crate::check::finding::{Finding, Level};
use crate::config::{Config, PreviousSecret, StoreAddress};

/// The pause between two attempts to reach a store.
const RETRY_EVERY: Duration = Duration::from_millis(100);

/// Waits until the store replies, and builds the guard. Calls `notice` with a line for the user before the first retry.
///
/// # Errors
/// If the store cannot be used, or does not reply within `wait_for`. A rejected login or a missing permission is not retried.
pub(crate) async fn build_guard(config: &Config, notice: &dyn Fn(&str)) -> Result<Guard, BuildError> {
    // The guard is built last: it would log each failed command of an unreachable store.
    let builder = match &config.store {
        StoreAddress::Memory => Guard::builder(Memory::new().limit(config.memory_limit)),
        StoreAddress::Redis(url) => {
            // `refuse_eviction` checks whether it evicts records.
            let redis = Redis::open(url)?.allow_eviction().prefix(&config.prefix).timeout(config.store_timeout);
            wait_for(&redis, config, notice).await?;
            Guard::builder(redis)
        }
        StoreAddress::Sql(url) => {
            let sql = database(url, config, notice).await?;
            wait_for(&sql, config, notice).await?;
            Guard::builder(sql)
        }
    };
    let builder = builder.token_ttl(config.token_ttl)?.share_every(config.share_every);
    let builder = builder.last_call(config.last_call).drain_limit(config.drain_limit);
    let builder = config.secret.iter().cloned().fold(builder, GuardBuilder::secret);
    let guard = match &config.secret_previous {
        None => builder,
        Some(PreviousSecret::Shared) => builder.secret_previous_shared(),
        Some(PreviousSecret::Secret(secret)) => builder.secret_previous(secret.clone()),
    };
    Ok(guard.build())
}

/// Opens the database. Retries only while it cannot be reached.
async fn database(url: &str, config: &Config, notice: &dyn Fn(&str)) -> Result<Sql, BuildError> {
    let mut retries = Retries::new(config, notice);
    let store = config.store.to_string();
    loop {
        let error = match Sql::open_within(url, config.store_timeout).await {
            Ok(store) => return Ok(store.prefix(&config.prefix)),
            Err(error) => error,
        };
        let says = match &error {
            SqlError::Unreachable(why) if url.starts_with("postgres") => {
                format!("PostgreSQL at {} cannot be reached: {why}", store.trim_start_matches("postgres://"))
            }
            SqlError::Unreachable(why) => format!("{store} cannot be opened: {why}"),
            _ => {
                return Err(match migration(&error, url) {
                    Some(Finding { says, fix, .. }) => unfit(says, format!("Run: {}", fix.unwrap_or_default())),
                    None => BuildError::Database { store, error },
                });
            }
        };
        if !retries.again(&says).await {
            return Err(unfit(retries.failed(&says), START));
        }
    }
}

/// Rejects a Redis that evicts records, unless `allow_eviction` is set: a key whose record is evicted runs again. If the policy of Redis
/// cannot be read, the service logs a warning and starts.
///
/// # Errors
/// If it evicts.
pub(crate) async fn refuse_eviction(config: &Config) -> Result<(), BuildError> {
    let StoreAddress::Redis(url) = &config.store else { return Ok(()) };
    match check::eviction(url, config.allow_eviction).await {
        Ok(Finding { level: Level::Problem, says, fix, .. }) => {
            return Err(unfit(says, fix.unwrap_or_default()));
        }
        Ok(Finding { level: Level::Warning, says, .. }) => tracing::warn!("store: {says}"),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, "could not read the eviction policy of Redis; run `onceward check`")
        }
    }
    Ok(())
}

/// Waits until the store replies.
async fn wait_for(store: &impl Store, config: &Config, notice: &dyn Fn(&str)) -> Result<(), BuildError> {
    let mut retries = Retries::new(config, notice);
    loop {
        let Err(error) = store.ping().await else { return Ok(()) };
        // A full store still redeems plain tokens and replays responses.
        if error.is_full() {
            tracing::warn!(%error, "the store is full: starting, but not ready until it has room");
            return Ok(());
        }
        if let Some(finding) = permanent(config, &error) {
            return Err(unfit(finding.says, finding.fix.unwrap_or_default()));
        }
        if !retries.again(&reason(&error)).await {
            return Err(match diagnose(config, &error).await {
                Some(Finding { says, fix, .. }) => unfit(retries.failed(&says), fix.unwrap_or_default()),
                None => BuildError::Silent { store: config.store.to_string(), wait: retries.wait, error },
            });
        }
    }
}

/// Returns why the store cannot be used, if a retry cannot help.
fn permanent(config: &Config, error: &StoreError) -> Option<Finding> {
    let found = ConnectError::of_store(error).filter(ConnectError::is_permanent)?;
    named(config).map(|(_, redis)| found.finding(&redis))
}

/// Returns why a Redis could not be used until the end.
async fn diagnose(config: &Config, error: &StoreError) -> Option<Finding> {
    let (url, redis) = named(config)?;
    let rejected = tokio::time::timeout(check::PATIENCE, check::rejection(url, &redis)).await.ok().flatten();
    rejected.or_else(|| ConnectError::of_store(error).map(|found| found.finding(&redis)))
}

fn named(config: &Config) -> Option<(&str, NamedRedis)> {
    match &config.store {
        StoreAddress::Redis(url) => Some((url, NamedRedis::of(url, &config.store.to_string()))),
        StoreAddress::Memory | StoreAddress::Sql(_) => None,
    }
}

fn unfit(says: impl Into<String>, fix: impl Into<String>) -> BuildError {
    BuildError::Unfit { says: says.into(), fix: fix.into() }
}

/// Returns the reason in the text of an error.
fn reason(error: &StoreError) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("not executed: ").unwrap_or(&text);
    text.strip_suffix("; it may have been executed").unwrap_or(text).to_owned()
}

/// Retries until `wait_for` has passed, and tells the user once.
struct Retries<'a> {
    deadline: Instant,
    /// `wait_for`, as text.
    wait: String,
    notice: Option<&'a dyn Fn(&str)>,
}

impl<'a> Retries<'a> {
    fn new(config: &Config, notice: &'a dyn Fn(&str)) -> Self {
        Self { deadline: Instant::now() + config.wait_for, wait: spaced(config.wait_for), notice: Some(notice) }
    }

    /// Pauses before the next attempt. Returns `false` if there is no time for one.
    async fn again(&mut self, reason: &str) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        if let Some(notice) = self.notice.take() {
            notice(&format!("{reason}; retrying for {}", self.wait));
        }
        tokio::time::sleep(RETRY_EVERY).await;
        true
    }

    /// Returns the sentence about the last attempt.
    fn failed(&self, says: &str) -> String {
        format!("{} (retried for {}, see --wait-for).", says.trim_end_matches('.'), self.wait)
    }
}
