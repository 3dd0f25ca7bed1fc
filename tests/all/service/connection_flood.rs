//! A connection flood: other clients and the health checks on `admin_listen` still get responses.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward_tests::metrics::Metrics;
use onceward_tests::polling::until;
use onceward_tests::service::{OncewardServer, program};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const LONG: Duration = Duration::from_secs(60);
/// Maximum response time for a client during the flood. Without a flood it is milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time after which a request counts as unanswered.
const GIVE_UP: Duration = Duration::from_secs(30);
const ATTACKER: Ipv4Addr = Ipv4Addr::LOCALHOST;
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Returns the number of sockets in the flood, from `FLOOD` or a small default.
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
fn sockets() -> usize {
    std::env::var("FLOOD").map_or(240, |sockets| sockets.parse().expect("FLOOD is a number"))
}

/// Raises the limit of open files: each connection takes one in this process.
fn make_room(sockets: usize) {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = sockets as u64 + 512;
    limit.current = limit.current.map(|current| current.max(limit.maximum.map_or(wanted, |most| most.min(wanted))));
    setrlimit(Resource::Nofile, limit).expect("a process may raise its soft limit");
    assert!(limit.current.is_none_or(|current| current >= wanted), "ulimit -Hn is too low for this test: {limit:?}");
}

fn address_of(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").parse().unwrap()
}

async fn connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

/// Counters of a flood.
#[derive(Default)]
struct Flood {
    answered: AtomicUsize,
    open: AtomicUsize,
}

impl Flood {
    /// Sends one request, then the head of another, byte by byte. Reopens a connection that is closed.
    async fn hold(self: Arc<Self>, from: Ipv4Addr, to: SocketAddr, every: Duration) {
        loop {
            if let Ok(mut stream) = connect(from, to).await {
                self.open.fetch_add(1, Ordering::SeqCst);
                // Both loops end when the connection is closed.
                let _ = self.ask_and_dribble(&mut stream, every).await;
                self.open.fetch_sub(1, Ordering::SeqCst);
            }
            sleep(every).await;
        }
    }

    async fn ask_and_dribble(&self, stream: &mut TcpStream, every: Duration) -> std::io::Result<()> {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: onceward\r\n\r\n").await?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await?;
        if &head == b"HTTP/1.1 200" {
            self.answered.fetch_add(1, Ordering::SeqCst);
        }
        let (mut read, mut write) = stream.split();
        let mut rest = Vec::new();
        tokio::select! {
            closed = read.read_to_end(&mut rest) => closed.map(drop),
            closed = async {
                write.write_all(b"GET /healthz HTTP/1.1\r\nhost: onceward\r\nx-more: ").await?;
                loop {
                    sleep(every).await;
                    write.write_all(b"x").await?;
                }
            } => closed,
        }
    }
}

/// Returns the response time over a new connection, or `None` without a response.
async fn ask(from: Ipv4Addr, to: SocketAddr, path: &str) -> Option<Duration> {
    let begun = Instant::now();
    let asked = async {
        let mut stream = connect(from, to).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: onceward\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        answer.starts_with(b"HTTP/1.1 200 ").then(|| begun.elapsed())
    };
    timeout(GIVE_UP, asked).await.ok().flatten()
}

/// Response times of a client during the flood.
#[derive(Debug, Default)]
struct ClientLatencies {
    took: Vec<Duration>,
    unanswered: usize,
}

impl ClientLatencies {
    /// Sends requests repeatedly for this long.
    async fn during(period: Duration, from: Ipv4Addr, to: SocketAddr, paths: &[&str]) -> Self {
        let (mut seen, begun) = (Self::default(), Instant::now());
        while begun.elapsed() < period {
            for path in paths {
                match ask(from, to, path).await {
                    Some(took) => seen.took.push(took),
                    None => seen.unanswered += 1,
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
        seen.took.sort();
        seen
    }

    fn slowest(&self) -> Duration {
        self.took.last().copied().unwrap_or(GIVE_UP)
    }

    fn told(&self) -> String {
        let half = self.took.get(self.took.len() / 2);
        format!(
            "{} answered, {} not; half within {half:.1?}, the longest {:.1?}",
            self.took.len(),
            self.unanswered,
            self.slowest()
        )
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_cannot_take_all_connections() {
    let sockets = sockets();
    make_room(sockets);
    let most = if sockets > 8192 { 8192 } else { sockets * 5 / 6 };
    let service = OncewardServer::start(&["--max-connections", &most.to_string(), "--admin-listen", "127.0.0.1:0"]);
    let (public, admin) = (address_of(&service.url), address_of(&service.admin()));
    let (flood, mut attack) = (Arc::new(Flood::default()), JoinSet::new());
    let every = Duration::from_millis(if sockets > 1000 { 2_000 } else { 250 });
    for _ in 0..sockets {
        attack.spawn(Arc::clone(&flood).hold(ATTACKER, public, every));
    }
    let is_flooded = || std::future::ready(flood.answered.load(Ordering::SeqCst) >= most / 2);
    until("the flood holds half of the connections", LONG, is_flooded).await;
    let period = Duration::from_secs(if sockets > 1000 { 20 } else { 2 });
    let (other, health) = tokio::join!(
        ClientLatencies::during(period, OTHER, public, &["/healthz"]),
        ClientLatencies::during(period, OTHER, admin, &["/healthz", "/readyz", "/metrics"]),
    );
    println!("{sockets} sockets of one client, max_connections {most}; /healthz for another client: {}", other.told());
    println!("/healthz, /readyz and /metrics at admin_listen: {}", health.told());
    assert_eq!((other.unanswered, health.unanswered), (0, 0));
    assert!(other.slowest() < PATIENCE && health.slowest() < PATIENCE, "{other:?} {health:?}");
    assert!(other.took.len() > 2 && health.took.len() > 2);
    let refused = Metrics::of(&service.admin()).await.sum("onceward_http_connections_refused_total", &[]);
    assert!(refused >= (sockets - most / 2) as f64, "{refused} of {sockets}");
    let warned = service.log().iter().filter(|line| line.contains("max_connections_per_client")).count();
    assert_eq!(warned, 1, "{:#?}", service.log());
    attack.shutdown().await;
    let is_served = || async { ask(ATTACKER, public, "/healthz").await.is_some() };
    until("the client is served again once its connections are closed", LONG, is_served).await;
}

/// Returns how many of `count` open connections from this address get a response.
async fn answered(from: Ipv4Addr, to: SocketAddr, count: usize) -> usize {
    let (mut open, mut answered) = (Vec::new(), 0);
    for _ in 0..count {
        let mut stream = connect(from, to).await.unwrap();
        let mut head = [0; 12];
        let asked = async {
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: onceward\r\n\r\n").await?;
            stream.read_exact(&mut head).await
        };
        answered += usize::from(timeout(GIVE_UP, asked).await.expect("a response or a closed connection").is_ok());
        open.push(stream);
    }
    answered
}

#[tokio::test]
async fn trusted_proxy_may_have_more_than_half_of_the_connections() {
    for (trusted, expected) in [("127.0.0.2", 16), ("127.0.0.9", 10)] {
        let service = OncewardServer::start(&["--max-connections", "20", "--trusted-proxies", trusted]);
        assert_eq!(answered(OTHER, address_of(&service.url), 16).await, expected, "{trusted} is trusted");
    }
    let off = OncewardServer::start(&["--max-connections", "20", "--max-connections-per-client", "off"]);
    assert_eq!(answered(OTHER, address_of(&off.url), 16).await, 16);
}

/// Each client has few connections, but together they exceed the open files limit of the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_open_files_starve_no_health_check() {
    const FILES: usize = 600;
    make_room(FILES);
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {FILES} && exec \"$0\" \"$@\"")]).arg(program());
    limited.args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log", "json"]);
    let service = OncewardServer::spawn(limited);
    let warning = service.log().into_iter().find(|line| line.contains("open files")).expect("a warning");
    assert!(warning.contains("max_connections"), "{warning}");
    let (public, admin) = (address_of(&service.url), address_of(&service.admin()));
    let (flood, mut attack) = (Arc::new(Flood::default()), JoinSet::new());
    for number in 0..FILES {
        let from = Ipv4Addr::new(127, 0, 1, (number / 4 + 1) as u8);
        attack.spawn(Arc::clone(&flood).hold(from, public, Duration::from_millis(250)));
    }
    until("all sockets of the flood are open", LONG, || std::future::ready(flood.open.load(Ordering::SeqCst) == FILES))
        .await;
    let health =
        ClientLatencies::during(Duration::from_secs(2), OTHER, admin, &["/healthz", "/readyz", "/metrics"]).await;
    println!("{FILES} connections, {FILES} open files; at admin_listen: {}", health.told());
    assert_eq!(health.unanswered, 0);
    assert!(health.slowest() < PATIENCE, "{health:?}");
}
