//! Which uninterrupted life of a server this is.
//!
//! A master has a `master_replid` that is made anew whenever it may have forgotten something: when it starts, and when it
//! becomes one. No master ever has one again that was another's, or its own before. So whoever looks at it after a command,
//! over the same connection, knows in which life of the server that was done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use memchr::memmem;
use redis::{Cmd, Value};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::epoch::Epoch;

/// How long what is known is believed without being looked at again.
pub(super) const FRESH: Duration = Duration::from_secs(1);

/// How long a `master_replid` is.
const LENGTH: usize = 40;

/// One life of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It is a master, and this is its `master_replid`.
    Of([u8; LENGTH]),
    /// It does not tell.
    Hidden,
    /// It is a replica, and has no life of its own.
    Replica,
}

impl Life {
    /// What asks for it.
    pub(super) fn command() -> Cmd {
        let mut command = Cmd::with_capacity(2, 15);
        command.arg("INFO").arg("replication");
        command
    }

    /// Reads the answer to that. A server that refuses it hides it.
    pub(super) fn read(answer: &Value) -> Self {
        let text = match answer {
            Value::BulkString(bytes) => bytes.as_slice(),
            Value::VerbatimString { text, .. } | Value::SimpleString(text) => text.as_bytes(),
            _ => return Self::Hidden,
        };
        let after = |name: &str| memmem::find(text, name.as_bytes()).map(|at| &text[at + name.len()..]);
        if after("role:").is_some_and(|role| role.starts_with(b"slave")) {
            return Self::Replica;
        }
        let id = after("master_replid:").and_then(|rest| rest.first_chunk());
        match id {
            Some(id) if id.iter().all(u8::is_ascii_hexdigit) => Self::Of(*id),
            _ => Self::Hidden,
        }
    }

    /// What a token says of it. A server that hides it cannot be told from another. The digest needs no key: what it is made of is
    /// random and cannot be guessed, and nobody can change it in a token that is signed.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Of(id) => {
                let digest: [u8; 32] = Sha256::new().chain_update(b"onceward epoch").chain_update(id).finalize().into();
                digest.first_chunk().copied()
            }
            Self::Hidden => Some(Epoch::default()),
            Self::Replica => None,
        }
    }
}

/// What is known of a server's life.
#[derive(Default)]
pub(super) struct Known(RwLock<Option<RecordState>>);

#[derive(Clone, Copy)]
struct RecordState {
    life: Life,
    epoch: Option<Epoch>,
    at: Instant,
}

impl Known {
    /// The life that was last seen, if that is not too long ago.
    pub(super) fn fresh(&self, within: Duration) -> Option<(Life, Epoch)> {
        let seen = (*self.0.read().unwrap_or_else(PoisonError::into_inner))?;
        (seen.at.elapsed() <= within).then_some(seen).and_then(|seen| Some((seen.life, seen.epoch?)))
    }

    /// Notes what was just seen, and gives the epoch that it stands for.
    pub(super) fn note(&self, life: Life) -> Option<Epoch> {
        let before = *self.0.read().unwrap_or_else(PoisonError::into_inner);
        let epoch = match before {
            Some(seen) if seen.life == life && seen.at.elapsed() < FRESH / 2 => return seen.epoch,
            Some(seen) if seen.life == life => seen.epoch,
            _ => life.epoch(),
        };
        static IS_SAID: AtomicBool = AtomicBool::new(false);
        if life == Life::Hidden && !IS_SAID.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "this Redis does not tell its `master_replid` (INFO replication): a token that was used may be good \
                 again after it has lost its memory in a restart or a failover"
            );
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(RecordState { life, epoch, at: Instant::now() });
        epoch
    }

    /// Nothing is known any more.
    pub(super) fn forget(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
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
    fn a_master_s_life_is_its_id_and_a_replica_has_none() {
        let id = format!("master_replid:{ID}\r\n");
        let life = Life::read(&info("master", &id));
        assert_eq!(life, Life::Of(ID.as_bytes().try_into().unwrap()));
        assert!(life.epoch().is_some_and(|epoch| epoch != Epoch::default()));
        assert_eq!(Life::read(&info("slave", &id)), Life::Replica);
        assert_eq!(Life::Replica.epoch(), None);
    }

    #[test]
    fn a_server_that_does_not_tell_hides_it() {
        for hidden in
            [info("master", ""), info("master", "master_replid:?\r\n"), info("master", "master_replid:12"), Value::Nil]
        {
            assert_eq!(Life::read(&hidden), Life::Hidden, "{hidden:?}");
        }
        assert_eq!(Life::Hidden.epoch(), Some(Epoch::default()));
    }

    #[test]
    fn what_is_known_gets_old_and_a_replica_is_known_to_have_no_epoch() {
        let known = Known::default();
        assert!(known.fresh(Duration::MAX).is_none());
        let life = Life::Of([b'a'; LENGTH]);
        let epoch = known.note(life).unwrap();
        assert_eq!(known.fresh(Duration::MAX), Some((life, epoch)));
        let since = Instant::now();
        while since.elapsed().is_zero() {}
        assert!(known.fresh(Duration::ZERO).is_none(), "that was longer ago");
        assert_eq!(known.note(Life::Of([b'b'; LENGTH])), known.fresh(Duration::MAX).map(|(_, epoch)| epoch));
        assert_ne!(known.fresh(Duration::MAX), Some((life, epoch)));
        known.note(Life::Replica);
        assert!(known.fresh(Duration::MAX).is_none());
        known.note(life);
        known.forget();
        assert!(known.fresh(Duration::MAX).is_none());
    }
}
