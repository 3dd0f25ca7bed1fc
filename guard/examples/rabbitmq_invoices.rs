//! A consumer of RabbitMQ that sends each invoice once: `cargo run -p onceward --example rabbitmq_invoices --features redis -- amqp://127.0.0.1:5672/%2f redis://127.0.0.1:6379`.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use futures_util::StreamExt as _;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, ExchangeDeclareOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use onceward::api::Code;
use onceward::store::Redis;
use onceward::{Fingerprint, Guard, Intent, Key, KeyRules, Policy, RunError, RunOutcome, Subject};

const QUEUE: &str = "invoices";
/// The exchange and the queue of messages that need a decision.
const DEAD: &str = "invoices.dead";
/// Messages that the broker delivers before the first of them is acknowledged.
const PREFETCH: u16 = 16;
/// Pause before a message goes back to the queue.
const BACKOFF: Duration = Duration::from_millis(500);

/// Sends the invoice, and returns its number. An error means that nothing was sent.
async fn send_invoice(order: &str) -> Result<u64, Infallible> {
    println!("sent the invoice of {order}");
    Ok(4711)
}

async fn handle(guard: Guard, delivery: Delivery) -> lapin::Result<()> {
    let id = delivery.properties.message_id().as_ref().and_then(|id| Key::new(id.as_str()).ok());
    let Some(id) = id else { return give_up(&delivery).await };
    let order = String::from_utf8_lossy(&delivery.data).into_owned();
    let intent =
        Intent::new("send invoice", Subject::anonymous()).key(&id).fingerprint(Fingerprint::of_bytes(&delivery.data));
    let policy = Policy::key(KeyRules::retryable());
    match guard.run(&policy, &intent, async || send_invoice(&order).await).await {
        Ok(ran) => {
            if let RunOutcome::Replayed(number) = &ran {
                println!("acknowledged a duplicate of {order}, invoice {number}");
            }
            delivery.ack(BasicAckOptions::default()).await.map(drop)
        }
        // The invoice was sent, but its number is not stored.
        Err(RunError::Rejected(rejection)) if rejection.code() == Code::ReplyNotKept => {
            println!("acknowledged a duplicate of {order}, number unknown");
            delivery.ack(BasicAckOptions::default()).await.map(drop)
        }
        Err(error) if error.is_temporary() || matches!(error, RunError::Failed(_)) => {
            tokio::time::sleep(BACKOFF).await;
            delivery.nack(BasicNackOptions { requeue: true, multiple: false }).await.map(drop)
        }
        Err(error) => {
            eprintln!("the invoice of {order} needs a decision: {error}");
            give_up(&delivery).await
        }
    }
}

/// Sends the message to the dead letter exchange of the queue.
async fn give_up(delivery: &Delivery) -> lapin::Result<()> {
    delivery.nack(BasicNackOptions { requeue: false, multiple: false }).await.map(drop)
}

/// Declares the queue, and before it the exchange and queue of its dead letters: RabbitMQ discards a message that it cannot route there.
async fn declare(channel: &Channel) -> lapin::Result<()> {
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(DEAD.into(), ExchangeKind::Fanout, durable, FieldTable::default()).await?;
    channel.queue_declare(DEAD.into(), QueueDeclareOptions::durable(), FieldTable::default()).await?;
    channel.queue_bind(DEAD.into(), DEAD.into(), "".into(), QueueBindOptions::default(), FieldTable::default()).await?;
    let mut arguments = FieldTable::default();
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString(DEAD.into()));
    channel.queue_declare(QUEUE.into(), QueueDeclareOptions::durable(), arguments).await.map(drop)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut urls = std::env::args().skip(1);
    let (Some(broker), Some(store)) = (urls.next(), urls.next()) else {
        return Err("usage: rabbitmq_invoices AMQP_URL REDIS_URL".into());
    };
    let guard = Guard::new(Redis::open(&store)?);
    let connection = Connection::connect(&broker, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    declare(&channel).await?;
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let consuming =
        channel.basic_consume(QUEUE.into(), "".into(), BasicConsumeOptions::default(), FieldTable::default());
    let mut deliveries = consuming.await?;
    while let Some(delivery) = deliveries.next().await {
        let running = handle(guard.clone(), delivery?);
        tokio::spawn(async move {
            if let Err(error) = running.await {
                eprintln!("could not settle a delivery; RabbitMQ delivers it again: {error}");
            }
        });
    }
    Ok(())
}
