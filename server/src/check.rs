//! Checks of a Redis or a database: whether Onceward can use it, and which records it may lose.
//!
//! For Redis, [`probe`] queries the server and [`rules`] judges the result without a server.

pub(crate) mod connect_error;
pub(crate) mod database;
pub(crate) mod durability;
pub(crate) mod finding;
pub(crate) mod probe;
pub(crate) mod redis_info;
pub(crate) mod rules;
mod sqlite_file;

use std::time::Duration;

use onceward::store::Redis;
use redis::Client;

use self::connect_error::{ConnectError, NamedRedis};
use self::finding::{Finding, Level};
use self::probe::Probe;
use self::redis_info::Info;

/// The timeout of each command.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Finds out whether the Redis at this address evicts records. Of several servers, returns the worst finding; a server that cannot be
/// queried does not hide the finding of another one.
pub(crate) async fn eviction(address: &str, redis: &NamedRedis, is_allowed: bool) -> Result<Finding, ConnectError> {
    let (worst, error) = worst(servers(address).await?, redis, |info| rules::eviction(info, is_allowed)).await;
    match (worst, error) {
        (Some(found), Some(error)) if found.level < Level::Warning => Err(error),
        (Some(found), _) => Ok(found),
        (None, error) => Err(error.unwrap_or_else(|| ConnectError::Unreachable("it has no master".to_owned()))),
    }
}

/// Returns why the Redis at this address replies, or accepts connections, but cannot be used; `None` if no reason was found.
pub(crate) async fn rejection(address: &str, redis: &NamedRedis) -> Option<Finding> {
    let (found, error) = match servers(address).await {
        Ok(servers) => worst(servers, redis, |info| rules::role(info, is_cluster(address))).await,
        Err(error) => (None, Some(error)),
    };
    let found = found.filter(|finding| finding.level == Level::Problem);
    match (found, error) {
        (Some(found), _) => Some(found),
        // The store itself needs neither PING nor INFO.
        (None, None | Some(ConnectError::Denied { command: "PING" | "INFO", .. })) => None,
        (None, Some(ConnectError::Refused | ConnectError::Unreachable(_))) => None,
        (None, Some(error)) => Some(error.explain(redis).await),
    }
}

/// Returns the worst finding about these servers, which names its server, and why one of them could not be queried.
async fn worst(
    servers: Vec<(String, Client)>,
    redis: &NamedRedis,
    judge: impl Fn(&Info) -> Finding,
) -> (Option<Finding>, Option<ConnectError>) {
    let (are_several, mut worst, mut error) = (servers.len() > 1, None::<Finding>, None);
    for (place, client) in servers {
        let asked = match Probe::begin(&client).await {
            Ok(mut probe) => probe.info().await,
            Err(error) => Err(error),
        };
        match asked.map(|info| judge(&info)) {
            Ok(found) if worst.as_ref().is_none_or(|worst| worst.level < found.level) => {
                worst = Some(match are_several {
                    true => found.about(&format!("{} at {place}", redis.product)),
                    false => found.about(&redis.name),
                });
            }
            Ok(_) => {}
            Err(found) => error = error.or(Some(found)),
        }
    }
    (worst, error)
}

/// Returns whether the address names a cluster: by its scheme, or as a list without one.
pub(crate) fn is_cluster(address: &str) -> bool {
    address.split_once("://").is_none_or(|(scheme, _)| scheme.trim_start().ends_with("+cluster"))
}

/// Returns whether the address names a single server: neither a cluster nor sentinels.
pub(crate) fn is_one_server(address: &str) -> bool {
    !is_cluster(address) && !address.split("://").next().is_some_and(|scheme| scheme.ends_with("+sentinel"))
}

/// Returns the servers at this address: one, or every master of a cluster.
pub(crate) async fn servers(address: &str) -> Result<Vec<(String, Client)>, ConnectError> {
    let found = tokio::time::timeout(PATIENCE * 3, Redis::masters(address)).await.map_err(|_| ConnectError::Silent)?;
    found.map_err(|error| ConnectError::of("CLUSTER SLOTS", &error))
}
