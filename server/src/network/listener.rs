//! Listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

/// Length of the accept queue; the system may allow fewer. The standard library uses 128, and connections beyond that are delayed by a
/// second or refused.
const BACKLOG: i32 = 4096;

/// The service cannot listen on an address.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {address}: {error}. Is another process using the port? Choose another address with --{flag}.", flag = setting.replace('_', "-"))]
pub struct BindError {
    setting: &'static str,
    address: SocketAddr,
    error: io::Error,
}

/// Binds the address of this setting and returns the actual address.
pub(crate) fn bind(setting: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let cannot = |error| BindError { setting, address, error };
    let listener = listen(address).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    Ok((listener, address))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // The port of a process that has just ended is free immediately. On other systems, the option would let two processes share a port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
