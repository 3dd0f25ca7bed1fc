//! The benchmark cases: one row of the table each.

/// A route under load.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) store: Store,
    pub(crate) tokens: Tokens,
    /// The expected status of every response. Any other status ends the benchmark.
    pub(crate) status: u16,
    /// Redis commands per request.
    pub(crate) commands: u64,
    /// Target ratio to the throughput of the bare route.
    pub(crate) target: Option<f64>,
}

/// The store of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// No guard.
    None,
    Memory,
    Redis,
    /// Redis, with tokens that are not bound to an epoch.
    Unpinned,
    /// Redis without batches, with a connection per worker.
    Unbatched,
    /// Redis without batches, with one connection.
    OneConnection,
}

/// The tokens of the requests. Every request carries a token, and its first characters as a key, so that generator and server have the same
/// work in every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tokens {
    /// Issued by the guard; each is sent once.
    Good,
    /// Signed with another secret; each is sent once, so that every key is new.
    New,
    /// Signed with another secret; reused.
    Forged,
    /// Like `Forged`, but so few that the warm-up has sent every key. The generator has slightly less work.
    Few,
}

impl Case {
    /// All cases. The others are compared with the first.
    pub(crate) const ALL: [Self; 13] = [
        Self {
            name: "bare",
            path: "/orders",
            store: Store::None,
            tokens: Tokens::Forged,
            status: 201,
            commands: 0,
            target: None,
        },
        Self {
            name: "token, memory",
            path: "/orders",
            store: Store::Memory,
            tokens: Tokens::Good,
            status: 201,
            commands: 0,
            target: Some(0.85),
        },
        Self {
            name: "token, Redis",
            path: "/orders",
            store: Store::Redis,
            tokens: Tokens::Good,
            status: 201,
            commands: 1,
            target: Some(0.60),
        },
        Self {
            name: "token, unpinned",
            path: "/orders",
            store: Store::Unpinned,
            tokens: Tokens::Good,
            status: 201,
            commands: 1,
            target: None,
        },
        Self {
            name: "issue, memory",
            path: "/token",
            store: Store::Memory,
            tokens: Tokens::Forged,
            status: 201,
            commands: 0,
            target: None,
        },
        Self {
            name: "issue, Redis",
            path: "/token",
            store: Store::Redis,
            tokens: Tokens::Forged,
            status: 201,
            commands: 1,
            target: None,
        },
        Self {
            name: "forged, Redis",
            path: "/orders",
            store: Store::Redis,
            tokens: Tokens::Forged,
            status: 403,
            commands: 0,
            target: Some(0.85),
        },
        Self {
            name: "key, memory",
            path: "/keyed",
            store: Store::Memory,
            tokens: Tokens::New,
            status: 201,
            commands: 0,
            target: Some(0.80),
        },
        Self {
            name: "key, Redis",
            path: "/keyed",
            store: Store::Redis,
            tokens: Tokens::New,
            status: 201,
            commands: 2,
            target: Some(0.45),
        },
        Self {
            name: "replay, Redis",
            path: "/keyed",
            store: Store::Redis,
            tokens: Tokens::Few,
            status: 201,
            commands: 1,
            target: None,
        },
        Self {
            name: "remembered, Redis",
            path: "/remembered",
            store: Store::Redis,
            tokens: Tokens::Good,
            status: 201,
            commands: 2,
            target: Some(0.45),
        },
        Self {
            name: "remembered, unpinned",
            path: "/remembered",
            store: Store::Unpinned,
            tokens: Tokens::Good,
            status: 201,
            commands: 2,
            target: None,
        },
        Self {
            name: "interval, Redis",
            path: "/spaced",
            store: Store::Redis,
            tokens: Tokens::New,
            status: 201,
            commands: 1,
            target: Some(0.60),
        },
    ];

    /// Cases of [`ALL`](Self::ALL) without batches, and without a connection per worker.
    pub(crate) const SENDING: [Self; 4] = [
        Self::token("token, no batches", Store::Unbatched),
        Self::token("token, one connection", Store::OneConnection),
        Self::key("key, no batches", Store::Unbatched),
        Self::key("key, one connection", Store::OneConnection),
    ];

    const fn token(name: &'static str, store: Store) -> Self {
        Self { name, path: "/orders", store, tokens: Tokens::Good, status: 201, commands: 1, target: None }
    }

    const fn key(name: &'static str, store: Store) -> Self {
        Self { name, path: "/keyed", store, tokens: Tokens::New, status: 201, commands: 2, target: None }
    }

    /// Returns the case with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().chain(&Self::SENDING).find(|case| case.name == name)
    }

    /// True for the case that the others are compared with.
    pub(crate) fn is_bare(&self) -> bool {
        self.store == Store::None
    }
}
