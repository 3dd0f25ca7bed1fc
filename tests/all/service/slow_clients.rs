//! Thousands of slow clients (slowloris), with ordinary clients beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use onceward_tests::client::{http, token};
use onceward_tests::metrics::Metrics;
use onceward_tests::polling::until;
use onceward_tests::service::OncewardServer;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const HEADS: usize = 2_000;
const BODIES: usize = 500;
/// Request timeout of the service.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interval between two sends of a slow client.
const BETWEEN_PIECES: Duration = Duration::from_millis(400);
const HEAD: &str =
    "POST /token HTTP/1.1\r\nhost: onceward\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n";

/// Raises the limit of open files: each connection takes one in this process.
fn make_room() {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = (HEADS + BODIES) as u64 * 2;
    limit.current = limit.current.map(|current| current.max(limit.maximum.map_or(wanted, |most| most.min(wanted))));
    setrlimit(Resource::Nofile, limit).expect("a process may raise its soft limit");
    assert!(limit.current.is_none_or(|current| current > wanted / 2), "ulimit -Hn is too low for this test: {limit:?}");
}

/// Numbers of connected and of closed clients, and the statuses they received.
#[derive(Default)]
struct Crowd {
    connected: AtomicUsize,
    cut: AtomicUsize,
    told: [AtomicUsize; 2],
}

/// Sends a few bytes at each interval until the server closes the connection.
async fn dribble(address: String, at_once: &'static str, then: &'static str, crowd: Arc<Crowd>) {
    let mut stream = TcpStream::connect(address).await.expect("the connection is accepted");
    crowd.connected.fetch_add(1, Ordering::SeqCst);
    let _ = stream.write_all(at_once.as_bytes()).await;
    let (mut read, mut write) = stream.split();
    let mut answer = Vec::new();
    let listening = read.read_to_end(&mut answer);
    let sending = async {
        while write.write_all(then.as_bytes()).await.is_ok() {
            sleep(BETWEEN_PIECES).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        // A reset counts too: the client was still sending.
        _ = listening => {}
        () = sending => {}
    }
    crowd.cut.fetch_add(1, Ordering::SeqCst);
    for (at, status) in [b"HTTP/1.1 408", b"HTTP/1.1 400"].iter().enumerate() {
        crowd.told[at].fetch_add(usize::from(answer.starts_with(*status)), Ordering::SeqCst);
    }
}

/// Requests tokens one after the other until `is_over`. Returns the response times, `None` for a failure.
async fn ordinary(url: String, is_over: Arc<AtomicBool>) -> Vec<Option<Duration>> {
    let (client, mut took) = (http(), Vec::new());
    while !is_over.load(Ordering::SeqCst) {
        let begun = Instant::now();
        let answer = timeout(Duration::from_secs(10), client.post(format!("{url}/token")).send()).await;
        let is_had = matches!(answer, Ok(Ok(answer)) if answer.status() == 201);
        took.push(is_had.then(|| begun.elapsed()));
        sleep(Duration::from_millis(5)).await;
    }
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_slow_clients_delay_no_ordinary_client() {
    make_room();
    let arguments = ["--request-timeout", "3s", "--rate-limit", "off", "--max-in-flight", "64"];
    let service = OncewardServer::start(&arguments);
    let address = service.url.trim_start_matches("http://").to_owned();
    let (crowd, is_over) = (Arc::new(Crowd::default()), Arc::new(AtomicBool::new(false)));
    let begun = Instant::now();
    let mut slow = JoinSet::new();
    for number in 0..HEADS + BODIES {
        // Interleaved, so that neither kind waits for the other.
        let (at_once, then) = if number % 5 == 0 { (HEAD_ENDED, " ") } else { (HEAD, "x-more: 1\r\n") };
        slow.spawn(dribble(address.clone(), at_once, then, Arc::clone(&crowd)));
    }
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        callers.spawn(ordinary(service.url.clone(), Arc::clone(&is_over)));
    }
    let connected = || std::future::ready(crowd.connected.load(Ordering::SeqCst) == HEADS + BODIES);
    until("all clients are connected", Duration::from_secs(10), connected).await;
    let all_in = begun.elapsed();
    while slow.join_next().await.is_some() {}
    let all_cut = begun.elapsed();
    is_over.store(true, Ordering::SeqCst);
    let took = callers.join_all().await.concat();
    let mut had: Vec<Duration> = took.iter().copied().flatten().collect();
    had.sort();
    let (count, lost) = (took.len(), took.len() - had.len());
    let of = |share: f64| had[((had.len() - 1) as f64 * share) as usize];
    let (half, slowest, longest) = (of(0.5), of(0.99), of(1.0));
    println!(
        "{HEADS} slow heads and {BODIES} slow bodies, all connected after {all_in:.1?} and all closed after {all_cut:.1?}; \
         beside them {count} ordinary requests, {lost} without a token; half within {half:.1?}, 99 of 100 within \
         {slowest:.1?}, the longest {longest:.1?}"
    );
    let told = crowd.told.each_ref().map(|told| told.load(Ordering::SeqCst));
    println!("of those closed, {} received 408 and {} 400; the rest were still sending", told[0], told[1]);
    assert_eq!((lost, count > 100), (0, true), "of {count}");
    assert!(slowest < PATIENCE, "ordinary clients do not wait for the slow ones: {slowest:?}");
    assert_eq!(crowd.cut.load(Ordering::SeqCst), HEADS + BODIES);
    let metrics = Metrics::of(&service.url).await;
    assert_eq!(metrics.sum("onceward_http_slow_bodies_total", &[]), BODIES as f64);
    assert_eq!(metrics.sum("onceward_http_requests_shed_total", &[]), 0.0, "slow clients cause no shedding");
    token(&service.url).await;
}

/// A complete head whose body is incomplete.
const HEAD_ENDED: &str = concat!(
    "POST /token HTTP/1.1\r\nhost: onceward\r\ncontent-type: application/json\r\n",
    "content-length: 1000\r\n\r\n"
);
