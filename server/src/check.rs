//! What can be said of a Redis or a database before it is trusted with records: whether it can be used, and what it may lose, in plain
//! words.
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

use self::connect_error::ConnectError;
use self::finding::{Finding, Level};
use self::probe::Probe;
use self::redis_info::Info;

/// How long each question to Redis may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the Redis at this address evicts, which the service has to know before it relies on it: of several servers, the worst. One that
/// cannot be asked does not hide what another one says.
pub(crate) async fn eviction(address: &str, is_allowed: bool) -> Result<Finding, ConnectError> {
    let (worst, error) = worst(servers(address).await?, |info| rules::eviction(info, is_allowed)).await;
    match (worst, error) {
        (Some(found), Some(error)) if found.level < Level::Warning => Err(error),
        (Some(found), _) => Ok(found),
        (None, error) => Err(error.unwrap_or_else(|| ConnectError::Unreachable("no server of it is known".to_owned()))),
    }
}

/// Why the Redis at this address, which answers, cannot be used; `None` if it does not answer, or if there is nothing against it.
pub(crate) async fn rejection(address: &str, store: &str) -> Option<Finding> {
    let (found, error) = match servers(address).await {
        Ok(servers) => worst(servers, |info| rules::role(info, is_cluster(address))).await,
        Err(error) => (None, Some(error)),
    };
    let found = found.filter(|finding| finding.level == Level::Problem);
    found.or_else(|| match error? {
        ConnectError::Rejected | ConnectError::Unreachable(_) | ConnectError::Silent => None,
        error => Some(error.finding(store)),
    })
}

/// The worst that can be said of these servers, and why one of them could not be asked.
async fn worst(
    servers: Vec<(String, Client)>,
    judge: impl Fn(&Info) -> Finding,
) -> (Option<Finding>, Option<ConnectError>) {
    let (are_several, mut worst, mut error) = (servers.len() > 1, None::<Finding>, None);
    for (place, client) in servers {
        let asked = match Probe::begin(&client).await {
            Ok(mut probe) => probe.info().await,
            Err(error) => Err(error),
        };
        match asked.map(|info| judge(&info)) {
            Ok(mut found) if worst.as_ref().is_none_or(|worst| worst.level < found.level) => {
                if are_several {
                    found.says = format!("{place}: {}", found.says);
                }
                worst = Some(found);
            }
            Ok(_) => {}
            Err(found) => error = error.or(Some(found)),
        }
    }
    (worst, error)
}

/// Whether this names a cluster: by its scheme, or as a list without one.
pub(crate) fn is_cluster(address: &str) -> bool {
    address.split_once("://").is_none_or(|(scheme, _)| scheme.trim_start().ends_with("+cluster"))
}

/// The servers at this address: one, or every master of a cluster.
pub(crate) async fn servers(address: &str) -> Result<Vec<(String, Client)>, ConnectError> {
    let found = tokio::time::timeout(PATIENCE * 3, Redis::masters(address)).await.map_err(|_| ConnectError::Silent)?;
    found.map_err(|error| ConnectError::of("CLUSTER SLOTS", &error))
}
