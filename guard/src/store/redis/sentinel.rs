//! Sentinels: the processes that know which server is the master.
//!
//! All sentinels are queried, and the one with the newest configuration is trusted: a sentinel that was cut off keeps naming the old
//! master. The named server is asked whether it is a master, and the sentinels are queried again every second, since a master that was
//! replaced may not know it yet and keeps answering.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, FromRedisValue as _, RedisError, Value};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::address::at;
use super::connection::client;
use super::error::{ConnectionFailure, TransportError, reply_text};

/// The timeout of one query.
const ANSWER: Duration = Duration::from_secs(1);
/// Maximum wait for the remaining sentinels once a majority has replied.
const SLOW: Duration = Duration::from_millis(50);

/// The sentinels, and the master to ask for.
pub(super) struct Sentinels {
    pub(super) sentinels: Vec<ConnectionInfo>,
    /// The sentinels' name for the master.
    pub(super) name: String,
    /// The settings for connecting to the master, whatever its address.
    pub(super) node: ConnectionInfo,
    /// The master that was trusted last.
    last: Mutex<Option<MasterReport>>,
}

/// The master that a sentinel names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MasterReport {
    /// Increases with each failover.
    epoch: u64,
    host: String,
    port: u16,
}

impl Sentinels {
    pub(super) fn new(sentinels: Vec<ConnectionInfo>, name: String, node: ConnectionInfo) -> Self {
        Self { sentinels, name, node, last: Mutex::new(None) }
    }

    /// Returns a client for the current master.
    pub(super) async fn master(&self) -> Result<Client, TransportError> {
        let reported = self.newest().await?;
        let address = at(self.node.addr(), reported.host.clone(), reported.port);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(reported);
        Ok(client(self.node.clone().set_addr(address))?)
    }

    /// Returns whether the sentinels name another master by now. If none answers, the current one is kept.
    pub(super) async fn have_moved(&self) -> bool {
        match self.newest().await {
            Ok(reported) => {
                let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                last.as_ref().is_some_and(|last| (&last.host, last.port) != (&reported.host, reported.port))
            }
            Err(_) => false,
        }
    }

    /// Completes when the sentinels name another master.
    pub(super) async fn moved(&self) {
        loop {
            sleep(ANSWER / 4).await;
            if self.have_moved().await {
                return;
            }
        }
    }

    /// Checks that the server at the other end reports itself as a master.
    pub(super) async fn verify(connection: &mut MultiplexedConnection) -> Result<(), TransportError> {
        let role = timeout(ANSWER, redis::cmd("ROLE").query_async(connection)).await;
        let role = role.map_err(|_| TransportError::TimedOut(ANSWER))?;
        let role: Value = match role {
            // If the ACL denies ROLE, the replication id shows whether the server is a replica.
            Err(error) if error.code() == Some("NOPERM") => return Ok(()),
            role => role?,
        };
        let is_master = match role {
            Value::Array(parts) => parts.first().is_some_and(|role| text(role).is_some_and(|role| role == "master")),
            _ => false,
        };
        if is_master { Ok(()) } else { Err(TransportError::Replica) }
    }

    /// Queries all sentinels, and returns the newest report. Once a majority has answered, slow ones are not waited for, since a
    /// sentinel is often lost together with the master that it watched.
    async fn newest(&self) -> Result<MasterReport, TransportError> {
        let mut asked = JoinSet::new();
        for sentinel in &self.sentinels {
            asked.spawn(ask(sentinel.clone(), self.node.clone(), self.name.clone()));
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let most = self.sentinels.len() / 2 + 1;
        let (mut reported, mut failed) = (Vec::new(), None);
        loop {
            let answer = match reported.len() < most {
                true => asked.join_next().await,
                false => timeout(SLOW, asked.join_next()).await.unwrap_or_default(),
            };
            match answer {
                Some(Ok(Ok(one))) => reported.push(one),
                Some(Ok(Err(error))) => failed = Some(error),
                Some(Err(error)) => failed = Some(error.to_string().into()),
                None => break,
            }
        }
        believed(reported, last.as_ref(), most).ok_or_else(|| {
            let failure = failed.unwrap_or_else(|| "fewer than half replied, with an older configuration".into());
            let reason = format!("no sentinel names the master `{}`: {failure}", self.name);
            let failure = ConnectionFailure::from(reason).caused_by(&TransportError::NoConnection(failure));
            TransportError::NoConnection(failure)
        })
    }
}

/// Chooses the report to trust: the one with the highest epoch; among equals, the one trusted before, or else the one named most often.
/// A lower epoch than before is trusted only if a majority has answered: then the sentinels were reset.
fn believed(reported: Vec<MasterReport>, last: Option<&MasterReport>, most: usize) -> Option<MasterReport> {
    let newest = reported.iter().map(|one| one.epoch).max()?;
    if reported.len() < most && last.is_some_and(|last| last.epoch > newest) {
        return None;
    }
    let candidates: Vec<_> = reported.into_iter().filter(|one| one.epoch == newest).collect();
    if let Some(last) = last.filter(|last| candidates.contains(last)) {
        return Some(last.clone());
    }
    let votes = |one: &MasterReport| candidates.iter().filter(|other| *other == one).count();
    candidates.iter().max_by_key(|one| votes(one)).cloned()
}

/// Queries one sentinel, with the master's credentials if it requires authentication.
async fn ask(sentinel: ConnectionInfo, node: ConnectionInfo, name: String) -> Result<MasterReport, ConnectionFailure> {
    let at = sentinel.addr().to_string();
    let mut answer = asked(sentinel.clone(), &name).await;
    if answer.as_ref().is_err_and(|error| error.code() == Some("NOAUTH")) {
        let settings = node.redis_settings().clone().set_db(0);
        answer = asked(sentinel.set_redis_settings(settings), &name).await;
    }
    let answer = answer.map_err(|error| {
        ConnectionFailure::from(format!("{at} returned: {}", reply_text(&error))).caused_by(&error.into())
    })?;
    read(answer).ok_or_else(|| format!("{at} returned an unreadable reply").into())
}

async fn asked(sentinel: ConnectionInfo, name: &str) -> Result<Value, RedisError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(ANSWER)).set_response_timeout(Some(ANSWER));
    let mut connection = client(sentinel)?.get_multiplexed_async_connection_with_config(&config).await?;
    redis::cmd("SENTINEL").arg("MASTER").arg(name).query_async(&mut connection).await
}

/// Reads a sentinel's reply: alternating names and values, or a map.
fn read(answer: Value) -> Option<MasterReport> {
    let fields: Vec<(String, String)> = match answer {
        Value::Map(pairs) => pairs.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect(),
        Value::Array(parts) => {
            parts.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?))).collect()
        }
        _ => return None,
    };
    let field = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    Some(MasterReport {
        epoch: field("config-epoch")?.parse().ok()?,
        host: field("ip")?.to_owned(),
        port: field("port")?.parse().ok()?,
    })
}

fn text(value: &Value) -> Option<String> {
    String::from_redis_value_ref(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(epoch: u64, host: &str) -> MasterReport {
        MasterReport { epoch, host: host.to_owned(), port: 6379 }
    }

    #[test]
    fn newest_master_report_is_believed() {
        let host =
            |all: &[MasterReport], last: Option<&MasterReport>| believed(all.to_vec(), last, 2).map(|one| one.host);
        let (old, new) = (reported(3, "old"), reported(4, "new"));
        assert_eq!(host(&[old.clone(), new.clone(), old.clone()], None).as_deref(), Some("new"));
        assert_eq!(host(&[old.clone(), old.clone()], Some(&new)).as_deref(), Some("old"), "a majority was reset");
        assert_eq!(host(std::slice::from_ref(&old), Some(&new)), None, "one that was cut off");
        assert_eq!(host(std::slice::from_ref(&old), Some(&old)).as_deref(), Some("old"));
        let (one, other) = (reported(0, "one"), reported(0, "other"));
        for last in [&one, &other] {
            let all = [one.clone(), other.clone(), other.clone()];
            assert_eq!(host(&all, Some(last)).as_ref(), Some(&last.host), "an equal epoch is no reason to switch");
        }
        assert_eq!(host(&[one, other.clone(), other], None).as_deref(), Some("other"), "most say so");
        assert_eq!(host(&[], Some(&new)), None);
    }
}
