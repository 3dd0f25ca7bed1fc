//! Museum rows about keys, each with two processes on one Redis.

use std::time::Duration;

use futures_util::future::join_all;
use onceward_tests::charging_app::{CHARGE, PROVIDER, provider};
use onceward_tests::client::{Answer, send};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault};
use onceward_tests::faulty_tcp_proxy::TcpFault;
use onceward_tests::key_routes::{BRIEF, KEY, LEASE, Pair, SIZE, THEN, buy, under};
use onceward_tests::polling::until;
use onceward_tests::raw_http::post;
use onceward_tests::shop::{STATUS, TAKES};
use reqwest::RequestBuilder;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{ScenarioResult, ensure};
use crate::PEER;

/// Pause between two retries.
const MOMENT: Duration = Duration::from_millis(30);

fn begin(request: RequestBuilder) -> JoinHandle<Answer> {
    tokio::spawn(send(request))
}

/// Retries until the first run has ended: no other run may begin meanwhile.
async fn one_effect_despite_retries(pair: &Pair, path: &str, takes: Duration, mark: &str) -> ScenarioResult {
    let takes = takes.as_millis() as u64;
    let first = begin(under(pair.one(), path, "k", "effect").header(TAKES, takes));
    until("it has begun", Duration::from_secs(10), || async { pair.ledger.count(mark) == 1 }).await;
    while !first.is_finished() {
        let again = under(pair.other(), path, "k", "effect").header(TAKES, takes);
        let answer = tokio::time::timeout(MOMENT * 10, send(again)).await;
        ensure(pair.ledger.count(mark) == 1, || "a second run began beside a live one".into())?;
        // A late response comes from a run, which is counted when it begins.
        if let Ok(answer) = answer {
            assert!(["in_progress", "replayed"].contains(&answer.outcome.as_str()), "{}", answer.said());
        }
        sleep(MOMENT).await;
    }
    let first = first.await.unwrap();
    assert_eq!(first.said(), "200 executed");
    let replay = buy(pair.other(), path, "k", "effect").await;
    assert_eq!((replay.said().as_str(), &replay.body), ("200 replayed", &first.body));
    ensure(pair.ledger.count(mark) == 1, || "two effects".into())
}

async fn live_orphan_scenario(kind: &str) -> ScenarioResult {
    let pair = Pair::start(PEER, kind).await;
    one_effect_despite_retries(&pair, "/keyed/orders", LEASE * 5 / 2, "begun").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_orphan() {
    live_orphan_scenario("onceward").await.unwrap();
    live_orphan_scenario("live_orphan").await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_five_seconds() {
    let pair = Pair::start(PEER, "onceward").await;
    one_effect_despite_retries(&pair, "/keyed/brief", Duration::from_secs(5), "begun").await.unwrap();
    let pair = Pair::start(PEER, "live_orphan").await;
    one_effect_despite_retries(&pair, "/keyed/brief", Duration::from_secs(5), "begun").await.unwrap_err();
}

/// The handler blocks its thread for three leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_five_seconds_on_a_blocked_thread() {
    let pair = Pair::start(PEER, "onceward").await;
    one_effect_despite_retries(&pair, "/keyed/block", BRIEF * 3, "blocking").await.unwrap();
    let pair = Pair::start(PEER, "renewed_inside").await;
    one_effect_despite_retries(&pair, "/keyed/block", BRIEF * 3, "blocking").await.unwrap_err();
}

/// After a crash in the middle of a handler, a retry succeeds within the lease and a second.
async fn forever_409_scenario(kind: &str) -> ScenarioResult {
    let mut pair = Pair::start(PEER, kind).await;
    let lost = under(pair.one(), "/keyed/orders", "k", "effect").header(TAKES, 60_000);
    let lost = tokio::spawn(async move { lost.send().await });
    pair.begun(1).await;
    pair.peers[0].kill();
    let killed = Instant::now();
    assert!(lost.await.unwrap().is_err());
    while killed.elapsed() < LEASE + Duration::from_secs(1) {
        let answer = buy(pair.other(), "/keyed/orders", "k", "effect").await;
        if answer.said() == "200 executed" {
            assert_eq!(pair.ledger.count("effect"), 1);
            return Ok(());
        }
        assert_eq!(answer.said(), "409 in_progress");
        sleep(MOMENT).await;
    }
    Err("a retry still receives in_progress for a dead run".into())
}

#[tokio::test]
async fn forever_409() {
    forever_409_scenario("onceward").await.unwrap();
    forever_409_scenario("forever_409").await.unwrap_err();
}

/// An owner that was paused for longer than its lease resumes, and settles the claim that its successor owns by now.
async fn stolen_claim_scenario(kind: &str, status: u16) -> ScenarioResult {
    let pair = Pair::start(PEER, kind).await;
    let path = "/keyed/orders";
    let late = begin(under(pair.one(), path, "k", "late").header(TAKES, 300).header(STATUS, status));
    pair.begun(1).await;
    pair.peers[0].freeze();
    let is_free = || async { pair.redis.keys().iter().all(|name| name.contains(":secret:")) };
    until("the lease expires", Duration::from_secs(10), is_free).await;
    let successor = begin(under(pair.other(), path, "k", "successor").header(TAKES, 2_000));
    pair.begun(2).await;
    pair.peers[0].thaw();
    let late = late.await.unwrap();
    assert_eq!(late.status, status);
    let third = buy(pair.other(), path, "k", "third").await;
    assert!(!successor.is_finished(), "the third request was in time");
    ensure(third.said() == "409 in_progress", || format!("while the successor runs: {}", third.said()))?;
    let successor = successor.await.unwrap();
    let replay = buy(pair.other(), path, "k", "third").await;
    assert_eq!((replay.said().as_str(), &replay.body), ("200 replayed", &successor.body));
    assert_eq!((pair.ledger.count("successor"), pair.ledger.count("third")), (1, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stolen_claim() {
    // The late owner releases the key, or completes it.
    stolen_claim_scenario("onceward", 503).await.unwrap();
    stolen_claim_scenario("onceward", 200).await.unwrap();
    stolen_claim_scenario("stolen_claim", 503).await.unwrap_err();
}

/// The client disconnects at any moment around the effect: the response is stored and replayed.
async fn cancelled_record_scenario(kind: &str) -> ScenarioResult {
    let pair = Pair::start(PEER, kind).await;
    let hang_up = async |number: u64| -> ScenarioResult {
        let (path, name) = ("/keyed/orders", format!("order-{number}"));
        let mut client = TcpStream::connect(pair.one().trim_start_matches("http://")).await.unwrap();
        let head = format!("Idempotency-Key: {name}\r\nX-Order: {name}\r\n{THEN}: 100\r\nContent-Length: 0\r\n");
        client.write_all(format!("POST {path} HTTP/1.1\r\nHost: shop\r\n{head}\r\n").as_bytes()).await.unwrap();
        if number.is_multiple_of(2) {
            // On a busy machine all other moments may come too early, and the handler never runs.
            until("the effect", LEASE * 5, || async { pair.ledger.count(&name) == 1 }).await;
        }
        sleep(Duration::from_millis(number * 3)).await;
        socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        until("a retry receives 200", LEASE * 5, || async {
            buy(pair.other(), path, &name, &name).await.status == 200
        })
        .await;
        ensure(pair.ledger.count(&name) == 1, || format!("{} effects of {name}", pair.ledger.count(&name)))
    };
    join_all((0..20).map(hang_up)).await.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_record() {
    cancelled_record_scenario("onceward").await.unwrap();
    cancelled_record_scenario("cancelled_record").await.unwrap_err();
}

/// The handler had its effect, and storing the response fails: the client receives the response, and a retry adds no effect.
async fn effect_then_500_scenario(kind: &str, path: &str, fate: TcpFault) -> ScenarioResult {
    let pair = Pair::start(PEER, kind).await;
    // Redis caches the script.
    assert_eq!(buy(pair.one(), path, "warm", "warm").await.status, 200);
    let first = begin(under(pair.one(), path, "k", "effect").header(TAKES, 100));
    pair.begun(1).await;
    // The flawed implementation uses a script on every server.
    let swap = if kind == "onceward" { pair.redis.compare_commands().swap_word() } else { "EVALSHA" };
    pair.proxy.next(swap, fate);
    let first = first.await.unwrap();
    assert_eq!(pair.proxy.struck(), 1);
    ensure(first.status == 200, || format!("the effect happened, and the client received {}", first.status))?;
    assert_eq!(first.said(), "200 unprotected");
    until("the response is stored", LEASE * 3, || async {
        let again = buy(pair.other(), path, "k", "effect").await;
        assert!(["200 replayed", "409 in_progress"].contains(&again.said().as_str()), "{}", again.said());
        again.body == first.body
    })
    .await;
    ensure(pair.ledger.count("effect") == 1, || "two effects".into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effect_then_500() {
    for path in ["/keyed/orders", "/keyed/held"] {
        let fates = [TcpFault::LoseRequest, TcpFault::LoseAnswer, TcpFault::SwallowAnswer];
        join_all(fates.map(|fate| effect_then_500_scenario("onceward", path, fate)))
            .await
            .into_iter()
            .for_each(Result::unwrap);
    }
    effect_then_500_scenario("effect_then_500", "/keyed/orders", TcpFault::LoseRequest).await.unwrap_err();
}

async fn big_answer_scenario(kind: &str) -> ScenarioResult {
    let pair = Pair::start(PEER, kind).await;
    let size = 50 * 1024 * 1024;
    let ask = async |url: &str| send(under(url, "/keyed/orders", "k", "effect").header(SIZE, size)).await;
    let first = ask(pair.one()).await;
    assert_eq!((first.said().as_str(), first.body.len()), ("200 executed", size + 36));
    let second = ask(pair.other()).await;
    ensure(pair.ledger.count("effect") == 1, || "two effects".into())?;
    assert_eq!(second.said(), "409 reply_not_kept");
    Ok(())
}

#[tokio::test]
async fn big_answer() {
    big_answer_scenario("onceward").await.unwrap();
    big_answer_scenario("big_answer").await.unwrap_err();
}

/// The access token was refreshed between two tries: the subject is the same, and differs from every other user's.
async fn token_refresh_scenario(kind: &str) -> ScenarioResult {
    let pair = Pair::start(PEER, kind).await;
    let ask = async |url: &str, bearer: &str| {
        send(under(url, "/keyed/bearer", "k", bearer).header("authorization", format!("Bearer {bearer}"))).await
    };
    let first = ask(pair.one(), "alice.1").await;
    let mallory = ask(pair.other(), "mallory.1").await;
    assert_eq!((mallory.said().as_str(), mallory.body == first.body), ("200 executed", false));
    let refreshed = ask(pair.other(), "alice.2").await;
    ensure(pair.ledger.runs().len() == 2, || "two effects for one subject".into())?;
    assert_eq!((refreshed.said().as_str(), refreshed.body), ("200 replayed", first.body));
    Ok(())
}

#[tokio::test]
async fn token_refresh() {
    token_refresh_scenario("onceward").await.unwrap();
    token_refresh_scenario("token_refresh").await.unwrap_err();
}

/// One key for the payment of two orders.
async fn other_order_scenario(kind: &str) -> ScenarioResult {
    let pair = Pair::start(PEER, kind).await;
    let pay = async |url: &str, order: u32| {
        let path = format!("/keyed/orders/{order}/pay");
        send(under(url, &path, "k", &order.to_string()).body(r#"{"amount":5}"#)).await
    };
    let (one, other) = (pay(pair.one(), 1).await, pay(pair.other(), 2).await);
    ensure(one.body != other.body, || "received the response of the other order".into())?;
    assert_eq!([one.said(), other.said()], ["200 executed", "200 executed"]);
    assert_eq!(pair.ledger.runs(), ["1", "2"]);
    assert_eq!((pay(pair.other(), 1).await.body, pay(pair.one(), 2).await.body), (one.body, other.body));
    Ok(())
}

#[tokio::test]
async fn other_order() {
    other_order_scenario("onceward").await.unwrap();
    other_order_scenario("other_order").await.unwrap_err();
}

/// The handler charges through a payment provider whose receipt is truncated, and forwards that error: a 400 that looks like that of a
/// request with a truncated body.
async fn passed_on_error_scenario(kind: &str, path: &str) -> ScenarioResult {
    let pair = Pair::start(PEER, kind).await;
    let provider = provider(&pair.ledger);
    let proxy = FaultyHttpProxy::to(&provider.url, |_| HttpFault::CutAnswer(90)).await;
    let pay = async |url: &str| send(under(url, path, "k", "pay").header(PROVIDER, &proxy.url)).await;
    let (first, second) = (pay(pair.one()).await, pay(pair.other()).await);
    let charges = pair.ledger.count(CHARGE);
    ensure(charges == 1, || format!("{charges} charges"))?;
    assert_eq!([first.said(), second.said()], ["400 replayable", "400 replayed"]);
    Ok(())
}

#[tokio::test]
async fn passed_on_error() {
    passed_on_error_scenario("onceward", "/keyed/charge").await.unwrap();
    passed_on_error_scenario("onceward", "/keyed/held/charge").await.unwrap();
    passed_on_error_scenario("passed_on_error", "/keyed/charge").await.unwrap_err();
}

/// One payment is sent three times under one key, each time with another percent-encoding of its path.
async fn percent_encoded_path_scenario(kind: &str) -> ScenarioResult {
    let pair = Pair::start(PEER, kind).await;
    let mut answers = Vec::new();
    for (at, target) in ["/keyed/orders/7/pay", "/keyed/orders/%37/pay", "/%6Beyed/%6frders/7/pay"].iter().enumerate() {
        answers.push(post(&pair.peers[at % 2].url, target, &[(KEY, "k")], "").await);
    }
    ensure(pair.ledger.runs().len() == 1, || format!("{} effects", pair.ledger.runs().len()))?;
    let said: Vec<_> = answers.iter().map(Answer::said).collect();
    assert_eq!(said, ["200 executed", "200 replayed", "200 replayed"]);
    assert!(answers.iter().all(|answer| answer.body == answers[0].body), "{answers:?}");
    Ok(())
}

#[tokio::test]
async fn percent_encoded_path() {
    percent_encoded_path_scenario("onceward").await.unwrap();
    percent_encoded_path_scenario("percent_encoded_path").await.unwrap_err();
    percent_encoded_path_scenario("token_refresh").await.unwrap();
}

/// Replies of Redis time out for a while: the commands that timed out cause no storm of retries.
async fn retry_storm_scenario(kind: &str) -> ScenarioResult {
    const KEYS: usize = 60;
    /// Time in which commands are counted while no client sends a request.
    const WATCHED: Duration = Duration::from_secs(3);
    let pair = Pair::start(PEER, kind).await;
    assert_eq!(buy(pair.one(), "/keyed/orders", "warm", "warm").await.status, 200);
    pair.proxy.slow_down(Duration::from_millis(600));
    let late = (0..KEYS).map(|number| {
        let (url, key) = (pair.one(), format!("late-{number}"));
        async move { buy(url, "/keyed/orders", &key, &key).await.said() }
    });
    assert_eq!(join_all(late).await, ["503 store_unavailable"; KEYS]);
    let monitor = pair.redis.monitor();
    sleep(WATCHED).await;
    let commands = monitor.commands().len();
    pair.proxy.slow_down(Duration::ZERO);
    until("a retry runs", LEASE * 10, || async {
        buy(pair.other(), "/keyed/orders", "late-0", "effect").await.status == 200
    })
    .await;
    assert_eq!((pair.ledger.count("late-0"), pair.ledger.count("effect")), (0, 1));
    ensure(commands <= KEYS, || format!("{commands} commands in three seconds without a request"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_storm() {
    retry_storm_scenario("onceward").await.unwrap();
    retry_storm_scenario("retry_storm").await.unwrap_err();
}
