//! The open connections of a server: the limit per client, and the timeout for slow request headers.
//!
//! actix closes an idle connection after the keep-alive time, and one whose first request headers arrive too slowly. It has no timeout for
//! the headers of later requests and does not report when they begin, but they begin within the keep-alive time. So this module closes a
//! connection that has no complete request for the keep-alive time plus `request_timeout`, whether it is silent or sends a byte now and
//! then. A client that respects both timeouts is never cut off.

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

/// Time until the server closes an idle connection.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Minimum time between two warnings about clients with too many connections.
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

/// One connection, shared by all requests on it.
#[derive(Debug)]
pub(crate) struct Connection {
    /// A second handle on the socket, to close it.
    peer: Peer,
    counted: ClientSlot,
    all: Arc<Mutex<ConnectionTable>>,
    begun: Instant,
    /// Requests in flight on this connection.
    busy: AtomicUsize,
    /// Start of the idle time, in milliseconds since `begun`.
    idle_since: AtomicU64,
}

impl Connections {
    /// Creates an empty table with this timeout and these limits per client.
    pub(crate) fn new(request_timeout: Duration, clients: ClientConnections) -> Self {
        let all = ConnectionTable { open: Vec::new(), clients, warned: None };
        let longest = KEEP_ALIVE.saturating_add(request_timeout);
        Self { longest, begun: Instant::now(), all: Arc::new(Mutex::new(all)) }
    }

    /// Registers a new connection, or closes it if its client has too many.
    pub(crate) fn welcome(&self, io: &dyn Any, data: &mut Extensions) {
        let Some(stream) = io.downcast_ref::<TcpStream>() else { return };
        // A connection without a peer address is already closed.
        let Ok(address) = stream.peer_addr().map(|peer| peer.ip()) else { return };
        let Some(counted) = self.enter(address) else { return refuse(stream) };
        let Some(Ok(peer)) = Peer::of(io) else {
            // No file descriptor is left, and without one the connection could not be closed later.
            lock(&self.all).clients.leave(&counted);
            return refuse(stream);
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

    /// Closes connections without a complete request, for as long as this future is polled.
    pub(crate) async fn watch(&self) {
        loop {
            tokio::time::sleep((self.longest / 10).min(Duration::from_secs(1))).await;
            self.close_idle();
        }
    }

    fn close_idle(&self) {
        let now = self.begun.elapsed().as_millis() as u64;
        let longest = self.longest.as_millis() as u64;
        // The `Arc` upgraded here may be the last one, and dropping it locks the table, so the lock is not held.
        let mut open = std::mem::take(&mut lock(&self.all).open);
        open.retain(|connection| {
            let Some(connection) = connection.upgrade() else { return false };
            let idle_since = connection.idle_since.load(Ordering::SeqCst);
            let is_expired = connection.busy.load(Ordering::SeqCst) == 0 && now.saturating_sub(idle_since) > longest;
            // An error means that the connection is already closed.
            !is_expired || connection.peer.close().is_err()
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

/// Closes a connection before a request is read from it. It sends no response: which status a gateway treats as a rejection is known only
/// from its request.
fn refuse(stream: &TcpStream) {
    COUNTERS.connections_refused.increment(1);
    // An error means that the connection is already closed.
    let _ = SockRef::from(stream).shutdown(Shutdown::Both);
}

/// Marks a connection as busy until this is dropped.
pub(crate) struct BusyConnection(Option<Arc<Connection>>);

impl BusyConnection {
    /// Marks the connection of this request.
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
