//! The consumer of the page about RabbitMQ, against a real broker: each message takes effect once, however often it is delivered.

use std::fs::File;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lapin::options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use onceward::store::Redis;
use onceward::{Fingerprint, Guard, Intent, Key, KeyRules, Policy, Subject, Verdict};
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::until;
use onceward_tests::rabbitmq_server::RabbitMq;
use onceward_tests::redis_server::RedisServer;
use tokio::time::{Instant, sleep, timeout};

const QUEUE: &str = "invoices";
const DEAD: &str = "invoices.dead";
/// Class and method of `basic.ack` in a frame of AMQP 0.9.1.
const ACK: &str = "\0\x3c\0\x50";
const LONG: Duration = Duration::from_secs(20);

/// The consumer as a process. It prints every effect to the ledger.
struct Consumer(Child);

impl Consumer {
    fn start(broker: &str, redis: &RedisServer, ledger: &Ledger) -> Self {
        Self::printing_to(File::options().append(true).open(ledger.path()).unwrap(), broker, redis)
    }

    fn printing_to(output: impl Into<Stdio>, broker: &str, redis: &RedisServer) -> Self {
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

/// Opens a channel whose messages the broker confirms, and declares the queues.
async fn publisher(broker: &RabbitMq) -> (Connection, Channel) {
    let connection = Connection::connect(&broker.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    // As the consumer declares them: other arguments are an error.
    channel.queue_declare(DEAD.into(), QueueDeclareOptions::durable(), FieldTable::default()).await.unwrap();
    let mut arguments = FieldTable::default();
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString(DEAD.into()));
    channel.queue_declare(QUEUE.into(), QueueDeclareOptions::durable(), arguments).await.unwrap();
    channel.queue_declare(DEAD.into(), QueueDeclareOptions::durable(), FieldTable::default()).await.unwrap();
    (connection, channel)
}

async fn publish(channel: &Channel, order: &str) {
    publish_as(channel, Some(&id_of(order)), order).await;
}

async fn publish_as(channel: &Channel, id: Option<&str>, order: &str) {
    let properties = BasicProperties::default().with_delivery_mode(2);
    let properties = id.into_iter().fold(properties, |properties, id| properties.with_message_id(id.into()));
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish("".into(), QUEUE.into(), options, order.as_bytes(), properties).await.unwrap();
    sent.await.unwrap();
}

/// Waits for this many dead letters, and returns their contents.
async fn dead_letters(channel: &Channel, number: usize) -> Vec<String> {
    let mut letters = Vec::new();
    let deadline = Instant::now() + LONG;
    while letters.len() < number {
        assert!(Instant::now() < deadline, "{letters:?}");
        match channel.basic_get(DEAD.into(), BasicGetOptions { no_ack: true }).await.unwrap() {
            Some(letter) => letters.push(String::from_utf8(letter.delivery.data.to_vec()).unwrap()),
            None => sleep(Duration::from_millis(20)).await,
        }
    }
    letters
}

fn id_of(order: &str) -> String {
    format!("invoice-of-{order}")
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

/// Nothing of the first run is known to have happened, and the rules are `retryable`: when its lease has expired, the message runs again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_whose_consumer_died_during_the_work_runs_again() {
    let (broker, redis, ledger) = (RabbitMq::start().await, RedisServer::start(), Ledger::new());
    let (_connection, channel) = publisher(&broker).await;
    // The work prints more than a pipe holds, so it does not end while no other process reads.
    let order = "o".repeat(256 * 1024);
    let publish = async || publish_as(&channel, Some("invoice-of-o"), &order).await;
    let mut first = Consumer::printing_to(Stdio::piped(), &broker.url(), &redis);
    let mut output = first.0.stdout.take().unwrap();
    publish().await;
    let began = tokio::task::spawn_blocking(move || output.read_exact(&mut [0]).map(|()| output));
    // Open until the process is dead: a closed pipe would end the work.
    let _output = timeout(LONG, began).await.expect("the work begins").unwrap().unwrap();
    first.kill();

    let _second = Consumer::start(&broker.url(), &redis, &ledger);
    until("the lease has expired", 3 * LONG, || async { ledger.runs() == [sent(&order)] }).await;
    publish().await;
    let acknowledged = || async { ledger.runs() == [sent(&order), duplicate(&order)] };
    until("a duplicate is acknowledged", LONG, acknowledged).await;
}

/// The consumer that died had promised to run the message at most once. So an operator decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_whose_consumer_died_under_at_most_once_becomes_a_dead_letter() {
    let (broker, redis, ledger) = (RabbitMq::start().await, RedisServer::start(), Ledger::new());
    let (_connection, channel) = publisher(&broker).await;
    let rules = KeyRules::at_most_once().lease(Duration::from_millis(300)).unwrap();
    let id = Key::new(id_of("o-1")).unwrap();
    let intent = Intent::new("send invoice", Subject::anonymous()).key(&id);
    let intent = intent.fingerprint(Fingerprint::of_bytes(b"o-1"));
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let Ok(Verdict::Run(pass)) = guard.check(&Policy::key(rules), &intent).await else { panic!("the key is free") };
    // The process with the signed pass has died: none renews the claim.
    pass.into_signed().await.unwrap().expect("a pass on a key");
    let _consumer = Consumer::start(&broker.url(), &redis, &ledger);
    publish(&channel, "o-1").await;
    assert_eq!(dead_letters(&channel, 1).await, ["o-1"]);
    publish(&channel, "o-2").await;
    until("the next message runs", LONG, || async { !ledger.runs().is_empty() }).await;
    assert_eq!(ledger.runs(), [sent("o-2")]);
}

/// The first run took effect, and its value is not stored: there is nothing to decide.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_whose_value_is_not_stored_is_acknowledged() {
    let (broker, redis, ledger) = (RabbitMq::start().await, RedisServer::start(), Ledger::new());
    let (_connection, channel) = publisher(&broker).await;
    let id = Key::new(id_of("o-1")).unwrap();
    let intent = Intent::new("send invoice", Subject::anonymous()).key(&id);
    let intent = intent.fingerprint(Fingerprint::of_bytes(b"o-1"));
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let Ok(Verdict::Run(pass)) = guard.check(&Policy::key(KeyRules::retryable()), &intent).await else {
        panic!("the key is free")
    };
    pass.complete(None).await.unwrap();
    let _consumer = Consumer::start(&broker.url(), &redis, &ledger);
    publish(&channel, "o-1").await;
    publish_as(&channel, None, "without an id").await;
    assert_eq!(dead_letters(&channel, 1).await, ["without an id"]);
    until("the message is acknowledged", LONG, || async { !ledger.runs().is_empty() }).await;
    assert_eq!(ledger.runs(), ["acknowledged a duplicate of o-1, number unknown"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_that_is_given_up_is_found_among_the_dead_letters() {
    let (broker, redis, ledger) = (RabbitMq::start().await, RedisServer::start(), Ledger::new());
    let (_connection, channel) = publisher(&broker).await;
    let _consumer = Consumer::start(&broker.url(), &redis, &ledger);
    publish(&channel, "o-1").await;
    until("the first message runs", LONG, || async { ledger.runs().len() == 1 }).await;
    publish_as(&channel, None, "without an id").await;
    publish_as(&channel, Some(&id_of("o-1")), "other content").await;
    let mut letters = dead_letters(&channel, 2).await;
    letters.sort();
    assert_eq!(letters, ["other content", "without an id"]);
    assert_eq!(ledger.runs(), [sent("o-1")]);
}
