//! The records that a Redis may lose, and the consequences.

use super::probe::Facts;
use super::redis_info::Info;

/// The cases in which records can be lost, each with its consequence.
pub(crate) type Losses = Vec<(&'static str, &'static str)>;

/// The consequence of eviction.
pub(crate) const WHEN_EVICTED: &str = "Then a key that ran may run a second time, a stored response is not replayed, and an unused token \
     is rejected as used.";

/// The consequence of a failover.
pub(crate) const AFTER_A_TAKEOVER: &str = "After a failover, the new master may lack the last writes: a key that ran just before may \
     run again. Tokens from before are rejected as stale, and clients fetch new ones; none is accepted twice.";

/// The consequence of a hidden replication id.
pub(crate) const WITHOUT_EPOCHS: &str = "Then tokens are not bound to an epoch of this Redis, and a used token may be accepted again after \
     a crash, a restart or a failover in which Redis loses data.";

/// Returns the consequence of a loss, as far as it is true of this Redis: without a replication id, nothing is promised about tokens.
pub(crate) fn consequence(loss: &'static str, info: &Info) -> &'static str {
    let of_keys = loss.split_once(" Tokens from before").map_or(loss, |(of_keys, _)| of_keys);
    if info.hides_epoch() { of_keys } else { loss }
}

/// The persistence of Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Disk {
    Nothing,
    /// Snapshots, with the setting `save` if this user may read it.
    Snapshots(Option<String>),
    /// Every write, flushed by the operating system.
    SomeTime,
    EverySecond,
    /// Every write, flushed before the reply.
    Always,
    /// Every write; this user may not read `appendfsync`.
    Appended,
}

impl Disk {
    pub(crate) fn of(info: &Info, facts: &Facts) -> Self {
        match (info.text("aof_enabled"), facts.fsync.as_deref(), facts.snapshots.as_deref()) {
            ("1", Some("always"), _) => Self::Always,
            ("1", Some("everysec"), _) => Self::EverySecond,
            ("1", Some("no"), _) => Self::SomeTime,
            ("1", ..) => Self::Appended,
            (_, _, Some("")) => Self::Nothing,
            (_, _, snapshots) => Self::Snapshots(snapshots.map(str::to_owned)),
        }
    }

    /// Describes the persistence.
    pub(crate) fn state(&self) -> String {
        match self {
            Self::Nothing => "It writes nothing to disk.".to_owned(),
            Self::Snapshots(Some(save)) => format!("It writes snapshots only (save {save})."),
            Self::Snapshots(None) => {
                "It writes snapshots at most; this user may not read how often (CONFIG GET save).".to_owned()
            }
            Self::SomeTime => "It appends every write to a file, flushed by the operating system (appendfsync no).".to_owned(),
            Self::EverySecond => "It appends every write to a file, flushed every second (appendfsync everysec).".to_owned(),
            Self::Always => "It writes everything to disk before it replies (appendfsync always).".to_owned(),
            Self::Appended => {
                "It appends every write to a file; this user may not read how soon it is flushed (CONFIG GET appendfsync)."
                    .to_owned()
            }
        }
    }

    /// Returns the loss after a crash, and its consequence.
    pub(crate) fn loses(&self) -> &'static str {
        match self {
            Self::Nothing => {
                "A restart loses every record: a key that ran may run again. Tokens from before are rejected as stale, and clients \
                 fetch new ones; none is accepted twice."
            }
            Self::Snapshots(_) => {
                "A crash loses the writes since the last snapshot: a key that ran since then may run again. Tokens from before the \
                 crash are rejected as stale, and clients fetch new ones; none is accepted twice."
            }
            Self::SomeTime => {
                "A crash of the machine loses about half a minute of writes: a key that ran in it may run again. Tokens from before are \
                 rejected as stale; none is accepted twice."
            }
            Self::EverySecond | Self::Appended => {
                "A crash of the machine loses a second or two of writes: a key that ran in them may run again. Tokens from before are \
                 rejected as stale; none is accepted twice."
            }
            Self::Always => {
                "A crash loses nothing, unless the disk is lost. Tokens from before are still rejected as stale."
            }
        }
    }
}

/// Returns the possible losses, case by case.
pub(crate) fn of(facts: &Facts) -> Losses {
    let Some(info) = &facts.info else {
        return vec![
            ("Unknown", "This user may not send INFO, so the loss after a crash is unknown."),
            ("If Redis loses data", WITHOUT_EPOCHS),
        ];
    };
    let mut losses = vec![("If Redis or its machine crashes", consequence(Disk::of(info, facts).loses(), info))];
    if info.evicts().is_some() {
        losses.push(("If its memory is used up", WHEN_EVICTED));
    }
    if info.number("connected_slaves").is_some_and(|count| count > 0) {
        losses.push(("If a replica takes over", consequence(AFTER_A_TAKEOVER, info)));
    }
    if info.hides_epoch() {
        losses.push(("If Redis loses data", WITHOUT_EPOCHS));
    }
    losses
}

/// The possible losses of the memory store.
pub(crate) const OF_MEMORY: [(&str, &str); 1] = [(
    "If the service restarts",
    "Every record is lost: a key that ran may run again. Tokens from before are rejected as invalid, or as stale if `secret` is set, \
     and clients fetch new ones; none is accepted twice.",
)];
