//! Overload: requests beyond a limit are rejected in time with a problem, and clients within the limit are not affected.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward_tests::client::{http, send, token};
use onceward_tests::metrics::Metrics;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::get;
use onceward_tests::service_calls::post;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

const LONG: Duration = Duration::from_secs(20);

async fn connect(url: &str) -> TcpStream {
    TcpStream::connect(url.trim_start_matches("http://")).await.expect("the service listens")
}

/// Reads until the connection is closed.
async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = timeout(LONG, stream.read_to_end(&mut answer)).await.expect("the connection is closed in time");
    read.expect("the connection is closed without a reset");
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn requests_beyond_max_in_flight_are_shed_but_health_is_not() {
    let redis = RedisServer::start();
    let patient = ["--store", &redis.url(), "--store-timeout", "20s", "--max-in-flight", "3"];
    let service = OncewardServer::start(&patient);
    let url = service.url.clone();
    token(&url).await;
    redis.freeze();
    let mut held = JoinSet::new();
    for _ in 0..3 {
        let url = url.clone();
        held.spawn(async move { post(&url, "/token", &json!({})).await.status });
    }
    let in_flight = || async { Metrics::of(&url).await.sum("onceward_http_requests_in_flight", &[]) };
    until("three requests are in flight", LONG, || async { in_flight().await == 3.0 }).await;
    let client = http();
    for path in ["/token", "/claim", "/openapi.json", "/"] {
        let begun = Instant::now();
        let answer = send(client.post(format!("{url}{path}"))).await;
        assert_eq!(
            (answer.said().as_str(), answer.headers["retry-after"].to_str().ok()),
            ("503 overloaded", Some("1")),
            "{path}"
        );
        assert!(begun.elapsed() < Duration::from_secs(5), "{path} took {:?}", begun.elapsed());
    }
    assert_eq!(get(&url, "/healthz").await.status, 200);
    for path in ["/dashboard", "/dashboard/dashboard.js"] {
        assert_eq!(get(&url, path).await.status, 200, "{path}");
    }
    assert_eq!(Metrics::of(&url).await.sum("onceward_http_requests_shed_total", &[]), 4.0);
    redis.thaw();
    assert_eq!(held.join_all().await, [201; 3], "admitted requests get their response");
    token(&url).await;
    assert_eq!(in_flight().await, 0.0);
}

#[tokio::test]
async fn disconnected_client_frees_its_place() {
    let redis = RedisServer::start();
    let patient = ["--store", &redis.url(), "--store-timeout", "60s", "--max-in-flight", "2"];
    let service = OncewardServer::start(&patient);
    token(&service.url).await;
    redis.freeze();
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = connect(&service.url).await;
        stream.write_all(b"POST /token HTTP/1.1\r\nhost: onceward\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        streams.push(stream);
    }
    let in_flight = || async { Metrics::of(&service.url).await.sum("onceward_http_requests_in_flight", &[]) };
    until("both requests are in flight", LONG, || async { in_flight().await == 2.0 }).await;
    assert_eq!(post(&service.url, "/token", &json!({})).await.said(), "503 overloaded");
    drop(streams);
    until("no request is in flight, although the store does not answer", LONG, || async { in_flight().await == 0.0 })
        .await;
    redis.thaw();
    let is_served = || async { post(&service.url, "/token", &json!({})).await.status == 201 };
    until("a new request is served", LONG, is_served).await;
}

#[tokio::test]
async fn missing_body_times_out_with_a_problem() {
    let service = OncewardServer::start(&["--request-timeout", "1s", "--admin-listen", "127.0.0.1:0"]);
    for (body, length) in [("", 2), ("{", 2), (&"x".repeat(10_000), 12_000), ("", 2_000_000)] {
        let mut stream = connect(&service.url).await;
        let head = format!(
            "POST /token HTTP/1.1\r\nhost: onceward\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let begun = Instant::now();
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = rest(&mut stream).await;
        assert!(begun.elapsed() >= Duration::from_secs(1), "the timeout has passed: {:?}", begun.elapsed());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains("connection: close\r\n") && answer.contains("\"code\":\"bad_request\""), "{answer}");
        assert!(answer.contains("The body did not arrive within 1s. Nothing ran."), "{answer}");
    }
    assert_eq!(Metrics::of(&service.admin()).await.sum("onceward_http_slow_bodies_total", &[]), 4.0);
}

#[tokio::test]
async fn stalled_large_body_times_out() {
    let service = OncewardServer::start(&["--request-timeout", "1s"]);
    let mut stream = connect(&service.url).await;
    let body = format!("{{\"pass\": \"{}", "x".repeat(100_000));
    let head =
        "POST /claim/complete HTTP/1.1\r\nhost: onceward\r\ncontent-type: application/json\r\ncontent-length: 200000";
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("did not arrive within 1s"), "{answer}");
}

#[tokio::test]
async fn slow_head_times_out_on_a_reused_connection() {
    /// Interval between headers; with a shorter one, the limit of headers is reached before the timeout.
    const BETWEEN_HEADERS: Duration = Duration::from_millis(200);
    let service = OncewardServer::start(&["--request-timeout", "2s"]);
    let mut fresh = connect(&service.url).await;
    fresh.write_all(b"POST /token HTTP/1.1\r\nhost: onc").await.unwrap();
    assert!(rest(&mut fresh).await.starts_with("HTTP/1.1 408 "));

    let mut used = connect(&service.url).await;
    used.write_all(b"POST /token HTTP/1.1\r\nhost: onceward\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    used.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 201");
    let (mut read, mut write) = used.split();
    let dribbling = async {
        write.write_all(b"POST /token HTTP/1.1\r\nhost: onceward\r\n").await.unwrap();
        while write.write_all(b"x-more: 1\r\n").await.is_ok() {
            tokio::time::sleep(BETWEEN_HEADERS).await;
        }
    };
    let begun = Instant::now();
    let mut answer = Vec::new();
    // Closing while the client still sends may cause a reset.
    let (closed, ()) =
        timeout(LONG, async { tokio::join!(read.read_to_end(&mut answer), dribbling) }).await.expect("it is closed");
    // An idle connection may stay open for 5 seconds, and then a head has request_timeout.
    let took = begun.elapsed();
    assert!((Duration::from_secs(6)..Duration::from_secs(10)).contains(&took), "{closed:?} after {took:?}");
}

/// Neither a connection with repeated requests nor one with a slow response is closed, whatever its age.
#[tokio::test]
async fn connection_in_use_is_never_closed() {
    let redis = RedisServer::start();
    let arguments = ["--request-timeout", "500ms", "--store", &redis.url(), "--store-timeout", "20s"];
    let service = OncewardServer::start(&arguments);
    let mut stream = connect(&service.url).await;
    let begun = Instant::now();
    let request = b"POST /token HTTP/1.1\r\nhost: onceward\r\ncontent-length: 0\r\n\r\n";
    let mut answer = [0; 4096];
    while begun.elapsed() < Duration::from_millis(3_500) {
        stream.write_all(request).await.unwrap();
        let read = stream.read(&mut answer).await.unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 201 "), "{:?}", String::from_utf8_lossy(&answer[..read]));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    redis.freeze();
    stream.write_all(request).await.unwrap();
    let waited = timeout(Duration::from_millis(3_500), stream.read(&mut answer)).await;
    assert!(waited.is_err(), "the response is pending: {waited:?}");
    redis.thaw();
    let read = stream.read(&mut answer).await.unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 201 "), "{:?}", String::from_utf8_lossy(&answer[..read]));
}

#[tokio::test]
async fn slow_body_uses_no_capacity() {
    let service = OncewardServer::start(&["--max-in-flight", "1", "--request-timeout", "20s"]);
    let mut slow = Vec::new();
    for _ in 0..10 {
        let mut stream = connect(&service.url).await;
        let head = "POST /token HTTP/1.1\r\nhost: onceward\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 2";
        stream.write_all(format!("{head}\r\n\r\n{{").as_bytes()).await.unwrap();
        slow.push(stream);
    }
    for _ in 0..20 {
        token(&service.url).await;
    }
    for stream in &mut slow {
        stream.write_all(b"}").await.unwrap();
        let answer = rest(stream).await;
        assert!(answer.starts_with("HTTP/1.1 201 "), "slow, but within the timeout: {answer}");
    }
}

/// Requests tokens from this address at this rate and returns the number of requests and of issued tokens.
async fn fetch(
    url: String,
    from: Ipv4Addr,
    per_second: u32,
    lasting: Duration,
    lost: Arc<AtomicUsize>,
) -> (usize, usize) {
    let client = reqwest::Client::builder().no_proxy().local_address(IpAddr::V4(from)).build().unwrap();
    let (begun, pause) = (Instant::now(), Duration::from_secs(1) / per_second);
    let mut all = JoinSet::new();
    for number in 0_u32.. {
        let due = begun + pause * number;
        if due > begun + lasting {
            break;
        }
        sleep_until(due).await;
        let request = client.post(format!("{url}/token"));
        let lost = Arc::clone(&lost);
        all.spawn(async move {
            let status = request.send().await.map(|answer| answer.status().as_u16());
            lost.fetch_add(usize::from(status.is_err()), Ordering::SeqCst);
            status.is_ok_and(|status| status == 201)
        });
    }
    let had = all.join_all().await;
    (had.len(), had.into_iter().filter(|had| *had).count())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_beyond_the_quota_leaves_other_clients_theirs() {
    const LASTING: Duration = Duration::from_secs(5);
    let service =
        OncewardServer::start(&["--rate-limit", "50/s", "--rate-burst", "50", "--rate-limit-total", "1000/s"]);
    let lost = Arc::new(AtomicUsize::new(0));
    let fetch = |host: u8, per_second: u32| {
        fetch(service.url.clone(), Ipv4Addr::new(127, 0, 0, host), per_second, LASTING, Arc::clone(&lost))
    };
    let begun = Instant::now();
    let flood = tokio::spawn(fetch(2, 250));
    let mut others = JoinSet::new();
    for host in 0..20 {
        others.spawn(fetch(10 + host, 10));
    }
    let others = others.join_all().await;
    let (asked, had) = others.iter().fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
    let (flooded, through) = flood.await.unwrap();
    println!("a flood of {flooded} requests got {through} tokens; 20 other clients sent {asked} and got {had}");
    assert!(had as f64 >= 0.999 * asked as f64, "{had} of {asked}");
    let quota = 50.0 + 50.0 * begun.elapsed().as_secs_f64();
    assert!(flooded > 1_200 && (through as f64) <= quota, "{through} of {flooded}, and the quota is {quota}");
    let limited = Metrics::of(&service.url).await.sum("onceward_rate_limited_total", &["scope=\"client\""]);
    assert_eq!(limited, (flooded - through) as f64 + (asked - had) as f64);
    assert_eq!(lost.load(Ordering::SeqCst), 0, "every request got a response");
}

#[tokio::test]
async fn connection_beyond_max_connections_waits() {
    let service = OncewardServer::start(&[
        "--max-connections",
        "1",
        "--max-connections-per-client",
        "off",
        "--request-timeout",
        "1s",
    ]);
    let begun = Instant::now();
    // Each worker allows at least one connection.
    let mut slow = Vec::new();
    for _ in 0..std::thread::available_parallelism().map_or(1, |count| count.get()) * 2 {
        let mut stream = connect(&service.url).await;
        stream.write_all(b"POST /token HTTP/1.1\r\n").await.unwrap();
        slow.push(stream);
    }
    token(&service.url).await;
    // There is no room until the first connection times out.
    assert!(begun.elapsed() > Duration::from_millis(900), "it waited for {:?}", begun.elapsed());
}
