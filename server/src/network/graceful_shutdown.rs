//! Runs the server until a signal, and then ends it without refusing a connection that the system has accepted.
//!
//! A server that closes its port cuts off the clients whose connections the system has accepted meanwhile. On Linux this first stops
//! the system from accepting any.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::time::Duration;

use actix_web::dev::Server;
use onceward::Guard;
use onceward::actix::serve_until_signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long the last client has to send a request: TCP sends a lost segment again after 200 milliseconds.
const TO_ASK: Duration = Duration::from_millis(300);
/// How long the server may take to accept the connections that wait for it.
const TO_CATCH_UP: Duration = Duration::from_secs(5);
/// How long one of our own connections may take to open.
const TO_KNOCK: Duration = Duration::from_millis(250);

/// Does what [`onceward::actix::serve`] does, for a server that listens on `door` and on nothing else. Every client whose connection the
/// system has accepted receives a response. The server must have been made with `disable_signals`.
///
/// The listener has to belong to this process alone, since it stays shut for every other process that holds it.
///
/// # Errors
/// If the server fails, or the signals cannot be listened for.
pub(crate) async fn serve(server: Server, door: TcpListener, guard: &Guard) -> io::Result<()> {
    let handle = server.handle();
    let stop = async {
        let is_drained = guard.shut_down().await;
        close(door).await;
        handle.stop(is_drained).await;
    };
    serve_until_signal(server, stop).await
}

/// Stops the system from accepting connections, and waits until the server has accepted those that wait for it: a server that stops drops
/// them, and on a busy machine it may take a while to get to them. So connections of our own come last, and are waited for.
async fn close(door: TcpListener) {
    let last = match door.local_addr() {
        Ok(address) => knock(address).await,
        Err(_) => Vec::new(),
    };
    if shut(&door).is_err() {
        return;
    }
    // Let go of before the server stops, or it would stay open for as long as that takes.
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
        // A worker closes a connection without a request as soon as it gets to it.
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

/// Has the system drop every segment that begins a connection, and keep the connections it has accepted. A new client sends its segment
/// again, as after any loss, and is refused once the listener is closed.
#[cfg(target_os = "linux")]
fn shut(door: &TcpListener) -> io::Result<()> {
    use socket2::{SockFilter, SockRef};
    SockRef::from(door).attach_filter(&[
        // Of the flags of a TCP segment, in its byte 13,
        SockFilter::new(0x30, 0, 0, 13),
        // look at SYN and ACK:
        SockFilter::new(0x54, 0, 0, 0x12),
        // if it is SYN alone,
        SockFilter::new(0x15, 0, 1, 0x02),
        // keep nothing of it,
        SockFilter::new(0x06, 0, 0, 0),
        // and otherwise all.
        SockFilter::new(0x06, 0, 0, u32::MAX),
    ])
}

/// Other systems have no such filter.
#[cfg(not(target_os = "linux"))]
fn shut(_door: &TcpListener) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
