//! A server's replication id, from which the epoch of its data is derived.
//!
//! A master generates a new `master_replid` whenever it may have lost data: when it starts, and when it is promoted. No
//! master ever reuses one. So a `master_replid` that is read after a command, over the same connection, names the epoch in
//! which the command was executed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use memchr::memmem;
use redis::{Cmd, Value};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::epoch::Epoch;

/// The maximum age of a cached replication id.
pub(super) const FRESH: Duration = Duration::from_secs(1);

/// The length of a `master_replid`.
const LENGTH: usize = 40;

/// The replication id of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplicationId {
    /// The `master_replid` of a master.
    Master([u8; LENGTH]),
    /// The server does not disclose it.
    Hidden,
    /// The server is a replica, and has no epoch of its own.
    Replica,
}

impl ReplicationId {
    /// Returns the command that reads the replication id.
    pub(super) fn command() -> Cmd {
        let mut command = Cmd::with_capacity(2, 15);
        command.arg("INFO").arg("replication");
        command
    }

    /// Reads the response to [`command`](Self::command). An error counts as hidden.
    pub(super) fn read(answer: &Value) -> Self {
        match answer {
            Value::BulkString(bytes) => Self::find(bytes),
            Value::VerbatimString { text, .. } | Value::SimpleString(text) => Self::find(text.as_bytes()),
            _ => Self::Hidden,
        }
    }

    /// Finds the id in the text of the response.
    fn find(text: &[u8]) -> Self {
        let after = |name: &str| memmem::find(text, name.as_bytes()).map(|at| &text[at + name.len()..]);
        if after("role:").is_some_and(|role| role.starts_with(b"slave")) {
            return Self::Replica;
        }
        let id = after("master_replid:").and_then(|rest| rest.first_chunk());
        match id {
            Some(id) if id.iter().all(u8::is_ascii_hexdigit) => Self::Master(*id),
            _ => Self::Hidden,
        }
    }

    /// Returns the epoch that tokens carry; `None` for a replica. Servers that hide their id all have the same epoch. The digest needs
    /// no key: its input is random and cannot be guessed, and a client cannot change the epoch in a signed token.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Master(id) => {
                // A different prefix would make every issued token stale.
                let digest: [u8; 32] = Sha256::new().chain_update(b"onceward reign").chain_update(id).finalize().into();
                digest.first_chunk().copied()
            }
            Self::Hidden => Some(Epoch::default()),
            Self::Replica => None,
        }
    }
}

/// Reads the epoch from the replies over one connection. The epoch of an id is computed once.
#[derive(Default)]
pub(super) struct ReplicationIdReader(Option<(ReplicationId, Option<Epoch>)>);

impl ReplicationIdReader {
    /// Returns the epoch that a reply to `INFO replication` names; `None` for a replica.
    pub(super) fn epoch(&mut self, reply: &[u8]) -> Option<Epoch> {
        let id = ReplicationId::find(reply);
        match self.0 {
            Some((known, epoch)) if known == id => epoch,
            _ => self.0.insert((id, id.epoch())).1,
        }
    }
}

/// The replication id that was last read from a server.
#[derive(Default)]
pub(super) struct ReplicationIdCache {
    seen: RwLock<Option<Observation>>,
    /// True if an epoch is known. Then `epoch` holds it, so that most readers need no lock.
    is_known: AtomicBool,
    epoch: AtomicU64,
}

#[derive(Clone, Copy)]
struct Observation {
    id: ReplicationId,
    epoch: Option<Epoch>,
    at: Instant,
}

impl ReplicationIdCache {
    /// Returns the cached epoch.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.is_known.load(Ordering::Acquire).then(|| self.epoch.load(Ordering::Relaxed).to_ne_bytes())
    }

    /// Returns the cached epoch, if it is recent enough.
    pub(super) fn fresh(&self, within: Duration) -> Option<Epoch> {
        self.seen().filter(|seen| seen.at.elapsed() <= within)?.epoch
    }

    /// Returns the epoch of a replication id, which is usually the cached one; `None` for a replica.
    pub(super) fn epoch_of(&self, id: ReplicationId) -> Option<Epoch> {
        match self.seen() {
            Some(seen) if seen.id == id => seen.epoch,
            _ => id.epoch(),
        }
    }

    /// Caches a replication id that was just read, and returns its epoch.
    pub(super) fn note(&self, id: ReplicationId) -> Option<Epoch> {
        let epoch = match self.seen() {
            Some(seen) if seen.id == id && seen.at.elapsed() < FRESH / 2 => return seen.epoch,
            Some(seen) if seen.id == id => seen.epoch,
            _ => id.epoch(),
        };
        static IS_SAID: AtomicBool = AtomicBool::new(false);
        if id == ReplicationId::Hidden && !IS_SAID.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "this Redis does not disclose its `master_replid` (INFO replication): a used token may be accepted again after a \
                 restart or a failover in which Redis loses data"
            );
        }
        self.set(Some(Observation { id, epoch, at: Instant::now() }));
        epoch
    }

    /// Clears the cache.
    pub(super) fn forget(&self) {
        self.set(None);
    }

    fn seen(&self) -> Option<Observation> {
        *self.seen.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, observation: Option<Observation>) {
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        let epoch = observation.and_then(|seen| seen.epoch);
        // Otherwise the former epoch stays: a reader may be between the two.
        if let Some(epoch) = epoch {
            self.epoch.store(u64::from_ne_bytes(epoch), Ordering::Relaxed);
        }
        self.is_known.store(epoch.is_some(), Ordering::Release);
        *seen = observation;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "8c3a1d0bd5f0d9c6e7a4b1f2039485766f5e4d3c";

    fn info(role: &str, id: &str) -> Value {
        let text = format!("# Replication\r\nrole:{role}\r\nconnected_slaves:0\r\n{id}master_repl_offset:0\r\n");
        Value::BulkString(text.into_bytes())
    }

    #[test]
    fn master_epoch_is_its_replication_id_and_a_replica_has_none() {
        let line = format!("master_replid:{ID}\r\n");
        let id = ReplicationId::read(&info("master", &line));
        assert_eq!(id, ReplicationId::Master(ID.as_bytes().try_into().unwrap()));
        assert!(id.epoch().is_some_and(|epoch| epoch != Epoch::default()));
        assert_eq!(ReplicationId::read(&info("slave", &line)), ReplicationId::Replica);
        assert_eq!(ReplicationId::Replica.epoch(), None);
    }

    #[test]
    fn server_without_replication_id_counts_as_hidden() {
        for hidden in
            [info("master", ""), info("master", "master_replid:?\r\n"), info("master", "master_replid:12"), Value::Nil]
        {
            assert_eq!(ReplicationId::read(&hidden), ReplicationId::Hidden, "{hidden:?}");
        }
        assert_eq!(ReplicationId::Hidden.epoch(), Some(Epoch::default()));
    }

    #[test]
    fn cached_epoch_becomes_stale_and_replicas_have_none() {
        let known = ReplicationIdCache::default();
        assert_eq!((known.epoch(), known.fresh(Duration::MAX)), (None, None));
        let id = ReplicationId::Master([b'a'; LENGTH]);
        let epoch = known.note(id);
        assert!(epoch.is_some());
        assert_eq!((known.epoch(), known.fresh(Duration::MAX), known.epoch_of(id)), (epoch, epoch, epoch));
        let since = Instant::now();
        while since.elapsed().is_zero() {}
        assert!(known.fresh(Duration::ZERO).is_none(), "that was longer ago");
        let other = ReplicationId::Master([b'b'; LENGTH]);
        let next = known.epoch_of(other);
        assert_ne!(next, epoch);
        assert_eq!((known.note(other), known.epoch(), known.epoch_of(id)), (next, next, epoch));
        known.note(ReplicationId::Replica);
        assert_eq!((known.epoch(), known.fresh(Duration::MAX)), (None, None));
        known.note(ReplicationId::Hidden);
        assert_eq!(known.epoch(), Some(Epoch::default()));
        known.forget();
        assert_eq!((known.epoch(), known.fresh(Duration::MAX)), (None, None));
    }

    #[test]
    fn epoch_is_read_from_each_reply() {
        let mut reader = ReplicationIdReader::default();
        let reply = |role: &str, id: char| {
            let id = id.to_string().repeat(LENGTH);
            format!("=99\r\ntxt:# Replication\r\nrole:{role}\r\nmaster_replid:{id}\r\n")
        };
        let epochs = "aabbaa".chars().map(|id| reader.epoch(reply("master", id).as_bytes()));
        let [a, b] = ['a', 'b'].map(|id| ReplicationId::Master([id as u8; LENGTH]).epoch());
        assert_eq!(epochs.collect::<Vec<_>>(), [a, a, b, b, a, a]);
        assert_eq!(reader.epoch(reply("slave", 'a').as_bytes()), None);
        assert_eq!(reader.epoch(b"-NOPERM no permissions\r\n"), Some(Epoch::default()));
    }
}
