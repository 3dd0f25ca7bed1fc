//! End-to-end scenarios of real applications: two processes, one Redis, and requests or responses that get lost.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use onceward::actix::{KeyFrom, Protect, SubjectFrom};
use onceward::store::Redis;
use onceward::{Effect, Guard, Intent, Key, KeyRules, Policy, Reply, RunError, RunOutcome, Settled, Subject};
use onceward_tests::actix_handlers::header;
use onceward_tests::client::{Answer, http, send};
use onceward_tests::consumer::{DELIVERED, Message};
use onceward_tests::key_routes::{BRIEF, KEY, LEASE, Pair, THEN, buy, serve, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{ORDER, STATUS, TAKES, TestServer};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::PEER;

const LONG: Duration = Duration::from_secs(10);
/// Timeout of an impatient client.
const IMPATIENT: Duration = Duration::from_millis(200);

/// Retries on both processes in turn until the response is not `in_progress`.
async fn retry_until_done(pair: &Pair, path: &str, key: &str, order: &str) -> Answer {
    for url in [pair.one(), pair.other()].into_iter().cycle().take(500) {
        let answer = buy(url, path, key, order).await;
        if answer.outcome != "in_progress" {
            return answer;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("the order is in progress forever")
}

/// An order is placed, the response is late, and the client times out and retries on the other process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_with_a_late_response_is_placed_once() {
    for path in ["/keyed/orders", "/keyed/held", "/keyed/wait"] {
        let pair = Pair::start(PEER, "onceward").await;
        let lost = under(pair.one(), path, "order-1", "placed").header(THEN, 1_000).timeout(IMPATIENT).send().await;
        assert!(lost.is_err(), "the client times out before the response");
        let retry = retry_until_done(&pair, path, "order-1", "placed").await;
        assert_eq!(retry.said(), "200 replayed");
        for url in [pair.one(), pair.other()] {
            let again = buy(url, path, "order-1", "placed").await;
            assert_eq!((again.said().as_str(), &again.body), ("200 replayed", &retry.body));
        }
        assert_eq!(pair.ledger.runs(), ["placed"]);
        assert_eq!(buy(pair.one(), path, "order-2", "placed").await.said(), "200 executed", "another key runs");
    }
}

/// A delayed request arrives after its retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_request_after_its_retry_receives_the_stored_response() {
    let pair = Pair::start(PEER, "onceward").await;
    let path = "/keyed/orders";
    let address = pair.one().strip_prefix("http://").unwrap();
    let mut first = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: 9\r\n{KEY}: k\r\n{ORDER}: first\r\n\r\none "
    );
    first.write_all(head.as_bytes()).await.unwrap();
    // The rest of the body arrives later.
    let retry = send(under(pair.other(), path, "k", "retry").body("one order")).await;
    assert_eq!(retry.said(), "200 executed");
    first.write_all(b"order").await.unwrap();
    let mut answer = String::new();
    first.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("onceward-outcome: replayed"), "{answer}");
    assert!(answer.ends_with(std::str::from_utf8(&retry.body).unwrap()), "{answer}");

    // The same key with other content is rejected, and nothing runs.
    let other = send(under(pair.one(), path, "k", "first").body("ten orders")).await;
    assert_eq!(other.said(), "422 key_reused");
    assert_eq!(pair.ledger.runs(), ["retry"]);
}

/// Two guards and servers on one Redis, which also holds the stock.
struct Warehouse {
    redis: RedisServer,
    served: [TestServer; 2],
}

impl Warehouse {
    fn open(stock: i64) -> Self {
        let (redis, ledger) = (RedisServer::start(), Ledger::new());
        redis.ask::<()>(&format!("SET stock {stock}"));
        let served = [(); 2].map(|()| {
            let guard = Guard::new(Redis::open(&redis.url()).unwrap());
            let client = web::Data::new(redis::Client::open(redis.url()).unwrap());
            let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable().lease(BRIEF).unwrap());
            serve(&ledger, move |config| {
                let deduct = web::resource("/deduct").wrap(protect.clone()).route(web::post().to(deduct));
                config.app_data(client.clone()).service(deduct);
            })
        });
        Self { redis, served }
    }

    fn stock(&self) -> i64 {
        self.redis.ask("GET stock")
    }

    async fn deduct(&self, at: usize, key: &str, takes: u64) -> Result<Answer, reqwest::Error> {
        let request = http().post(format!("{}/deduct", self.served[at].url)).header(KEY, key).header(TAKES, takes);
        Ok(Answer::of(request.timeout(if takes > 0 { IMPATIENT } else { LONG }).send().await?).await)
    }
}

/// Deducts one item from the stock, and responds late.
async fn deduct(request: HttpRequest, client: web::Data<redis::Client>) -> HttpResponse {
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let left: i64 = redis::cmd("DECR").arg("stock").query_async(&mut connection).await.unwrap();
    if left < 0 {
        redis::cmd("INCR").arg("stock").exec_async(&mut connection).await.unwrap();
        return HttpResponse::Conflict().body("sold out");
    }
    let takes = header(&request, TAKES).unwrap().parse().unwrap();
    sleep(Duration::from_millis(takes)).await;
    HttpResponse::Ok().body(format!("{left} left"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_is_deducted_once_despite_retries() {
    let warehouse = Warehouse::open(2);
    assert!(warehouse.deduct(0, "a", 1_000).await.is_err(), "the client times out");
    let mut received = Vec::new();
    until("the retry is replayed", LONG, || async {
        let answer = warehouse.deduct(1, "a", 0).await.unwrap();
        assert_eq!(warehouse.stock(), 1);
        answer.outcome == "replayed"
    })
    .await;
    for (at, key) in [(0, "a"), (1, "b"), (0, "b"), (1, "c"), (0, "c")] {
        let answer = warehouse.deduct(at, key, 0).await.unwrap();
        received.push(format!("{} {}", answer.said(), String::from_utf8_lossy(&answer.body)));
    }
    let expected = [
        "200 replayed 1 left",
        "200 executed 0 left",
        "200 replayed 0 left",
        "409 replayable sold out",
        // The rejection is stored, and replayed even when there is stock again.
        "409 replayed sold out",
    ];
    assert_eq!(received, expected);
    warehouse.redis.ask::<()>("SET stock 5");
    assert_eq!(warehouse.deduct(1, "c", 0).await.unwrap().said(), "409 replayed");
    assert_eq!(warehouse.stock(), 5);
    assert_eq!(warehouse.deduct(1, "d", 0).await.unwrap().said(), "200 executed");
    assert_eq!(warehouse.stock(), 4);
}

/// The process crashes after the money was taken, so the outcome is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payment_with_unknown_outcome_runs_once_until_settled() {
    let mut pair = Pair::start(PEER, "onceward").await;
    let path = "/keyed/held";
    let lost = under(pair.one(), path, "payment-1", "charged").header(THEN, 60_000);
    let lost = tokio::spawn(async move { lost.send().await });
    until("the payment is charged", LONG, || async { pair.ledger.count("charged") == 1 }).await;
    pair.peers[0].kill();
    assert!(lost.await.unwrap().is_err());
    let is_unknown = || async { buy(pair.other(), path, "payment-1", "charged").await.said() == "409 outcome_unknown" };
    until("the outcome is unknown", LEASE * 3, is_unknown).await;
    assert_eq!(pair.ledger.count("charged"), 1);

    // An operator has asked the bank.
    let guard = Guard::new(Redis::open(&pair.redis.url()).unwrap());
    let key = Key::new("payment-1").unwrap();
    let intent = Intent::new("POST /keyed/held", Subject::anonymous()).key(&key);
    let rules = KeyRules::at_most_once().lease(LEASE).unwrap();
    let receipt = Reply::new(200, "the bank says it is paid");
    let settled = guard.settle(&rules, &intent, None, Effect::Applied, Some(receipt)).await.unwrap();
    assert_eq!(settled, Settled::Final);
    let retry = buy(pair.other(), path, "payment-1", "charged").await;
    assert_eq!((retry.said().as_str(), &retry.body[..]), ("200 replayed", &b"the bank says it is paid"[..]));
    assert_eq!(pair.ledger.count("charged"), 1);
}

/// The order's number in the path is the key: a second call returns the result without a second charge.
#[tokio::test]
async fn order_is_paid_once_after_a_declined_payment() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let rules = KeyRules::at_most_once().lease(LEASE).unwrap();
    let pay = Protect::key(&guard, SubjectFrom::anonymous(), rules).from(KeyFrom::path("order")).action("pay");
    let served = serve(&ledger, move |config| {
        let route = web::post().to(onceward_tests::actix_handlers::purchase);
        config.service(web::resource("/orders/{order}/payment").wrap(pay.clone()).route(route));
    });
    let pay = async |order: u32, status: u16| {
        let request = http().post(format!("{}/orders/{order}/payment", served.url));
        send(request.header(ORDER, format!("paid-{order}")).header(STATUS, status)).await
    };
    assert_eq!(pay(1, 429).await.said(), "429 not_applied");
    let first = pay(1, 201).await;
    assert_eq!(first.said(), "201 executed");
    let second = pay(1, 201).await;
    assert_eq!((second.said().as_str(), second.body), ("201 replayed", first.body));
    assert_eq!(pay(2, 201).await.said(), "201 executed");
    assert_eq!((ledger.count("paid-1"), ledger.count("paid-2")), (2, 1), "declined once, paid once, and another order");
}

/// The states of an order, which only advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum State {
    Created = 1,
    Paid = 2,
    Shipped = 3,
}

/// The result of a message about an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Transition {
    To(State),
    There,
    TooLate(State),
}

/// Advances the order with one conditional update, unless it is in this state or a later one.
async fn advance(redis: &redis::Client, to: State) -> Result<Transition, redis::RedisError> {
    let script = "local at = tonumber(redis.call('GET', KEYS[1]) or '0')
        if at < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
        return at";
    let mut connection = redis.get_multiplexed_async_connection().await?;
    let mut command = redis::cmd("EVAL");
    let at: u8 = command.arg(script).arg(1).arg("order").arg(to as u8).query_async(&mut connection).await?;
    let state = [State::Created, State::Paid, State::Shipped].into_iter().find(|state| *state as u8 == at);
    Ok(match state {
        Some(state) if state == to => Transition::There,
        Some(state) if state > to => Transition::TooLate(state),
        _ => Transition::To(to),
    })
}

#[tokio::test]
async fn order_messages_may_repeat_and_arrive_out_of_order() {
    let redis = RedisServer::start();
    let client = redis::Client::open(redis.url()).unwrap();
    let guards = [(); 2].map(|()| Guard::new(Redis::open(&redis.url()).unwrap()));
    let policy = Policy::key(KeyRules::retryable().lease(BRIEF).unwrap());
    let receive =
        async |at: usize, id: &str, to: State| -> Result<RunOutcome<Transition>, RunError<redis::RedisError>> {
            let key = Key::of_parts(["order", id]).unwrap();
            let intent = Intent::new("move order", Subject::anonymous()).key(&key);
            guards[at].run(&policy, &intent, async || advance(&client, to).await).await
        };
    for (at, id, to, expected) in [
        (0, "m1", State::Created, RunOutcome::Executed(Transition::To(State::Created))),
        // Shipped overtakes paid.
        (1, "m3", State::Shipped, RunOutcome::Executed(Transition::To(State::Shipped))),
        (0, "m2", State::Paid, RunOutcome::Executed(Transition::TooLate(State::Shipped))),
        // Each message is redelivered to the other process, and its result is replayed.
        (1, "m2", State::Paid, RunOutcome::Replayed(Transition::TooLate(State::Shipped))),
        (0, "m3", State::Shipped, RunOutcome::Replayed(Transition::To(State::Shipped))),
        (1, "m1", State::Created, RunOutcome::Replayed(Transition::To(State::Created))),
        // Another message for the current state.
        (1, "m4", State::Shipped, RunOutcome::Executed(Transition::There)),
    ] {
        assert_eq!(receive(at, id, to).await.unwrap(), expected, "{id}");
        assert!(redis.ask::<u8>("GET order") >= State::Created as u8);
    }
    assert_eq!(redis.ask::<u8>("GET order"), State::Shipped as u8, "the order never goes back");
}

/// Two consumers, each with its own queue.
struct Consumers {
    redis: RedisServer,
    ledger: Ledger,
    peers: [Peer; 2],
}

impl Consumers {
    fn start() -> Self {
        let (redis, ledger) = (RedisServer::start(), Ledger::new());
        let peers = [(); 2].map(|()| Peer::start(PEER, "consumer", &redis.url(), &ledger));
        Self { redis, ledger, peers }
    }

    fn deliver(&self, to: usize, message: &Message) {
        let mut connection = self.redis.connection();
        redis::cmd("RPUSH").arg(&self.peers[to].url).arg(message.text()).exec(&mut connection).unwrap();
    }

    /// Returns the outcomes of the deliveries so far.
    fn delivered(&self) -> Vec<String> {
        self.redis.ask(&format!("LRANGE {DELIVERED} 0 -1"))
    }

    async fn wait_for(&self, end: &str) {
        let is_there = || async { self.delivered().iter().any(|line| line.contains(end)) };
        until(end, LONG, is_there).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_redelivered_during_a_slow_run_is_sent_once() {
    let consumers = Consumers::start();
    // Takes several leases.
    let message = Message { takes: 1_500, ..Message::new("invoice-4711") };
    consumers.deliver(0, &message);
    until("it has begun", LONG, || async { consumers.ledger.count("begun") == 1 }).await;
    consumers.deliver(1, &message);
    consumers.wait_for("in_progress").await;
    assert_eq!(consumers.ledger.count("invoice-4711"), 0, "the first delivery is still in flight");
    consumers.wait_for("replayed of").await;
    let delivered = consumers.delivered();
    let ends: Vec<_> = delivered.iter().filter(|line| !line.ends_with("in_progress")).collect();
    let [executed, replayed] = &ends[..] else { panic!("{delivered:?}") };
    let by = executed.strip_prefix("invoice-4711 executed by ").expect("the first consumer executed it");
    assert_eq!(**replayed, format!("invoice-4711 replayed of {by}"));
    assert_eq!(consumers.ledger.runs(), ["begun", "invoice-4711"]);
    assert!(consumers.peers[0].url.ends_with(by), "{by}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_of_a_crashed_consumer_is_sent_by_another() {
    let mut consumers = Consumers::start();
    consumers.deliver(0, &Message { takes: 60_000, ..Message::new("invoice-4711") });
    until("it has begun", LONG, || async { consumers.ledger.count("begun") == 1 }).await;
    consumers.peers[0].kill();
    consumers.deliver(1, &Message::new("invoice-4711"));
    consumers.wait_for("executed by").await;
    assert_eq!(consumers.ledger.count("invoice-4711"), 1);
    consumers.deliver(1, &Message::new("invoice-4711"));
    consumers.wait_for("replayed of").await;
    assert_eq!(consumers.ledger.count("invoice-4711"), 1);
}
