//! Slow clients of the proxy: they delay no other client, and are cut after `request_timeout`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward_tests::client::{http, send, token};
use onceward_tests::legacy_shop::LegacyShop;
use onceward_tests::polling::until;
use onceward_tests::raw_http::connect;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

const HEADS: usize = 600;
const BODIES: usize = 390;
const READERS: usize = 10;
/// Interval between two sends or reads of a slow client.
const BETWEEN_PIECES: Duration = Duration::from_millis(500);
/// The required p99 of fast clients beside the slow ones.
const P99: Duration = Duration::from_millis(50);
/// The p99 without slow clients above which a measurement says little: other processes keep the machine busy.
const BUSY: Duration = Duration::from_millis(25);
/// Maximum number of measurements.
const ROUNDS: usize = 5;
/// Maximum number of those that may miss the requirement: a short load of the machine may fall on one proxy only.
const MISSES: usize = 2;
/// Number of ticks of the fast clients, at 50 per second.
const TICKS: usize = 250;
const TICK: Duration = Duration::from_millis(20);
/// `request_timeout` in the tests of a slow client that is cut.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Time after which a connection counts as not closed.
const GIVE_UP: Duration = Duration::from_secs(20);
const HEAD: &str = "POST /orders HTTP/1.1\r\nhost: shop\r\ncontent-type: application/x-www-form-urlencoded\r\n";
const BODY: &str = concat!(
    "POST /orders HTTP/1.1\r\nhost: shop\r\ncontent-type: application/x-www-form-urlencoded\r\n",
    "content-length: 1000\r\n\r\n"
);
const READER: &str = "GET /big?bytes=100000000 HTTP/1.1\r\nhost: shop\r\n\r\n";

/// Raises the limit of open files: each connection takes one in this process.
fn make_room() {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = (HEADS + BODIES + READERS) as u64 * 2;
    limit.current = limit.current.map(|current| current.max(limit.maximum.map_or(wanted, |most| most.min(wanted))));
    setrlimit(Resource::Nofile, limit).expect("a process may raise its soft limit");
    assert!(limit.current.is_none_or(|current| current >= wanted), "ulimit -Hn is too low for this test: {limit:?}");
}

/// Sends the beginning of a request, then a piece at each interval.
async fn dribble(url: String, at_once: &'static str, piece: &'static str, open: Arc<AtomicUsize>) {
    let mut stream = connect(&url).await;
    stream.write_all(at_once.as_bytes()).await.unwrap();
    open.fetch_add(1, Ordering::SeqCst);
    loop {
        sleep(BETWEEN_PIECES).await;
        stream.write_all(piece.as_bytes()).await.expect("the connection is open");
    }
}

/// Reads a large response, a few bytes at each interval.
async fn read_slowly(url: String, open: Arc<AtomicUsize>) {
    let mut stream = connect(&url).await;
    stream.write_all(READER.as_bytes()).await.unwrap();
    let mut piece = [0; 1024];
    stream.read_exact(&mut piece).await.unwrap();
    open.fetch_add(1, Ordering::SeqCst);
    loop {
        sleep(BETWEEN_PIECES).await;
        stream.read_exact(&mut piece).await.expect("the connection is open");
    }
}

/// Sends a page request or a submission with a token at each tick, whether or not earlier ones have ended. Returns the sorted times of
/// all requests.
async fn fast_requests(url: &str) -> Vec<Duration> {
    let (client, mut all, mut tick) = (http(), JoinSet::new(), interval(TICK));
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in 0..TICKS {
        tick.tick().await;
        let (client, url) = (client.clone(), url.to_owned());
        all.spawn(async move {
            if number % 2 == 0 {
                let begun = Instant::now();
                assert_eq!(send(client.get(format!("{url}/headers"))).await.status, 200);
                return vec![begun.elapsed()];
            }
            let begun = Instant::now();
            let issued = send(client.post(format!("{url}/_onceward/token"))).await;
            let fetched = begun.elapsed();
            let issued: onceward_api::IssuedToken = serde_json::from_slice(&issued.body).unwrap();
            // Without an order, which the application writes to the disk.
            let form = [("_onceward", issued.token.as_str()), ("item", "tea")];
            let begun = Instant::now();
            assert_eq!(send(client.post(format!("{url}/sink")).form(&form)).await.said(), "200 executed");
            vec![fetched, begun.elapsed()]
        });
    }
    let mut took = all.join_all().await.concat();
    took.sort();
    took
}

fn percentile(sorted: &[Duration], share: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

/// Connects all slow clients.
async fn slow_clients(url: &str) -> JoinSet<()> {
    let (mut slow, open) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..HEADS {
        slow.spawn(dribble(url.to_owned(), HEAD, "x-more: 1\r\n", Arc::clone(&open)));
    }
    for _ in 0..BODIES {
        slow.spawn(dribble(url.to_owned(), BODY, "x", Arc::clone(&open)));
    }
    for _ in 0..READERS {
        slow.spawn(read_slowly(url.to_owned(), Arc::clone(&open)));
    }
    let are_open = || std::future::ready(open.load(Ordering::SeqCst) == HEADS + BODIES + READERS);
    until("all slow clients are connected", GIVE_UP, are_open).await;
    slow
}

/// Measures the p99 of fast clients of two proxies at the same time: one without slow clients, and one with them.
async fn p99(quiet: &str, busy: &str) -> [Duration; 2] {
    let mut slow = slow_clients(busy).await;
    let (alone, beside) = tokio::join!(fast_requests(quiet), fast_requests(busy));
    assert!(slow.try_join_next().is_none(), "a slow client that makes progress is not cut");
    slow.shutdown().await;
    let told = |took: &[Duration]| {
        let [half, most, all] = [0.5, 0.99, 1.0].map(|share| percentile(took, share));
        println!(
            "  {} requests: half within {half:.1?}, 99 of 100 within {most:.1?}, the longest {all:.1?}",
            took.len()
        );
        most
    };
    println!("fast clients alone, and beside {HEADS} slow heads, {BODIES} slow bodies and {READERS} slow readers:");
    [told(&alone), told(&beside)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_slow_clients_delay_no_fast_client() {
    make_room();
    let shop = LegacyShop::start();
    let connections = ["--max-connections-per-client", "off", "--request-timeout", "60s"];
    // Fewer than there are slow bodies: a request that waits for its body is not in flight.
    let requests = ["--max-in-flight", "64", "--rate-limit", "off"];
    let [quiet, busy] = [(); 2].map(|()| shop.proxy(&[connections, requests].concat()));
    let (mut missed, mut is_close) = (0, false);
    for _ in 0..ROUNDS {
        let [alone, beside] = p99(&quiet.url, &busy.url).await;
        match beside < P99 {
            true => return,
            false if alone < BUSY => missed += 1,
            false => is_close |= beside < alone * 2,
        }
        assert!(missed <= MISSES, "99 of 100 requests take longer than {P99:?} beside slow clients, {missed} times");
    }
    assert!(
        is_close,
        "on a busy machine, 99 of 100 requests take twice as long as without slow clients, {ROUNDS} times"
    );
}

/// Returns the time until the proxy closes a connection on which this was sent, and its response.
async fn cut(url: &str, sent: &str) -> (Duration, String) {
    let begun = Instant::now();
    let mut stream = connect(url).await;
    stream.write_all(sent.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A reset closes the connection, too.
    let _ = timeout(GIVE_UP, stream.read_to_end(&mut answer)).await.expect("the connection is closed");
    (begun.elapsed(), String::from_utf8(answer).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_client_is_cut_after_the_request_timeout() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--request-timeout", "1s"]);
    // A body that passes while it arrives, and one that the proxy reads first.
    let streamed = "POST /sink HTTP/1.1\r\nhost: shop\r\ncontent-length: 1000\r\n\r\nx";
    let token = "POST /_onceward/token HTTP/1.1\r\nhost: shop\r\ncontent-length: 9\r\n\r\n{";
    let served = "GET /headers HTTP/1.1\r\nhost: shop\r\n\r\n";
    let mut all = JoinSet::new();
    for (sent, status) in [
        ("", ""),
        ("GET / HT", ""),
        (HEAD, ""),
        (BODY, "HTTP/1.1 400"),
        (streamed, "HTTP/1.1 400"),
        (token, "HTTP/1.1 400"),
        (served, "HTTP/1.1 200"),
    ] {
        let url = proxy.url.clone();
        all.spawn(async move { (cut(&url, sent).await, sent, status) });
    }
    for ((took, answer), sent, status) in all.join_all().await {
        assert!(took >= REQUEST_TIMEOUT && took < GIVE_UP, "{took:?} after {sent:?}");
        assert!(answer.starts_with(status) && answer.is_empty() == status.is_empty(), "{answer:?} after {sent:?}");
    }
    assert_eq!(shop.orders().len(), 0);
    let warned = proxy.lines("a request to the upstream failed");
    assert!(warned.is_empty(), "a slow client is no failure of the upstream: {warned:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_over_the_share_of_a_client_are_closed() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--max-connections", "20", "--max-connections-per-client", "5"]);
    let (mut open, mut served) = (Vec::new(), 0);
    for _ in 0..16 {
        let mut stream = connect(&proxy.url).await;
        let mut head = [0; 12];
        // A closed connection fails here, or at the read.
        let _ = stream.write_all(b"GET /headers HTTP/1.1\r\nhost: shop\r\n\r\n").await;
        let is_served = timeout(GIVE_UP, stream.read_exact(&mut head)).await.expect("a response or an end").is_ok();
        served += usize::from(is_served && &head == b"HTTP/1.1 200");
        open.push(stream);
    }
    assert_eq!(served, 10, "half of all connections");
    drop(open);
    let is_served = || async { http().get(format!("{}/headers", proxy.url)).send().await.is_ok() };
    until("the client is served again", GIVE_UP, is_served).await;
    token(&format!("{}/_onceward", proxy.url)).await;
}
