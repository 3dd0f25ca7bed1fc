//! The client at the other end of a connection.

use std::any::Any;
use std::fmt;
use std::future::pending;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::dev::Extensions;

/// The interval at which a connection is checked.
const EVERY: Duration = Duration::from_millis(100);

/// The client at the other end of a connection, through a second handle to its socket.
///
/// actix assumes that a client which has closed its connection may still read: the request continues, and a duplicate that
/// [waits](super::Protect::wait) keeps its place until the first request ends. If the server records its peers, such a duplicate stops
/// waiting.
///
/// ```no_run
/// use actix_web::{App, HttpServer};
/// use onceward::actix::Peer;
///
/// # fn main() -> std::io::Result<()> {
/// let server = HttpServer::new(App::new).on_connect(Peer::note).bind(("127.0.0.1", 8080))?;
/// # drop(server);
/// # Ok(())
/// # }
/// ```
///
/// Each connection needs a second file descriptor for this. Behind TLS no peer is recorded.
#[derive(Clone)]
pub struct Peer(Arc<TcpStream>);

impl Peer {
    /// Records the peer of a connection; for [`HttpServer::on_connect`](actix_web::HttpServer::on_connect).
    pub fn note(connection: &dyn Any, data: &mut Extensions) {
        // A connection that cannot be watched is served like any other.
        if let Some(Ok(peer)) = Self::of(connection) {
            data.insert(peer);
        }
    }

    /// Returns the peer of a connection; `None` if it is not a plain TCP connection.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn of(connection: &dyn Any) -> Option<io::Result<Self>> {
        let stream = connection.downcast_ref::<actix_web::rt::net::TcpStream>()?;
        Some(second_handle(stream).map(|stream| Self(Arc::new(stream))))
    }

    /// Completes once the client has closed the connection or its sending half.
    pub async fn closed(&self) {
        while !self.is_closed() {
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Completes once the client of this request has closed its connection, if its peer was recorded, or after `longest`.
    pub async fn closed_or_after(request: &HttpRequest, longest: Duration) {
        // The timeout is a normal end too.
        let _ = tokio::time::timeout(longest, Self::closed_by(request)).await;
    }

    /// Completes once the client of this request has closed its connection, if its peer was recorded.
    pub(super) async fn closed_by(request: &HttpRequest) {
        match request.conn_data::<Self>() {
            Some(peer) => peer.closed().await,
            None => pending().await,
        }
    }

    /// Closes the connection.
    ///
    /// # Errors
    /// If the connection is closed already.
    pub fn close(&self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Both)
    }

    fn is_closed(&self) -> bool {
        match self.0.peek(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").finish_non_exhaustive()
    }
}

/// Duplicates the handle. Both share all settings, including non-blocking mode.
#[cfg(unix)]
fn second_handle(stream: &actix_web::rt::net::TcpStream) -> io::Result<TcpStream> {
    use std::os::fd::AsFd as _;
    stream.as_fd().try_clone_to_owned().map(TcpStream::from)
}

#[cfg(windows)]
fn second_handle(stream: &actix_web::rt::net::TcpStream) -> io::Result<TcpStream> {
    use std::os::windows::io::AsSocket as _;
    stream.as_socket().try_clone_to_owned().map(TcpStream::from)
}
