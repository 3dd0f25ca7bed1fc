//! A consumer of messages with a flaw: it takes every failure for one that had no effect.

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncTypedCommands as _, RedisResult};

/// A consumer that claims each message, and frees it whenever its work fails.
#[derive(Clone)]
pub struct HastyConsumer(ConnectionManager);

impl HastyConsumer {
    /// Connects when it is first asked something.
    pub fn open(url: &str) -> RedisResult<Self> {
        Ok(Self(redis::Client::open(url)?.get_connection_manager_lazy(ConnectionManagerConfig::new())?))
    }

    /// Does what a message says, unless that is done or being done. Says whether it was done now.
    pub async fn run<E>(&self, message: &str, work: impl AsyncFnOnce() -> Result<(), E>) -> RedisResult<bool> {
        let (mut redis, name) = (self.0.clone(), format!("hasty:{message}"));
        if !redis.set_nx(&name, "claimed").await? {
            return Ok(false);
        }
        let worked = work().await;
        match worked {
            Ok(()) => redis.set(&name, "done").await?,
            Err(_) => redis.del(&name).await.map(drop)?,
        }
        Ok(worked.is_ok())
    }
}
