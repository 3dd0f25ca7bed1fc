//! Five stories that made somebody want this, from end to end: two processes, one Redis, and a network that loses things.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use onceward::actix::{KeyFrom, Protect, SubjectFrom};
use onceward::store::Redis;
use onceward::{Effect, Guard, Intent, Key, KeyRules, Policy, Reply, RunError, RunOutcome, Settled, Subject};
use onceward_tests::client::{Answer, http, send};
use onceward_tests::consumer::{DELIVERED, Message};
use onceward_tests::key_routes::{BRIEF, KEY, LEASE, Pair, THEN, buy, serve, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{ORDER, STATUS, TAKES, TestServer, header};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::PEER;

const LONG: Duration = Duration::from_secs(10);
/// How long an impatient client waits.
const IMPATIENT: Duration = Duration::from_millis(200);

/// Sends, gives up, and sends again to the other process, until it is told something that is not *in progress*.
async fn insist(pair: &Pair, path: &str, key: &str, order: &str) -> Answer {
    for url in [pair.one(), pair.other()].into_iter().cycle().take(500) {
        let answer = buy(url, path, key, order).await;
        if answer.outcome != "in_progress" {
            return answer;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("it is in progress for ever")
}

/// An order is placed, the answer is late, the client gives up and tries again elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_whose_answer_was_too_late_is_placed_once_and_the_retry_gets_its_receipt() {
    for path in ["/keyed/orders", "/keyed/held", "/keyed/wait"] {
        let pair = Pair::start(PEER, "onceward").await;
        let lost = under(pair.one(), path, "order-1", "placed").header(THEN, 1_000).timeout(IMPATIENT).send().await;
        assert!(lost.is_err(), "the client gives up before there is an answer");
        let retry = insist(&pair, path, "order-1", "placed").await;
        assert_eq!(retry.said(), "200 replayed");
        for url in [pair.one(), pair.other()] {
            let again = buy(url, path, "order-1", "placed").await;
            assert_eq!((again.said().as_str(), &again.body), ("200 replayed", &retry.body));
        }
        assert_eq!(pair.ledger.runs(), ["placed"]);
        assert_eq!(buy(pair.one(), path, "order-2", "placed").await.said(), "200 executed", "another order is another");
    }
}

/// A request that was on its way for long arrives after the retry that was sent in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_request_that_arrives_after_its_retry_gets_the_answer_to_the_retry() {
    let pair = Pair::start(PEER, "onceward").await;
    let path = "/keyed/orders";
    let address = pair.one().strip_prefix("http://").unwrap();
    let mut first = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: 9\r\n{KEY}: k\r\n{ORDER}: first\r\n\r\none "
    );
    first.write_all(head.as_bytes()).await.unwrap();
    // The rest of it is still on its way.
    let retry = send(under(pair.other(), path, "k", "retry").body("one order")).await;
    assert_eq!(retry.said(), "200 executed");
    first.write_all(b"order").await.unwrap();
    let mut answer = String::new();
    first.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("onceward-outcome: replayed"), "{answer}");
    assert!(answer.ends_with(std::str::from_utf8(&retry.body).unwrap()), "{answer}");

    // If it was about something else by mistake, it is told so, and nothing runs either.
    let other = send(under(pair.one(), path, "k", "first").body("ten orders")).await;
    assert_eq!(other.said(), "422 key_reused");
    assert_eq!(pair.ledger.runs(), ["retry"]);
}

/// Two processes are two guards and servers on one Redis, in which the stock is kept too.
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

/// Takes one from the stock, and is slow to say so.
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
async fn stock_is_deducted_once_however_often_the_deduction_is_sent() {
    let warehouse = Warehouse::open(2);
    assert!(warehouse.deduct(0, "a", 1_000).await.is_err(), "the caller gives up");
    let mut told = Vec::new();
    until("the retry is answered", LONG, || async {
        let answer = warehouse.deduct(1, "a", 0).await.unwrap();
        assert_eq!(warehouse.stock(), 1);
        answer.outcome == "replayed"
    })
    .await;
    for (at, key) in [(0, "a"), (1, "b"), (0, "b"), (1, "c"), (0, "c")] {
        let answer = warehouse.deduct(at, key, 0).await.unwrap();
        told.push(format!("{} {}", answer.said(), String::from_utf8_lossy(&answer.body)));
    }
    let expected = [
        "200 replayed 1 left",
        "200 executed 0 left",
        "200 replayed 0 left",
        "409 replayable sold out",
        // It was told no. It is told no again, also when there is some.
        "409 replayed sold out",
    ];
    assert_eq!(told, expected);
    warehouse.redis.ask::<()>("SET stock 5");
    assert_eq!(warehouse.deduct(1, "c", 0).await.unwrap().said(), "409 replayed");
    assert_eq!(warehouse.stock(), 5);
    assert_eq!(warehouse.deduct(1, "d", 0).await.unwrap().said(), "200 executed");
    assert_eq!(warehouse.stock(), 4);
}

/// A payment goes by its order's own number. The process dies after the money was taken, and nobody may guess.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_that_nobody_can_tell_the_end_of_is_not_taken_twice_and_can_be_settled() {
    let mut pair = Pair::start(PEER, "onceward").await;
    let path = "/keyed/held";
    let lost = under(pair.one(), path, "payment-1", "charged").header(THEN, 60_000);
    let lost = tokio::spawn(async move { lost.send().await });
    until("the money is taken", LONG, || async { pair.ledger.count("charged") == 1 }).await;
    pair.peers[0].kill();
    assert!(lost.await.unwrap().is_err());
    let is_unknown = || async { buy(pair.other(), path, "payment-1", "charged").await.said() == "409 outcome_unknown" };
    until("nobody can tell", LEASE * 3, is_unknown).await;
    assert_eq!(pair.ledger.count("charged"), 1);

    // Somebody has asked the bank.
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
async fn a_payment_is_made_once_for_an_order_and_a_declined_one_can_be_made_again() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let rules = KeyRules::at_most_once().lease(LEASE).unwrap();
    let pay = Protect::key(&guard, SubjectFrom::anonymous(), rules).from(KeyFrom::path("order")).action("pay");
    let served = serve(&ledger, move |config| {
        let route = web::post().to(onceward_tests::key_routes::purchase);
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
    assert_eq!((ledger.count("paid-1"), ledger.count("paid-2")), (2, 1), "once declined, once paid; and another order");
}

/// The states of an order. It goes forward only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum State {
    Created = 1,
    Paid = 2,
    Shipped = 3,
}

/// What became of a message about an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Transition {
    To(State),
    There,
    TooLate(State),
}

/// Moves the order on, if it is not there or beyond: one conditional update, as a database would do it.
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
async fn messages_about_an_order_may_come_twice_and_in_any_order() {
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
        // Each of them is delivered again, elsewhere, and is told the same again.
        (1, "m2", State::Paid, RunOutcome::Replayed(Transition::TooLate(State::Shipped))),
        (0, "m3", State::Shipped, RunOutcome::Replayed(Transition::To(State::Shipped))),
        (1, "m1", State::Created, RunOutcome::Replayed(Transition::To(State::Created))),
        // Another message that says what is so already.
        (1, "m4", State::Shipped, RunOutcome::Executed(Transition::There)),
    ] {
        assert_eq!(receive(at, id, to).await.unwrap(), expected, "{id}");
        assert!(redis.ask::<u8>("GET order") >= State::Created as u8);
    }
    assert_eq!(redis.ask::<u8>("GET order"), State::Shipped as u8, "it never went back");
}

/// Two consumers, each with a queue of its own.
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

    /// What became of the deliveries so far.
    fn delivered(&self) -> Vec<String> {
        self.redis.ask(&format!("LRANGE {DELIVERED} 0 -1"))
    }

    async fn wait_for(&self, end: &str) {
        let is_there = || async { self.delivered().iter().any(|line| line.contains(end)) };
        until(end, LONG, is_there).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_redelivered_while_a_slow_consumer_has_it_is_sent_once() {
    let consumers = Consumers::start();
    // Several leases long.
    let message = Message { takes: 1_500, ..Message::new("invoice-4711") };
    consumers.deliver(0, &message);
    until("it has begun", LONG, || async { consumers.ledger.count("begun") == 1 }).await;
    consumers.deliver(1, &message);
    consumers.wait_for("in_progress").await;
    assert_eq!(consumers.ledger.count("invoice-4711"), 0, "the first is not done yet");
    consumers.wait_for("replayed of").await;
    let delivered = consumers.delivered();
    let ends: Vec<_> = delivered.iter().filter(|line| !line.ends_with("in_progress")).collect();
    let [executed, replayed] = &ends[..] else { panic!("{delivered:?}") };
    let by = executed.strip_prefix("invoice-4711 executed by ").expect("the first did it");
    assert_eq!(**replayed, format!("invoice-4711 replayed of {by}"));
    assert_eq!(consumers.ledger.runs(), ["begun", "invoice-4711"]);
    assert!(consumers.peers[0].url.ends_with(by), "{by}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_a_consumer_that_died_is_sent_by_the_other() {
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
