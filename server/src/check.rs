//! What can be said of a Redis before it is trusted with records: whether it can be used, and what it may lose, in plain words.
//!
//! [`facts`] asks, [`judgement`] judges, and nothing of the second needs a server.

pub(crate) mod facts;
pub(crate) mod finding;
pub(crate) mod info;
pub(crate) mod judgement;
pub(crate) mod losses;
pub(crate) mod trouble;

use std::time::Duration;

use self::facts::Visit;
use self::finding::Finding;
use self::trouble::Trouble;

/// How long each question to Redis may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the Redis at this address evicts, which the service has to know before it relies on it.
pub(crate) async fn eviction(url: &str, is_allowed: bool) -> Result<Finding, Trouble> {
    let mut visit = Visit::begin(url).await?;
    Ok(judgement::eviction(&visit.info().await?, is_allowed))
}
