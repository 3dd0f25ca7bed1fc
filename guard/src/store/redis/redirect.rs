//! What to do when a node of a cluster has not done what it was asked.

use std::time::Duration;

use redis::{Cmd, ErrorKind, ServerErrorKind};

use super::error::TransportError;
use super::transport::Request;

/// How often a request is sent on at most.
pub(super) const REDIRECTS: usize = 8;
/// How long to wait before a request is asked again that a cluster in motion could not take.
pub(super) const SETTLE: Duration = Duration::from_millis(20);
/// A node by its host and port.
pub(super) type NodeAddress = (String, u16);

/// The key of a request.
pub(super) fn key_of(request: &Request) -> Vec<u8> {
    match request.command.args_iter().nth(request.key_at) {
        Some(redis::Arg::Simple(key)) => key.to_vec(),
        _ => Vec::new(),
    }
}

/// Says that the key of the next command is on its way to whoever is asked.
pub(super) fn asking() -> Cmd {
    let mut asking = Cmd::new();
    asking.arg("ASKING");
    asking
}

/// What to do about an error.
pub(super) enum RetryDecision {
    /// Another node has it; the key is on its way there, if that is true.
    GoTo(NodeAddress, bool),
    /// It was not done, and can be in a moment.
    Wait,
    /// It was not done. Somebody else may have it by now.
    AskWho,
    /// It may have been done, or will not be.
    GiveUp,
}

/// Nothing is asked again unless it is certain that it was not done.
pub(super) fn retry_decision(error: &TransportError, asked: &NodeAddress) -> RetryDecision {
    let TransportError::Redis(redis_error) = error else {
        return match error {
            TransportError::NoConnection(_) | TransportError::Replica => RetryDecision::AskWho,
            _ => RetryDecision::GiveUp,
        };
    };
    if let Some((place, _)) = redis_error.redirect_node() {
        return redirected(place, asked)
            .map_or(RetryDecision::GiveUp, |node| RetryDecision::GoTo(node, error.is(ServerErrorKind::Ask)));
    }
    match redis_error.kind() {
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => RetryDecision::AskWho,
        ErrorKind::Server(ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown) => RetryDecision::Wait,
        _ => RetryDecision::GiveUp,
    }
}

/// Where a node sends us; without a host, it is its own.
fn redirected(place: &str, asked: &NodeAddress) -> Option<NodeAddress> {
    let (host, port) = place.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() { &asked.0 } else { host };
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_node_sends_us_is_read_also_without_a_host() {
        let asked = ("h0".to_owned(), 6379);
        for (place, wanted) in [
            ("h1:1", Some(("h1", 1))),
            (":7", Some(("h0", 7))),
            ("::1:2", Some(("::1", 2))),
            ("[::1]:2", Some(("::1", 2))),
            ("h1", None),
            ("h1:x", None),
        ] {
            let read = redirected(place, &asked);
            assert_eq!(read.as_ref().map(|(host, port)| (host.as_str(), *port)), wanted, "{place}");
        }
    }
}
