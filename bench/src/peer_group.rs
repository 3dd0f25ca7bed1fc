//! The servers that are compared: a case of Onceward on both frameworks, and the peer's server with the same route.

use crate::Failure;
use crate::case::Case;
use crate::framework::Framework;
use crate::goal::Goal;
use crate::server_process::ServerProcess;

/// A case of Onceward and its counterpart.
#[derive(Debug)]
pub(crate) struct PeerGroup {
    /// The start of the names of the rows.
    name: &'static str,
    /// The name of the case.
    case: &'static str,
    /// The argument that selects the store of the peer.
    pub(crate) store: &'static str,
    /// `None` for bare routes.
    pub(crate) goals: Option<PeerGoals>,
}

/// The goals of a group: ratios that should be reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerGoals {
    /// Throughput on actix-web, relative to that of the peer.
    pub(crate) throughput: Goal,
    /// CPU time per request of the peer's server, relative to that of the server on axum.
    pub(crate) cpu: Goal,
}

/// A server of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerServer {
    Onceward(Framework),
    /// The crate `idempotent` on axum.
    Peer,
}

impl PeerServer {
    /// The servers, in the order of the rows. The last one is the peer.
    pub(crate) const ALL: [Self; 3] = [Self::Onceward(Framework::Actix), Self::Onceward(Framework::Axum), Self::Peer];
}

impl PeerGroup {
    /// The groups. The others are compared with the first, whose routes are bare.
    pub(crate) const ALL: [Self; 3] = [
        Self { name: "bare", case: "bare", store: "none", goals: None },
        Self {
            name: "memory",
            case: "key, retryable, memory",
            store: "memory",
            goals: Some(PeerGoals { throughput: Goal(1.4), cpu: Goal(1.2) }),
        },
        Self {
            name: "Redis",
            case: "key, retryable, Redis",
            store: "redis",
            goals: Some(PeerGoals { throughput: Goal(2.0), cpu: Goal(1.5) }),
        },
    ];

    /// The case of Onceward.
    pub(crate) fn case(&self) -> Result<&'static Case, Failure> {
        Case::named(self.case).ok_or_else(|| format!("unknown case: {}", self.case).into())
    }

    /// The name of a row.
    pub(crate) fn row(&self, server: PeerServer) -> String {
        match server {
            PeerServer::Onceward(framework) => format!("{}, Onceward on {}", self.name, framework.name()),
            PeerServer::Peer => format!("{}, idempotent on axum", self.name),
        }
    }

    /// The URL of the route on a server.
    pub(crate) fn url(&self, server: &ServerProcess) -> Result<String, Failure> {
        Ok(format!("{}{}", server.url(), self.case()?.path))
    }

    /// True for the group that the others are compared with.
    pub(crate) fn is_bare(&self) -> bool {
        self.goals.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_exist_and_the_first_is_bare() {
        let is_bare: Vec<_> =
            PeerGroup::ALL.iter().map(|group| (group.is_bare(), group.case().unwrap().is_bare())).collect();
        assert_eq!(is_bare, [(true, true), (false, false), (false, false)]);
    }

    #[test]
    fn every_measured_response_is_a_first_run() {
        assert!(PeerGroup::ALL.iter().all(|group| group.case().unwrap().status == 201));
    }

    #[test]
    fn row_names_library_and_framework() {
        let rows = PeerServer::ALL.map(|server| PeerGroup::ALL[2].row(server));
        assert_eq!(rows, ["Redis, Onceward on actix-web", "Redis, Onceward on axum", "Redis, idempotent on axum"]);
    }
}
