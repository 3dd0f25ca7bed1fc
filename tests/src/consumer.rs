//! A consumer that takes messages from its own queue in Redis and processes each message once.

use std::time::Duration;

use onceward::{Guard, Intent, Key, KeyRules, Policy, RunError, RunOutcome, Subject};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, RedisResult};
use serde::{Deserialize, Serialize};

use crate::key_routes::BRIEF;
use crate::ledger::Ledger;

/// Redis list to which consumers append the outcome of each delivery.
pub const DELIVERED: &str = "delivered";

/// A message in a queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Message {
    /// Its id, the same for every redelivery.
    pub id: String,
    /// Processing time in milliseconds.
    pub takes: u64,
    /// Number of failures before it succeeds.
    pub fails: usize,
}

impl Message {
    /// A message that succeeds immediately.
    pub fn new(id: &str) -> Self {
        Self { id: id.to_owned(), takes: 0, fails: 0 }
    }

    /// Serializes it for the queue.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }
}

/// The result of a processed message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The message.
    pub message: String,
    /// The id of the process that processed it.
    pub by: u32,
}

/// A consumer of messages.
pub struct Consumer {
    guard: Guard,
    ledger: Ledger,
    redis: MultiplexedConnection,
    queue: String,
}

impl Consumer {
    /// Connects to Redis; the queue is named by the process id.
    pub async fn new(guard: Guard, ledger: &Ledger, redis: &str) -> RedisResult<Self> {
        let redis = redis::Client::open(redis)?.get_multiplexed_async_connection().await?;
        Ok(Self { guard, ledger: ledger.clone(), redis, queue: format!("queue:{}", std::process::id()) })
    }

    /// The name of its queue.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Processes messages forever, each in its own task.
    pub async fn run(mut self) -> RedisResult<()> {
        loop {
            match self.redis.lpop::<_, Option<String>>(&self.queue, None).await? {
                Some(message) => {
                    let message = serde_json::from_str(&message).expect("a valid message");
                    let (guard, ledger) = (self.guard.clone(), self.ledger.clone());
                    tokio::spawn(deliver(guard, ledger, self.redis.clone(), self.queue.clone(), message));
                }
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

/// Processes a message unless that has been done. A message that cannot be processed yet goes back to the queue.
async fn deliver(guard: Guard, ledger: Ledger, mut redis: MultiplexedConnection, queue: String, message: Message) {
    let Ok(key) = Key::new(&message.id) else { return };
    let intent = Intent::new("send", Subject::anonymous()).key(&key);
    let policy = Policy::key(KeyRules::retryable().lease(BRIEF).expect("a lease of 100 ms or more"));
    let ran = guard.run(&policy, &intent, async || work(&ledger, &message).await).await;
    let became = match &ran {
        Ok(RunOutcome::Executed(receipt)) => format!("executed by {}", receipt.by),
        Ok(RunOutcome::Replayed(receipt)) => format!("replayed of {}", receipt.by),
        Ok(RunOutcome::Unprotected(_)) => "unprotected".to_owned(),
        Err(RunError::Rejected(rejection)) => rejection.code().as_str().to_owned(),
        Err(RunError::Failed(failed)) => (*failed).to_owned(),
        Err(error) => error.to_string(),
    };
    let delivered = format!("{} {became}", message.id);
    redis.rpush::<_, _, ()>(DELIVERED, delivered).await.expect("Redis answers");
    let later = match ran {
        Err(RunError::Rejected(rejection)) => rejection.retry_after(),
        Err(error) if error.is_temporary() || matches!(error, RunError::Failed(_)) => Some(Duration::from_millis(50)),
        _ => None,
    };
    if let Some(later) = later {
        tokio::time::sleep(later).await;
        let fails = message.fails.saturating_sub(1);
        let again = Message { fails, ..message };
        redis.rpush::<_, _, ()>(queue, again.text()).await.expect("Redis answers");
    }
}

/// The effect of a message: one line in the ledger.
async fn work(ledger: &Ledger, message: &Message) -> Result<Receipt, &'static str> {
    if message.takes > 0 {
        ledger.record("begun");
        tokio::time::sleep(Duration::from_millis(message.takes)).await;
    }
    if message.fails > 0 {
        return Err("failed");
    }
    ledger.record(&message.id);
    Ok(Receipt { message: message.id.clone(), by: std::process::id() })
}
