//! A message consumer with a flaw: it assumes that failed work had no effect.

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncTypedCommands as _, RedisResult};

/// A consumer that claims each message, and releases the claim whenever its work fails.
#[derive(Clone)]
pub struct HastyConsumer(ConnectionManager);

impl HastyConsumer {
    /// Creates the consumer. It connects on the first command.
    pub fn open(url: &str) -> RedisResult<Self> {
        Ok(Self(redis::Client::open(url)?.get_connection_manager_lazy(ConnectionManagerConfig::new())?))
    }

    /// Processes a message unless it is done or in flight. Returns true if this call completed it.
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
