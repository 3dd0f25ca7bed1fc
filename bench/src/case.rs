//! The benchmark cases: one row of the table each.

use crate::goal::Goal;

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
    pub(crate) goals: CaseGoals,
}

/// The store of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// No guard.
    None,
    Memory,
    Redis,
    /// A server with native compare-and-set commands.
    Native,
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

/// The goals of a case, per request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CaseGoals {
    /// CPU time of the server above that of the bare route, in microseconds.
    pub(crate) server: Option<Goal>,
    /// CPU time of Redis, in microseconds.
    pub(crate) redis: Option<Goal>,
    /// Allocations of the server above those of the bare route.
    pub(crate) allocations: Option<Goal>,
}

impl CaseGoals {
    pub(crate) const NONE: Self = Self { server: None, redis: None, allocations: None };

    const fn server(micros: f64) -> Self {
        Self { server: Some(Goal(micros)), ..Self::NONE }
    }

    const fn redis(self, micros: f64) -> Self {
        Self { redis: Some(Goal(micros)), ..self }
    }

    const fn allocations(self, count: f64) -> Self {
        Self { allocations: Some(Goal(count)), ..self }
    }
}

impl Case {
    /// All cases. The others are compared with the first.
    pub(crate) const ALL: [Self; 17] = [
        Self::new("bare", "/orders", Store::None, Tokens::Forged),
        Self::token("token, memory", Store::Memory).goals(CaseGoals::server(1.5)),
        Self::token("token, Redis", Store::Redis).goals(CaseGoals::server(3.0).redis(5.0).allocations(8.0)),
        Self::token("token, native", Store::Native).goals(CaseGoals::server(3.0).redis(2.5).allocations(8.0)),
        Self::token("token, unpinned", Store::Unpinned),
        Self::forged("forged, Redis", Store::Redis).goals(CaseGoals::server(1.0).redis(0.0)),
        Self::issue("issue, memory", Store::Memory),
        Self::issue("issue, Redis", Store::Redis).goals(CaseGoals::server(3.5).redis(3.5)),
        Self::key("key, retryable, memory", Store::Memory).goals(CaseGoals::server(4.0)),
        Self::key("key, retryable, Redis", Store::Redis).goals(CaseGoals::server(7.0).redis(8.5).allocations(25.0)),
        Self::key("key, retryable, native", Store::Native).goals(CaseGoals::server(7.0).redis(5.0).allocations(25.0)),
        Self::key_at_most_once("key, at most once, Redis", Store::Redis),
        Self::replay("replay, Redis", Store::Redis).goals(CaseGoals::server(4.0).redis(2.5)),
        Self::remembered("remembered, Redis", Store::Redis).goals(CaseGoals::server(7.5).redis(10.0)),
        Self::remembered("remembered, native", Store::Native).goals(CaseGoals::server(7.5).redis(8.0)),
        Self::remembered("remembered, unpinned", Store::Unpinned),
        Self::interval("interval, Redis", Store::Redis).goals(CaseGoals::server(4.0).redis(3.5)),
    ];

    /// Cases of [`ALL`](Self::ALL) without batches, and without a connection per worker.
    pub(crate) const SENDING: [Self; 4] = [
        Self::token("token, no batches", Store::Unbatched),
        Self::token("token, one connection", Store::OneConnection),
        Self::key("key, retryable, no batches", Store::Unbatched),
        Self::key("key, retryable, one connection", Store::OneConnection),
    ];

    const fn new(name: &'static str, path: &'static str, store: Store, tokens: Tokens) -> Self {
        Self { name, path, store, tokens, status: 201, commands: 0, goals: CaseGoals::NONE }
    }

    const fn token(name: &'static str, store: Store) -> Self {
        Self::new(name, "/orders", store, Tokens::Good).commands(1)
    }

    /// A token signed with another secret, which no store is asked about.
    const fn forged(name: &'static str, store: Store) -> Self {
        Self { status: 403, ..Self::new(name, "/orders", store, Tokens::Forged) }
    }

    const fn issue(name: &'static str, store: Store) -> Self {
        Self::new(name, "/token", store, Tokens::Forged).commands(1)
    }

    /// Rules for work that may run again after a failure.
    const fn key(name: &'static str, store: Store) -> Self {
        Self::new(name, "/keyed", store, Tokens::New).commands(2)
    }

    /// Rules for work that must not run twice: a second write extends the claim beyond its lease before the handler runs.
    const fn key_at_most_once(name: &'static str, store: Store) -> Self {
        Self::new(name, "/keyed-at-most-once", store, Tokens::New).commands(3)
    }

    const fn replay(name: &'static str, store: Store) -> Self {
        Self::new(name, "/keyed", store, Tokens::Few).commands(1)
    }

    const fn remembered(name: &'static str, store: Store) -> Self {
        Self::new(name, "/remembered", store, Tokens::Good).commands(2)
    }

    const fn interval(name: &'static str, store: Store) -> Self {
        Self::new(name, "/spaced", store, Tokens::New).commands(1)
    }

    /// Sets the number of commands per request, for a store that sends any.
    const fn commands(self, count: u64) -> Self {
        let commands = if matches!(self.store, Store::Memory) { 0 } else { count };
        Self { commands, ..self }
    }

    const fn goals(self, goals: CaseGoals) -> Self {
        Self { goals, ..self }
    }

    /// Returns the case with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().chain(&Self::SENDING).find(|case| case.name == name)
    }

    /// True for the case that the others are compared with.
    pub(crate) fn is_bare(&self) -> bool {
        self.store == Store::None
    }

    /// True for a case whose guard has a Redis.
    pub(crate) fn has_redis(&self) -> bool {
        !matches!(self.store, Store::None | Store::Memory)
    }

    /// True for a case on a server with native compare-and-set commands.
    pub(crate) fn is_native(&self) -> bool {
        self.store == Store::Native
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_case_is_the_only_bare_one() {
        let bare: Vec<_> = Case::ALL.iter().map(Case::is_bare).collect();
        assert!(bare[0] && !bare[1..].contains(&true));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = Case::ALL.iter().chain(&Case::SENDING).map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Case::ALL.len() + Case::SENDING.len());
    }

    #[test]
    fn memory_store_sends_no_commands() {
        let commands = |name| Case::named(name).unwrap().commands;
        assert_eq!(["token, memory", "key, retryable, memory", "forged, Redis", "bare"].map(commands), [0; 4]);
        assert_eq!(["token, native", "key, retryable, native", "issue, Redis"].map(commands), [1, 2, 1]);
        assert_eq!(commands("key, at most once, Redis"), 3);
    }

    #[test]
    fn every_goal_of_redis_is_for_a_case_on_redis() {
        let is_sound = |case: &Case| case.goals.redis.is_none() || case.has_redis();
        assert!(Case::ALL.iter().all(is_sound));
        assert!(Case::ALL.iter().filter(|case| case.is_native()).all(|case| case.goals.redis.is_some()));
    }
}
