//! The consumer of the page about RabbitMQ, against a real broker: each message takes effect once, however often it is delivered.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::until;
use onceward_tests::rabbitmq_server::RabbitMq;
use onceward_tests::redis_server::RedisServer;

const QUEUE: &str = "invoices";
/// Class and method of `basic.ack` in a frame of AMQP 0.9.1.
const ACK: &str = "\0\x3c\0\x50";
const LONG: Duration = Duration::from_secs(20);

/// The consumer as a process. It prints every effect to the ledger.
struct Consumer(Child);

impl Consumer {
    fn start(broker: &str, redis: &RedisServer, ledger: &Ledger) -> Self {
        let output = File::options().append(true).open(ledger.path()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rabbitmq_invoices"));
        command.args([broker, &redis.url()]).stdout(output).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn kill(mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens a channel whose messages the broker confirms, and declares the queue.
async fn publisher(broker: &RabbitMq) -> (Connection, Channel) {
    let connection = Connection::connect(&broker.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    channel.queue_declare(QUEUE.into(), QueueDeclareOptions::durable(), FieldTable::default()).await.unwrap();
    (connection, channel)
}

async fn publish(channel: &Channel, order: &str) {
    let properties =
        BasicProperties::default().with_message_id(format!("invoice-of-{order}").into()).with_delivery_mode(2);
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish("".into(), QUEUE.into(), options, order.as_bytes(), properties).await.unwrap();
    sent.await.unwrap();
}

fn sent(order: &str) -> String {
    format!("sent the invoice of {order}")
}

fn duplicate(order: &str) -> String {
    format!("acknowledged a duplicate of {order}, invoice 4711")
}

#[test]
fn page_shows_the_program_that_runs_here() {
    let program = include_str!("../../../guard/examples/rabbitmq_invoices.rs").split_once("\n\n").unwrap().1;
    let page = include_str!("../../../guard/docs/rabbitmq.md");
    assert!(page.contains(&format!("```rust,no_run\n{program}```\n")), "the page differs from the example");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_redelivered_after_its_consumer_died_takes_effect_once() {
    let (broker, redis, ledger) = (RabbitMq::start().await, RedisServer::start(), Ledger::new());
    let (_connection, channel) = publisher(&broker).await;
    // The first consumer dies after the effect, and before its acknowledgement arrives.
    let proxy = Proxy::before(broker.port()).await;
    proxy.next(ACK, TcpFault::LoseRequest);
    let first = Consumer::start(&format!("amqp://127.0.0.1:{}/%2f", proxy.port()), &redis, &ledger);
    publish(&channel, "o-1").await;
    until("the acknowledgement is lost", LONG, || async { proxy.struck() == 1 }).await;
    first.kill();
    assert_eq!(ledger.runs(), [sent("o-1")]);

    let _second = Consumer::start(&broker.url(), &redis, &ledger);
    until("the redelivery is acknowledged", LONG, || async { ledger.runs().len() == 2 }).await;
    assert_eq!(ledger.runs(), [sent("o-1"), duplicate("o-1")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_published_twice_takes_effect_once_with_two_consumers() {
    let (broker, redis, ledger) = (RabbitMq::start().await, RedisServer::start(), Ledger::new());
    let (_connection, channel) = publisher(&broker).await;
    let _consumers = [(); 2].map(|()| Consumer::start(&broker.url(), &redis, &ledger));
    let orders: Vec<_> = (0..50).map(|number| format!("o-{number}")).collect();
    for order in &orders {
        for _ in 0..3 {
            publish(&channel, order).await;
        }
    }
    until("every delivery is acknowledged", LONG, || async { ledger.runs().len() == 150 }).await;
    for order in &orders {
        assert_eq!((ledger.count(&sent(order)), ledger.count(&duplicate(order))), (1, 2), "{order}");
    }
}
