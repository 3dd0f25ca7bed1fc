//! Sockets: the listener, open connections, and the limits on both.

pub(crate) mod client_connections;
pub(crate) mod connections;
pub(crate) mod file_limit;
pub(crate) mod graceful_shutdown;
pub(crate) mod listener;
