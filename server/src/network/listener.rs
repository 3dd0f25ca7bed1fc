//! Listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

/// How many may wait to be let in; the system may allow fewer. The standard library allows 128, and whoever comes beyond that
/// waits for a second or is turned away.
const BACKLOG: i32 = 4096;

/// An address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {address}: {error}. Is something else running there? Choose another with --{flag}.", flag = setting.replace('_', "-"))]
pub struct BindError {
    setting: &'static str,
    address: SocketAddr,
    error: io::Error,
}

/// Listens where this setting says, and tells where that is.
pub(crate) fn bind(setting: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let cannot = |error| BindError { setting, address, error };
    let listener = listen(address).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    Ok((listener, address))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // A port of a process that has just ended is free at once. Elsewhere it would mean that two may have the same.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
