//! Every open connection, so that one can be closed on which no request becomes whole.
//!
//! The server closes a connection that is idle, and one whose first head comes too slowly. Of a later head it takes any time, so
//! that somebody who asks once and then dribbles would hold a connection for good. Whoever does so is shown out from here.

use std::any::Any;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use actix_web::dev::{Extensions, ServiceRequest};
use actix_web::rt::net::TcpStream;
use socket2::{SockRef, Socket};
use tokio::time::Instant;

/// How many times `request_timeout` a connection may be open with nothing to do. It is also the time in which a slow reader has
/// to take its last answer in, so it is not a short one.
const TIMES: u32 = 6;

/// All of them.
#[derive(Debug)]
pub(crate) struct Connections {
    longest: Duration,
    begun: Instant,
    all: Mutex<Vec<Weak<Connection>>>,
}

/// One connection, known to every request on it.
#[derive(Debug)]
struct Connection {
    /// A second handle on it, to shut it with.
    socket: Socket,
    begun: Instant,
    /// How many requests on it are being answered.
    busy: AtomicUsize,
    /// Since when there is none, in milliseconds.
    idle_since: AtomicU64,
}

impl Connections {
    /// For requests that may take this long to arrive.
    pub(crate) fn new(request_timeout: Duration) -> Self {
        Self { longest: request_timeout.saturating_mul(TIMES), begun: Instant::now(), all: Mutex::default() }
    }

    /// Takes note of a connection that was made. One that cannot be held twice is left to the server alone.
    pub(crate) fn welcome(&self, io: &dyn Any, data: &mut Extensions) {
        let socket = io.downcast_ref::<TcpStream>().and_then(|stream| SockRef::from(stream).try_clone().ok());
        let Some(socket) = socket else { return };
        let idle_since = AtomicU64::new(self.begun.elapsed().as_millis() as u64);
        let connection = Arc::new(Connection { socket, begun: self.begun, busy: AtomicUsize::new(0), idle_since });
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&connection));
        data.insert(connection);
    }

    /// Closes what is idle for too long, for as long as this is polled.
    pub(crate) async fn watch(&self) {
        loop {
            tokio::time::sleep((self.longest / 10).min(Duration::from_secs(1))).await;
            self.close_idle();
        }
    }

    fn close_idle(&self) {
        let now = self.begun.elapsed().as_millis() as u64;
        let longest = self.longest.as_millis() as u64;
        self.all.lock().unwrap_or_else(PoisonError::into_inner).retain(|connection| {
            let Some(connection) = connection.upgrade() else { return false };
            let idle_since = connection.idle_since.load(Ordering::SeqCst);
            let is_over = connection.busy.load(Ordering::SeqCst) == 0 && now.saturating_sub(idle_since) > longest;
            // If it cannot be shut, it is closed already.
            !is_over || connection.socket.shutdown(Shutdown::Both).is_err()
        });
    }
}

/// A request is being answered as long as this lives.
pub(crate) struct Busy(Option<Arc<Connection>>);

impl Busy {
    /// On the connection that it came on.
    pub(crate) fn on(request: &ServiceRequest) -> Self {
        let connection = request.conn_data::<Arc<Connection>>().cloned();
        if let Some(connection) = &connection {
            connection.busy.fetch_add(1, Ordering::SeqCst);
        }
        Self(connection)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.idle_since.store(connection.begun.elapsed().as_millis() as u64, Ordering::SeqCst);
            connection.busy.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
