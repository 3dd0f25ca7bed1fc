//! A consumer of messages: takes them from a queue of its own in Redis, and does once what each of them says.

use std::time::Duration;

use onceward::{Guard, Intent, Key, KeyRules, Policy, RunError, RunOutcome, Subject};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, RedisResult};
use serde::{Deserialize, Serialize};

use crate::key_routes::BRIEF;
use crate::ledger::Ledger;

/// Where consumers write down what became of each delivery.
pub const DELIVERED: &str = "delivered";

/// What a queue holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Message {
    /// Its name, the same however often it is delivered.
    pub id: String,
    /// How many milliseconds it takes to do what it says.
    pub takes: u64,
    /// How often it fails before it is done.
    pub fails: usize,
}

impl Message {
    /// One that is done at once.
    pub fn new(id: &str) -> Self {
        Self { id: id.to_owned(), takes: 0, fails: 0 }
    }

    /// As it stands in a queue.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }
}

/// What comes of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The message.
    pub message: String,
    /// Which process did it.
    pub by: u32,
}

/// A consumer.
pub struct Consumer {
    guard: Guard,
    ledger: Ledger,
    redis: MultiplexedConnection,
    queue: String,
}

impl Consumer {
    /// One with a queue of its own.
    pub async fn new(guard: Guard, ledger: &Ledger, redis: &str) -> RedisResult<Self> {
        let redis = redis::Client::open(redis)?.get_multiplexed_async_connection().await?;
        Ok(Self { guard, ledger: ledger.clone(), redis, queue: format!("queue:{}", std::process::id()) })
    }

    /// Where its messages stand.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Takes messages, for ever. Each is done in a task of its own.
    pub async fn run(mut self) -> RedisResult<()> {
        loop {
            match self.redis.lpop::<_, Option<String>>(&self.queue, None).await? {
                Some(message) => {
                    let message = serde_json::from_str(&message).expect("one of ours");
                    let (guard, ledger) = (self.guard.clone(), self.ledger.clone());
                    tokio::spawn(deliver(guard, ledger, self.redis.clone(), self.queue.clone(), message));
                }
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

/// Does what a message says, unless that is done. What cannot be done yet goes back to its queue.
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
    redis.rpush::<_, _, ()>(DELIVERED, delivered).await.expect("the queue is there");
    let later = match ran {
        Err(RunError::Rejected(rejection)) => rejection.retry_after(),
        Err(error) if error.is_temporary() || matches!(error, RunError::Failed(_)) => Some(Duration::from_millis(50)),
        _ => None,
    };
    if let Some(later) = later {
        tokio::time::sleep(later).await;
        let fails = message.fails.saturating_sub(1);
        let again = Message { fails, ..message };
        redis.rpush::<_, _, ()>(queue, again.text()).await.expect("the queue is there");
    }
}

/// Sends what is to be sent, which everybody can count.
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
