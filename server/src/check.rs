//! What can be said of a Redis or a database before it is trusted with records: whether it can be used, and what it may lose, in plain
//! words.
//!
//! Of Redis, [`facts`] asks, [`judgement`] judges, and nothing of the second needs a server.

pub(crate) mod database;
pub(crate) mod facts;
pub(crate) mod finding;
pub(crate) mod info;
pub(crate) mod judgement;
pub(crate) mod losses;
pub(crate) mod trouble;

use std::time::Duration;

use onceward::store::Redis;
use redis::Client;

use self::facts::Visit;
use self::finding::{Finding, Level};
use self::trouble::Trouble;

/// How long each question to Redis may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the Redis at this address evicts, which the service has to know before it relies on it: of several servers, the worst.
pub(crate) async fn eviction(address: &str, is_allowed: bool) -> Result<Finding, Trouble> {
    let mut worst: Option<Finding> = None;
    for (_, client) in servers(address).await? {
        let found = judgement::eviction(&Visit::begin(&client).await?.info().await?, is_allowed);
        if worst.as_ref().is_none_or(|worst| worst.level < found.level) {
            worst = Some(found);
        }
    }
    worst.ok_or_else(|| Trouble::Unreachable("no server of it is known".to_owned()))
}

/// Why the Redis at this address, which answers, cannot be used; `None` if it does not answer, or if there is nothing against it.
pub(crate) async fn refusal(address: &str, store: &str) -> Option<Finding> {
    let info = match servers(address).await {
        Ok(servers) => role(servers, is_cluster(address)).await,
        Err(trouble) => Err(trouble),
    };
    match info {
        Ok(finding) => finding.filter(|finding| finding.level == Level::Problem),
        Err(Trouble::Refused | Trouble::Unreachable(_) | Trouble::Silent) => None,
        Err(trouble) => Some(trouble.finding(store)),
    }
}

/// The worst that can be said of what they are.
async fn role(servers: Vec<(String, Client)>, is_of_cluster: bool) -> Result<Option<Finding>, Trouble> {
    let mut found = Vec::new();
    for (_, client) in servers {
        found.push(judgement::role(&Visit::begin(&client).await?.info().await?, is_of_cluster));
    }
    Ok(found.into_iter().max_by_key(|finding| finding.level))
}

/// Whether this names a cluster: by its scheme, or as a list without one.
pub(crate) fn is_cluster(address: &str) -> bool {
    address.split_once("://").is_none_or(|(scheme, _)| scheme.trim_start().ends_with("+cluster"))
}

/// The servers at this address: one, or every master of a cluster.
pub(crate) async fn servers(address: &str) -> Result<Vec<(String, Client)>, Trouble> {
    let found = tokio::time::timeout(PATIENCE * 3, Redis::masters(address)).await.map_err(|_| Trouble::Silent)?;
    found.map_err(|error| Trouble::of("CLUSTER SLOTS", &error))
}
