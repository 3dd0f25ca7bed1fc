//! Request handling that all routes share: who calls, how much a caller may send, and how a failure is answered.

pub mod access;
pub mod admission;
pub mod cors;
pub(crate) mod forwarded_request;
pub mod panic_handler;
pub mod rate_limit;
pub(crate) mod wire_reply;
