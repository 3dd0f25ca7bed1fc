//! The cases of the comparison with nginx: one proxy under one kind of request.

use crate::case::{Case, CaseGoals, Store, Tokens};
use crate::goal::Goal;
use crate::wrk::{Ids, Requests};

/// Maximum CPU time of a request that only passes, relative to nginx.
const PASS: Goal = Goal(2.5);

/// The proxy under load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyKind {
    Nginx,
    Onceward,
}

/// A proxy and its requests.
#[derive(Debug)]
pub(crate) struct ProxyCase {
    pub(crate) proxy: ProxyKind,
    pub(crate) requests: Requests,
    /// The tokens or keys, the expected status and the number of Redis commands.
    pub(crate) load: Case,
    /// The position of the case with nginx that this one is compared with.
    pub(crate) beside: usize,
    /// Maximum CPU time of the proxy, relative to nginx.
    pub(crate) goal: Option<Goal>,
}

impl ProxyCase {
    /// The cases, in the order of the rows.
    pub(crate) const ALL: [Self; 7] = [
        Self::pass("GET, nginx", ProxyKind::Nginx, "GET", 0),
        Self::pass("GET, Onceward", ProxyKind::Onceward, "GET", 0),
        Self::pass("POST, nginx", ProxyKind::Nginx, "POST", 2),
        Self::pass("POST, Onceward", ProxyKind::Onceward, "POST", 2),
        Self::guarded("POST with a key, Onceward", Ids::Key, Tokens::New, 3),
        Self::guarded("POST with a token, Onceward", Ids::Token, Tokens::Good, 2),
        Self::guarded("replay of a key, Onceward", Ids::Key, Tokens::Few, 1),
    ];

    /// A request without an id.
    const fn pass(name: &'static str, proxy: ProxyKind, method: &'static str, beside: usize) -> Self {
        let goal = if matches!(proxy, ProxyKind::Onceward) { Some(PASS) } else { None };
        let load = load(name, Tokens::Few, 0);
        Self { proxy, requests: Requests { method, ids: Ids::None }, load, beside, goal }
    }

    /// A submission with an id, which costs this many Redis commands.
    const fn guarded(name: &'static str, ids: Ids, tokens: Tokens, commands: u64) -> Self {
        let (proxy, requests) = (ProxyKind::Onceward, Requests { method: "POST", ids });
        Self { proxy, requests, load: load(name, tokens, commands), beside: 2, goal: None }
    }

    /// True for a submission with an id, which the store is asked about.
    pub(crate) fn is_guarded(&self) -> bool {
        self.requests.ids != Ids::None
    }
}

const fn load(name: &'static str, tokens: Tokens, commands: u64) -> Case {
    Case { name, path: "/orders", store: Store::Redis, tokens, status: 201, commands, goals: CaseGoals::NONE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_is_compared_with_nginx_and_the_same_method() {
        for case in &ProxyCase::ALL {
            let nginx = &ProxyCase::ALL[case.beside];
            assert_eq!((nginx.proxy, nginx.is_guarded()), (ProxyKind::Nginx, false));
            assert_eq!(nginx.requests.method, case.requests.method, "{}", case.load.name);
        }
    }

    #[test]
    fn only_requests_that_pass_have_a_goal() {
        let has_goal = |case: &ProxyCase| case.proxy == ProxyKind::Onceward && !case.is_guarded();
        assert!(ProxyCase::ALL.iter().all(|case| case.goal.is_some() == has_goal(case)));
    }
}
