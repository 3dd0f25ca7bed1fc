//! What is measured: one row of the table each.

/// A route under load.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) store: Store,
    pub(crate) tokens: Tokens,
    /// What every answer has to be, or the run measures something else.
    pub(crate) status: u16,
    /// How many commands each request sends to Redis.
    pub(crate) commands: u64,
    /// The share of the bare route's throughput that is aimed for.
    pub(crate) target: Option<f64>,
}

/// Where the guard keeps its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// There is no guard.
    None,
    Memory,
    Redis,
    /// Redis, with tokens that are bound to no epoch.
    Unpinned,
    /// Redis, each command by itself, over a connection of each worker.
    Unbatched,
    /// Redis, each command by itself, over one connection.
    OneConnection,
}

/// What the requests carry: a token, and a key that is the beginning of it. All carry both, and no two the same for a
/// while, so that the generator and who parses it have the same work in every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tokens {
    /// Issued by the guard; each is sent once.
    Good,
    /// Signed with another secret; each is sent once, so that every key is new.
    New,
    /// Signed with another secret; sent again and again.
    Forged,
    /// The same, and so few that the warm-up has sent every key. Their generator has a little less to do.
    Few,
}

impl Case {
    /// Every case. The first is what the others are compared with.
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

    /// The cases that show what batches and a connection for each worker save: cases of [`ALL`](Self::ALL) without them.
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

    /// The case of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().chain(&Self::SENDING).find(|case| case.name == name)
    }

    /// Whether the others are compared with it.
    pub(crate) fn is_bare(&self) -> bool {
        self.store == Store::None
    }
}
