//! A TCP proxy with faults: it loses a request before it arrives or a reply after the request was executed, breaks every
//! connection at once, or partitions servers from each other while clients still connect.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Source address of connections between servers, so that a proxy can tell them from clients.
pub const INNER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// A fault for requests that contain a given text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpFault {
    /// The connection breaks before the request arrives.
    LoseRequest,
    /// The request is executed, and the connection breaks before the reply gets back.
    LoseAnswer,
    /// The request is executed, and the reply never comes, on a connection that stays open.
    SwallowAnswer,
    /// The connection breaks, and the request arrives only after [`Proxy::deliver`].
    Late,
}

/// The requests that meet a fault.
#[derive(Debug, Clone)]
struct TcpFaultPlan {
    containing: String,
    fault: TcpFault,
    /// One in so many requests that contain the text meets the fault.
    one_in: usize,
    /// True if the plan stays after the first fault.
    lasts: bool,
}

/// The state that all connections share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ConnectionGate {
    resets: usize,
    is_cut: bool,
}

/// A proxy in front of one server.
pub struct Proxy {
    port: u16,
    /// The port of that server.
    before: Arc<AtomicU16>,
    plan: Arc<Mutex<Option<TcpFaultPlan>>>,
    gate: watch::Sender<ConnectionGate>,
    struck: Arc<AtomicUsize>,
    accepted: Arc<AtomicUsize>,
    late: Arc<Notify>,
    late_is_lost: Arc<AtomicBool>,
    /// Delay of each reply in milliseconds.
    slowness: Arc<AtomicU64>,
}

/// The latency that a proxy adds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delay {
    /// Delay before a connection relays anything.
    pub connect: Duration,
    /// Delay of each reply.
    pub answer: Duration,
}

impl Proxy {
    /// Starts a proxy in front of the server on this port.
    pub async fn before(port: u16) -> Self {
        Self::slowly_before(port, Delay::default()).await
    }

    /// Starts a proxy in front of the server on this port, with added latency.
    pub async fn slowly_before(port: u16, delay: Delay) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let proxy = Self {
            port: listener.local_addr().expect("its own address").port(),
            before: Arc::new(AtomicU16::new(port)),
            plan: Arc::default(),
            gate: watch::Sender::default(),
            struck: Arc::default(),
            accepted: Arc::default(),
            late: Arc::default(),
            late_is_lost: Arc::default(),
            slowness: Arc::new(AtomicU64::new(delay.answer.as_millis() as u64)),
        };
        let (plan, struck) = (Arc::clone(&proxy.plan), Arc::clone(&proxy.struck));
        let (accepted, gate, before) = (Arc::clone(&proxy.accepted), proxy.gate.subscribe(), Arc::clone(&proxy.before));
        let (late, slowness) = (Arc::clone(&proxy.late), Arc::clone(&proxy.slowness));
        let late_is_lost = Arc::clone(&proxy.late_is_lost);
        tokio::spawn(async move {
            while let Ok((client, from)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let (mut gate, is_inner) = (gate.clone(), from.ip() == INNER);
                let begun = *gate.borrow_and_update();
                let port = before.load(Ordering::SeqCst);
                let relay = ConnectionRelay {
                    connect: delay.connect,
                    slowness: Arc::clone(&slowness),
                    plan: Arc::clone(&plan),
                    struck: Arc::clone(&struck),
                    late: Arc::clone(&late),
                    late_is_lost: Arc::clone(&late_is_lost),
                };
                tokio::spawn(async move {
                    let carried = relay.carry(client, port);
                    let ends = |gate: &ConnectionGate| gate.resets != begun.resets || gate.is_cut && is_inner;
                    tokio::select! {
                        _ = gate.wait_for(ends) => {}
                        _ = carried => {}
                    }
                });
            }
        });
        proxy
    }

    /// Its address as a Redis URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The next request that contains this text meets this fault.
    pub fn next(&self, containing: &str, fault: TcpFault) {
        self.plan(TcpFaultPlan { containing: containing.to_owned(), fault, one_in: 1, lasts: false });
    }

    /// From now on one request in `one_in` that contains this text meets this fault.
    pub fn often(&self, containing: &str, fault: TcpFault, one_in: usize) {
        self.plan(TcpFaultPlan { containing: containing.to_owned(), fault, one_in, lasts: true });
    }

    fn plan(&self, plan: TcpFaultPlan) {
        *self.plan.lock().expect("lock not poisoned") = Some(plan);
    }

    /// Forwards new connections to the server on this port. Open connections stay where they are.
    pub fn move_before(&self, port: u16) {
        self.before.store(port, Ordering::SeqCst);
    }

    /// Delays every reply by this time from now on.
    pub fn slow_down(&self, by: Duration) {
        self.slowness.store(by.as_millis() as u64, Ordering::SeqCst);
    }

    /// Breaks every open connection. New ones are accepted.
    pub fn reset(&self) {
        self.gate.send_modify(|gate| gate.resets += 1);
    }

    /// Breaks and refuses the connections of other servers (from [`INNER`]). Clients are not affected.
    pub fn cut(&self) {
        self.gate.send_modify(|gate| gate.is_cut = true);
    }

    /// Ends a [`cut`](Self::cut): servers can connect again.
    pub fn mend(&self) {
        self.gate.send_modify(|gate| gate.is_cut = false);
    }

    /// Lets a request that is [late](TcpFault::Late) arrive.
    pub fn deliver(&self) {
        self.late.notify_one();
    }

    /// Closes the connection of a request that is [late](TcpFault::Late): it never arrives. Other connections stay open.
    pub fn lose_late(&self) {
        self.late_is_lost.store(true, Ordering::SeqCst);
        self.late.notify_one();
    }

    /// Ends the plan: no request meets a fault any more.
    pub fn relent(&self) {
        *self.plan.lock().expect("lock not poisoned") = None;
    }

    /// Number of accepted connections.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Number of requests that met a fault.
    pub fn struck(&self) -> usize {
        self.struck.load(Ordering::SeqCst)
    }
}

/// Relays the bytes of one connection, with the proxy's faults and delays.
struct ConnectionRelay {
    connect: Duration,
    slowness: Arc<AtomicU64>,
    plan: Arc<Mutex<Option<TcpFaultPlan>>>,
    struck: Arc<AtomicUsize>,
    late: Arc<Notify>,
    late_is_lost: Arc<AtomicBool>,
}

impl ConnectionRelay {
    /// Relays bytes in both directions until one side closes or a fault breaks the connection.
    async fn carry(self, mut client: TcpStream, port: u16) -> Option<()> {
        sleep(self.connect).await;
        let mut server = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let (mut asked, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        let mut swallow = false;
        // Delayed replies, each with the time at which it is sent.
        let mut on_their_way: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
        loop {
            let next = on_their_way.front().map(|(at, _)| *at);
            tokio::select! {
                read = client.read(&mut asked) => {
                    let request = &asked[..read.ok().filter(|read| *read > 0)?];
                    let fault = meet(&self.plan, request);
                    if fault.is_some() {
                        self.struck.fetch_add(1, Ordering::SeqCst);
                    }
                    if fault == Some(TcpFault::LoseRequest) {
                        return None;
                    }
                    if fault == Some(TcpFault::Late) {
                        drop(client);
                        self.late.notified().await;
                        if self.late_is_lost.load(Ordering::SeqCst) {
                            return None;
                        }
                        server.write_all(request).await.ok()?;
                        let _ = server.read(&mut answered).await.ok()?;
                        return None;
                    }
                    server.write_all(request).await.ok()?;
                    if fault == Some(TcpFault::LoseAnswer) {
                        // The reply proves that the request was executed.
                        let _ = server.read(&mut answered).await.ok()?;
                        return None;
                    }
                    swallow |= fault == Some(TcpFault::SwallowAnswer);
                }
                read = server.read(&mut answered) => {
                    let answer = &answered[..read.ok().filter(|read| *read > 0)?];
                    if swallow {
                        continue;
                    }
                    let slowness = Duration::from_millis(self.slowness.load(Ordering::SeqCst));
                    if slowness.is_zero() && on_their_way.is_empty() {
                        client.write_all(answer).await.ok()?;
                    } else {
                        on_their_way.push_back((Instant::now() + slowness, answer.to_vec()));
                    }
                }
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    let (_, answer) = on_their_way.pop_front()?;
                    client.write_all(&answer).await.ok()?;
                }
            }
        }
    }
}

/// Returns the fault of a request, and ends a plan that does not last.
fn meet(plan: &Mutex<Option<TcpFaultPlan>>, request: &[u8]) -> Option<TcpFault> {
    let mut plan = plan.lock().expect("lock not poisoned");
    let TcpFaultPlan { containing, fault, one_in, lasts } = plan.clone()?;
    let contains = request.windows(containing.len()).any(|window| window == containing.as_bytes());
    let is_struck = contains && fastrand::usize(0..one_in) == 0;
    is_struck.then(|| {
        if !lasts {
            *plan = None;
        }
        fault
    })
}
