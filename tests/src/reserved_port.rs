//! A port that refuses connections until a server of the test listens on it, and that no other process can take meanwhile.

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A port that is bound, but not listened on.
pub struct ReservedPort {
    socket: Socket,
}

impl ReservedPort {
    /// Reserves a free port.
    pub fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        // A server that reuses addresses, as Rust's do, may listen on it.
        socket.set_reuse_address(true).expect("an open socket");
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
        Self { socket }
    }

    /// The address, as in `127.0.0.1:40001`.
    pub fn address(&self) -> String {
        let address = self.socket.local_addr().expect("its own address");
        address.as_socket().expect("an address of IPv4").to_string()
    }

    /// The address as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }
}

impl Default for ReservedPort {
    fn default() -> Self {
        Self::new()
    }
}
