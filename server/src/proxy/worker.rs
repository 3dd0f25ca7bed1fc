//! A worker of the proxy: a thread that accepts connections and serves the requests on them.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use http::Request;
use http::header::UPGRADE;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use onceward::WarningLimits;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::service::ProxyService;
use crate::metrics::COUNTERS;
use crate::network::client_connections::{ClientConnections, ClientSlot};

/// Pause after a failed `accept`: usually no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Maximum size of a request's head, and of a read.
const HEAD_LIMIT: usize = 64 * 1024;

/// The limits on connections, which all workers share.
pub(super) struct ConnectionLimits {
    /// One permit per connection that may be open.
    pub(super) connections: Arc<Semaphore>,
    pub(super) clients: Mutex<ClientConnections>,
    pub(super) request_timeout: Duration,
    /// The end of a graceful shutdown, once one has begun.
    pub(super) deadline: OnceLock<Instant>,
    pub(super) warnings: WarningLimits,
}

/// The progress of a graceful shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum Phase {
    Serving,
    /// Accept no more connections, and end after the responses in flight.
    Stopping,
    /// End at once.
    Aborting,
}

/// Starts a worker, a thread of its own with this service.
///
/// # Errors
/// If the system has no thread left.
pub(super) fn start(
    number: usize,
    listener: TcpListener,
    limits: Arc<ConnectionLimits>,
    phase: watch::Receiver<Phase>,
    service: Arc<ProxyService>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    std::thread::Builder::new().name(format!("proxy-{number}")).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(serve(listener, limits, phase, service))
    })
}

async fn serve(
    listener: TcpListener,
    limits: Arc<ConnectionLimits>,
    mut phase: watch::Receiver<Phase>,
    service: Arc<ProxyService>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // Each connection has a sender, so that the channel ends with the last one.
    let (open, mut all_closed) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &limits) => accepted,
            () = reached(&mut phase, Phase::Stopping) => break,
        };
        if let Some((stream, peer, place)) = accepted {
            let connection =
                ClientConnection { stream, peer, place: Arc::new(place), request_timeout: limits.request_timeout };
            let (serving, open) = (connection.serve(Arc::clone(&service), phase.clone()), open.clone());
            tokio::spawn(async move {
                let _open = open;
                serving.await;
            });
        }
    }
    drop((listener, open));
    tokio::select! {
        _ = all_closed.recv() => {}
        () = sleep_until(*limits.deadline.get_or_init(Instant::now)) => {
            tracing::warn!("drain limit exceeded; closing the connections that are still open");
        }
        () = reached(&mut phase, Phase::Aborting) => {}
    }
    Ok(())
}

/// Waits for a phase of the shutdown.
async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    // An error means that the proxy has ended.
    let _ = phase.wait_for(|phase| *phase >= wanted).await;
}

/// Waits for a connection that may be served.
async fn accept(
    listener: &tokio::net::TcpListener,
    limits: &Arc<ConnectionLimits>,
) -> Option<(TcpStream, SocketAddr, ConnectionPlace)> {
    let permit = Arc::clone(&limits.connections).acquire_owned().await.ok()?;
    let (stream, peer) = match listener.accept().await {
        Ok(accepted) => accepted,
        Err(error) => {
            tracing::debug!(%error, "could not accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            return None;
        }
    };
    let Some(slot) = limits.clients().enter(peer.ip()) else {
        limits.refuse(peer.ip());
        return None;
    };
    Some((stream, peer, ConnectionPlace { slot, limits: Arc::clone(limits), _permit: permit }))
}

/// An accepted connection.
struct ClientConnection {
    stream: TcpStream,
    peer: SocketAddr,
    place: Arc<ConnectionPlace>,
    request_timeout: Duration,
}

impl ClientConnection {
    /// Serves the connection until it ends. In a graceful shutdown, it ends after the response in flight.
    async fn serve(self, service: Arc<ProxyService>, mut phase: watch::Receiver<Phase>) {
        let Self { stream, peer, place, request_timeout } = self;
        // Without it, a small response may wait for an acknowledgement of the client.
        let _ = stream.set_nodelay(true);
        // Without it, a tunnel to a client that has vanished would keep its place for ever.
        let _ = SockRef::from(&stream).set_keepalive(true);
        let respond = service_fn(move |mut request: Request<Incoming>| {
            let service = Arc::clone(&service);
            if request.headers().contains_key(UPGRADE) {
                // A connection that switches to another protocol keeps its place.
                request.extensions_mut().insert(Arc::clone(&place));
            }
            async move { Ok::<_, Infallible>(service.respond(peer, request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(request_timeout)
            .max_buf_size(HEAD_LIMIT)
            .serve_connection(TokioIo::new(stream), respond)
            .with_upgrades();
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = reached(&mut phase, Phase::Stopping) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended with an error");
        }
    }
}

/// The place of an open connection, until this is dropped.
pub(super) struct ConnectionPlace {
    slot: ClientSlot,
    limits: Arc<ConnectionLimits>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.limits.clients().leave(&self.slot);
    }
}

impl ConnectionLimits {
    /// Counts and logs a connection of a client that has too many.
    fn refuse(&self, client: IpAddr) {
        COUNTERS.connections_refused.increment(1);
        if let Some(suppressed) = self.warnings.admit("") {
            tracing::warn!(
                suppressed,
                "{client} has as many connections as max_connections_per_client allows, and half of max_connections are open; closing its \
                 new ones. If it is your proxy, set trusted_proxies = \"{client}\""
            );
        }
    }

    fn clients(&self) -> MutexGuard<'_, ClientConnections> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
