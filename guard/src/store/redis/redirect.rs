//! Retry decisions after a node of a cluster did not execute a command.

use std::time::Duration;

use redis::{Cmd, ErrorKind, ServerErrorKind};

use super::error::TransportError;

/// The maximum number of attempts for a request, redirects included.
pub(super) const REDIRECTS: usize = 8;
/// The pause before a retry of a request that the cluster could not serve during a change of slots.
pub(super) const SETTLE: Duration = Duration::from_millis(20);
/// The host and port of a node.
pub(super) type NodeAddress = (String, u16);

/// Returns the command that announces a key which is migrating to the receiving node.
pub(super) fn asking() -> Cmd {
    let mut asking = Cmd::new();
    asking.arg("ASKING");
    asking
}

/// The next step after an error.
pub(super) enum RetryDecision {
    /// Another node owns the key. `true` means that the key is still migrating to that node.
    GoTo(NodeAddress, bool),
    /// The command was not executed; retry it after a pause.
    Wait,
    /// The command was not executed; another node may own the slot by now.
    AskWho,
    /// The command may have been executed, or a retry would not help.
    GiveUp,
}

/// Decides what to do after an error. A command is retried only if it was certainly not executed.
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

/// Returns the target of a redirect. A redirect without a host means the host of the node that sent it.
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
    fn redirect_target_is_parsed_with_and_without_host() {
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
