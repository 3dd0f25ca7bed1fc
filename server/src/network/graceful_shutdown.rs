//! Graceful shutdown: runs the server until SIGTERM or SIGINT, and then stops it without dropping a connection that the system has accepted.
//!
//! A server that closes its port drops the connections in the accept queue. On Linux, this module first stops the system from accepting
//! connections.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::time::Duration;

use actix_web::dev::Server;
use onceward::Guard;
use onceward::actix::serve_until_signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Time for the last client to send its request: TCP retransmits a lost segment after 200 milliseconds.
const TO_ASK: Duration = Duration::from_millis(300);
/// Maximum time for the server to accept the connections in the queue.
const TO_CATCH_UP: Duration = Duration::from_secs(5);
/// Timeout for opening one of our own connections.
const TO_KNOCK: Duration = Duration::from_millis(250);

/// Like [`onceward::actix::serve`], for a server that listens on `door` only. Every client whose connection the system has accepted receives
/// a response. The server must be built with `disable_signals`.
///
/// The listener must belong to this process only, because it stays shut for every other process that holds it.
///
/// # Errors
/// If the server fails, or the signal handlers cannot be installed.
pub(crate) async fn serve(server: Server, door: TcpListener, guard: &Guard) -> io::Result<()> {
    let handle = server.handle();
    let stop = async {
        let is_drained = guard.shut_down().await;
        close(door).await;
        handle.stop(is_drained).await;
    };
    serve_until_signal(server, stop).await
}

/// Stops the system from accepting connections, and waits until the server has accepted those in the queue: a server that stops drops
/// them, and on a busy machine it may take a while to accept them. For this it opens connections of its own, which are last in the queue,
/// and waits until the server has handled them.
pub(crate) async fn close(door: TcpListener) {
    let last = match door.local_addr() {
        Ok(address) => knock(address).await,
        Err(_) => Vec::new(),
    };
    if shut(&door).is_err() {
        return;
    }
    // Dropped before the server stops, or the port would stay open until then.
    drop(door);
    let _ = tokio::time::timeout(TO_CATCH_UP, until_hung_up(last)).await;
    tokio::time::sleep(TO_ASK).await;
}

/// Opens a few connections, so that each worker accepts one although clients connect in between, and sends nothing.
async fn knock(mut address: SocketAddr) -> Vec<TcpStream> {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    let mut all = Vec::new();
    for _ in 0..4 * std::thread::available_parallelism().map_or(1, NonZeroUsize::get) {
        let Ok(Ok(mut stream)) = tokio::time::timeout(TO_KNOCK, TcpStream::connect(address)).await else { break };
        // A worker closes a connection without a request as soon as it accepts it.
        if stream.shutdown().await.is_ok() {
            all.push(stream);
        }
    }
    all
}

async fn until_hung_up(all: Vec<TcpStream>) {
    for mut stream in all {
        let _ = stream.read(&mut [0]).await;
    }
}

/// Makes the system drop every SYN segment and keep the connections that it has accepted. A new client retransmits its SYN, as after any
/// loss, and is refused once the listener is closed.
#[cfg(target_os = "linux")]
fn shut(door: &TcpListener) -> io::Result<()> {
    use socket2::{SockFilter, SockRef};
    SockRef::from(door).attach_filter(&[
        // Load the TCP flags, byte 13 of the segment.
        SockFilter::new(0x30, 0, 0, 13),
        // Mask SYN and ACK.
        SockFilter::new(0x54, 0, 0, 0x12),
        // SYN only?
        SockFilter::new(0x15, 0, 1, 0x02),
        // Then drop the segment,
        SockFilter::new(0x06, 0, 0, 0),
        // otherwise keep it.
        SockFilter::new(0x06, 0, 0, u32::MAX),
    ])
}

/// Other systems have no such filter.
#[cfg(not(target_os = "linux"))]
fn shut(_door: &TcpListener) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
