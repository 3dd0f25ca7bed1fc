//! The open connections of a server: how many a client may have, and how long one may stay open without a complete request.
//!
//! The server closes a connection that is idle, and one whose first head takes too long. A later head may take any time there,
//! and the server does not show when it begins. But it begins within the keep-alive time, or the server closes the connection.
//! So a connection that has no whole request for that time and `request_timeout` together is closed from here, whether it is
//! silent or sends a byte now and then, and no client that keeps to both times is.

use std::any::Any;
use std::net::{IpAddr, Shutdown};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use actix_web::dev::{Extensions, ServiceRequest};
use actix_web::rt::net::TcpStream;
use onceward::actix::Peer;
use socket2::SockRef;
use tokio::time::Instant;

use crate::metrics::COUNTERS;
use crate::network::client_connections::{ClientConnections, ClientSlot};

/// How long the server keeps an idle connection open.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How often, at most, a client with too many connections is warned of.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    longest: Duration,
    begun: Instant,
    all: Arc<Mutex<ConnectionTable>>,
}

#[derive(Debug)]
struct ConnectionTable {
    open: Vec<Weak<Connection>>,
    clients: ClientConnections,
    warned: Option<Instant>,
}

/// One connection, known to every request on it.
#[derive(Debug)]
pub(crate) struct Connection {
    /// A second handle on it, to close it with.
    peer: Peer,
    counted: ClientSlot,
    all: Arc<Mutex<ConnectionTable>>,
    begun: Instant,
    /// How many requests on it are being answered.
    busy: AtomicUsize,
    /// Since when there is none, in milliseconds.
    idle_since: AtomicU64,
}

impl Connections {
    /// For requests that may take this long to arrive, from these clients.
    pub(crate) fn new(request_timeout: Duration, clients: ClientConnections) -> Self {
        let all = ConnectionTable { open: Vec::new(), clients, warned: None };
        let longest = KEEP_ALIVE.saturating_add(request_timeout);
        Self { longest, begun: Instant::now(), all: Arc::new(Mutex::new(all)) }
    }

    /// Takes note of a connection that was made, or closes it if its client has too many.
    pub(crate) fn welcome(&self, io: &dyn Any, data: &mut Extensions) {
        let Some(stream) = io.downcast_ref::<TcpStream>() else { return };
        // A connection without an address is closed already.
        let Ok(address) = stream.peer_addr().map(|peer| peer.ip()) else { return };
        let Some(counted) = self.enter(address) else { return turn_away(stream) };
        let Some(Ok(peer)) = Peer::of(io) else {
            // There is no open file left, and without one the connection could not be closed later.
            lock(&self.all).clients.leave(&counted);
            return turn_away(stream);
        };
        data.insert(peer.clone());
        let (all, begun) = (Arc::clone(&self.all), self.begun);
        let idle_since = AtomicU64::new(begun.elapsed().as_millis() as u64);
        let connection = Arc::new(Connection { peer, counted, all, begun, busy: AtomicUsize::new(0), idle_since });
        lock(&self.all).open.push(Arc::downgrade(&connection));
        data.insert(connection);
    }

    fn enter(&self, address: IpAddr) -> Option<ClientSlot> {
        let mut all = lock(&self.all);
        let counted = all.clients.enter(address);
        if counted.is_none() {
            all.warn_of(address);
        }
        counted
    }

    /// Closes connections without a whole request, for as long as this is polled.
    pub(crate) async fn watch(&self) {
        loop {
            tokio::time::sleep((self.longest / 10).min(Duration::from_secs(1))).await;
            self.close_idle();
        }
    }

    fn close_idle(&self) {
        let now = self.begun.elapsed().as_millis() as u64;
        let longest = self.longest.as_millis() as u64;
        // What is upgraded here may be the last of its kind, and it locks the list when it is dropped.
        let mut open = std::mem::take(&mut lock(&self.all).open);
        open.retain(|connection| {
            let Some(connection) = connection.upgrade() else { return false };
            let idle_since = connection.idle_since.load(Ordering::SeqCst);
            let is_over = connection.busy.load(Ordering::SeqCst) == 0 && now.saturating_sub(idle_since) > longest;
            // If it cannot be closed, it is closed already.
            !is_over || connection.peer.close().is_err()
        });
        lock(&self.all).open.append(&mut open);
    }
}

impl ConnectionTable {
    fn warn_of(&mut self, address: IpAddr) {
        if self.warned.is_some_and(|warned| warned.elapsed() < WARN_EVERY) {
            return;
        }
        self.warned = Some(Instant::now());
        let share = self.clients.share();
        tracing::warn!(
            "{address} has {share} connections open or more while half of max_connections are in use; closing its new ones. \
             If it is your proxy, set trusted_proxies = \"{address}\"; otherwise see max_connections_per_client"
        );
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.all).clients.leave(&self.counted);
    }
}

fn lock(all: &Mutex<ConnectionTable>) -> MutexGuard<'_, ConnectionTable> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes a connection before a request is read from it. Without an answer: which status a gateway understands as a rejection is
/// known only from its request.
fn turn_away(stream: &TcpStream) {
    COUNTERS.connections_refused.increment(1);
    // If it cannot be shut, it is closed already.
    let _ = SockRef::from(stream).shutdown(Shutdown::Both);
}

/// Marks a connection as busy until this is dropped.
pub(crate) struct BusyConnection(Option<Arc<Connection>>);

impl BusyConnection {
    /// On the connection that it came on.
    pub(crate) fn on(request: &ServiceRequest) -> Self {
        let connection = request.conn_data::<Arc<Connection>>().cloned();
        if let Some(connection) = &connection {
            connection.busy.fetch_add(1, Ordering::SeqCst);
        }
        Self(connection)
    }
}

impl Drop for BusyConnection {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.idle_since.store(connection.begun.elapsed().as_millis() as u64, Ordering::SeqCst);
            connection.busy.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
