//! What a Redis may lose, and the consequences.

use super::probe::Facts;
use super::redis_info::Info;

/// What can be lost: the case, and its consequence.
pub(crate) type Losses = Vec<(&'static str, &'static str)>;

/// What eviction means.
pub(crate) const WHEN_EVICTED: &str = "Then a key that ran may run a second time, an answer that was kept is not given again, \
     and a token that nobody has used is refused as used.";

/// What a takeover means.
pub(crate) const AFTER_A_TAKEOVER: &str = "A replica that takes over may lack the last writes: a key that ran just before may \
     run again. Tokens from before are refused as stale, and callers fetch new ones; none is accepted twice.";

/// What it means that lives of a server cannot be told apart.
pub(crate) const WITHOUT_EPOCHS: &str = "Then tokens are not bound to it, and one that was used may be accepted again after a \
     crash, a restart or a takeover in which this Redis forgets that.";

/// What is said of a loss, as far as it is true of this Redis: where its lives cannot be told apart, nothing is promised of tokens.
pub(crate) fn consequence(loss: &'static str, info: &Info) -> &'static str {
    let of_keys = loss.split_once(" Tokens from before").map_or(loss, |(of_keys, _)| of_keys);
    if info.hides_epoch() { of_keys } else { loss }
}

/// What Redis writes to disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Disk {
    Nothing,
    /// Snapshots, as often as this says, if that may be seen.
    Snapshots(Option<String>),
    /// Everything, when the system likes.
    SomeTime,
    EverySecond,
    /// Everything, before it is answered.
    Always,
    /// Everything, and how soon may not be seen.
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

    /// How it is.
    pub(crate) fn state(&self) -> String {
        match self {
            Self::Nothing => "It writes nothing to disk.".to_owned(),
            Self::Snapshots(Some(save)) => format!("It writes snapshots only (save {save})."),
            Self::Snapshots(None) => {
                "It writes snapshots at most; how often may not be seen (CONFIG GET save).".to_owned()
            }
            Self::SomeTime => "It writes everything to disk, when the system likes (appendfsync no).".to_owned(),
            Self::EverySecond => "It writes everything to disk, every second (appendfsync everysec).".to_owned(),
            Self::Always => "It writes everything to disk before it answers (appendfsync always).".to_owned(),
            Self::Appended => {
                "It writes everything to disk; how soon may not be seen (CONFIG GET appendfsync).".to_owned()
            }
        }
    }

    /// What a crash loses, and what that means.
    pub(crate) fn loses(&self) -> &'static str {
        match self {
            Self::Nothing => {
                "A restart loses every record: a key that ran may run again. Tokens from before are refused as stale, and callers \
                 fetch new ones; none is accepted twice."
            }
            Self::Snapshots(_) => {
                "A crash goes back to the last snapshot: a key that ran since then may run again. Tokens from before the crash are \
                 refused as stale, and callers fetch new ones; none is accepted twice."
            }
            Self::SomeTime => {
                "A crash of the machine loses half a minute or so: a key that ran in it may run again. Tokens from before are \
                 refused as stale; none is accepted twice."
            }
            Self::EverySecond | Self::Appended => {
                "A crash of the machine loses a second or two: a key that ran in them may run again. Tokens from before are \
                 refused as stale; none is accepted twice."
            }
            Self::Always => {
                "A crash loses nothing, unless the disk is lost. Tokens from before are refused as stale all the same."
            }
        }
    }
}

/// What can be lost, case by case.
pub(crate) fn of(facts: &Facts) -> Losses {
    let Some(info) = &facts.info else {
        return vec![
            ("Unknown", "this user may not send INFO, so what a crash loses cannot be told."),
            ("If Redis forgets", WITHOUT_EPOCHS),
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
        losses.push(("If Redis forgets", WITHOUT_EPOCHS));
    }
    losses
}

/// The same for the memory store.
pub(crate) const OF_MEMORY: [(&str, &str); 1] = [(
    "If the service restarts",
    "Every record is lost: a key that ran may run again. Tokens from before are refused as stale, and pages fetch new ones; \
     none is accepted twice.",
)];
