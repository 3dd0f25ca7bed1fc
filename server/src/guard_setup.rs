//! Builds the guard from the settings, and checks that its store can be used.

use std::error::Error as _;
use std::time::Duration;

use onceward::store::{Memory, Redis, Sql, SqlError, Store, StoreError};
use onceward::{Guard, GuardBuilder};
use onceward_api::duration::spaced;
use tokio::time::{Instant, timeout};

use crate::app::BuildError;
use crate::check;
use crate::check::connect_error::{ConnectError, NamedRedis};
use crate::check::finding::{Finding, Level};
use crate::config::{Config, PreviousSecret, StoreAddress};

/// The pause between two attempts to reach a store.
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// The timeout of the last check of a Redis that has not replied.
const LAST_LOOK: Duration = Duration::from_millis(500);

/// Waits until the store replies, and builds the guard. Calls `notice` with a line for the user before the first retry.
///
/// # Errors
/// If the store cannot be used, or does not reply within `wait_for`. A rejected login or a missing permission is not retried.
pub(crate) async fn build_guard(config: &Config, notice: &dyn Fn(&str)) -> Result<Guard, BuildError> {
    Ok(guard_builder(config, notice).await?.build())
}

/// Like [`build_guard`], before the guard is built.
///
/// # Errors
/// As [`build_guard`].
pub(crate) async fn guard_builder(config: &Config, notice: &dyn Fn(&str)) -> Result<GuardBuilder, BuildError> {
    let retries = &mut Retries::new(config, notice);
    // The guard is built last: it would log each failed command of an unreachable store.
    let builder = match &config.store {
        StoreAddress::Memory => Guard::builder(Memory::new().limit(config.memory_limit)),
        StoreAddress::Redis(url) => {
            // `refuse_eviction` checks whether it evicts records.
            let redis = Redis::open(url)?.allow_eviction().prefix(&config.prefix).timeout(config.store_timeout);
            wait_for(&redis, config, retries).await?;
            Guard::builder(redis)
        }
        StoreAddress::Sql(url) => {
            let sql = database(url, config, retries).await?;
            wait_for(&sql, config, retries).await?;
            Guard::builder(sql)
        }
    };
    let builder = builder.token_ttl(config.token_ttl)?.share_every(config.share_every);
    let builder = builder.languages(config.languages.clone());
    let builder = builder.last_call(config.last_call).drain_limit(config.drain_limit);
    let builder = config.secret.iter().cloned().fold(builder, GuardBuilder::secret);
    Ok(match &config.secret_previous {
        None => builder,
        Some(PreviousSecret::Shared) => builder.secret_previous_shared(),
        Some(PreviousSecret::Secret(secret)) => builder.secret_previous(secret.clone()),
    })
}

/// Opens the database. Retries only while it cannot be reached.
async fn database(url: &str, config: &Config, retries: &mut Retries<'_>) -> Result<Sql, BuildError> {
    loop {
        let error = match Sql::open_within(url, config.store_timeout).await {
            Ok(store) => return Ok(store.prefix(&config.prefix)),
            Err(error) => error,
        };
        let found = match check::database::explain(&error, url) {
            None if matches!(error, SqlError::Rejected { .. }) => check::database::problem(url, &config.prefix).await,
            found => found,
        };
        let Some(Finding { says, fix, .. }) = found else {
            return Err(BuildError::Database { store: config.store.to_string(), error });
        };
        let fix = fix.unwrap_or_default();
        if !matches!(error, SqlError::Refused | SqlError::Unreachable(_)) {
            return Err(unfit(says, fix));
        }
        if !retries.again(&says).await {
            return Err(unfit(retries.failed(&says), fix));
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
    match check::eviction(url, &named(config, url), config.allow_eviction).await {
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
async fn wait_for(store: &impl Store, config: &Config, retries: &mut Retries<'_>) -> Result<(), BuildError> {
    loop {
        let Err(error) = store.ping().await else { return Ok(()) };
        // A full store still redeems plain tokens and replays responses.
        if error.is_full() {
            tracing::warn!(%error, "the store is full: starting, but not ready until it has room");
            return Ok(());
        }
        if let Some(Finding { says, fix, .. }) = permanent(config, &error).await {
            return Err(unfit(says, fix.unwrap_or_default()));
        }
        if !retries.again(&reason(config, &error)).await {
            return Err(match diagnose(config, &error).await {
                Some(Finding { says, fix, .. }) => unfit(retries.failed(&says), fix.unwrap_or_default()),
                None => BuildError::Silent { store: config.store.to_string(), wait: retries.wait.clone(), error },
            });
        }
    }
}

/// Returns why the store cannot be used, if a retry cannot help.
async fn permanent(config: &Config, error: &StoreError) -> Option<Finding> {
    match &config.store {
        StoreAddress::Memory => None,
        StoreAddress::Redis(url) => {
            let found = ConnectError::of_store(error).filter(ConnectError::is_permanent)?;
            Some(found.finding(&named(config, url)))
        }
        StoreAddress::Sql(url) if is_denied(error) => check::database::problem(url, &config.prefix).await,
        StoreAddress::Sql(_) => None,
    }
}

/// Returns whether the user lacks a permission in PostgreSQL.
fn is_denied(error: &StoreError) -> bool {
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    let code = causes.find_map(|cause| cause.downcast_ref::<sqlx::Error>()?.as_database_error()?.code());
    code.as_deref() == Some("42501")
}

/// Returns why a store could not be used until the end.
async fn diagnose(config: &Config, error: &StoreError) -> Option<Finding> {
    let url = match &config.store {
        StoreAddress::Memory => return None,
        StoreAddress::Sql(url) => {
            return timeout(check::PATIENCE, check::database::problem(url, &config.prefix)).await.ok().flatten();
        }
        StoreAddress::Redis(url) => url,
    };
    let (redis, found) = (named(config, url), ConnectError::of_store(error));
    let patience = match &found {
        // A second attempt would find the same.
        Some(found @ (ConnectError::Refused | ConnectError::Unreachable(_))) if check::is_one_server(url) => {
            return Some(found.finding(&redis));
        }
        // It has had the time of `wait_for` to reply.
        Some(ConnectError::Silent) => LAST_LOOK,
        None if error.to_string().contains("no cluster node owns slot") => LAST_LOOK,
        _ => check::PATIENCE,
    };
    match timeout(patience, check::rejection(url, &redis)).await {
        Ok(Some(finding)) => Some(finding),
        Ok(None) => Some(found?.explain(&redis).await),
        Err(_) => Some(ConnectError::Silent.explain(&redis).await),
    }
}

fn named(config: &Config, url: &str) -> NamedRedis {
    NamedRedis::of(url, &config.store.to_string())
}

fn unfit(says: impl Into<String>, fix: impl Into<String>) -> BuildError {
    BuildError::Unfit { says: says.into(), fix: fix.into() }
}

/// Returns why the store does not reply, in a sentence that names it.
fn reason(config: &Config, error: &StoreError) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("not executed: ").unwrap_or(&text);
    let text = text.strip_suffix("; it may have been executed").unwrap_or(text);
    let StoreAddress::Redis(url) = &config.store else { return format!("{}: {text}", config.store) };
    let redis = named(config, url);
    match ConnectError::of_store(error) {
        Some(found) if found != ConnectError::Silent => found.finding(&redis).says,
        _ if ["Redis at ", "Redis master "].iter().any(|name| text.contains(name)) => text.to_owned(),
        _ => format!("{}: {text}", redis.name),
    }
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
            notice(&format!("{}; retrying for {}", reason.trim_end_matches('.'), self.wait));
        }
        tokio::time::sleep(RETRY_EVERY).await;
        true
    }

    /// Returns the sentence about the last attempt.
    fn failed(&self, says: &str) -> String {
        format!("{} (retried for {}, see --wait-for).", says.trim_end_matches('.'), self.wait)
    }
}
