//! The pairs that are compared: a case of Onceward, and the peer's server with the same route.

use crate::Failure;
use crate::case::Case;
use crate::goal::Goal;
use crate::server_process::ServerProcess;

/// A case of Onceward and its counterpart.
#[derive(Debug)]
pub(crate) struct PeerPair {
    /// The rows of the report: Onceward and the peer.
    pub(crate) rows: [&'static str; 2],
    /// The name of the case.
    case: &'static str,
    /// The argument that selects the store of the peer.
    pub(crate) store: &'static str,
    /// The least that the ratio of the throughputs should be.
    pub(crate) goal: Option<Goal>,
}

impl PeerPair {
    /// The pairs. The others are compared with the first, whose routes are bare.
    pub(crate) const ALL: [Self; 3] = [
        Self { rows: ["bare, actix", "bare, axum"], case: "bare", store: "none", goal: None },
        Self {
            rows: ["memory, Onceward", "memory, idempotent"],
            case: "key, retryable, memory",
            store: "memory",
            goal: Some(Goal(1.4)),
        },
        Self {
            rows: ["Redis, Onceward", "Redis, idempotent"],
            case: "key, retryable, Redis",
            store: "redis",
            goal: Some(Goal(2.0)),
        },
    ];

    /// The case of Onceward.
    pub(crate) fn case(&self) -> Result<&'static Case, Failure> {
        Case::named(self.case).ok_or_else(|| format!("unknown case: {}", self.case).into())
    }

    /// The URL of the route on a server.
    pub(crate) fn url(&self, server: &ServerProcess) -> Result<String, Failure> {
        Ok(format!("{}{}", server.url(), self.case()?.path))
    }

    /// An error of the peer.
    pub(crate) fn of_peer(&self, reason: &dyn std::error::Error) -> Failure {
        format!("{}: {reason}", self.rows[1]).into()
    }

    /// True for the pair that the others are compared with.
    pub(crate) fn is_bare(&self) -> bool {
        self.store == "none"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_exist_and_the_first_is_bare() {
        let is_bare: Vec<_> =
            PeerPair::ALL.iter().map(|pair| (pair.is_bare(), pair.case().unwrap().is_bare())).collect();
        assert_eq!(is_bare, [(true, true), (false, false), (false, false)]);
    }

    #[test]
    fn every_measured_response_is_a_first_run() {
        assert!(PeerPair::ALL.iter().all(|pair| pair.case().unwrap().status == 201));
    }
}
