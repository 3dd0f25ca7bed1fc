//! Runs the server until a signal, and then ends it without refusing a connection that the system has accepted.
//!
//! A server that closes its port cuts off the clients whose connections the system has accepted meanwhile. On Linux this first stops
//! the system from accepting any.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::time::Duration;

use actix_web::dev::{Server, ServerHandle};
use onceward::Guard;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long whoever was let in last has to ask something: what was lost on the way is sent again after 200 milliseconds.
const TO_ASK: Duration = Duration::from_millis(300);
/// How long a server may take, at most, to get to whom it has let in.
const TO_CATCH_UP: Duration = Duration::from_secs(5);
/// How long it takes, at most, to be let in oneself.
const TO_KNOCK: Duration = Duration::from_millis(250);

/// Does what [`onceward::actix::serve`] does, for a server that listens on `door` and on nothing else. Every client whose connection the
/// system has accepted is answered. The server must have been made with `disable_signals`.
///
/// The listener has to belong to this process alone, since it stays shut for every other process that holds it.
///
/// # Errors
/// If the server fails, or the signals cannot be listened for.
pub(crate) async fn serve(server: Server, door: TcpListener, guard: &Guard) -> io::Result<()> {
    let mut signals = Signals::listen()?;
    let handle = server.handle();
    let end = async {
        signals.next().await;
        tokio::select! {
            () = finish(&handle, guard, door) => {}
            () = signals.next() => handle.stop(false).await,
        }
    };
    join(server, end).await
}

/// Closes the connections that are in use, lets nothing new begin, waits for what runs, and stops. Connections are taken to
/// the end: whoever comes late gets a rejection, which is better than no answer.
async fn finish(handle: &ServerHandle, guard: &Guard, door: TcpListener) {
    let is_drained = guard.shut_down().await;
    close(door).await;
    handle.stop(is_drained).await;
}

/// Has nobody let in any more, and waits until everybody who was has been heard. A server that stops drops those whom it has not
/// got to yet, and on a busy machine that may take it a while: so somebody of our own comes last, and is waited for.
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

/// Comes in a few times, so that each worker gets one of them although others come in between, and says nothing.
async fn knock(mut address: SocketAddr) -> Vec<TcpStream> {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    let mut all = Vec::new();
    for _ in 0..4 * std::thread::available_parallelism().map_or(1, NonZeroUsize::get) {
        let Ok(Ok(mut stream)) = tokio::time::timeout(TO_KNOCK, TcpStream::connect(address)).await else { break };
        // Whoever has nothing to ask is hung up on as soon as a worker gets to it.
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

/// Has the system let nobody in any more, and take nobody away whom it has let in: whatever begins a connection is
/// dropped. Whoever comes now tries again, as after any loss, and is refused then.
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

/// Elsewhere there is no such thing.
#[cfg(not(target_os = "linux"))]
fn shut(_door: &TcpListener) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Runs a server until it ends, by itself or because of `end`.
async fn join(mut server: Server, end: impl Future<Output = ()>) -> io::Result<()> {
    tokio::select! {
        ended = &mut server => ended,
        () = end => server.await,
    }
}

/// The signals by which a process is asked to end.
#[cfg(unix)]
struct Signals(tokio::signal::unix::Signal, tokio::signal::unix::Signal);

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self(signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

/// The signal by which a process is asked to end.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}
